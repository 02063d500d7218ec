"""What of Google's API is not served: each method is refused with a sentence that says what there is instead."""

from collections.abc import Sequence
from typing import Final

from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import METHODS, Route, Routes

REFUSALS: Final[dict[str, str]] = {
    "schemas": "schemas: the schema registry is at /registry",
}
"""By the method, or by the kind of resource."""

BELOW_A_MOUNT_POINT: Final = (
    "Google Pub/Sub's API is served where http.mount_point is empty: its projects and queues are common to all clients"
)


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module; they come after those of what is served."""
    route = Routes("/v1")

    async def refuse(path: str) -> None:
        for segment in path.split("/"):
            refusal = BELOW_A_MOUNT_POINT if context.mount_point.prefix else REFUSALS.get(segment.rpartition(":")[2])
            if refusal is not None:
                raise Problem(Code.NOT_AVAILABLE, refusal)
        raise Problem(Code.NOT_FOUND, f"there is no such method of Google Pub/Sub here: /v1/{path[:200]}")

    for method in METHODS:
        route.add(method, "/{path:path}", Role.USER)(refuse)
    return route.made
