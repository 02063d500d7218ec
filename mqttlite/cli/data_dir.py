"""`--data-dir` of the commands that work with the files of a broker."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def _chosen(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Path:
    if value == "":
        raise click.BadParameter("it names no folder")
    if value is not None:
        return Path(value)
    from mqttlite.config.data_dir import default_data_dir  # here, for it takes a while

    return default_data_dir(os.environ)


def data_dir_option(function: Command) -> Command:
    """Adds `--data-dir` to a command."""
    return click.option(
        "--data-dir",
        metavar="DIR",
        callback=_chosen,
        help="The data directory of the broker.  [default: as 'mqttlite serve']",
    )(function)
