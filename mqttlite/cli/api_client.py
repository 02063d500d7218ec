"""Asks a broker over HTTP what `ask_admin` asks its admin socket: the same questions at the addresses of the API.

Invariant: a token is sent to the address that was named, and never shown.
"""

import http.client
import json
import ssl
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import click

from mqttlite.cli.asker import MAX_ANSWER_BYTES, Asker, Conflict, NotFound, Unreachable, WrongUsage, text_of

Segments = tuple[str, ...]

_IN_BODY: Final = ("bans",)
"""The routes that take the parameters of a POST in the body."""

_KINDS: Final[dict[int, type[click.ClickException]]] = {
    400: WrongUsage,
    404: NotFound,
    409: Conflict,
    422: WrongUsage,
    431: WrongUsage,
}


class ApiClient(Asker):
    """`url` is that of the gateway, such as `https://broker.example:8443`; `ca_file` is for its certificate. Raises
    `WrongUsage` for an address that is none."""

    def __init__(self, url: str, token: str | None, ca_file: str | None, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username is not None:
            raise WrongUsage(
                f"--url is {url!r}: write an address such as http://127.0.0.1:8080, with --token beside it"
            )
        self._url: Final = f"{parts.scheme}://{parts.netloc}"
        self._base: Final = parts.path.rstrip("/")
        self._headers: Final = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._host: Final = parts.hostname
        self._port: Final = parts.port
        self._timeout_s: Final = timeout_s
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=ca_file)
            except OSError as error:
                raise WrongUsage(f"--cafile {ca_file}: {error.strerror or error}") from None

    is_remote = True

    def ask(
        self, method: str, *segments: str, body: object = None, **parameters: str | int | float | bool | None
    ) -> Any:
        """The answer, in the words of the admin socket."""
        given: dict[str, Any] = {name: value for name, value in parameters.items() if value is not None}
        if segments[0] == "explain":
            given = _in_words_of_the_gateway(given)
        method, segments = _address(method, segments)
        path = self._base + "".join(f"/{quote(segment, safe='')}" for segment in segments)
        headers = dict(self._headers)
        if body is None and given and segments[-1] in _IN_BODY and method == "POST":
            body, given = given, {}
        sent = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            sent = json.dumps(body)
        if given:
            texts = {name: value if isinstance(value, list) else text_of(value) for name, value in given.items()}
            path += f"?{urlencode(texts, doseq=True)}"
        connection = self._connection()
        try:
            connection.request(method, path, sent, headers)
            response = connection.getresponse()
            status, answer = response.status, response.read(MAX_ANSWER_BYTES)
        except TimeoutError:
            raise Unreachable(f"The broker at {self._url} does not answer within {self._timeout_s:g} s.") from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"The broker at {self._url} cannot be reached: {error}.") from None
        finally:
            connection.close()
        try:
            found = json.loads(answer)
            if 200 <= status < 300:
                return _in_words_of_the_socket(segments, found)
            reason = str(found["detail"] if "detail" in found else found["message"])
        except (ValueError, TypeError, KeyError):
            raise Unreachable(f"What listens at {self._url} does not answer as a broker does.") from None
        sentence = reason[:1].upper() + reason[1:].removesuffix(".") + "."
        raise _KINDS.get(status, Unreachable)(sentence)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)


def _address(method: str, segments: Segments) -> tuple[str, Segments]:
    """Where the gateway has what the admin socket has there."""
    if segments[0] == "registry":
        return method, segments
    if segments[0] != "sessions":
        return method, ("api", "v1", *segments)
    rest = segments[1:]
    if method == "DELETE" and len(rest) == 1:
        rest = (*rest, "session")
    elif method == "POST" and rest[1:] == ("kick",):
        rest = (rest[0], "disconnect")
    return method, ("api", "v1", "clients", *rest)


def _in_words_of_the_gateway(given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of `explain`, with lists as repeated parameters."""
    asked = dict(given)
    if "groups" in asked:
        asked["groups"] = asked["groups"].split(",")
    if "properties" in asked:
        asked["properties"] = json.loads(asked["properties"])
    if "payload" in asked:
        asked["payload_encoding"] = "base64"
    return asked


def _in_words_of_the_socket(segments: Segments, found: Any) -> Any:
    """The answer as the admin socket gives it."""
    if not isinstance(found, dict):
        return found
    if segments[-1] == "bans" and "items" in found:
        return {"entries": found["items"]}
    if segments[2] == "clients" and segments[-1] == "queue" and "items" in found:
        return {"messages": found["items"], "waiting": found["waiting"]}
    for name in ("items", "topics", "subscribers"):
        if name in found and "cursor" in found:
            return {"entries": found[name], "cursor": found["cursor"] or ""}
    return found
