"""`mqttlite kick`: disconnects clients of a running broker.

The requests are in `ask_admin`. Invariant: a client that is not connected keeps no other from being disconnected.
"""

import sys

import click

from mqttlite.cli.ask_admin import EPILOG, Asker, NotFound, counted, note, print_json, remote_options


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["--help"]})
@click.argument("client_ids", metavar="CLIENT_ID...", nargs=-1, required=True)
@remote_options
def command(client_ids: tuple[str, ...], as_json: bool, client: Asker) -> None:
    """Disconnect clients (0x98). Their sessions stay, and they may come again: 'mqttlite ban' keeps them out."""
    kicked: list[str] = []
    missing: list[str] = []
    for client_id in dict.fromkeys(client_ids):
        try:
            client.ask("POST", "clients", client_id, "disconnect")
            kicked.append(client_id)
        except NotFound as error:
            missing.append(client_id)
            note(f"Error: {error.message}")
    if as_json:
        print_json({"disconnected": kicked, "not_connected": missing})
    else:
        click.echo(f"{counted(len(kicked), 'client')} disconnected.")
    if missing:
        sys.exit(NotFound.exit_code)
