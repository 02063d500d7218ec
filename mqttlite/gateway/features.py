"""The features of the gateway, and its application with their routes.

Invariant: each route is made in the module of its feature.
"""

from collections.abc import Callable, Mapping, Sequence
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
    queue_routes,
    request_routes,
    retained,
    rule_changes,
    rule_routes,
    snapshot_routes,
    sse,
    topic_routes,
    unsubscribe,
    ws_json,
)
from mqttlite.gateway.app import HttpApp
from mqttlite.gateway.bodies import Bodies
from mqttlite.gateway.caller import Callers
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.dashboard import router as dashboard
from mqttlite.gateway.path_prefix import PathPrefix
from mqttlite.gateway.problems import ErrorFormat
from mqttlite.gateway.pubsub import errors as pubsub_errors
from mqttlite.gateway.pubsub import iam as pubsub_iam
from mqttlite.gateway.pubsub import not_served as pubsub_not_served
from mqttlite.gateway.pubsub import snapshots as pubsub_snapshots
from mqttlite.gateway.pubsub import subscriptions as pubsub_subscriptions
from mqttlite.gateway.pubsub import topics as pubsub_topics
from mqttlite.gateway.routing import Route

Routes = Sequence[Route]

FEATURES: Final[tuple[Callable[[GatewayContext], Routes], ...]] = (
    docs_page.routes,
    me.routes,
    topic_routes.routes,
    catalogue_routes.routes,
    dashboard.routes,
    clients.routes,
    retained.routes,
    rule_routes.routes,
    rule_changes.routes,
    key_routes.routes,
    queue_routes.routes,
    snapshot_routes.routes,
    operation_routes.routes,
    pubsub_iam.routes,  # before those that take what has a colon for a name
    pubsub_topics.routes,
    pubsub_subscriptions.routes,
    pubsub_snapshots.routes,
    pubsub_not_served.routes,
)
"""Each makes the routes of one feature. Those of extensions, in their manifests, come behind them."""

WITHOUT_MOUNT_POINT: Final = frozenset(
    {pubsub_iam.routes, pubsub_topics.routes, pubsub_subscriptions.routes, pubsub_snapshots.routes},
)
"""Features that are not available below a mount point."""

ERRORS: Final[Mapping[str, ErrorFormat]] = {
    pubsub_errors.PREFIX: ErrorFormat(pubsub_errors.google_error, pubsub_errors.DESCRIPTION),
}
"""Paths with another error format than `application/problem+json`."""

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
        errors=ERRORS,
        prefix=PathPrefix(options) if options.root_path or options.trusted_proxies else None,
    )
    for make_bare in BARE_FEATURES:
        app.table.add(make_bare(context, app.bodies))
    for make in FEATURES:
        if make not in WITHOUT_MOUNT_POINT or not context.mount_point.prefix:
            app.table.add(make(context))
    for manifest in BUILT_IN.values():
        for reference in manifest.routes:
            app.table.add(resolve(reference)(context))
    return app
