"""`mqttlite delayed`: the messages that a running broker publishes later: list them, or cancel some.

What is asked is in `ask_admin`. Invariant: a message that is not there keeps no other from being cancelled.
"""

import sys
from typing import Any

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    NotFound,
    ask_each,
    counted,
    limit_option,
    print_page,
    print_sentence,
    remote_options,
    time_of,
)
from mqttlite.cli.listing_group import ListingGroup

_HEADER = ("NUMBER", "DUE", "QOS", "BYTES", "TOPIC")


@click.group(cls=ListingGroup)
def command() -> None:
    """List or cancel the messages that were published to $delayed/..., and that a running broker publishes later.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@limit_option(100)
@remote_options
def list_delayed(limit: int, as_json: bool, client: Asker) -> None:
    """List delayed messages by number, with the time when they are due.

    On a terminal it is a table; elsewhere each message is a line, and tabs are between its columns.
    """
    found = client.page("delayed", limit=limit)
    print_page(found, as_json, limit, _HEADER, _row)


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    return entry["number"], time_of(entry["due_at"]), entry["qos"], entry["payload_bytes"], entry["topic"]


@command.command("cancel", epilog=EPILOG)
@click.argument("numbers", metavar="NUMBER...", nargs=-1, required=True, type=click.IntRange(0))
@remote_options
def cancel(numbers: tuple[int, ...], as_json: bool, client: Asker) -> None:
    """Drop delayed messages by the numbers that ls shows; each counts as dropped, with the reason purged."""
    cancelled, missing = ask_each(numbers, lambda each: client.ask("DELETE", "delayed", str(each)))
    print_sentence(
        {"cancelled": cancelled, "not_found": missing}, as_json, f"{counted(len(cancelled), 'message')} cancelled."
    )
    if missing:
        sys.exit(NotFound.exit_code)
