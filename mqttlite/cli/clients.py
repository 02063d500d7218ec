"""`mqttlite clients`: the clients that are connected to a running broker: list them, or look at one.

`mqttlite sessions` is about what the broker keeps for clients, also for those that are away. The requests are in
`ask_admin`.
"""

from typing import Any, Final

import click

from mqttlite.cli.ask_admin import EPILOG, Asker, limit_option, print_page, remote_options, time_of
from mqttlite.cli.listing_group import ListingGroup
from mqttlite.cli.sessions import show

_HEADER: Final = ("CLIENT", "USER", "FROM", "LISTENER", "PROTOCOL", "SINCE", "QUEUED")


@click.group(cls=ListingGroup)
def command() -> None:
    """List the connected clients of a running broker, or show one.

    'mqttlite kick' disconnects one, 'mqttlite ban' keeps one out, and 'mqttlite sessions' is about those that are away,
    too.
    """


@command.command("ls", epilog=EPILOG)
@click.option("--contains", metavar="TEXT", help="Only clients whose identifier contains this.")
@click.option("--user", metavar="NAME", help="Only clients of this user.")
@click.option(
    "--backlog/--no-backlog", "backlog", default=None, help="Only clients for which messages wait, or do not."
)
@limit_option(100)
@remote_options
def list_clients(
    contains: str | None, user: str | None, backlog: bool | None, limit: int, as_json: bool, client: Asker
) -> None:
    """List connected clients by client identifier: whose they are, from where, and what waits for them.

    On a terminal it is a table; elsewhere each client is a line, and tabs are between its columns.
    """
    found = client.page("clients", limit=limit, contains=contains, user=user, backlog=backlog, connected=True)
    print_page(found, as_json, limit, _HEADER, _row)


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    return (
        *(entry["client_id"], entry["username"] or "-", entry["peer"], entry["listener"], entry["protocol_version"]),
        *(time_of(entry["connected_at"]), entry["queued"]),
    )


command.add_command(show)
