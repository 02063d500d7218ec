"""`/api/v1/bridges`: list and look at bridges, pause and resume them."""

from collections.abc import Sequence

from mqttlite.extensions.bridge.bridge import Bridge, BridgeState
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.lists import Listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    bridges = context.bridges
    assert bridges is not None, "the routes belong to them"
    route = Routes("/api/v1", "bridges", served_on=OPERATORS)

    def find(name: str) -> Bridge:
        try:
            return bridges.get(name)
        except KeyError:
            raise Problem(Code.NOT_FOUND, f"there is no bridge {name!r}") from None

    @route.get("/bridges", Role.VIEWER, "List bridges")
    async def list_bridges() -> Listed[BridgeState]:
        """By name, with their states."""
        return Listed(items=bridges.states(), cursor=None)

    @route.get("/bridges/{name}", Role.VIEWER, "Show a bridge")
    async def show(name: str) -> BridgeState:
        """Its state, topics and counters since the start of the broker."""
        return find(name).view()

    @route.post("/bridges/{name}/pause", Role.OPERATOR, "Pause a bridge")
    async def pause(name: str) -> BridgeState:
        """It disconnects until it is resumed, or the broker starts again. Both brokers keep what is for the other."""
        bridge = find(name)
        await bridge.pause()
        return bridge.view()

    @route.post("/bridges/{name}/resume", Role.OPERATOR, "Resume a bridge")
    async def resume(name: str) -> BridgeState:
        """It connects now, also if it waits for its next attempt."""
        bridge = find(name)
        await bridge.resume()
        return bridge.view()

    return route.made
