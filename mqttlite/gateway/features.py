"""The features of the gateway, and its application with their routes.

Invariant: each route is made in the module of its feature.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mqttlite.extensions.built_in import BUILT_IN, resolve
from mqttlite.gateway import (
    catalogue_routes,
    clients,
    docs_page,
    key_routes,
    me,
    named_sessions,
    operation_routes,
    publish_routes,
    request_routes,
    retained,
    rule_changes,
    rule_routes,
    sse,
    topic_routes,
    unsubscribe,
    ws_json,
)
from mqttlite.gateway.app import HttpApp
from mqttlite.gateway.bodies import Bodies
from mqttlite.gateway.caller import Callers
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.path_prefix import PathPrefix
from mqttlite.gateway.routing import Route

Routes = Sequence[Route]

FEATURES: Final[tuple[Callable[[GatewayContext], Routes], ...]] = (
    docs_page.routes,
    me.routes,
    topic_routes.routes,
    catalogue_routes.routes,
    clients.routes,
    retained.routes,
    rule_routes.routes,
    rule_changes.routes,
    key_routes.routes,
    operation_routes.routes,
)
"""Each makes the routes of one feature. Those of extensions, in their manifests, come behind them."""

BARE_FEATURES: Final[tuple[Callable[[GatewayContext, Bodies], Routes], ...]] = (
    publish_routes.routes,
    request_routes.routes,
    sse.routes,
    unsubscribe.routes,
    named_sessions.routes,
    ws_json.routes,
)
"""Features whose routes are bare. They come first."""


def build_app(context: GatewayContext, callers: Callers) -> HttpApp:
    """Build the application for one run of a broker."""
    options = context.options
    app = HttpApp(
        callers,
        context.hub,
        counters=context.counters,
        max_body_bytes=options.max_body_bytes,
        allowed_origins=options.allowed_origins,
        prefix=PathPrefix(options) if options.root_path or options.trusted_proxies else None,
        elsewhere=context.elsewhere,
    )
    for make_bare in BARE_FEATURES:
        app.table.add(make_bare(context, app.bodies))
    for make in FEATURES:
        app.table.add(make(context))
    for manifest in BUILT_IN.values():
        for reference in (*manifest.routes, *manifest.gateway_routes):
            app.table.add(resolve(reference)(context))
    return app
