"""How the commands of an operator ask the admin socket of a broker, or over HTTP, and what they print.

What they ask lives in their files. Invariant: to ask, nothing of the broker is imported but where its data is.
"""

import http.client
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final, TextIO
from urllib.parse import quote, urlencode

import click
from click.core import ParameterSource

from mqttlite.cli.ask_options import F, data_dir_option, json_option, timeout_option, with_options
from mqttlite.cli.asker import MAX_ANSWER_BYTES, Asker, Conflict, NotFound, Unreachable, WrongUsage, text_of
from mqttlite.cli.data_dir import data_dir_of
from mqttlite.cli.top_words import printable

SOCKET_NAME: Final = "admin.sock"
"""As in `mqttlite.admin_socket`."""

TIMEOUT_S: Final = 30.0
"""A broker gives an answer up after as long: some thousand retained messages are removed in seconds."""

EVERYTHING: Final = 1_000_000_000
"""Entries to list for `--limit 0`."""

EPILOG: Final = """\b
Exit codes:
  0  done
  1  no broker can be reached there, or it failed
  2  wrong usage
  3  there is no such session, queue or message
"""

__all__ = ["Asker", "Conflict", "NotFound", "Unreachable", "WrongUsage"]

options: Final = with_options(json_option(), data_dir_option(), timeout_option(TIMEOUT_S))
"""The options of all commands that ask the admin socket."""

url_options: Final = with_options(
    click.option(
        "--url",
        metavar="URL",
        envvar="MQTTLITE_URL",
        help="Ask a broker over HTTP, such as https://broker.example:8443.  [MQTTLITE_URL]",
    ),
    click.option(
        "--token",
        metavar="KEY",
        envvar="MQTTLITE_TOKEN",
        help="An API key or token for --url; better in MQTTLITE_TOKEN, where nobody sees it.",
    ),
    click.option("--cafile", "ca_file", metavar="FILE", help="The authority of the certificate of --url."),
)
"""The options of commands that can ask a broker over HTTP."""

_config_option: Final = click.option(
    "-c", "--config", "config_path", metavar="FILE.toml", help="Find the data directory in the broker's file."
)


def remote_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `options` and `url_options`. The function gets `client` for them, and `as_json`."""

    @wraps(function)
    def with_client(
        *,
        config_path: str | None,
        data_dir: str | None,
        url: str | None,
        token: str | None,
        ca_file: str | None,
        timeout_s: float,
        **others: Any,
    ) -> Any:
        if config_path is not None:
            if data_dir is not None or (url is not None and not is_from_environment("url")):
                raise click.UsageError("-c, --data-dir and --url each name a broker: give one of them")
            data_dir, url = data_dir_of(config_path), None
        return function(client=asker_of(data_dir, url, token, ca_file, timeout_s), **others)

    return options(_config_option(url_options(with_client)))


def is_from_environment(parameter: str) -> bool:
    """Whether an option is not given, but its environment variable is set."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.ENVIRONMENT


def asker_of(data_dir: str | None, url: str | None, token: str | None, ca_file: str | None, timeout_s: float) -> Asker:
    """The client of a broker: over HTTP if there is an address, else of its admin socket. Raises `click.UsageError`."""
    if url is None:
        return AdminClient(data_dir, timeout_s)
    if data_dir is not None:
        raise click.UsageError("--url and --data-dir are two brokers: name one")
    from mqttlite.cli.api_client import ApiClient  # here, for TLS takes a while to import

    return ApiClient(url, token, ca_file, timeout_s)


def limit_option(default: int) -> Callable[[F], F]:
    """`--limit N`, of a list."""
    return click.option(
        "--limit",
        type=click.IntRange(0, EVERYTHING),
        callback=lambda _context, _parameter, value: value or EVERYTHING,
        metavar="N",
        default=default,
        show_default=True,
        help="How many to list; 0: all.",
    )


class AdminClient(Asker):
    """Asks the broker of one data directory; without one, that of the directory that `serve` takes."""

    def __init__(self, data_dir: str | None, timeout_s: float) -> None:
        if data_dir is None:
            from mqttlite.config.data_dir import default_data_dir  # here, for it takes a while

            data_dir = str(default_data_dir(os.environ))
        self._directory: Final = data_dir
        self._path: Final = os.path.join(data_dir, SOCKET_NAME)
        self._timeout_s: Final = timeout_s

    def ask(
        self, method: str, *segments: str, body: object = None, **parameters: str | int | float | bool | None
    ) -> Any:
        """The answer, for a path of these segments. Raises `Unreachable`, `NotFound`, `Conflict` and `WrongUsage`."""
        try:
            target = "".join(f"/{quote(segment, safe='')}" for segment in segments)
            given = {name: text_of(value) for name, value in parameters.items() if value is not None}
            target += f"?{urlencode(given)}" if given else ""
        except UnicodeEncodeError:
            raise WrongUsage("The arguments are not UTF-8, as names and topics are.") from None
        connection = UnixConnection(self._path, self._timeout_s)
        try:
            connection.request(method, target, None if body is None else json.dumps(body))
            response = connection.getresponse()
            status, body = response.status, response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(explain_socket(self._directory, error, self._timeout_s)) from None
        finally:
            connection.close()
        try:
            answer = json.loads(body)
            if status == 200:
                return answer
            reason = str(answer["message"] if "message" in answer else answer["error"])
        except (ValueError, TypeError, KeyError):
            raise Unreachable(f"What listens on {self._path} does not answer as a broker does.") from None
        kinds: dict[int, type[click.ClickException]] = {
            400: WrongUsage,
            404: NotFound,
            409: Conflict,
            422: WrongUsage,
            431: WrongUsage,
        }
        raise kinds.get(status, Unreachable)(reason)


def explain_socket(directory: str, error: Exception, timeout_s: float) -> str:
    """Why the broker of a data directory does not answer, and what to do, as a sentence."""
    path = os.path.join(directory, SOCKET_NAME)
    if isinstance(error, FileNotFoundError | ConnectionRefusedError | NotADirectoryError):
        return (
            f"No broker runs with the data directory {directory}: nothing listens on {path}. Start one "
            "with 'mqttlite serve', or name the directory of the one that runs with --data-dir. A broker with "
            "--no-persistence has no admin socket."
        )
    if isinstance(error, PermissionError):
        return f"This user may not use {path}: only the user that runs the broker and root may."
    if isinstance(error, TimeoutError):
        return f"The broker of {path} does not answer within {timeout_s:g} s."
    return f"The broker of {path} cannot be reached: {getattr(error, 'strerror', None) or error}."


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path: Final = path

    def connect(self) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("Python has no Unix sockets on this system")
        self.sock: socket.socket | Any = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


# ── ask before acting ──────────────────────────────────────────────────────────────────────────────────────────────

yes_option: Final = click.option("--yes", "-y", is_flag=True, help="Do not ask before it acts.")


def confirm(question: str) -> None:
    """Ask on the terminal. Raises `click.Abort` for a no, and `WrongUsage` if there is nobody to ask."""
    if not is_terminal(sys.stdin):
        raise WrongUsage(f"{question} Nobody can be asked, because the standard input is no terminal: give --yes.")
    click.confirm(question, abort=True, err=True)


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


# ── print ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def print_json(answer: object) -> None:
    click.echo(json.dumps(answer, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns with a header on a terminal; elsewhere a line for each row, with tabs and no header."""
    shown = [[printable(str(cell), sys.maxsize) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in shown:
            click.echo("\t".join(row))
        return
    if not shown:
        return
    widths = [max(map(len, column)) for column in zip(header, *shown, strict=True)]
    for row in (list(header), *shown):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def note(sentence: str) -> None:
    """Tell people on standard error, where it is in the way of no program."""
    click.echo(sentence, err=True)


def note_more(found: dict[str, Any], limit: int) -> None:
    """Say that a list goes on."""
    if found["cursor"]:
        note(f"There are more than these {limit}: --limit N lists as many, --limit 0 all.")


def time_of(value: str | None) -> str:
    """A time of an answer, in UTC and whole seconds."""
    if value is None:
        return "-"
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
