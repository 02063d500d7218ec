"""How `top`, `health` and `why` find and ask a broker: at its admin socket, its metrics port or its gateway.

All three give the same answers. The requests live in the commands' files. Invariant: to ask, nothing of the broker is
imported but where its data is.
"""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import click

from mqttlite.cli.ask_options import (
    data_dir_option,
    is_from_environment,
    node_option,
    timeout_option,
    url_options,
    with_options,
)
from mqttlite.cli.asker import DEFAULT_URL, Answer, Place, Unreachable, WrongUsage
from mqttlite.cli.top_nodes import joined

TIMEOUT_S: Final = 5.0

EXIT_FAILED: Final = 1


options: Final = with_options(
    url_options("Ask over HTTP: the metrics port or the gateway of a broker.", "An API key or token for a gateway"),
    click.option("-c", "--config", "config_path", metavar="FILE.toml", help="Find the broker by its file."),
    data_dir_option(),
    node_option(),
    timeout_option(TIMEOUT_S),
)
"""The options of `top`, `health` and `why`, which become a `Place` by `place`."""


def place(
    url: str | None,
    config_path: str | None,
    data_dir: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
    node: str | None = None,
) -> Place:
    """Where to ask, and which node if that is one of several. The rest as in `_place`."""
    return replace(_place(url, config_path, data_dir, token, ca_file), node=node)


def _place(
    url: str | None, config_path: str | None, data_dir: str | None, token: str | None, ca_file: str | None
) -> Place:
    """Where to ask. Without options it is the admin socket of the default data directory if a broker listens there,
    else the default port of metrics. Raises `WrongUsage`."""
    if url is not None and is_from_environment("url") and (config_path is not None or data_dir is not None):
        url = None
    if sum(each is not None for each in (url, config_path, data_dir)) > 1:
        raise WrongUsage("-c, --data-dir and --url each name a broker: give one of them.")
    if url is not None:
        return Place(_checked(url), token=token, ca_file=ca_file)
    if config_path is not None:
        return _from_config(config_path)
    if data_dir is not None:
        return Place(data_dir=data_dir)
    default = Place(data_dir=_default_data_dir())
    return default if _listens(str(default)) else Place(DEFAULT_URL)


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `options`. The function gets `where` for them, and `timeout_s`."""

    @wraps(function)
    def with_place(
        *,
        url: str | None,
        token: str | None,
        ca_file: str | None,
        config_path: str | None,
        data_dir: str | None,
        node: str | None,
        **others: Any,
    ) -> Any:
        return function(where=place(url, config_path, data_dir, token, ca_file, node), **others)

    return options(with_place)


def ask(where: Place, target: str, timeout_s: float) -> Answer:
    """The answer to a GET, in the words of the metrics port. Raises `Unreachable`."""
    if where.url and where.node is None:  # a metrics port knows no other node
        answer = where.request("GET", target, None, timeout_s)
        if not answer.is_problem:
            return answer
    return where.request(*_at_gateway(target), timeout_s)


def ask_json(where: Place, target: str, timeout_s: float) -> dict[str, Any]:
    """The answer to a GET, an object. Raises `Unreachable`, also for a refusal."""
    answer = ask(where, target, timeout_s)
    if answer.status != 200:
        raise Unreachable(answer.sentence)
    try:
        found: dict[str, Any] = json.loads(answer.body)
    except ValueError:
        raise Unreachable("The answer is no JSON; is that the metrics port or the gateway of a broker?") from None
    return found


def _at_gateway(target: str) -> tuple[str, str, dict[str, Any] | None]:
    """The request of the HTTP API with the same answer: method, path and body."""
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    path = parts.path
    if "follow" in query:
        after = query.get("after")
        return (
            "POST",
            f"/api/v1{path}/follow",
            {"filter": query["follow"], "after": None if after is None else int(after)},
        )
    if path == "/client":
        path = f"/clients/{quote(query.pop('id', ''), safe='')}"
    return "GET", f"/api/v1{path}" + (f"?{urlencode(query)}" if query else ""), None


def ask_status(where: Place, timeout_s: float) -> dict[str, Any]:
    """The broker's status, or that of all nodes of which it is one. Raises `Unreachable`."""
    answer = ask(where, "/status", timeout_s)
    if answer.is_problem:
        raise Unreachable(f"{where} refuses. {answer.sentence}")
    try:
        if answer.status != 200:
            raise ValueError
        found: dict[str, Any] = json.loads(answer.body)
    except ValueError:
        raise Unreachable(f"{where} has no status; is that the metrics port or the gateway of a broker?") from None
    return joined(found)


def _checked(url: str) -> str:
    """`host:port` will do."""
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise WrongUsage(f"{url!r} is no URL like {DEFAULT_URL}.")
    return full


def _from_config(path: str) -> Place:
    from mqttlite.config import ConfigError, load_config  # here, for it imports the broker

    try:
        config = load_config(path)
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    metrics = config.metrics
    if metrics is None or metrics.port == 0:
        if config.data_dir == "":
            raise WrongUsage(
                f"{path} has neither a section [metrics] with a port nor a data directory, so the broker has no admin "
                "socket: use --url."
            )
        return Place(data_dir=_default_data_dir() if config.data_dir is None else config.data_dir)
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(metrics.host, metrics.host)
    name = f"[{host}]" if ":" in host else host
    return Place(f"http://{name}:{metrics.port}")


def _default_data_dir() -> str:
    from mqttlite.config.data_dir import default_data_dir  # here, for it takes a while

    return str(default_data_dir(os.environ))


def _listens(path: str) -> bool:
    """Whether a broker listens on a Unix socket."""
    if not hasattr(socket, "AF_UNIX"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
