"""`/api/v1/bridges`: list and look at bridges, add and remove them, pause and resume them."""

from collections.abc import Sequence

from mqttlite.config import ConfigError
from mqttlite.extensions.bridge.added import FILE_NAME
from mqttlite.extensions.bridge.bridge import Bridge, BridgeState
from mqttlite.extensions.bridge.bridges import Bridges
from mqttlite.extensions.bridge.errors import BridgeRefused
from mqttlite.extensions.bridge.options import BridgeOptions
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.lists import Listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.gateway.topic_routes import Done


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    bridges = context.bridges
    assert bridges is not None, "the routes belong to them"
    route = Routes("/api/v1", "bridges", served_on=OPERATORS)

    @route.get("/bridges", Role.VIEWER, "List bridges")
    async def list_bridges() -> Listed[BridgeState]:
        """By name, with their states."""
        return Listed(items=bridges.states(), cursor=None)

    @route.post("/bridges", Role.ADMIN, "Add a bridge", status=201)
    async def add(options: BridgeOptions) -> BridgeState:
        """It begins to connect, and is there after a restart, too."""
        try:
            bridge = await bridges.add(options)
        except BridgeRefused as error:
            raise Problem(Code.CONFLICT, str(error)) from None
        except ConfigError as error:
            raise Problem(Code.INVALID_VALUE, str(error)) from None
        except OSError as error:
            raise _not_written(error) from None
        await context.commit()
        return bridge.view()

    @route.delete("/bridges/{name}", Role.ADMIN, "Remove a bridge")
    async def remove(name: str) -> Done:
        """With the messages that wait in it. A bridge of the configuration is removed there."""
        await remove_bridge(bridges, name)
        await context.commit()
        return Done(success=True)

    @route.get("/bridges/{name}", Role.VIEWER, "Show a bridge")
    async def show(name: str) -> BridgeState:
        """Its state, topics and counters since the start of the broker."""
        return find(bridges, name).view()

    @route.post("/bridges/{name}/pause", Role.OPERATOR, "Pause a bridge")
    async def pause(name: str) -> BridgeState:
        """It disconnects until it is resumed, or the broker starts again. Both brokers keep what is for the other."""
        return (await pause_bridge(bridges, name)).view()

    @route.post("/bridges/{name}/resume", Role.OPERATOR, "Resume a bridge")
    async def resume(name: str) -> BridgeState:
        """It connects now, also if it waits for its next attempt."""
        return (await resume_bridge(bridges, name)).view()

    return route.made


async def remove_bridge(bridges: Bridges, name: str) -> None:
    """Raises `Problem`."""
    try:
        await bridges.remove(name)
    except BridgeRefused as error:
        raise Problem(Code.CONFLICT, str(error)) from None
    except KeyError:
        raise _not_found(name) from None
    except OSError as error:
        raise _not_written(error) from None


async def pause_bridge(bridges: Bridges, name: str) -> Bridge:
    """Raises `Problem`, also if it was removed meanwhile."""
    bridge = find(bridges, name)
    try:
        await bridge.pause()
    except KeyError:
        raise _not_found(name) from None
    return bridge


async def resume_bridge(bridges: Bridges, name: str) -> Bridge:
    """Raises `Problem`, also if it was removed meanwhile."""
    bridge = find(bridges, name)
    try:
        await bridge.resume()
    except KeyError:
        raise _not_found(name) from None
    return bridge


def find(bridges: Bridges, name: str) -> Bridge:
    """Raises `Problem`."""
    try:
        return bridges.get(name)
    except KeyError:
        raise _not_found(name) from None


def _not_found(name: str) -> Problem:
    return Problem(Code.NOT_FOUND, f"there is no bridge {name!r}")


def _not_written(error: OSError) -> Problem:
    return Problem(Code.BUSY, f"{FILE_NAME} in the data directory cannot be written: {error.strerror}")
