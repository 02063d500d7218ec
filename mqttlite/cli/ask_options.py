"""Options of the commands that ask a running broker, and how a function gets several of them.

Invariant: an option of one name means the same for each command that has it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

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


def node_option() -> Callable[[F], F]:
    """`--node`, as `node`."""
    return click.option(
        "--node", metavar="NAME", help="Ask this one of several nodes, and no other.  [default: all that it is about]"
    )


def json_option() -> Callable[[F], F]:
    """`--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


def data_dir_option() -> Callable[[F], F]:
    """`--data-dir`, as `data_dir`."""
    return click.option(
        "--data-dir", metavar="DIR", help="The data directory of the broker.  [default: as 'mqttlite serve']"
    )


def url_options(
    url: str = "Ask a broker over HTTP, such as https://broker.example:8443.",
    token: str = "An API key or token for --url",
) -> Callable[[F], F]:
    """`--url`, `--token` and `--cafile`, as `url`, `token` and `ca_file`, of commands that can ask over HTTP."""
    return with_options(
        click.option("--url", metavar="URL", envvar="MQTTLITE_URL", help=f"{url}  [MQTTLITE_URL]"),
        click.option(
            "--token",
            metavar="KEY",
            envvar="MQTTLITE_TOKEN",
            help=f"{token}; better in MQTTLITE_TOKEN, which the list of processes does not show.",
        ),
        click.option("--cafile", "ca_file", metavar="FILE", help="The authority of the certificate of --url."),
    )


def is_from_environment(parameter: str) -> bool:
    """Whether an option is not given, but its environment variable is set."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.ENVIRONMENT
