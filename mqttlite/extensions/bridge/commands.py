"""`mqttlite bridge`: the bridges of a running broker: list, look at, pause and resume them.

What is asked is in `ask_admin`. Invariant: `ls` and `show` change nothing.
"""

from typing import Any, Final

import click

from mqttlite.cli.ask_admin import EPILOG, Asker, print_json, print_table, remote_options
from mqttlite.cli.listing_group import ListingGroup

_HEADER: Final = ("NAME", "STATE", "ADDRESS", "WAITING", "SENT", "RECEIVED", "DROPPED", "REASON")
_TOPICS: Final = ("DIRECTION", "QOS", "HERE", "THERE", "RETAINED", "FILTER")


@click.group(cls=ListingGroup, context_settings={"help_option_names": ["--help"]})
def command() -> None:
    """List, look at, pause or resume bridges to other brokers.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@remote_options
def list_bridges(as_json: bool, client: Asker) -> None:
    """List the bridges with their states, and the messages that wait for the other broker."""
    found = client.ask("GET", "bridges")
    if as_json:
        print_json(found)
        return
    print_table(_HEADER, [_row(each) for each in found["items"]])


@command.command("show", epilog=EPILOG)
@click.argument("name")
@remote_options
def show(name: str, as_json: bool, client: Asker) -> None:
    """Show the bridge NAME with its topics."""
    found = client.ask("GET", "bridges", name)
    if as_json:
        print_json(found)
        return
    _say(found)
    rows = [
        (
            *(each["direction"], each["qos"], each["local_prefix"] + each["pattern"]),
            *(each["remote_prefix"] + each["pattern"], "yes" if each["retained"] else "no"),
            each["filter"] or "-",
        )
        for each in found["topics"]
    ]
    print_table(_TOPICS, rows)


@command.command("pause", epilog=EPILOG)
@click.argument("name")
@remote_options
def pause(name: str, as_json: bool, client: Asker) -> None:
    """Disconnect the bridge NAME until it is resumed, or the broker starts again. Messages wait on both sides."""
    _change("pause", name, as_json, client)


@command.command("resume", epilog=EPILOG)
@click.argument("name")
@remote_options
def resume(name: str, as_json: bool, client: Asker) -> None:
    """Connect the bridge NAME now, also if it waits for its next attempt."""
    _change("resume", name, as_json, client)


def _change(action: str, name: str, as_json: bool, client: Asker) -> None:
    found = client.ask("POST", "bridges", name, action)
    if as_json:
        print_json(found)
    else:
        _say(found)


def _say(bridge: dict[str, Any]) -> None:
    """Its state in a sentence or two."""
    where = f" to {bridge['address']}" if bridge["address"] else ""
    click.echo(
        f"Bridge {bridge['name']} is {bridge['state']}{where} since {bridge['since']}. {bridge['reason']}".rstrip()
    )
    counts = f"{bridge['sent']} were sent and {bridge['received']} received"
    click.echo(f"{bridge['waiting']} messages wait for the other broker; {counts}.")
    if bridge["filtered"]:
        click.echo(f"{bridge['filtered']} of the received did not pass a filter.")
    for reason, count in bridge["dropped"].items():
        click.echo(f"{count} were dropped: {reason}.")


def _row(bridge: dict[str, Any]) -> tuple[object, ...]:
    dropped = sum(bridge["dropped"].values())
    counts = (bridge["waiting"], bridge["sent"], bridge["received"], dropped)
    return (bridge["name"], bridge["state"], bridge["address"] or "-", *counts, bridge["reason"] or "-")
