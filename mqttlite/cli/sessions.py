"""`mqttlite sessions`: the sessions of a running broker: list them, look at one and what waits for it, end some.

The requests are in `ask_admin`. Invariant: a session that is not there keeps no other from being ended.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

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
from mqttlite.cli.session_queue import peek, purge
from mqttlite.cli.top_words import printable

_HEADER: Final = ("CLIENT", "STATE", "SUBSCRIPTIONS", "QUEUED", "UNACKNOWLEDGED", "ENDS")


@click.group(cls=ListingGroup)
def command() -> None:
    """List, show or end the sessions of a running broker, also those of offline clients.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


command.add_command(peek)
command.add_command(purge)


@command.command("ls", epilog=EPILOG)
@click.option("--contains", metavar="TEXT", help="Only clients whose identifier contains this.")
@click.option("--connected/--offline", "connected", default=None, help="Only clients that are connected, or are not.")
@limit_option(100)
@remote_options
def list_sessions(contains: str | None, connected: bool | None, limit: int, as_json: bool, client: Asker) -> None:
    """List sessions by client identifier, with what waits for them and when they end.

    On a terminal it is a table; elsewhere each session is a line, and tabs are between its columns.
    """
    found = client.page("clients", limit=limit, contains=contains, connected=connected)
    print_page(found, as_json, limit, _HEADER, _row)


@command.command("show", epilog=EPILOG)
@click.argument("client_id", metavar="CLIENT_ID")
@remote_options
def show(client_id: str, as_json: bool, client: Asker) -> None:
    """Show one session: its connection, queue, drops and subscriptions."""
    found = client.ask("GET", "clients", client_id)
    lines = (f"{name}\t{printable(value, sys.maxsize)}".expandtabs(18) for name, value in _details(found))
    print_sentence(found, as_json, "\n".join(lines))


@command.command("rm", epilog=EPILOG)
@click.argument("client_ids", metavar="CLIENT_ID...", nargs=-1, required=True)
@remote_options
def remove(client_ids: tuple[str, ...], as_json: bool, client: Asker) -> None:
    """End sessions: the broker closes the connection, and forgets subscriptions and queued messages."""
    ended, missing = ask_each(client_ids, lambda each: client.ask("DELETE", "clients", each, "session"))
    print_sentence({"ended": ended, "not_found": missing}, as_json, f"{counted(len(ended), 'session')} ended.")
    if missing:
        sys.exit(NotFound.exit_code)


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    return (
        entry["client_id"],
        "connected" if entry["connected"] else "offline",
        entry["subscriptions"],
        entry["queued"],
        entry["inflight"],
        time_of(entry["session_ends_at"]),
    )


def _tls(found: dict[str, Any]) -> str:
    """The TLS of a connection, in words."""
    if found["tls_version"] is None:
        return "no TLS"
    words = " ".join(filter(None, (found["tls_version"], found["tls_cipher"])))
    if not found["tls_ends_at_proxy"]:
        return words
    name = found["proxied_certificate_name"]
    verified = "verified" if found["proxied_certificate_verified"] else "not verified"
    certificate = f", certificate {name!r} ({verified})" if name else ""
    return f"{words} with the proxy{certificate}"


def _details(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    entry = found["entry"]
    yield "client", entry["client_id"]
    if "node" in found:
        yield "node", found["node"]
    yield "state", "connected" if entry["connected"] else "offline"
    if entry["connected"]:
        yield "from", f"{entry['peer']} on {entry['listener']}"
        yield "since", time_of(entry["connected_at"])
        yield "protocol", f"MQTT {entry['protocol_version']}, {_tls(found)}"
        yield "user", entry["username"] or "-"
    expiry = found["session_expiry_s"]
    yield "expiry interval", "never expires" if expiry is None else f"{expiry} s"
    yield "ends", time_of(entry["session_ends_at"])
    yield "queued", f"{counted(entry['queued'], 'message')}, {found['queued_bytes']} bytes"
    yield "unacknowledged", counted(entry["inflight"], "message")
    for reason, messages in sorted(found["drops"].items()):
        yield "dropped", f"{counted(messages, 'message')}: {reason}"
    for each in found["subscriptions"]:
        where = found["message_filters"].get(each["topic_filter"])
        since = "" if each["subscribed_at"] is None else f", since {time_of(each['subscribed_at'])}"
        what = f"QoS {each['qos']}{since}{'' if where is None else f', where {where}'}"
        yield "subscription", f"{each['topic_filter']} ({what})"
    if entry["subscriptions"] > len(found["topic_filters"]):
        yield "subscription", f"… and {entry['subscriptions'] - len(found['topic_filters'])} more"
