"""`mqttlite nodes`: the other nodes, as a running broker sees them."""

from typing import Final

import click

from mqttlite.cli.ask_admin import EPILOG, Asker, print_json, print_table, remote_options
from mqttlite.cli.listing_group import ListingGroup

_HEADER: Final = ("NODE", "STATE", "FILTERS", "WAITING", "SENT", "RECEIVED", "PASSED ON", "REASON")


@click.group(cls=ListingGroup, context_settings={"help_option_names": ["--help"]})
def command() -> None:
    """Look at the nodes of which a running broker is one.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@remote_options
def list_nodes(as_json: bool, client: Asker) -> None:
    """List the other nodes: whether each is connected, the topic filters that are subscribed there, the messages that
    wait for it, the bytes sent and received, and the clients here whose sessions are there."""
    found = client.ask("GET", "nodes")
    if as_json:
        print_json(found)
        return
    rows = [
        (
            *(each["name"], each["state"], each["filters"], each["waiting"]),
            *(each["sent_bytes"], each["received_bytes"], each["passed_on"], each["reason"] or "-"),
        )
        for each in found["items"]
    ]
    print_table(_HEADER, rows)
