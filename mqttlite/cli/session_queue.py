"""`mqttlite sessions peek` and `purge`: the messages that wait for one client: look at the first, or drop all.

The requests are in `ask_admin`. Invariant: looking changes nothing.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    counted,
    note,
    print_answer,
    print_sentence,
    print_table,
    remote_options,
    time_of,
)
from mqttlite.cli.asker import PAGE

_HEADER: Final = ("SEQUENCE", "MESSAGE-ID", "PUBLISHED", "QOS", "BYTES", "EXPIRES", "TOPIC", "PAYLOAD")

PREVIEW: Final = 60
"""Characters of a payload that a terminal shows."""


@click.command("peek", epilog=EPILOG)
@click.argument("client_id", metavar="CLIENT_ID")
@click.option(
    "--limit", type=click.IntRange(1, PAGE), metavar="N", default=10, show_default=True, help="How many to show."
)
@remote_options
def peek(client_id: str, limit: int, as_json: bool, client: Asker) -> None:
    """Show the first messages that wait for a client and were never sent to it; they stay where they are."""
    answer = client.ask("GET", "clients", client_id, "queue", limit=limit)
    found = {"messages": answer["items"], "waiting": answer["waiting"]}
    print_answer(found, as_json, lambda: print_table(_HEADER, [tuple(_row(each)) for each in found["messages"]]))
    more = found["waiting"] - len(found["messages"])
    if more and not as_json:
        note(f"{counted(more, 'more message')} {'waits' if more == 1 else 'wait'}.")


@click.command("purge", epilog=EPILOG)
@click.argument("client_id", metavar="CLIENT_ID")
@click.option("--dry-run", is_flag=True, help="Only say how many messages it would drop.")
@remote_options
def purge(client_id: str, dry_run: bool, as_json: bool, client: Asker) -> None:
    """Drop the messages that wait for a client and were never sent to it.

    Their publishers have an acknowledgement: each counts as dropped, with the reason purged.
    """
    found = client.remove("clients", client_id, "queue", dry_run=dry_run)
    at_least = "" if found["complete"] else "at least "
    how_many = counted(found["messages"], "message")
    print_sentence(found, as_json, f"Would drop {at_least}{how_many}." if dry_run else f"{how_many} dropped.")
    if not (as_json or dry_run or found["complete"]):
        note("More messages came meanwhile.")


def _row(message: dict[str, Any]) -> Iterator[object]:
    yield message["sequence"]
    yield message["message_id"]
    yield time_of(message["published_at"])
    yield message["qos"]
    yield message["payload_bytes"]
    yield time_of(message["expires_at"])
    yield message["topic"]
    yield preview(message)


def preview(message: dict[str, Any]) -> str:
    """The payload of an answer, as far as a terminal shows it."""
    payload: str = message["payload"]
    if message["payload_encoding"] == "base64":
        payload = f"base64:{payload}"
    return payload[:PREVIEW] + "…" if sys.stdout.isatty() and len(payload) > PREVIEW else payload
