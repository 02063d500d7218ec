"""`/api/v1/bridges`: list and look at bridges, add and remove them, pause and resume them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mqttlite.config import ConfigError
from mqttlite.extensions.bridge.added import FILE_NAME
from mqttlite.extensions.bridge.bridge import BridgeState
from mqttlite.extensions.bridge.errors import BridgeRefused
from mqttlite.extensions.bridge.options import BridgeOptions
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.lists import Listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.gateway.topic_routes import Done


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    bridges = context.bridges
    assert bridges is not None, "the routes belong to them"
    route = Routes("/api/v1", "bridges", served_on=OPERATORS, reach=Reach.THING)

    @route.get("/bridges", Role.VIEWER, "List bridges", reach=Reach.LIST)
    async def list_bridges() -> Listed[BridgeState]:
        """By name, with their states."""
        return Listed(items=bridges.states(), cursor=None)

    @route.post("/bridges", Role.ADMIN, "Add a bridge", status=201, reach=Reach.HERE)
    async def add(options: BridgeOptions) -> BridgeState:
        """It begins to connect, and is there after a restart, too."""
        with problems(options.name):
            bridge = await bridges.add(options)
        await context.commit()
        return bridge.view()

    @route.delete("/bridges/{name}", Role.ADMIN, "Remove a bridge")
    async def remove(name: str) -> Done:
        """With the messages that wait in it. A bridge of the configuration is removed there."""
        with problems(name):
            await bridges.remove(name)
        await context.commit()
        return Done(success=True)

    @route.get("/bridges/{name}", Role.VIEWER, "Show a bridge")
    async def show(name: str) -> BridgeState:
        """Its state, topics and counters since the start of the broker."""
        with problems(name):
            return bridges.get(name).view()

    @route.post("/bridges/{name}/pause", Role.OPERATOR, "Pause a bridge")
    async def pause(name: str) -> BridgeState:
        """It disconnects until it is resumed, or the broker starts again. Both brokers keep what is for the other."""
        with problems(name):
            await bridges.get(name).pause()
            return bridges.get(name).view()

    @route.post("/bridges/{name}/resume", Role.OPERATOR, "Resume a bridge")
    async def resume(name: str) -> BridgeState:
        """It connects now, also if it waits for its next attempt."""
        with problems(name):
            await bridges.get(name).resume()
            return bridges.get(name).view()

    return route.made


@contextmanager
def problems(name: str) -> Iterator[None]:
    """Raise what bridges raise about one of them as a `Problem`."""
    try:
        yield
    except BridgeRefused as error:
        raise Problem(Code.CONFLICT, str(error)) from None
    except ConfigError as error:
        raise Problem(Code.INVALID_VALUE, str(error)) from None
    except KeyError:
        raise Problem(Code.NOT_FOUND, f"there is no bridge {name!r}") from None
    except OSError as error:
        raise Problem(Code.BUSY, f"{FILE_NAME} in the data directory cannot be written: {error.strerror}") from None
