"""The group `mqttlite`, which finds its subcommands by name.

Each subcommand lives in its own file, as a click command named `command`, or in an extension.
Invariant: `mqttlite pub` never pays for importing the broker.
"""

import platform
from collections.abc import Mapping
from typing import Final

import click

from mqttlite.build import VERSION, is_compiled
from mqttlite.extensions.built_in import BUILT_IN, resolve

COMMANDS: Final[Mapping[str, str]] = {
    "serve": "Run the broker.",
    "config": "Check a configuration file.",
    "check": "Explain who may do what, and what is weak.",
    "acl": "Say whether a client may read or write a topic.",
    "pub": "Publish messages.",
    "sub": "Subscribe and print what arrives.",
    "rr": "Publish a request and print its answer.",
    "filter": "Say whether a message passes a filter.",
    "certs": "Make certificates for TLS.",
    "token": "Make, list and revoke API keys.",
    "passwd": "Say who may connect, with which password.",
    "top": "Show what a broker does, live.",
    "health": "Say whether a broker is well.",
    "alarms": "List the alarms that are active.",
    "why": "Say what became of a message.",
    "clients": "List the connected clients, or show one.",
    "kick": "Disconnect clients.",
    "ban": "Keep clients, users or addresses out for a while.",
    "sessions": "List, show or end sessions, and what waits for them.",
    "retained": "List, get or remove retained messages.",
    "topics": "Say what topics are for; list, make or forget those with an owner.",
    "asyncapi": "Print the topics as an AsyncAPI document.",
    "backup": "Copy what a broker keeps on disk to a file.",
    "restore": "Put a backup into a data directory.",
    **{name: command.summary for each in BUILT_IN.values() for name, command in each.commands.items()},
}


def reference_of(name: str) -> str:
    """The module and attribute of a command."""
    for each in BUILT_IN.values():
        if name in each.commands:
            return each.commands[name].reference
    return f"mqttlite.cli.{name}:command"


class LazyGroup(click.Group):
    """A group whose commands are modules of this package, or named by the manifest of an extension."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = resolve(reference_of(cmd_name))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, so that --help loads none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def build() -> str:
    """The version and whether the core runs compiled, as --version and the start-up banner say it."""
    kind = "compiled" if is_compiled() else "pure Python"
    return f"mqttlite {VERSION} ({kind}, {platform.python_implementation()} {platform.python_version()})"


def _show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(build())
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def main() -> None:
    """mqttlite: an MQTT 3.1.1 and 5.0 broker, and the tools to talk to one.

    'mqttlite COMMAND --help' explains a command and its exit codes.
    """
