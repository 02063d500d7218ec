"""`mqttlite config check` and `config default`: a configuration file, without running a broker.

The checks live in `check`. Invariant: it is the same as `mqttlite serve -c FILE --check`.
"""

import sys

import click

from mqttlite.cli.check import check_config
from mqttlite.cli.serve_flags import Flags
from mqttlite.config.default_file import default_file


@click.group(name="config")
def command() -> None:
    """Look at a configuration file."""


@command.command(epilog="Exit codes: 0, nothing is wrong; 2, something is.")
@click.argument("file", metavar="FILE.toml")
def check(file: str) -> None:
    """Say everything that is wrong with a file, and what a broker would do with it."""
    sys.exit(check_config(file, Flags()))


@command.command()
def default() -> None:
    """Print a file with every option, its default, and what it is for."""
    click.echo(default_file(), nl=False)
