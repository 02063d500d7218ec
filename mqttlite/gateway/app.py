"""The ASGI application of a listener: common handling of requests, and the table of routes.

For every request it limits the body, refuses pages of other sites (CSRF, CORS), formats errors as problems, sets
headers against caching and framing, and logs each change to the audit log. `features` makes the routes, and `Table`
finds the one of a request. Invariant: every request is answered with a response of the route or a
problem.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, quote, unquote, unquote_to_bytes, urlencode, urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from mqttlite.event_hub import EventHub
from mqttlite.extensions.built_in import BUILT_IN, resolve
from mqttlite.gateway.bodies import App, Bodies, ClientGone, Message, Receive, Scope, Send, may_be_large, replay
from mqttlite.gateway.caller import (
    Caller,
    Callers,
    MetricsCallers,
    NodeCallers,
    SocketCallers,
    check_role,
    peer_of,
)
from mqttlite.gateway.counters import HttpCounters, group_of
from mqttlite.gateway.elsewhere import IS_ADMITTED, Elsewhere, Inquiry, NodeCaller, Question, Reach
from mqttlite.gateway.names_in_paths import keep_slashes
from mqttlite.gateway.openapi import PROBLEM_ANSWER, document
from mqttlite.gateway.parameters import Parameters
from mqttlite.gateway.path_prefix import PathPrefix
from mqttlite.gateway.problems import Code, ErrorFormat, Problem
from mqttlite.gateway.routing import METHODS, WEBSOCKET, Route, ServedOn, Table

NO_ERRORS: Final[Mapping[str, ErrorFormat]] = {}

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""They change nothing."""

Headers = Sequence[tuple[bytes, bytes]]

PROTECTION: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""The default headers of answers: URLs with `?token=` are not sent as referrer, and other sites cannot frame
pages."""

STATUS_OF_KIND: Final = {"http.response.start": 200, "websocket.accept": 101, "websocket.http.response.start": 403}
"""The messages that begin an answer, with their default status."""

NODE: Final = "node"
"""The field of a query that names a node."""

_API: Final = "/api/"

_OWN_SITES: Final = frozenset({b"", b"same-origin", b"none"})
"""`Sec-Fetch-Site` of a program, of a page of the gateway, and of an address that a user entered."""

STREAMS: Final = re.compile(r"/events|/api/v1/(topics|streams)/[^/]*/subscribe|/ui/(.*/)?live")
"""Endless answers, which have no HEAD."""

_log = logging.getLogger("mqttlite.gateway")
_audit = logging.getLogger("mqttlite.audit")


ERRORS_OF_EXTENSIONS: Final[Mapping[str, ErrorFormat]] = {
    path: resolve(reference) for manifest in BUILT_IN.values() for path, reference in manifest.errors.items()
}
"""By the beginning of the path."""


class HttpApp:
    """The application of one listener, for an ASGI server or a test client. `errors` are formats of problems, by the
    beginning of paths; those of extensions are in their manifests. `headers` are the default ones of answers.
    `elsewhere` are other nodes, if there may be some."""

    def __init__(
        self,
        callers: Callers | SocketCallers | NodeCallers | MetricsCallers,
        hub: EventHub,
        *,
        counters: HttpCounters,
        max_body_bytes: int,
        allowed_origins: Sequence[str] = (),
        errors: Mapping[str, ErrorFormat] = NO_ERRORS,
        table: Table | None = None,
        headers: Headers = PROTECTION,
        prefix: PathPrefix | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.table: Final = Table() if table is None else table
        self.callers: Final = callers
        self.bodies: Final = Bodies(max_body_bytes)
        self.stopping: Final = asyncio.Event()
        """Set when the server stops: endless answers then end."""
        self._hub: Final = hub
        self._headers: Final = headers
        self._prefix: Final = prefix
        self._elsewhere: Final = elsewhere
        self._counters: Final = counters
        self._errors: Final = {**errors, **ERRORS_OF_EXTENSIONS}
        self._parameters: Final[dict[Route, Parameters]] = {}
        """Of the handlers that were called: analysing one takes 0.1 ms, and a gateway has 190."""
        self._checks: Final[dict[Route, Route]] = {}
        """Routes with their `check` as the handler."""
        self._openapi: dict[str, Any] | None = None
        self._allowed_origins: Final = frozenset(allowed_origins)
        self._dispatch: App = self._route
        if allowed_origins:
            from starlette.middleware.cors import CORSMiddleware  # here, for few have one

            self._dispatch = CORSMiddleware(
                self._route,
                allow_origins=sorted(allowed_origins),
                allow_methods=METHODS,
                allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
                expose_headers=["Retry-After"],
                max_age=600,
            )

    def openapi(self) -> dict[str, Any]:
        """The routes as an OpenAPI document."""
        if self._openapi is None:
            self._openapi = document(self.table.routes, self._description_of)
        return self._openapi

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        send = _counted(self._counters, scope, send)
        try:
            if self._prefix is not None:
                send = self._prefix.enter(scope, send)
            _check_text(scope)
            if scope["type"] == "http":
                if scope["method"] not in SAFE_METHODS or STREAMS.fullmatch(scope["path"]):
                    self._check_origin(scope)
            elif scope["type"] == "websocket":
                self._check_origin(scope)
            await self._dispatch(scope, receive, send)
        except Problem as problem:
            await self._send_problem(problem, scope, receive, send)
        except ClientGone:
            pass
        except Exception:  # of a bare route
            _log.exception("%s failed", scope["path"])
            await self._send_problem(
                _failure(), scope, receive, send
            )  # which fails in the middle of an answer: it is cut off

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            path, method = scope["path"], scope["method"] if scope["type"] == "http" else WEBSOCKET
            if method == "HEAD" and not STREAMS.fullmatch(path):
                method = "GET"
                scope, send = {**scope, "method": method}, _without_body(send)
            kept = keep_slashes(scope)
            route, variables = self.table.find(method, kept["path"])
            if route.is_bare:
                caller = await self._admit(route, HTTPConnection(scope))
                await route.handler(caller, next(iter(variables.values()), ""), scope, receive, send)
                return
            if kept is not scope:
                variables = {name: unquote(value) for name, value in variables.items()}
            await self._answer(route, variables, scope, receive, send)
        except Problem as problem:  # here, for the CORS headers
            await self._send_problem(problem, scope, receive, send)

    async def _admit(self, route: Route, request: HTTPConnection) -> Caller | None:
        """The caller of a request; None where the route is public. Raises `Problem`."""
        if route.role is None:
            return None
        is_counted = route.is_counted and IS_ADMITTED not in request.scope["state"]
        caller = await self.callers.admit(request, token_in_query=route.takes_token, is_counted=is_counted)
        request.scope["state"]["caller"] = caller
        check_role(caller, route.role)
        return caller

    async def _answer(
        self, route: Route, variables: Mapping[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request by the handler of its route, and log the change."""
        scope["app"] = self
        status = 0

        async def send_protected(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                headers = [*message["headers"], *(each for each in self._headers if each[0] not in present)]
                if b"cache-control" not in present:
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        body = b""
        try:
            request = Request(scope, receive)
            try:
                caller = await self._admit(route, request)
                if caller is None and may_be_large(scope):  # callers without credentials must not use up the budget
                    await self.callers.admit(request, is_counted=False)
                body = await self.bodies.read(scope, receive)
                request = Request(scope, replay(body, receive))
                node = _node_of(route, scope)
                if node is None and (self._elsewhere is None or route.reach is Reach.HERE):
                    response = await self._called(route, request, caller, variables)
                else:
                    if node is not None and route.check is not None:
                        if route not in self._checks:
                            self._checks[route] = replace(route, handler=route.check)
                        await self._called(self._checks[route], request, caller, variables)
                    inquiry = self._inquiry(route, request, caller, variables, body)
                    response = await self._answer_of_nodes(inquiry, node)
            except Problem as problem:
                on_problem = route.on_problem
                response = self._answer_to(problem, scope) if on_problem is None else on_problem(problem, request)
            await response(scope, request.receive, send_protected)
        except ClientGone:
            raise
        except Exception:
            if status:  # in the middle of an answer: the connection ends
                raise
            _log.exception("%s %s failed", scope["method"], scope["path"])
            await self._answer_to(_failure(), scope)(scope, receive, send_protected)
        finally:
            self.bodies.release(body)
        if scope["method"] not in SAFE_METHODS and not route.is_traffic:
            _note_change(scope, status, self._hub)

    async def _called(
        self, route: Route, request: Request, caller: Caller | None, variables: Mapping[str, str]
    ) -> Response:
        """Return a handler's answer. Raises `Problem`."""
        found = await route.handler(**await self._parameters_of(route).read(request, caller, variables))
        if isinstance(found, Response):
            return found
        return Response(msgspec.json.encode(found), route.status, media_type="application/json")

    async def _answer_of_nodes(self, inquiry: Inquiry, node: str | None) -> Response:
        """The answer of a node, or of all that a request is about. Raises `Problem`."""
        if self._elsewhere is None:
            raise Problem(Code.NOT_FOUND, f"there is no node {node!r} to be asked from here: this broker is alone")
        return await self._elsewhere.answer(inquiry, node)

    def _parameters_of(self, route: Route) -> Parameters:
        parameters = self._parameters.get(route)
        if parameters is None:
            parameters = self._parameters[route] = Parameters(route)
        return parameters

    def _inquiry(
        self, route: Route, request: Request, caller: Caller | None, variables: Mapping[str, str], body: bytes
    ) -> Inquiry:
        """A request that may be about other nodes."""
        assert caller is not None, "such a route has a role"
        scope = request.scope

        async def here(query: bytes) -> Response:
            again = Request({**scope, "query_string": query}, replay(body, request.receive))
            return await self._called(route, again, caller, variables)

        thing = route.path_of_thing if route.reach is Reach.THING else ""

        async def has() -> bool:
            look = Request({**scope, "method": "GET", "query_string": b""}, replay(b"", request.receive))
            try:
                await self._called(self.table.get(thing), look, caller, variables)
            except Problem as problem:
                if problem.code is Code.NOT_FOUND:
                    return False
                raise
            return True

        fields = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        limits = [each.default for _, each in self._parameters_of(route).fields if each.encode_name == "limit"]
        question = Question(
            *(scope["method"], scope.get("raw_path") or quote(scope["path"]).encode()),
            urlencode([each for each in fields if each[0] != NODE]).encode(),
            *(request.headers.get("content-type", ""), body),
            NodeCaller(caller.username, caller.role, caller.how, scope.get("client")),
        )
        return Inquiry(
            reach=route.reach,
            question=question,
            here=here,
            has=has,
            thing=thing.format_map({name: quote(value, safe="") for name, value in variables.items()}).encode(),
            default_limit=limits[0] if limits else 0,
            state=scope["state"],
        )

    def _description_of(self, path: str) -> Mapping[str, Any]:
        """Describe the answers to problems below a path, for OpenAPI."""
        found = self._format_of(path)
        return PROBLEM_ANSWER if found is None else found.description

    def _answer_to(self, problem: Problem, scope: Scope) -> Response:
        found = self._format_of(scope["path"])
        return problem.response() if found is None else found.answer(problem)

    def _format_of(self, path: str) -> ErrorFormat | None:
        return next((each for prefix, each in self._errors.items() if path.startswith(prefix)), None)

    async def _send_problem(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = "http"
        if scope["type"] == "websocket":  # before it is accepted; after that a route answers with messages
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1008, "reason": str(problem.detail)[:100]})
                return
            prefix = "websocket.http"
        response = self._answer_to(problem, scope)
        headers = [*response.raw_headers, (b"cache-control", b"no-store"), *self._headers]
        await send({"type": f"{prefix}.response.start", "status": response.status_code, "headers": headers})
        await send({"type": f"{prefix}.response.body", "body": response.body})

    def _check_origin(self, scope: Scope) -> None:
        """Refuse changes and streams to pages of other sites, even with valid credentials (CSRF). Another port of the
        same host is another site. Raises `Problem`."""
        origin = host = site = b""
        for name, value in scope["headers"]:
            if name == b"origin":
                origin = value
            elif name == b"host":
                host = value
            elif name == b"sec-fetch-site":
                site = value
        if origin:
            given = origin.decode("latin-1")
            if given in self._allowed_origins or _host_of(given) == host:
                return
        elif site in _OWN_SITES:
            return
        page = origin.decode("latin-1")[:100] or "another site"
        raise Problem(Code.CROSS_ORIGIN, f"a page of {page} may not do this; allow it by http.allowed_origins")


def _host_of(origin: str) -> bytes:
    try:
        return urlsplit(origin).netloc.encode("latin-1")
    except ValueError:
        return b""  # which no page has


def _counted(counters: HttpCounters, scope: Scope, send: Send) -> Send:
    """Wrap `send` with a count of sent bytes."""

    async def send_counted(message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.body":
            counters.sent_bytes += len(message["body"])
        elif kind == "websocket.send":
            counters.sent_bytes += len(message["text"])
        elif kind in STATUS_OF_KIND:
            counters.requests[group_of(scope["path"]), message.get("status", STATUS_OF_KIND[kind])] += 1
        await send(message)

    return send_counted


def _without_body(send: Send) -> Send:
    """Wrap `send` for an answer to HEAD, which has no body."""

    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head


def _check_text(scope: Scope) -> None:
    """Refuse a path or query that is not UTF-8, because its replacement would be another name."""
    for part in (scope.get("raw_path") or b"", scope["query_string"]):
        if b"%" in part:
            try:
                unquote_to_bytes(part).decode()
            except UnicodeDecodeError:
                raise Problem(Code.BAD_REQUEST, "the path and the query are UTF-8, percent-encoded") from None


def _node_of(route: Route, scope: Scope) -> str | None:
    """The node that a request names; None if it names none. Raises `Problem`."""
    query: bytes = scope["query_string"]
    if b"node=" not in query or not (ServedOn.ADMIN_SOCKET in route.served_on or scope["path"].startswith(_API)):
        return None
    named = parse_qs(query.decode("latin-1"), keep_blank_values=True).get(NODE)
    if named is None:
        return None
    if ServedOn.ADMIN_SOCKET not in route.served_on:
        raise Problem(Code.INVALID_VALUE, "query.node: requests for this path do not go to other nodes: ask that node")
    if len(named) > 1:
        raise Problem(Code.INVALID_VALUE, "query.node: name one node")
    return named[0]


def _note_change(scope: Scope, status: int, hub: EventHub) -> None:
    """Log a change in the audit log, and emit an event: the caller, the change, and its success."""
    caller = scope["state"].get("caller")
    subject = scope["state"].get("subject")  # where the path does not say it
    node = scope["state"].get("node")  # another one, which did it
    who = caller.shown if isinstance(caller, Caller) else "somebody"
    hub.on_administered(who, scope["method"], scope["path"], 200 <= status < 300)
    _audit.info(
        "%s %s%s%s by %s: %d",
        *(scope["method"], scope["path"], "" if subject is None else f" of {subject!r}"),
        *("" if node is None else f" at node {node}", who, status),
        extra={
            "fields": {
                "peer": peer_of(scope),
                "username": caller.username if isinstance(caller, Caller) else None,
                "how": caller.how if isinstance(caller, Caller) else None,
                "method": scope["method"],
                "path": scope["path"],
                "subject": subject,
                "node": node,
                "status": status,
            }
        },
    )


def _failure() -> Problem:
    return Problem(Code.INTERNAL_ERROR, "the broker failed to answer; its log says why")
