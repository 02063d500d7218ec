"""`mqttlite dlq`: the dead letters of the queues of a running broker: list, show, replay and drop them.

What is asked is in `ask_admin`. Invariant: `ls`, `show` and `--dry-run` change nothing.
"""

from operator import itemgetter
from typing import Any, Final

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    EVERYTHING,
    Asker,
    counted,
    limit_option,
    print_answer,
    print_entries,
    print_page,
    print_table,
    remote_options,
)
from mqttlite.cli.listing_group import ListingGroup

_QUEUES: Final = ("QUEUE", "DEAD-LETTERS", "SINCE-START")
_HEADER: Final = ("NUMBER", "MESSAGE-ID", "CAUSE", "ATTEMPTS", "LAST-DELIVERY", "BYTES", "TOPIC")

_filter_option: Final = click.option(
    "--filter",
    "expression",
    metavar="EXPRESSION",
    help='Only those that pass this filter, as in: payload.total > 1000, or attributes.dead-letter-cause = "nacked".',
)
_dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Only say how many it would be.")


@click.group(cls=ListingGroup)
def command() -> None:
    """List, show, replay or drop dead letters: messages that a queue could not deliver.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@click.argument("queue", required=False)
@_filter_option
@limit_option(100)
@remote_options
def list_letters(queue: str | None, expression: str | None, limit: int, as_json: bool, client: Asker) -> None:
    """List the dead letters of QUEUE, the oldest first; without QUEUE how many each queue has."""
    if queue is None:
        found = client.page("dead-letters", limit=EVERYTHING)
        row = itemgetter("name", "dead_letters", "dead_letters_total")
        print_answer(found, as_json, lambda: print_entries(_QUEUES, found["entries"], row))
        return
    found = client.page("dead-letters", queue, limit=limit, filter=expression)
    print_page(found, as_json, limit, _HEADER, _row)


@command.command("show", epilog=EPILOG)
@click.argument("queue")
@click.argument("number", type=click.IntRange(0))
@remote_options
def show(queue: str, number: int, as_json: bool, client: Asker) -> None:
    """Show a dead letter by the number that ls shows."""
    found = client.ask("GET", "dead-letters", queue, str(number))
    rows = [(key, value) for key, value in found.items() if key != "user_properties"]
    rows += [(f"property {key}", value) for key, value in found["user_properties"]]
    print_answer(found, as_json, lambda: print_table(("WHAT", "VALUE"), rows))


@command.command("replay", epilog=EPILOG)
@click.argument("queue")
@click.argument("number", required=False, type=click.IntRange(0))
@_filter_option
@click.option("--rate", type=click.IntRange(1, 10_000), metavar="N", help="Replay at most N a second.")
@_dry_run_option
@remote_options
def replay(
    queue: str,
    number: int | None,
    expression: str | None,
    rate: int | None,
    dry_run: bool,
    as_json: bool,
    client: Asker,
) -> None:
    """Put dead letters back into their queue, with a new first attempt: all, those that match, or one by its NUMBER.

    They keep their message-id. Other subscribers of their topics do not get them again.
    """
    found = client.ask(
        "POST", "dead-letters", queue, "replay", number=number, filter=expression, rate=rate, dry_run=dry_run
    )
    _tell(found, as_json, "replay", "replayed", dry_run)


@command.command("drop", epilog=EPILOG)
@click.argument("queue")
@click.argument("number", required=False, type=click.IntRange(0))
@_filter_option
@_dry_run_option
@remote_options
def drop(
    queue: str,
    number: int | None,
    expression: str | None,
    dry_run: bool,
    as_json: bool,
    client: Asker,
) -> None:
    """Drop dead letters: all, those that match, or one by its NUMBER."""
    found = client.ask("DELETE", "dead-letters", queue, number=number, filter=expression, dry_run=dry_run)
    _tell(found, as_json, "drop", "dropped", dry_run)


def _tell(found: dict[str, Any], as_json: bool, verb: str, done: str, dry_run: bool) -> None:
    how_many = counted(found["messages"], "dead letter")
    print_answer(found, as_json, lambda: click.echo(f"Would {verb} {how_many}." if dry_run else f"{how_many} {done}."))


def _row(each: dict[str, Any]) -> tuple[object, ...]:
    return (
        each["number"],
        each["message_id"],
        each["cause"],
        each["attempts"],
        each["last_delivery_time"] or "-",
        each["payload_bytes"],
        each["topic"],
    )
