"""The gateway's ASGI application: common handling of requests, and the routers.

For every request it limits the body, refuses pages of other sites (CSRF, CORS), formats errors as problems, sets
headers against caching and framing, and logs each change to the audit log. A router is a function in `ROUTERS`; a
`BareRoute` skips the framework for speed. Invariant: every request is answered with a response of the route or a
problem.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from fastapi import APIRouter, FastAPI
from fastapi.dependencies import models
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match

from mqttlite.build import version
from mqttlite.event_hub import EventHub
from mqttlite.gateway import (
    catalogue_routes,
    clients,
    docs_page,
    key_routes,
    me,
    named_sessions,
    operation_routes,
    publish_routes,
    queue_routes,
    retained,
    rule_changes,
    rule_routes,
    schema_routes,
    snapshot_routes,
    sse,
    topic_routes,
    unsubscribe,
    ws_json,
)
from mqttlite.gateway.bare import WEBSOCKET, BareRoute, BareRouteFactory
from mqttlite.gateway.bodies import App, Bodies, ClientGone, Message, Receive, Scope, Send, may_be_large, replay
from mqttlite.gateway.caller import Caller, Callers, peer_of
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.counters import HttpCounters, group_of
from mqttlite.gateway.dashboard import router as dashboard
from mqttlite.gateway.names_in_paths import keep_slashes
from mqttlite.gateway.openapi import describe
from mqttlite.gateway.problems import Code, Problem, of_framework
from mqttlite.gateway.pubsub import errors as pubsub_errors
from mqttlite.gateway.pubsub import iam as pubsub_iam
from mqttlite.gateway.pubsub import not_served as pubsub_not_served
from mqttlite.gateway.pubsub import snapshots as pubsub_snapshots
from mqttlite.gateway.pubsub import subscriptions as pubsub_subscriptions
from mqttlite.gateway.pubsub import topics as pubsub_topics
from mqttlite.gateway.traffic import is_traffic

RouterFactory = Callable[[GatewayContext], APIRouter]

ROUTERS: Final[tuple[RouterFactory, ...]] = (
    docs_page.router,
    me.router,
    topic_routes.router,
    schema_routes.router,
    catalogue_routes.router,
    dashboard.router,
    clients.router,
    retained.router,
    rule_routes.router,
    rule_changes.router,
    key_routes.router,
    queue_routes.router,
    snapshot_routes.router,
    operation_routes.router,
    pubsub_iam.router,  # before those that take what has a colon for a name
    pubsub_topics.router,
    pubsub_subscriptions.router,
    pubsub_snapshots.router,
    pubsub_not_served.router,
)
"""Each creates the routes of one subject. To add a subject, add a line."""

WITHOUT_MOUNT_POINT: Final = frozenset(
    {pubsub_iam.router, pubsub_topics.router, pubsub_subscriptions.router, pubsub_snapshots.router},
)
"""Routers that are not available below a mount point."""


ERRORS: Final[dict[str, Callable[[Problem], Response]]] = {
    pubsub_errors.PREFIX: pubsub_errors.google_error,
    schema_routes.PREFIX: schema_routes.registry_error,
}
"""Paths with another error format than `application/problem+json`, and the function for it."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""They change nothing."""

_PROTECTION: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""The default headers of routers' answers: URLs with `?token=` are not sent as referrer, and other sites cannot frame
pages."""

STATUS_OF_KIND: Final = {"http.response.start": 200, "websocket.accept": 101, "websocket.http.response.start": 403}
"""The messages that begin an answer, with their default status."""

_OWN_SITES: Final = frozenset({b"", b"same-origin", b"none"})
"""`Sec-Fetch-Site` of a program, of a page of the gateway, and of an address that somebody entered."""

STREAMS: Final = re.compile(r"/events|/api/v1/topics/[^/]*/subscribe|/ui/(.*/)?live")
"""Endless answers, which have no HEAD."""

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")

_FIRST: Final[Scope] = {"type": "http", "method": "GET", "path": "/-", "query_string": b"", "client": None}

_log = logging.getLogger("mqttlite.gateway")
_audit = logging.getLogger("mqttlite.audit")


BARE_ROUTES: Final[tuple[BareRouteFactory, ...]] = (
    publish_routes.routes,
    sse.routes,
    unsubscribe.routes,
    named_sessions.routes,
    ws_json.routes,
)
"""Each creates bare routes, which come before the routers' routes."""


def build_app(
    context: GatewayContext,
    routers: Sequence[RouterFactory] = ROUTERS,
    bare_routes: Sequence[BareRouteFactory] = BARE_ROUTES,
) -> "GatewayApp":
    """Build the application for one run of a broker."""
    callers = Callers(context)
    bodies = Bodies(context.options.max_body_bytes)
    bare = [route for make in bare_routes for route in make(context, bodies)]
    api = FastAPI(title="mqttlite", version=version(), docs_url=None, redoc_url=None, redirect_slashes=False)
    api.state.context = context
    api.state.callers = callers
    api.state.stopping = asyncio.Event()
    for make in routers:
        if make not in WITHOUT_MOUNT_POINT or not context.mount_point.prefix:
            # not include_router, which analyses each route once more: 50 ms of a start
            api.router.routes.extend(make(context).routes)
    api.add_exception_handler(HTTPException, _on_http_exception)
    api.add_exception_handler(RequestValidationError, _on_invalid)
    api.add_exception_handler(Exception, _on_failure)
    describe(api, [(route.method, route.path, route.description) for route in bare if route.method != WEBSOCKET])
    return GatewayApp(api, bare, callers, bodies, context)


def forget_endpoints() -> None:
    """Clear FastAPI's caches, which hold router functions, and through them a whole ended broker."""
    for each in vars(models).values():
        if clear := getattr(each, "cache_clear", None):
            clear()


class GatewayApp:
    """The whole application, for an ASGI server or a test client."""

    def __init__(
        self,
        api: FastAPI,
        bare: Sequence[BareRoute],
        callers: Callers,
        bodies: Bodies,
        context: GatewayContext,
    ) -> None:
        self._hub: Final = context.hub
        self._counters: Final = context.counters
        allowed_origins = context.options.allowed_origins
        self.api: Final = api
        self.bare: Final = tuple(bare)
        self.callers: Final = callers
        self.bodies: Final = bodies
        self.stopping: Final[asyncio.Event] = api.state.stopping
        """Set when the server stops: endless answers then end."""
        self._allowed_origins: Final = frozenset(allowed_origins)
        self._dispatch: App = self._route
        if allowed_origins:
            self._dispatch = CORSMiddleware(
                self._route,
                allow_origins=sorted(allowed_origins),
                allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
                allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
                expose_headers=["Retry-After"],
                max_age=600,
            )

    async def prepare(self) -> None:
        """Send an empty request to the framework, which builds its routes at the first request. Otherwise the first
        caller would wait 50 ms."""

        async def nothing() -> Message:
            return {"type": "http.disconnect"}

        async def nowhere(_: Message) -> None:
            pass

        await self.api({**_FIRST, "headers": [], "state": {}}, nothing, nowhere)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        send = _counted(self._counters, scope, send)
        try:
            _check_text(scope)
            if scope["type"] == "http":
                if scope["method"] not in SAFE_METHODS or STREAMS.fullmatch(scope["path"]):
                    self._check_origin(scope)
            elif scope["type"] == "websocket":
                self._check_origin(scope)
            await self._dispatch(scope, receive, send)
        except Problem as problem:
            await _send_problem(problem, scope, receive, send)
        except ClientGone:
            pass
        except Exception:  # of a bare route; the framework answers its own
            _log.exception("%s failed", scope["path"])
            await _send_problem(
                _failure(), scope, receive, send
            )  # which fails in the middle of an answer: it is cut off

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            path = scope["path"]
            if scope["type"] == "http" and scope["method"] == "HEAD" and not STREAMS.fullmatch(path):
                scope, send = {**scope, "method": "GET"}, _without_body(send)
            method = WEBSOCKET if scope["type"] == "websocket" else scope["method"]
            for route in self.bare:
                if method == route.method and (part := route.match(path)) is not None:
                    caller = await self.callers.admit(
                        HTTPConnection(scope), token_in_query=route.takes_token, is_counted=route.is_counted
                    )
                    await route.endpoint(caller, part, scope, receive, send)
                    return
            if method == WEBSOCKET:
                raise Problem(Code.NOT_FOUND, "there is no WebSocket at this path")
            others = {
                route.method for route in self.bare if route.method != WEBSOCKET and route.match(path) is not None
            }
            if others:
                allowed = {"Allow": ", ".join(sorted(others))}
                raise Problem(Code.METHOD_NOT_ALLOWED, "this path has other methods", headers=allowed)
            if may_be_large(scope):  # callers without credentials must not use up the budget
                await self.callers.admit(HTTPConnection(scope), is_counted=False)
            body = await self.bodies.read(scope, receive)
            try:
                await self._by_framework(scope, replay(body, receive), send)
            finally:
                self.bodies.release(body)
        except Problem as problem:  # here, for the CORS headers
            await _send_problem(problem, scope, receive, send)

    async def _by_framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def send_protected(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                headers = [*message["headers"], *(each for each in _PROTECTION if each[0] not in present)]
                if b"cache-control" not in present:
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.api(keep_slashes(scope), receive, send_protected)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if "answered_failure" not in scope["state"]:  # in the middle of an answer: the connection ends
                raise
        if scope["method"] not in SAFE_METHODS and not is_traffic(scope):
            _note_change(scope, status, self._hub)

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


def _note_change(scope: Scope, status: int, hub: EventHub) -> None:
    """Log a change in the audit log, and emit an event: the caller, the change, and its success."""
    caller = scope["state"].get("caller")
    subject = scope["state"].get("subject")  # where the path does not say it
    who = "somebody" if not isinstance(caller, Caller) else f"{caller.username or 'anonymous'} ({caller.how})"
    hub.on_administered(who, scope["method"], scope["path"], 200 <= status < 300)
    _audit.info(
        "%s %s%s by %s: %d",
        *(scope["method"], scope["path"], "" if subject is None else f" of {subject!r}", who, status),
        extra={
            "fields": {
                "peer": peer_of(scope),
                "username": caller.username if isinstance(caller, Caller) else None,
                "how": caller.how if isinstance(caller, Caller) else None,
                "method": scope["method"],
                "path": scope["path"],
                "subject": subject,
                "status": status,
            }
        },
    )


def _answer_to(problem: Problem, scope: Scope) -> Response:
    path: str = scope["path"]
    for prefix, answer in ERRORS.items():
        if path.startswith(prefix):
            return answer(problem)
    return problem.response()


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:  # the framework names the methods of one of the routes
        error.headers = {"Allow": ", ".join(each for each in _METHODS if _has(request, each))}
    return _answer_to(of_framework(error), request.scope)


def _has(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(each.matches(scope)[0] is Match.FULL for each in request.app.routes)


async def _on_failure(request: Request, _error: Exception) -> Response:
    request.scope["state"]["answered_failure"] = True
    return _answer_to(_failure(), request.scope)


def _failure() -> Problem:
    return Problem(Code.INTERNAL_ERROR, "the broker failed to answer; its log says why")


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # These hold FastAPI's frames, and the frames the error: garbage that is collected late.
    error.__traceback__ = error.__cause__ = error.__context__ = None
    found = [
        {"at": ".".join(str(part) for part in each["loc"]), "message": str(each["msg"])} for each in error.errors()
    ][:MAX_ERRORS]
    first = found[0]
    is_unreadable = any(each["type"] == "json_invalid" for each in error.errors())
    code = Code.BAD_REQUEST if is_unreadable else Code.INVALID_VALUE
    problem = Problem(code, f"{first['at']}: {first['message']}", errors=found)
    return _answer_to(problem, request.scope)


MAX_ERRORS: Final = 20
"""The most wrong values that an answer names."""


async def _send_problem(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    prefix = "http"
    if scope["type"] == "websocket":  # before it is accepted; after that a route answers with messages
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": str(problem.detail)[:100]})
            return
        prefix = "websocket.http"
    response = _answer_to(problem, scope)
    headers = [*response.raw_headers, (b"cache-control", b"no-store"), *_PROTECTION]
    await send({"type": f"{prefix}.response.start", "status": response.status_code, "headers": headers})
    await send({"type": f"{prefix}.response.body", "body": response.body})
