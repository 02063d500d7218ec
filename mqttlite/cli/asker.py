"""The client by which an operator's commands ask a running broker, at its admin socket or over HTTP, and its errors.

Both have the same routes. Invariant: each failure has an exit code, and a token is sent to the address that was named,
and never shown.
"""

import http.client
import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import click

SOCKET_NAME: Final = "admin.sock"
"""As in `mqttlite.gateway.admin_socket`."""

DEFAULT_URL: Final = "http://127.0.0.1:9883"

MAX_ANSWER_BYTES: Final = 128 * 1_048_576
"""More than a broker answers: a page has 1,000 topics, of 65,535 bytes at most."""

PAGE: Final = 1_000
"""Entries to ask for at a time: what a broker gives at most."""

MAX_CALLS: Final = 1_000
"""Calls to remove what there is: ten million messages; where messages come as fast as they are removed, it ends."""


class Unreachable(click.ClickException):
    """No answer; the text is a sentence that says why, and what to do."""

    exit_code = 1


class WrongUsage(click.ClickException):
    """The broker does not take what was asked for."""

    exit_code = 2


class Conflict(click.ClickException):
    """The state of the broker does not allow the request."""

    exit_code = 4


class NotFound(click.ClickException):
    """The broker does not have the requested thing."""

    exit_code = 3


_KINDS: Final[dict[int, type[click.ClickException]]] = {
    400: WrongUsage,
    404: NotFound,
    409: Conflict,
    413: WrongUsage,
    422: WrongUsage,
    431: WrongUsage,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A response over HTTP."""

    status: int
    body: bytes
    is_problem: bool = False
    """Whether it is a problem (RFC 9457)."""

    @property
    def sentence(self) -> str:
        """Its body as a line."""
        text = self.body.decode(errors="replace").strip()
        return _sentence(json.loads(text)["detail"]) if self.is_problem else text


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker answers: the URL of its metrics port or gateway, or the data directory with its admin socket."""

    url: str = ""
    data_dir: str = ""
    token: str | None = None
    ca_file: str | None = None
    node: str | None = None
    """Which one of several nodes answers, alone."""

    def __str__(self) -> str:
        return self.url or os.path.join(self.data_dir, SOCKET_NAME)

    def request(self, method: str, target: str, body: object, timeout_s: float) -> Answer:
        """The answer to a request; a body is sent as JSON. Raises `Unreachable` and `WrongUsage`."""
        if self.node is not None:
            target += f"{'&' if '?' in target else '?'}{urlencode({'node': self.node})}"
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection(timeout_s)
        try:
            path = urlsplit(self.url).path.rstrip("/") + target
            with suppress(BrokenPipeError):  # it refuses a long body before it has all of it, and says why
                connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            found = response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(self._explain(error, timeout_s)) from None
        finally:
            connection.close()
        return Answer(response.status, found, response.getheader("Content-Type") == "application/problem+json")

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if not self.url:
            return UnixConnection(str(self), timeout_s)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
        import ssl  # here, for it takes a while

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise WrongUsage(f"--cafile {self.ca_file}: {error.strerror or error}.") from None
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=context)

    def _explain(self, error: Exception, timeout_s: float) -> str:
        """Why there is no answer, and what to do."""
        if isinstance(error, TimeoutError):
            return f"{self} does not answer within {timeout_s:g} s."
        explained = _explain_url(self.url, error) if self.url else _explain_socket(self.data_dir, error)
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return explained or f"The broker at {self} cannot be reached: {reason}."


class Asker:
    """Asks the broker of a place."""

    def __init__(self, place: Place, timeout_s: float) -> None:
        self._place: Final = place
        self._timeout_s: Final = timeout_s
        self._silent: Final[set[str]] = set()
        """Nodes of which it was said that they did not answer."""
        self._acted: Final[set[str]] = set()
        """Nodes of which it was said that something was done there."""

    @property
    def is_remote(self) -> bool:
        """Whether over HTTP."""
        return bool(self._place.url)

    def ask(
        self,
        method: str,
        *segments: str,
        body: object = None,
        **parameters: str | int | float | bool | list[str] | None,
    ) -> Any:
        """The answer, for a path of these segments. Raises `Unreachable`, `NotFound`, `Conflict` and `WrongUsage`."""
        path = segments if segments[0] == "registry" else ("api", "v1", *segments)
        given = {name: _texts(value) for name, value in parameters.items() if value is not None}
        try:
            target = "".join(f"/{quote(segment, safe='')}" for segment in path)
            target += f"?{urlencode(given, doseq=True)}" if given else ""
        except UnicodeEncodeError:
            raise WrongUsage("The arguments are not UTF-8, as names and topics are.") from None
        answer = self._place.request(method, target, body, self._timeout_s)
        try:
            found = json.loads(answer.body)
            if 200 <= answer.status < 300:
                note_silent(found, self._silent)
                if method != "GET":
                    self._note_node(found)
                return found
            reason = str(found["detail"] if "detail" in found else found["message"])
        except (ValueError, TypeError, KeyError):
            raise Unreachable(f"The server at {self._place} does not answer as a broker does.") from None
        raise _KINDS.get(answer.status, Unreachable)(_sentence(reason))

    def _note_node(self, found: Any) -> None:
        """Say on standard error which one of several nodes has carried out a change, each one once."""
        if isinstance(found, dict) and "node" in found and "others" not in found and found["node"] not in self._acted:
            self._acted.add(found["node"])
            click.echo(f"At node {found['node']}.", err=True)

    def page(self, *segments: str, limit: int, of: str = "items", **parameters: str | bool | None) -> dict[str, Any]:
        """The first `limit` entries of a list, and the cursor of those that follow. `of` is the name of the list in the
        answer."""
        entries: list[Any] = []
        silent: dict[str, Any] = {}
        cursor = ""
        while len(entries) < limit:
            wanted = min(PAGE, limit - len(entries))
            found = self.ask("GET", *segments, limit=wanted, cursor=cursor, **parameters)
            entries += found[of]
            silent |= {each["node"]: each for each in found.get("silent", ())}
            cursor = found["cursor"] or ""
            if not cursor:
                break
        return {"entries": entries, "cursor": cursor, **({"silent": [*silent.values()]} if silent else {})}

    def whole(self, *segments: str) -> dict[str, Any]:
        """A list that has no pages, as `page` gives it."""
        found = self.ask("GET", *segments)
        silent = {"silent": found["silent"]} if found.get("silent") else {}
        return {"entries": found["items"], **silent}

    def remove(self, *segments: str, dry_run: bool, **parameters: str) -> dict[str, Any]:
        """Remove messages, call by call until none is left; how many. A dry run counts what one call would remove."""
        removed = 0
        found: dict[str, Any] = {"complete": False}
        for _ in range(MAX_CALLS):
            found = self.ask("DELETE", *segments, dry_run=dry_run, **parameters)
            removed += found["messages"]
            if found["complete"] or dry_run:
                break
        return {"messages": removed, "complete": found["complete"]}


def note_silent(found: Any, said: set[str]) -> None:
    """Say on standard error which nodes did not answer, each one once."""
    for each in found.get("silent", ()) if isinstance(found, dict) else ():
        if each["node"] not in said:
            said.add(each["node"])
            click.echo(f"Node {each['node']} {each['reason']}: what it has is missing.", err=True)


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


def _texts(value: str | int | float | bool | list[str]) -> str | list[str]:
    """A parameter as it stands in a query."""
    if isinstance(value, list):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:].removesuffix('.')}."


def _explain_socket(directory: str, error: Exception) -> str | None:
    """Why a broker cannot be asked at the admin socket of a data directory; None for a rare reason."""
    path = os.path.join(directory, SOCKET_NAME)
    if isinstance(error, FileNotFoundError | ConnectionRefusedError | NotADirectoryError):
        return (
            f"No broker runs with the data directory {directory}: nothing listens on {path}. Start one "
            "with 'mqttlite serve', or name the directory of the one that runs with --data-dir. A broker with "
            "--no-persistence has no admin socket."
        )
    if isinstance(error, PermissionError):
        return f"This user may not use {path}: only the user that runs the broker and root may."
    return None


def _explain_url(url: str, error: Exception) -> str | None:
    """The same at a URL."""
    if isinstance(error, ConnectionRefusedError):
        asked = "" if url != DEFAULT_URL else ", and no broker has the default data directory"
        return (
            f"Nothing listens at {url}{asked}. Does the broker run? Name it with -c, --data-dir, or --url: its metrics "
            "port ([metrics], --metrics-port) or its gateway ([http], --http-port)."
        )
    if isinstance(error, socket.gaierror):
        return f"The host of {url} was not found ({error.strerror})."
    if type(error).__module__ == "ssl":
        reason = getattr(error, "reason", None) or error
        return f"{url} was reached, but TLS failed ({reason}); the broker itself speaks plain http."
    if isinstance(error, http.client.HTTPException | ConnectionError):
        return f"The server at {url} does not speak HTTP; is that the MQTT port?"
    return None
