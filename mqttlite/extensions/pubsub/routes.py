"""All routes of the API, in the order in which they are looked at."""

from collections.abc import Sequence

from mqttlite.extensions.pubsub import iam, not_served, snapshots, subscriptions, topics
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.routing import Route


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of the API. Below a mount point it is not served."""
    if context.mount_point.prefix:
        return not_served.routes(context)
    return [
        *iam.routes(context),  # before those that take what has a colon for a name
        *topics.routes(context),
        *subscriptions.routes(context),
        *snapshots.routes(context),
        *not_served.routes(context),
    ]
