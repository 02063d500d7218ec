"""`mqttlite config check`: say what is wrong with a configuration file, without running a broker.

What is checked lives in `check`. Invariant: it is the same as `mqttlite serve -c FILE --check`.
"""

import sys

import click

from mqttlite.cli.check import check_config
from mqttlite.cli.serve_flags import Flags


@click.group(name="config", context_settings={"help_option_names": ["--help"]})
def command() -> None:
    """Look at a configuration file."""


@command.command(
    epilog="Exit codes: 0, nothing is wrong; 2, something is.", context_settings={"help_option_names": ["--help"]}
)
@click.argument("file", metavar="FILE.toml")
def check(file: str) -> None:
    """Say everything that is wrong with a file, and what a broker would do with it."""
    sys.exit(check_config(file, Flags()))
