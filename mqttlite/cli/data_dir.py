"""`-c` and `--data-dir` of the commands that work with the files of a broker."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from mqttlite.cli.asker import WrongUsage


def data_dir_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `-c` and `--data-dir` to a command, which gets the folder as `data_dir`."""

    @wraps(function)
    def with_data_dir(*, config_path: str | None, data_dir: str | None, **others: Any) -> Any:
        return function(data_dir=chosen(config_path, data_dir), **others)

    return data_dir_options(with_data_dir)


def data_dir_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `-c`, as `config_path`, and `--data-dir`, as `data_dir`."""
    config = click.option(
        "-c", "--config", "config_path", metavar="FILE.toml", help="Find the data directory in the broker's file."
    )
    data_dir = click.option(
        "--data-dir", metavar="DIR", help="The data directory of the broker.  [default: as 'mqttlite serve']"
    )
    return config(data_dir(function))


def chosen(config_path: str | None, data_dir: str | None) -> Path:
    """The data directory of a broker. Raises `WrongUsage`."""
    from mqttlite.config.data_dir import default_data_dir  # here, for it takes a while

    if config_path is not None:
        if data_dir is not None:
            raise WrongUsage("-c and --data-dir each name a broker: give one of them.")
        data_dir = data_dir_of(config_path)
    if data_dir == "":
        raise WrongUsage("--data-dir names no folder.")
    return default_data_dir(os.environ) if data_dir is None else Path(data_dir)


def data_dir_of(config_path: str) -> str | None:
    """The data directory of a configuration; None for the default. Raises `WrongUsage`."""
    from mqttlite.config import ConfigError, load_config  # here, for it imports the broker

    try:
        data_dir = load_config(config_path).data_dir
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    if data_dir == "":
        raise WrongUsage(f"{config_path} turns the data directory off, so the broker has no admin socket: use --url.")
    return data_dir
