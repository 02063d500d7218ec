"""The dashboard's page of nodes: the others, what waits for them, and the documents that all nodes have.

Invariant: the page shows what the routes `/api/v1/nodes` and `/api/v1/nodes/documents` answer.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.dashboard import Dashboard
from mqttlite.gateway.caller import Caller, Role

NODES: Final = "/ui/nodes"

KINDS: Final = {"connected": "good", "away": "bad", "draining": "warn", "drained": "warn"}
"""The colour of each state."""


def add(dashboard: Dashboard) -> None:
    """The page, if the broker is one of several nodes."""
    nodes = dashboard.context.nodes
    if nodes is None:
        return

    @dashboard.shown.get(NODES, Role.VIEWER)
    async def listed(request: Request, caller: Caller) -> Response:
        return dashboard.pages.render(
            *("nodes.html", request, caller),
            me=nodes.node,
            drain=nodes.drain.step,
            nodes=nodes.states(),
            kinds=KINDS,
            documents=nodes.documents(),
        )
