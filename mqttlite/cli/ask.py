"""How `top`, `health` and `why` find and ask a broker: at its admin socket, its metrics port or its gateway.

All three give the same answers. What the commands ask lives in their files. Invariant: to ask, nothing of the broker is
imported but where its data is.
"""

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import click

from mqttlite.cli.ask_admin import SOCKET_NAME, UnixConnection, explain_socket, is_from_environment
from mqttlite.cli.ask_options import data_dir_option, timeout_option, with_options

DEFAULT_URL: Final = "http://127.0.0.1:9883"

TIMEOUT_S: Final = 5.0

MAX_ANSWER_BYTES: Final = 16 * 1_048_576
"""More than a broker answers: the largest, `/status`, has some tens of kilobytes."""

EXIT_FAILED: Final = 1


class WrongUsage(click.ClickException):
    """The command cannot be carried out, whatever the broker answers."""

    exit_code = 2


class Unreachable(Exception):
    """No answer; the text is a sentence that says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response over HTTP."""

    status: int
    body: bytes
    is_problem: bool = False
    """Whether a gateway answered with a problem (RFC 9457)."""

    @property
    def sentence(self) -> str:
        """Its body as a line."""
        text = self.body.decode(errors="replace").strip()
        if not self.is_problem:
            return text
        detail = str(json.loads(text)["detail"])
        return f"{detail[:1].upper()}{detail[1:].rstrip('.')}."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker answers: the URL of its metrics port or gateway, or the data directory with its admin socket."""

    url: str = ""
    data_dir: str = ""
    token: str | None = None
    ca_file: str | None = None

    def __str__(self) -> str:
        return self.url or os.path.join(self.data_dir, SOCKET_NAME)


options: Final = with_options(
    click.option(
        "--url",
        metavar="URL",
        envvar="MQTTLITE_URL",
        help="Ask over HTTP: the metrics port or the gateway of a broker.  [MQTTLITE_URL]",
    ),
    click.option(
        "--token",
        metavar="KEY",
        envvar="MQTTLITE_TOKEN",
        help="An API key or token for a gateway; better in MQTTLITE_TOKEN, where nobody sees it.",
    ),
    click.option("--cafile", "ca_file", metavar="FILE", help="The authority of the certificate of --url."),
    click.option("-c", "--config", "config_path", metavar="FILE.toml", help="Find the broker by its file."),
    data_dir_option(),
    timeout_option(TIMEOUT_S),
)
"""The options of `top`, `health` and `why`, which become a `Place` by `place`."""


def place(
    url: str | None,
    config_path: str | None,
    data_dir: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
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
        **others: Any,
    ) -> Any:
        return function(where=place(url, config_path, data_dir, token, ca_file), **others)

    return options(with_place)


def ask(where: Place, target: str, timeout_s: float) -> Answer:
    """The answer to a GET. Raises `Unreachable`."""
    answer = _request(where, "GET", target, None, timeout_s)
    return _request(where, *_at_gateway(target), timeout_s) if answer.is_problem else answer


def _request(where: Place, method: str, target: str, content: dict[str, Any] | None, timeout_s: float) -> Answer:
    parts = urlsplit(where.url)
    headers = {} if where.token is None else {"Authorization": f"Bearer {where.token}"}
    sent = None
    if content is not None:
        headers["Content-Type"], sent = "application/json", json.dumps(content)
    try:
        if not where.url:
            connection: http.client.HTTPConnection = UnixConnection(str(where), timeout_s)
        elif parts.scheme == "https":
            context = ssl.create_default_context(cafile=where.ca_file)
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=timeout_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    except OSError as error:
        raise WrongUsage(f"--cafile {where.ca_file}: {error.strerror or error}.") from None
    try:
        connection.request(method, parts.path.rstrip("/") + target, sent, headers)
        response = connection.getresponse()
        body = response.read(MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        explained = (
            _explain(where.url, error, timeout_s) if where.url else explain_socket(where.data_dir, error, timeout_s)
        )
        raise Unreachable(explained) from None
    finally:
        connection.close()
    return Answer(response.status, body, response.getheader("Content-Type") == "application/problem+json")


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
    """The broker's status. Raises `Unreachable`."""
    answer = ask(where, "/status", timeout_s)
    if answer.is_problem:
        raise Unreachable(f"{where} refuses. {answer.sentence}")
    try:
        if answer.status != 200:
            raise ValueError
        found: dict[str, Any] = json.loads(answer.body)
    except ValueError:
        raise Unreachable(f"{where} has no status; is that the metrics port or the gateway of a broker?") from None
    return found


def _explain(url: str, error: Exception, timeout_s: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        asked = "" if url != DEFAULT_URL else ", and no broker has the default data directory"
        return (
            f"Nothing listens at {url}{asked}. Does the broker run? Name it with -c, --data-dir, or --url: its metrics "
            "port ([metrics], --metrics-port) or its gateway ([http], --http-port)."
        )
    if isinstance(error, TimeoutError):
        return f"{url} does not answer within {timeout_s:g} s."
    if isinstance(error, socket.gaierror):
        return f"The host of {url} was not found ({error.strerror})."
    if isinstance(error, ssl.SSLError):
        return f"{url} was reached, but TLS failed ({error.reason or error}); the broker itself speaks plain http."
    if isinstance(error, http.client.HTTPException | ConnectionError):
        return f"What listens at {url} does not speak HTTP; is that the MQTT port?"
    return f"{url} cannot be reached: {getattr(error, 'strerror', None) or error}."


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
