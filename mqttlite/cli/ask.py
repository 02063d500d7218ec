"""How `top`, `health` and `why` find and ask the HTTP port of a broker.

What they ask lives in their files. Invariant: to ask, nothing of the broker is imported.
"""

import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import click

from mqttlite.cli.ask_options import timeout_option, with_options

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

    @property
    def sentence(self) -> str:
        """Its body as a line."""
        return self.body.decode(errors="replace").strip()


options: Final = with_options(
    click.option("--url", metavar="URL", help=f"Where the broker serves its metrics.  [default: {DEFAULT_URL}]"),
    click.option("-c", "--config", "config_path", metavar="FILE.toml", help="Find the port in the broker's file."),
    timeout_option(TIMEOUT_S),
)
"""The options of `top`, `health` and `why`."""


def place(url: str | None, config_path: str | None) -> str:
    """The URL to ask. Raises `WrongUsage`."""
    if url is not None and config_path is not None:
        raise WrongUsage("--url and --config exclude each other.")
    return _checked(url or DEFAULT_URL) if config_path is None else _from_config(config_path)


def ask(url: str, target: str, timeout_s: float) -> Answer:
    """The answer to a GET. Raises `Unreachable`."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", parts.path.rstrip("/") + target)
        response = connection.getresponse()
        body = response.read(MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(_explain(url, error, timeout_s)) from None
    finally:
        connection.close()
    return Answer(response.status, body)


def ask_status(url: str, timeout_s: float) -> dict[str, Any]:
    """The broker's status. Raises `Unreachable`."""
    answer = ask(url, "/status", timeout_s)
    try:
        if answer.status != 200:
            raise ValueError
        found: dict[str, Any] = json.loads(answer.body)
    except ValueError:
        raise Unreachable(f"{url} has no status; is that the port of [metrics]?") from None
    return found


def _explain(url: str, error: Exception, timeout_s: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return (
            f"Nothing listens at {url}. Does the broker run, and with [metrics] in its configuration or "
            "--metrics-port? If it listens elsewhere, say where with --url."
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


def _from_config(path: str) -> str:
    from mqttlite.config import ConfigError, load_config  # here, for it imports the broker

    try:
        config = load_config(path)
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    metrics = config.metrics
    if metrics is None:
        raise WrongUsage(f"{path} has no section [metrics], so the broker serves none.")
    if metrics.port == 0:
        raise WrongUsage(f"{path}: metrics.port is 0, so the system chose it; the broker's log says which: use --url.")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(metrics.host, metrics.host)
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{metrics.port}"
