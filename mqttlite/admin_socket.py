"""Serves `Admin` over HTTP with JSON, on a Unix socket in the data directory, for the operators' commands.

`admin` carries out changes. `mqttlite sessions`, `queue`, `retained`, `delayed`, `schema` and `explain` are its
clients. Invariant: the mode of the socket decides who may connect, and a request with an unknown parameter changes
nothing.
"""

import base64
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec

from mqttlite.admin import MAX_PAGE, Admin, QueuedMessage, payload_as_text
from mqttlite.bans import BAN_KINDS, MAX_BANS, BanRefused, TooManyBans
from mqttlite.core.authorizer import ACTIONS
from mqttlite.explanations import Explanations, properties_of
from mqttlite.net.endpoints import AlreadyListening, CannotListen, UnixEndpoint
from mqttlite.net.http import JSON, Accepts, HttpServer, Request, Response
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

SOCKET_NAME: Final = "admin.sock"

SOCKET_MODE: Final = 0o600
"""Only the user that runs the broker, and root."""

HEAD_BYTES: Final = 65_536
"""The longest request line with headers: a client identifier of 1,024 characters may take 12,288 bytes of a URL."""

BODY_BYTES: Final = 262_144
"""The longest body: it may contain a topic filter of 65,535 bytes, which no URL can, or a schema of that size."""

MAX_LOGGED: Final = 500
"""The most characters of a request in the log."""

MAX_EXPLAINED_BYTES: Final = 16 * 1_048_576
"""The payload of a message to explain, which is made in memory."""

_WHO: Final = ("client_id", "user", "groups", "qos")
"""The parameters of the client and its QoS."""

_PERMISSION: Final = ("client_id", "user", "groups", "action", "topic")

_MESSAGE: Final = ("topic", "retain", "payload_bytes", "payload", "properties", "content_type")
"""The parameters of the message: `payload` is base64, and `properties` a JSON list of `NAME=VALUE`."""

MAX_DIGITS: Final = 18
"""The longest number of a delayed message: it fits in 63 bits."""

BY: Final = "admin socket"
"""The name of this interface in events and bans."""

_FILTERS: Final = ("cursor", "limit", "contains", "connected", "user", "backlog")

_log = logging.getLogger("mqttlite.admin")


class Refused(Exception):
    """A failed request: a status, and a sentence with the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status: Final = status


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request: the variable segment of its path, and its parameters."""

    name: str
    parameters: Mapping[str, str]

    def text(self, name: str, default: str | None = None) -> str:
        """A parameter. Without a default it is required. Raises `Refused`."""
        value = self.parameters.get(name, default)
        if value is None:
            raise Refused(422, f"The parameter {name} is missing.")
        return value

    def limit(self, default: int) -> int:
        """The requested number of entries. Raises `Refused`."""
        value = self.parameters.get("limit", str(default))
        if not (value.isascii() and value.isdecimal() and 1 <= int(value[:9]) <= MAX_PAGE):
            raise Refused(422, f"limit is {value!r}: it is a number from 1 to {MAX_PAGE}.")
        return int(value)

    def number(self, name: str, default: int, most: int) -> int:
        """A number from 0 on. Raises `Refused`."""
        value = self.parameters.get(name, str(default))
        if not (value.isascii() and value.isdecimal() and len(value) <= MAX_DIGITS and int(value) <= most):
            raise Refused(422, f"{name} is {value[:MAX_DIGITS]!r}: it is a number from 0 to {most}.")
        return int(value)

    def payload(self) -> bytes | None:
        """A payload in base64. Raises `Refused`."""
        value = self.parameters.get("payload")
        try:
            return None if value is None else base64.b64decode(value, validate=True)
        except ValueError:
            raise Refused(422, "payload is no base64.") from None

    def texts(self, name: str) -> list[str]:
        """Texts in a JSON list. Raises `Refused`."""
        try:
            return msgspec.json.decode(self.parameters.get(name, "[]"), type=list[str])
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refused(422, f"{name} is no list of texts in JSON: {error}.") from None

    def groups(self) -> list[str]:
        """The groups of a user, separated by commas."""
        return [each for each in self.parameters.get("groups", "").split(",") if each]

    def flag(self, name: str) -> bool | None:
        """A boolean parameter, or None if absent. Without a value it is true. Raises `Refused`."""
        value = self.parameters.get(name)
        if value is None:
            return None
        if value not in ("", "true", "false"):
            raise Refused(422, f"{name} is {value!r}: it is true or false.")
        return value != "false"


Answerer = Callable[[Request], Awaitable[Response]]


class AdminSocket:
    """`directory` is the existing data directory. `others` are handlers for the first level of other paths. `tell` is
    called after each change with the actor, the method, the path and the success."""

    def __init__(
        self,
        directory: str,
        admin: Admin,
        explanations: Explanations,
        others: Mapping[str, Answerer],
        tell: Callable[[str, str, str, bool], None],
    ) -> None:
        self._admin: Final = admin
        self._explanations: Final = explanations
        self._tell: Final = tell
        self._others: Final = others
        self.path: Final = os.path.join(directory, SOCKET_NAME)
        accepts = Accepts(
            methods=("GET", "HEAD", "POST", "PUT", "DELETE"), head_bytes=HEAD_BYTES, body_bytes=BODY_BYTES, error=_error
        )
        self._http: Final = HttpServer(UnixEndpoint(self.path, SOCKET_MODE), self._answer, accepts)
        # "*" is a segment that names something.
        self._routes: Final = (
            Route("GET", "/sessions", self._list_sessions, _FILTERS),
            Route("GET", "/sessions/*", self._show_session),
            Route("DELETE", "/sessions/*", self._end_session),
            Route("POST", "/sessions/*/kick", self._kick),
            Route("GET", "/sessions/*/queue", self._peek_queue, ("limit",)),
            Route("DELETE", "/sessions/*/queue", self._purge_queue, ("dry_run",)),
            Route("GET", "/bans", self._list_bans),
            Route("POST", "/bans", self._ban, ("kind", "value", "duration_s", "reason")),
            Route("DELETE", "/bans/*", self._lift_ban),
            Route("GET", "/retained/message", self._get_retained, ("topic",)),
            Route("GET", "/retained", self._list_retained, ("filter", "cursor", "limit")),
            Route("DELETE", "/retained", self._remove_retained, ("filter", "dry_run")),
            Route("GET", "/delayed", self._list_delayed, ("cursor", "limit")),
            Route("DELETE", "/delayed/*", self._cancel_delayed),
            Route("GET", "/explain/publish", self._explain_publish, (*_WHO, *_MESSAGE)),
            Route("GET", "/explain/permission", self._explain_permission, _PERMISSION),
            Route("GET", "/explain/subscribe", self._explain_subscribe, (*_WHO, "filter")),
        )

    async def start(self) -> None:
        """Listen, or log a warning if that is not possible. Raises `AlreadyListening` if another broker uses the
        directory."""
        try:
            await self._http.start("admin")
        except AlreadyListening as error:
            raise AlreadyListening(f"another broker has this data directory, choose another: {error}") from None
        except CannotListen as error:
            _log.warning(
                "the broker runs without admin socket, and 'mqttlite sessions', 'queue', 'dlq', 'retained', 'delayed' "
                "and 'schema' cannot reach it: %s; a data directory with a short path on a local disk can have one",
                error,
            )

    async def stop(self) -> None:
        """Stop to accept, end requests under way, and remove the socket. Harmless if it does not listen."""
        await self._http.stop()

    # ------------------------------------------------------------------ requests

    async def _answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        other = self._others.get(request.segments[0]) if request.segments else None
        if other is not None:
            return await other(request)
        routes = [route for route in self._routes if route.matches(request.segments)]
        if not routes:
            known = ", ".join(
                dict.fromkeys((*(route.path for route in self._routes), *(f"/{name}" for name in self._others)))
            )
            return _error(404, f"There is nothing at {request.path}; there are {known}.")
        route = next((route for route in routes if route.method == method), None)
        if route is None:
            methods = " and ".join(route.method for route in routes)
            allow = ", ".join(route.method for route in routes).encode()
            return _error(405, f"{request.path} takes {methods}.", (b"Allow", allow))
        try:
            call = route.call(request)
            answer = await route.handle(call)
        except Refused as error:
            return _error(error.status, str(error))
        except TopicFilterInvalid as error:
            return _error(422, f"The filter is no topic filter: {error}.")
        if method != "GET":
            self._tell(BY, method, request.path, True)
            done = f"{method} {request.path!r} {dict(call.parameters) or ''}".rstrip()
            _log.info("admin socket: %s", done[:MAX_LOGGED])
        return Response(200, msgspec.json.encode(answer), JSON)

    async def _list_sessions(self, call: Call) -> object:
        return await self._admin.clients(
            *(call.text("cursor", ""), call.limit(100), call.text("contains", ""), call.flag("connected")),
            user=call.parameters.get("user"),
            has_backlog=call.flag("backlog"),
        )

    async def _show_session(self, call: Call) -> object:
        return _there(self._admin.client(call.name), call)

    async def _end_session(self, call: Call) -> object:
        if not self._admin.end_session(call.name):
            raise _no_session(call)
        return {"ended": True}

    async def _kick(self, call: Call) -> object:
        if not self._admin.kick(call.name):
            raise Refused(404, f"The client {call.name!r} is not connected.")
        return {"kicked": True}

    async def _peek_queue(self, call: Call) -> object:
        found = _there(await self._admin.peek_queue(call.name, call.limit(10)), call)
        return {"messages": [_as_json(each) for each in found.messages], "waiting": found.waiting}

    async def _purge_queue(self, call: Call) -> object:
        return _there(await self._admin.purge_queue(call.name, dry_run=call.flag("dry_run") or False), call)

    async def _list_bans(self, _call: Call) -> object:
        return {"entries": [self._admin.in_utc(ban) for ban in self._admin.bans.list()]}

    async def _ban(self, call: Call) -> object:
        kind = call.text("kind")
        if kind not in BAN_KINDS:
            raise Refused(422, f"kind is {kind!r}: it is client, user or address.")
        try:
            duration_s = float(call.text("duration_s"))
        except ValueError:
            raise Refused(422, f"duration_s is {call.text('duration_s')[:MAX_DIGITS]!r}: it is a number.") from None
        try:
            ban, disconnected = await self._admin.ban(kind, call.text("value"), duration_s, call.text("reason", ""), BY)
        except BanRefused as error:
            raise Refused(422, f"{error}.") from None
        except TooManyBans:
            raise Refused(507, f"There are {MAX_BANS} bans, which is the limit: lift some.") from None
        return {"ban": self._admin.in_utc(ban), "disconnected": disconnected}

    async def _lift_ban(self, call: Call) -> object:
        if self._admin.bans.lift(_number("The number of a ban", call.name)) is None:
            raise Refused(404, f"There is no ban {call.name}, or it has ended.")
        return {"lifted": True}

    async def _get_retained(self, call: Call) -> object:
        topic = call.text("topic")
        found = self._admin.retained_message(topic)
        if found is None:
            raise Refused(404, f"No message is retained on {topic[:200]!r}.")
        payload, encoding = payload_as_text(found.payload)
        properties = found.properties
        return {
            **asdict(found.entry),
            "payload": payload,
            "payload_encoding": encoding,
            "content_type": properties.content_type,
            "user_properties": properties.user_properties,
            "expires_at": found.expires_at,
        }

    async def _list_retained(self, call: Call) -> object:
        return await self._admin.retained(call.text("filter", "#"), call.text("cursor", ""), call.limit(100))

    async def _remove_retained(self, call: Call) -> object:
        return await self._admin.remove_retained(call.text("filter"), dry_run=call.flag("dry_run") or False)

    async def _list_delayed(self, call: Call) -> object:
        cursor = call.text("cursor", "")
        return self._admin.delayed(str(_number("cursor", cursor)) if cursor else "", call.limit(100))

    async def _cancel_delayed(self, call: Call) -> object:
        if not self._admin.cancel_delayed(_number("The name of a delayed message", call.name)):
            raise Refused(404, f"There is no delayed message {call.name}, or it is due.")
        return {"cancelled": True}

    async def _explain_publish(self, call: Call) -> object:
        return self._explanations.publish(
            call.text("client_id", ""),
            call.parameters.get("user"),
            call.text("topic"),
            call.number("payload_bytes", 0, MAX_EXPLAINED_BYTES),
            payload=call.payload(),
            properties=properties_of(call.texts("properties"), call.parameters.get("content_type")),
            qos=call.number("qos", 0, 2),
            retain=call.flag("retain") or False,
            groups=call.groups(),
        )

    async def _explain_permission(self, call: Call) -> object:
        action = call.text("action")
        if action not in ACTIONS:
            raise Refused(422, f"action is {action[:MAX_LOGGED]!r}: it is one of {', '.join(ACTIONS)}.")
        try:
            return self._explanations.permission(
                action, call.text("topic"), call.parameters.get("user"), call.text("client_id", ""), call.groups()
            )
        except (TopicFilterInvalid, TopicNameInvalid) as error:
            raise Refused(422, f"{error}.") from None

    async def _explain_subscribe(self, call: Call) -> object:
        return self._explanations.subscribe(
            call.text("client_id", ""),
            call.parameters.get("user"),
            call.text("filter"),
            qos=call.number("qos", 0, 2),
            groups=call.groups(),
        )


class Route:
    """A method and a path, with their handler and parameters."""

    def __init__(
        self, method: str, path: str, handle: Callable[[Call], Awaitable[object]], parameters: tuple[str, ...] = ()
    ) -> None:
        self.method: Final = method
        self.path: Final = path
        self.handle: Final = handle
        self._segments: Final = tuple(path[1:].split("/"))
        self._parameters: Final = parameters

    def matches(self, segments: tuple[str, ...]) -> bool:
        """Whether the path is the route's, for any method."""
        return len(segments) == len(self._segments) and all(
            each == segment or (each == "*" and segment) for each, segment in zip(self._segments, segments, strict=True)
        )

    def call(self, request: Request) -> Call:
        """Parse the query and the body of a request. Raises `Refused`."""
        parameters = {**request.query, **_parameters(request.body)}
        for name in parameters:
            if name not in self._parameters:
                known = ", ".join(self._parameters) or "none"
                raise Refused(422, f"There is no parameter {name!r} of {self.method} {self.path}; there are: {known}.")
        name = next((request.segments[at] for at, each in enumerate(self._segments) if each == "*"), "")
        return Call(name, parameters)


def _parameters(body: bytes) -> dict[str, str]:
    """The parameters in a JSON body, as texts like in a query. Raises `Refused`."""
    if not body:
        return {}
    try:
        found = msgspec.json.decode(body, type=dict[str, bool | int | str])
    except msgspec.ValidationError as error:
        raise Refused(422, f"The parameters in the body are wrong: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"The body is no JSON object with the parameters: {error}.") from None
    return {name: each if isinstance(each, str) else str(each).lower() for name, each in found.items()}


def _number(what: str, text: str) -> int:
    """The number of a delayed message. Raises `Refused`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise Refused(422, f"{what} is {text[:MAX_DIGITS]!r}: it is a number.")
    return int(text)


def _there(found: Any, call: Call) -> Any:
    """The found object. Raises `Refused` if there is none."""
    if found is None:
        raise _no_session(call)
    return found


def _no_session(call: Call) -> Refused:
    return Refused(404, f"The client {call.name!r} has no session.")


def _as_json(message: QueuedMessage) -> dict[str, object]:
    """A message with its payload as text, or as base64 where it is no UTF-8."""
    payload, encoding = payload_as_text(message.payload, is_cut=len(message.payload) < message.payload_bytes)
    return {**asdict(message), "payload": payload, "payload_encoding": encoding}


def _error(status: int, text: str, *headers: tuple[bytes, bytes]) -> Response:
    return Response(status, msgspec.json.encode({"error": text}), JSON, headers)
