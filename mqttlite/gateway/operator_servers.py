"""The HTTP application as the admin socket and the metrics port serve it: the routes for operators, without logins.

Invariants: programs that connect and say nothing keep no operator out; all that the routes need is imported with this
module, which `LateServer` does in a thread.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from mqttlite.config.http import HttpOptions
from mqttlite.event_hub import EventHub
from mqttlite.extensions.built_in import BUILT_IN, resolve
from mqttlite.gateway import (
    clients,
    metrics_routes,
    operation_routes,
    retained,
)
from mqttlite.gateway.app import PROTECTION, HttpApp
from mqttlite.gateway.caller import Callers, MetricsCallers, NodeCallers, SocketCallers
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.counters import HttpCounters
from mqttlite.gateway.http_server import HttpServer
from mqttlite.gateway.problems import ErrorFormat
from mqttlite.gateway.routing import Route, ServedOn, Table
from mqttlite.gateway.strangers import Strangers
from mqttlite.net.endpoints import TcpEndpoint, UnixEndpoint

HEAD_BYTES: Final = 131_072
"""Of a request's line and headers at the socket: a topic filter may have 65,535 bytes, and bytes that come in parts
count twice."""

LIMITS: Final = HttpOptions(
    max_connections=32, request_timeout_s=5.0, keep_alive_s=5.0, max_body_bytes=4_194_304, requests_per_s=0
)
"""Some commands and dashboards at a time; a body may have messages of an archive of streams."""

FEATURES: Final[tuple[Callable[[OperatorContext], Sequence[Route]], ...]] = (
    clients.routes,
    retained.routes,
    operation_routes.routes,
    metrics_routes.routes,
    *(resolve(reference) for manifest in BUILT_IN.values() for reference in manifest.routes),
)
"""Each makes the routes of one feature; those of extensions come behind the others."""


def build_socket_server(context: OperatorContext, endpoint: UnixEndpoint, clock: Callable[[], float]) -> HttpServer:
    """Build the server of the admin socket, whose callers may do everything."""
    table = Table("the reference of the HTTP API lists what there is, and some is not served at the socket")
    table.add(_routes(context, ServedOn.ADMIN_SOCKET))
    counters = HttpCounters()
    app = HttpApp(
        SocketCallers(),
        context.hub,
        counters=counters,
        max_body_bytes=LIMITS.max_body_bytes,
        table=table,
        elsewhere=context.elsewhere,
    )
    return _server(app, counters, endpoint, clock, head_bytes=HEAD_BYTES)


def build_node_app(context: OperatorContext, callers: Callers | None) -> HttpApp:
    """Build the application for requests of other nodes: the routes of the admin socket, with the roles of callers at
    those nodes. `callers` are those of the gateway here."""
    table = Table("the reference of the HTTP API lists what there is, and some is not served to other nodes")
    table.add(_routes(context, ServedOn.ADMIN_SOCKET))
    counters = HttpCounters()
    callers_there = NodeCallers(callers, context.admin.bans)
    return HttpApp(callers_there, context.hub, counters=counters, max_body_bytes=LIMITS.max_body_bytes, table=table)


def build_metrics_server(
    context: OperatorContext, endpoint: TcpEndpoint, clock: Callable[[], float], *, is_local_only: bool
) -> HttpServer:
    """Build the server of the metrics port, whose callers may look."""
    routes = _routes(context, ServedOn.METRICS_PORT)
    return build_looking_server(routes, context.hub, endpoint, clock, is_local_only=is_local_only)


def build_looking_server(
    routes: Sequence[Route],
    hub: EventHub,
    endpoint: TcpEndpoint,
    clock: Callable[[], float],
    *,
    is_local_only: bool,
) -> HttpServer:
    """Build a server of routes that change nothing. They ask for no login."""
    table = Table(f"there are {', '.join(route.path for route in routes)}")
    table.add(routes)
    counters = HttpCounters()
    app = HttpApp(
        MetricsCallers(is_local_only),
        hub,
        counters=counters,
        max_body_bytes=LIMITS.max_body_bytes,
        errors={"": ErrorFormat(metrics_routes.as_sentence, {})},
        table=table,
        headers=(*PROTECTION, (b"connection", b"close")),
    )
    return _server(app, counters, endpoint, clock, answer_to=metrics_routes.as_sentence)


def _routes(context: OperatorContext, listener: ServedOn) -> list[Route]:
    return [route for make in FEATURES for route in make(context) if listener in route.served_on]


def _server(
    app: HttpApp,
    counters: HttpCounters,
    endpoint: TcpEndpoint | UnixEndpoint,
    clock: Callable[[], float],
    **options: Any,
) -> HttpServer:
    strangers = Strangers(0, is_known=lambda _scope: True, is_loaded=lambda: False, clock=clock)
    return HttpServer(
        *(app, LIMITS, counters, None, lambda _tls: {}, strangers), endpoint=endpoint, for_operators=True, **options
    )
