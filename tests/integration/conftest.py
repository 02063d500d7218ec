"""Real sockets, on asyncio's own loop and on uvloop. What needs hours runs on the first, whose clock jumps."""

import asyncio
import selectors
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.security.certificates import init
from mqttlite.server import Broker
from mqttlite.wire.constants import V5
from tests.support.device import Device
from tests.support.loops import HAS_UVLOOP, left_for_tomorrow, new_event_loop


class JumpingLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop; `jump` makes it later at once."""

    def __init__(self) -> None:
        super().__init__(selectors.DefaultSelector())
        self._jumped_s = 0.0

    def time(self) -> float:
        return super().time() + self._jumped_s

    def jump(self, seconds: float) -> None:
        self._jumped_s += seconds


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": JumpingLoop, "uvloop": new_event_loop}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each test is quick on one loop; on the other it is one of the slow ones, and skipped where that is missing. A run
    of all tests has each of them on the loop of the day."""
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in ours:
        if "uvloop" in item.name:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.skipif(not HAS_UVLOOP, reason="uvloop is not installed"))
    left = left_for_tomorrow(item.nodeid for item in ours)
    if left:
        config.hook.pytest_deselected(items=[item for item in ours if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


@pytest.fixture
def jump() -> Callable[[float], None]:
    """Make it later. Only on asyncio's own loop."""

    def jump(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        loop.jump(seconds)

    return jump


@pytest.fixture
async def rig() -> AsyncIterator["Rig"]:
    async with Rig() as rig:
        yield rig


class Rig:
    """Brokers and devices of one test, all gone at its end."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Rig":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def close_at_end(self, opened: socket.socket) -> None:
        self._stack.callback(opened.close)

    async def broker(self, config: Config | None = None, **options: object) -> Broker:
        """A broker on a port of its own; `limits` makes a config of them."""
        limits = options.pop("limits", None)
        if config is None:
            config = Config(
                listeners=(ListenerOptions(port=0),), limits=limits if isinstance(limits, Limits) else Limits()
            )
        return await self.enter(Broker(config, **options))  # type: ignore[arg-type]

    async def enter(self, broker: Broker) -> Broker:
        """A broker that is started here."""
        await self._stack.enter_async_context(broker)
        return broker

    async def dial(self, port: int, version: int = V5, **options: object) -> Device:
        device = await Device.dial(port, version, **options)  # type: ignore[arg-type]
        self._stack.push_async_callback(device.close)
        return device

    async def device(self, port: int, client_id: str, version: int = V5, **options: object) -> Device:
        """A device that is connected."""
        dialled = {name: options.pop(name) for name in ("host", "tls", "small_buffers") if name in options}
        device = await self.dial(port, version, **dialled)
        await device.connect(client_id, **options)
        return device


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    init(directory, clients=["thermometer"])
    return directory
