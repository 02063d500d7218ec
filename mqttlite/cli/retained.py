"""`mqttlite retained`: the retained messages of a running broker: list or remove those that a filter matches, get one.

The requests are in `ask_admin`. Invariant: to remove, a filter must be named.
"""

from typing import Any

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    counted,
    limit_option,
    note,
    print_page,
    print_sentence,
    remote_options,
    time_of,
)
from mqttlite.cli.listing_group import ListingGroup


@click.group(cls=ListingGroup)
def command() -> None:
    """List, get or remove the retained messages of a running broker.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@click.argument("topic_filter", metavar="[FILTER]", default="#")
@limit_option(100)
@remote_options
def list_retained(topic_filter: str, limit: int, as_json: bool, client: Asker) -> None:
    """List the retained messages that a topic filter matches, by topic; without a filter, all.

    On a terminal it is a table; elsewhere each message is a line, and tabs are between its columns.
    """
    found = client.page("retained", limit=limit, filter=topic_filter)
    print_page(found, as_json, limit, ("TOPIC", "PUBLISHED", "QOS", "BYTES"), _row)


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    return entry["topic"], time_of(entry["published_at"]), entry["qos"], entry["payload_bytes"]


@command.command("get", epilog=EPILOG)
@click.argument("topic", metavar="TOPIC")
@remote_options
def get(topic: str, as_json: bool, client: Asker) -> None:
    """Print the payload of the message that is retained on a topic: unchanged if it is text, else in base64."""
    found = client.ask("GET", "retained", "message", topic=topic)
    print_sentence(found, as_json, found["payload"])


@command.command("rm", epilog=EPILOG)
@click.argument("topic_filter", metavar="FILTER")
@click.option("--dry-run", is_flag=True, help="Only say how many messages it would remove.")
@remote_options
def remove(topic_filter: str, dry_run: bool, as_json: bool, client: Asker) -> None:
    """Remove the retained messages that a topic filter matches.

    Subscribers get the empty message with which a client removes one.
    """
    found = client.remove("retained", dry_run=dry_run, filter=topic_filter)
    at_least = "" if found["complete"] else "at least "
    how_many = counted(found["messages"], "retained message")
    print_sentence(found, as_json, f"Would remove {at_least}{how_many}." if dry_run else f"{how_many} removed.")
    if not (as_json or dry_run or found["complete"]):
        note("More were retained meanwhile.")
