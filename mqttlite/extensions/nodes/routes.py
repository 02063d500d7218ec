"""`/api/v1/nodes`: the other nodes, as this one sees them; and whether this one drains."""

from collections.abc import Sequence

from mqttlite.extensions.nodes.draining import Drain, DrainState
from mqttlite.extensions.nodes.held_document import DocumentState
from mqttlite.extensions.nodes.node_state import NodeState
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.lists import Listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    nodes = context.nodes
    route = Routes("/api/v1", "nodes", served_on=OPERATORS)

    def drain_of() -> Drain:
        if nodes is None:
            raise Problem(Code.CONFLICT, "this broker is no node: its configuration has no section nodes")
        return nodes.drain

    @route.get("/nodes", Role.VIEWER, "List the other nodes")
    async def list_nodes() -> Listed[NodeState]:
        """By name, as this node sees them; none if it is alone."""
        return Listed(items=[] if nodes is None else nodes.states(), cursor=None)

    @route.get("/nodes/documents", Role.VIEWER, "List what all nodes have of what operators change at run time")
    async def list_documents() -> Listed[DocumentState]:
        """By name, as the node that is asked has it; none if it is alone."""
        return Listed(items=[] if nodes is None else nodes.documents(), cursor=None)

    @route.get("/nodes/drain", Role.VIEWER, "Show how far a node that drains is")
    async def show_drain() -> DrainState:
        """Of the node that is asked."""
        return drain_of().state()

    @route.post("/nodes/drain", Role.ADMIN, "Take a node out of service")
    async def begin_drain() -> DrainState:
        """The node that is asked takes no new sessions, sends its clients away and moves their sessions to other nodes.
        `/readyz` answers 503. It ends with a start of the node, or with DELETE."""
        drain = drain_of()
        drain.begin()
        return drain.state()

    @route.delete("/nodes/drain", Role.ADMIN, "Take a node into service again")
    async def end_drain() -> DrainState:
        """It takes sessions again. Those that went away stay where they are."""
        drain = drain_of()
        drain.end()
        return drain.state()

    return route.made
