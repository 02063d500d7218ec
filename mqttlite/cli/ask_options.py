"""Options of the commands that ask a running broker, and how a function gets several of them.

Invariant: an option of one name means the same for each command that has it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """A decorator that adds the options; the help of a command shows them in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def timeout_option(default_s: float, what: str = "an answer") -> Callable[[F], F]:
    """`--timeout`, as `timeout_s`."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0.1, 300),
        metavar="SECONDS",
        default=default_s,
        show_default=True,
        help=f"How long to wait for {what}.",
    )


def json_option() -> Callable[[F], F]:
    """`--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


def data_dir_option() -> Callable[[F], F]:
    """`--data-dir`, as `data_dir`."""
    return click.option(
        "--data-dir", metavar="DIR", help="The data directory of the broker.  [default: as 'mqttlite serve']"
    )
