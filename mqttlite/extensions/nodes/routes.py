"""`/api/v1/nodes`: the other nodes, as this one sees them."""

from collections.abc import Sequence

from mqttlite.extensions.nodes.peer import NodeState
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.lists import Listed
from mqttlite.gateway.routing import OPERATORS, Route, Routes


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    nodes = context.nodes
    route = Routes("/api/v1", "nodes", served_on=OPERATORS)

    @route.get("/nodes", Role.VIEWER, "List the other nodes")
    async def list_nodes() -> Listed[NodeState]:
        """By name, as this node sees them; none if it is alone."""
        return Listed(items=[] if nodes is None else nodes.states(), cursor=None)

    return route.made
