"""`mqttlite bridge`: the bridges of a running broker: list, look at, add, remove, pause and resume them.

What is asked is in `ask_admin`. Invariant: `ls` and `show` change nothing.
"""

import tomllib
from typing import Any, Final

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    confirm,
    print_answer,
    print_entries,
    print_json,
    print_sentence,
    print_table,
    remote_options,
    yes_option,
)
from mqttlite.cli.listing_group import ListingGroup

_HEADER: Final = ("NAME", "STATE", "ADDRESS", "WAITING", "SENT", "RECEIVED", "DROPPED", "REASON")
_TOPICS: Final = ("DIRECTION", "QOS", "HERE", "THERE", "RETAINED", "FILTER")


@click.group(cls=ListingGroup)
def command() -> None:
    """List, look at, add, remove, pause or resume bridges to other brokers.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@remote_options
def list_bridges(as_json: bool, client: Asker) -> None:
    """List the bridges with their states, and the messages that wait for the other broker."""
    found = client.ask("GET", "bridges")
    print_answer(found, as_json, lambda: print_entries(_HEADER, found["items"], _row))


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


@command.command("add", epilog=f"{EPILOG}  4  there is a bridge of that name, or too many\n")
@click.argument("file", type=click.Path(allow_dash=True))
@remote_options
def add(file: str, as_json: bool, client: Asker) -> None:
    """Add the bridges in FILE, a TOML file with sections [[bridges]] as in the configuration; - is standard input.

    The broker keeps them, also over a restart. Files that they name are on the machine of the broker.
    """
    found = [client.ask("POST", "bridges", body=each) for each in _sections(file)]
    if as_json:
        print_json(found)
        return
    for each in found:
        _say(each)


@command.command("rm", epilog=f"{EPILOG}  4  it is in the configuration\n")
@click.argument("name")
@yes_option
@remote_options
def remove(name: str, yes: bool, as_json: bool, client: Asker) -> None:
    """Remove the bridge NAME, which was added with `add`, and drop the messages that wait in it."""
    if not yes:
        confirm(f"Remove the bridge {name} with the messages that wait in it?")
    found = client.ask("DELETE", "bridges", name)
    print_sentence(found, as_json, f"Removed: bridge {name}.")


def _sections(file: str) -> list[dict[str, Any]]:
    """The sections `[[bridges]]` of a file."""
    try:
        with click.open_file(file, "rb") as opened:
            found = tomllib.load(opened)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} is no TOML: {error}") from None
    sections = found.pop("bridges", [])
    is_right = isinstance(sections, list) and all(isinstance(each, dict) for each in sections)
    if found or not sections or not is_right:
        raise click.ClickException(f"{file} has {', '.join(found) or 'none'}: sections [[bridges]] are meant")
    return list(sections)


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
    print_answer(found, as_json, lambda: _say(found))


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
