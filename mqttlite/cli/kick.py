"""`mqttlite kick`: disconnects clients of a running broker.

The requests are in `ask_admin`. Invariant: a client that is not connected keeps no other from being disconnected.
"""

import sys

import click

from mqttlite.cli.ask_admin import EPILOG, Asker, NotFound, ask_each, counted, print_sentence, remote_options


@click.command(epilog=EPILOG)
@click.argument("client_ids", metavar="CLIENT_ID...", nargs=-1, required=True)
@remote_options
def command(client_ids: tuple[str, ...], as_json: bool, client: Asker) -> None:
    """Disconnect clients (0x98). Their sessions stay, and they may come again: 'mqttlite ban' keeps them out."""
    kicked, missing = ask_each(client_ids, lambda each: client.ask("POST", "clients", each, "disconnect"))
    print_sentence(
        {"disconnected": kicked, "not_connected": missing}, as_json, f"{counted(len(kicked), 'client')} disconnected."
    )
    if missing:
        sys.exit(NotFound.exit_code)
