"""The HTTP application as the admin socket serves it: the routes for operators, without logins.

Invariant: every caller has the role admin, because the mode of the socket decides who may connect.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mqttlite.config.http import HttpOptions
from mqttlite.extensions.built_in import BUILT_IN, resolve
from mqttlite.gateway import (
    clients,
    operation_routes,
    queue_routes,
    retained,
    snapshot_routes,
)
from mqttlite.gateway.app import HttpApp
from mqttlite.gateway.caller import SocketCallers
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.counters import HttpCounters
from mqttlite.gateway.http_server import HttpServer
from mqttlite.gateway.routing import Route, ServedOn
from mqttlite.gateway.strangers import Strangers
from mqttlite.net.endpoints import UnixEndpoint

HEAD_BYTES: Final = 131_072
"""Of a request's line and headers: a topic filter may have 65,535 bytes, and bytes that come in parts count twice."""

LIMITS: Final = HttpOptions(
    max_connections=32, request_timeout_s=5.0, keep_alive_s=5.0, max_body_bytes=262_144, requests_per_s=0
)
"""Some commands and dashboards at a time; a body may be a schema with its topic."""

FEATURES: Final[tuple[Callable[[OperatorContext], Sequence[Route]], ...]] = (
    clients.routes,
    retained.routes,
    queue_routes.routes,
    snapshot_routes.routes,
    operation_routes.routes,
)
"""Each makes the routes of one feature. Those of extensions, in their manifests, come behind them."""


def build_socket_app(context: OperatorContext, counters: HttpCounters) -> HttpApp:
    """Build the application for one run of a broker."""
    app = HttpApp(
        SocketCallers(),
        context.hub,
        counters=counters,
        max_body_bytes=LIMITS.max_body_bytes,
    )
    extensions = [resolve(reference) for manifest in BUILT_IN.values() for reference in manifest.routes]
    for make in (*FEATURES, *extensions):
        app.table.add([route for route in make(context) if ServedOn.ADMIN_SOCKET in route.served_on])
    return app


def build_socket_server(context: OperatorContext, endpoint: UnixEndpoint, clock: Callable[[], float]) -> HttpServer:
    """Build the server for the connections that `endpoint` accepts."""
    counters = HttpCounters()
    strangers = Strangers(0, is_known=lambda _scope: True, is_loaded=lambda: False, clock=clock)
    return HttpServer(
        *(build_socket_app(context, counters), LIMITS, counters, None, lambda _tls: {}, strangers),
        endpoint=endpoint,
        head_bytes=HEAD_BYTES,
    )
