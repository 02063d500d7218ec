"""`mqttlite ban`: clients, users and addresses that a running broker keeps out for a while.

The requests are in `ask_admin`. Invariant: a ban has an end.
"""

import re
from typing import Any, Final

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    NotFound,
    counted,
    print_answer,
    print_entries,
    print_sentence,
    remote_options,
    time_of,
)
from mqttlite.cli.listing_group import ListingGroup

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_HEADER: Final = ("ID", "KIND", "WHO", "UNTIL", "BY", "REASON")


def _duration(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    """Seconds."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", value)
    if found is None:
        raise click.BadParameter(f"{value!r}: write a number and s, m, h or d, such as 10m")
    return int(found[1]) * _UNITS[found[2]]


@click.group(cls=ListingGroup)
def command() -> None:
    """Keep clients, users or addresses out for a while.

    Bans are in the broker's memory: a restart lifts them. Those of several nodes hold at all of them, until they end.
    """


@command.command("add", epilog=EPILOG)
@click.option("--client", "client_id", metavar="ID", help="Ban a client identifier …")
@click.option("--user", metavar="NAME", help="… or a user …")
@click.option("--address", metavar="IP", help="… or an address.")
@click.option(
    "--for",
    "duration_s",
    metavar="TIME",
    default="1h",
    show_default=True,
    callback=_duration,
    help="How long, such as 30s, 10m, 12h or 7d; a year at most.",
)
@click.option("--reason", default="", metavar="TEXT", help="Why; the client is told.")
@remote_options
def add(
    client_id: str | None,
    user: str | None,
    address: str | None,
    duration_s: int,
    reason: str,
    as_json: bool,
    client: Asker,
) -> None:
    """Disconnect a client, a user's clients or those of an address, and refuse them (0x8A) until the ban ends."""
    kind, value = _named(client_id, user, address)
    body = {"kind": kind, "value": value, "duration_s": duration_s, "reason": reason}
    found = client.ask("POST", "bans", body=body)
    ban = found["ban"]
    closed = counted(found["disconnected"], "client")
    here = "" if not ban["alone"] else " At this node alone until NATS answers."
    whom = f"the {ban['kind']} {ban['value']} until {time_of(ban['until'])}"
    print_sentence(found, as_json, f"Ban {ban['id']}: {whom}; {closed} disconnected.{here}")


@command.command("ls", epilog=EPILOG)
@remote_options
def list_bans(as_json: bool, client: Asker) -> None:
    """List the bans that have not ended."""
    found = client.whole("bans")
    print_answer(found, as_json, lambda: print_entries(_HEADER, found["entries"], _row))


def _row(ban: dict[str, Any]) -> tuple[object, ...]:
    return ban["id"], ban["kind"], ban["value"], time_of(ban["until"]), ban["by"], ban["reason"]


@command.command("rm", epilog=EPILOG)
@click.argument("ban_id", metavar="[ID]", type=int, required=False)
@click.option("--client", "client_id", metavar="ID", help="Lift that of a client identifier …")
@click.option("--user", metavar="NAME", help="… or of a user …")
@click.option("--address", metavar="IP", help="… or of an address.")
@remote_options
def remove(
    ban_id: int | None, client_id: str | None, user: str | None, address: str | None, as_json: bool, client: Asker
) -> None:
    """Lift a ban, by the number that ls shows, or by whom it keeps out.

    With several nodes, it is lifted at all of them.
    """
    if ban_id is not None:
        if (client_id, user, address) != (None, None, None):
            raise click.UsageError("name the number of a ban, or whom it keeps out")
        client.ask("DELETE", "bans", str(ban_id))
        what, said = {"lifted": ban_id}, f"Ban {ban_id} was lifted."
    else:
        kind, value = _named(client_id, user, address)
        found = client.ask("DELETE", "bans", kind=kind, value=value)
        if not found["lifted"]:
            raise NotFound(f"There is no ban of the {kind} {value}.")
        what, said = found, f"The ban of the {kind} {value} was lifted."
    print_sentence(what, as_json, said)


def _named(client_id: str | None, user: str | None, address: str | None) -> tuple[str, str]:
    """The kind of a ban, and whom it keeps out."""
    given = {"client": client_id, "user": user, "address": address}
    named = [(kind, value) for kind, value in given.items() if value is not None]
    if len(named) != 1:
        raise click.UsageError("name one of --client, --user and --address")
    return named[0]
