"""`LogRoom`: the machine that serves keeps room in the log. It trims it, and makes snapshots."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from mqttlite.engine.port import Bounds, Engine, EngineError, EngineUnavailable
from mqttlite.extensions.cluster import keys, snapshot
from mqttlite.extensions.cluster.disk import Disk
from mqttlite.extensions.cluster.status import NodeStatus
from mqttlite.extensions.cluster.trim import is_filling, trim_before
from mqttlite.extensions.cluster.trouble import Trouble

LOOK_S: Final = 2.0
"""The interval in which it looks at the log."""

_log = logging.getLogger("mqttlite.cluster")


class LogRoom:
    """Of the log in an engine."""

    def __init__(self, engine: Engine, disk: Disk, max_bytes: int) -> None:
        self._engine: Final = engine
        self._disk: Final = disk
        self.bounds: Bounds = Bounds(1, 0, 0, max_bytes)
        """What the log held when this machine last looked."""
        self.snapshot: int = 0
        """How far the engine's snapshot was then; 0 if there was none."""
        self.is_silent: bool = False
        """Whether the engine gave no answer to the last question about the log."""
        self._trouble: Final = Trouble(_log, "the log cannot be made shorter", "the log is made shorter again")
        self.on_looked: Callable[[], None] = lambda: None
        """Called after each look at the log while this machine serves."""

    async def look(self) -> None:
        """Look at the log. Raises `EngineError`."""
        self.bounds = await self._engine.bounds(keys.LOG)

    async def keep(self, position: Callable[[], int], machines: Callable[[], Collection[NodeStatus]]) -> None:
        """Keep room, again and again. For the arguments see `make_room`."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.make_room(position(), machines())

    async def make_room(self, position: int, machines: Collection[NodeStatus]) -> None:
        """Trim the log, or make a snapshot: for a machine that needs one, or because nothing else lets the log be
        trimmed. `position` is how far the database has the log."""
        try:
            bounds = self.bounds = await self._engine.bounds(keys.LOG)
            kept = self.snapshot = await snapshot.position_of(self._engine)
            durable = [each.durable for each in machines if each.role != "waits for a snapshot"]
            is_waited_for = len(durable) < len(machines)
            is_full = is_filling(bounds.size_bytes, bounds.max_bytes)
            before = trim_before(durable, kept, bounds.size_bytes, bounds.max_bytes)
            if is_waited_for and not is_full:  # what is behind the snapshot is still to be read
                before = min(before, kept + 1)
            if before > bounds.first:
                await self._engine.trim(keys.LOG, before)
            if (is_waited_for and kept < max(1, bounds.first - 1)) or (
                is_full and before <= bounds.first and kept < position
            ):
                await snapshot.make(self._engine, self._disk, position)
            self.is_silent = False
            self._trouble.worked()
        except (EngineError, OSError) as error:
            self.is_silent = isinstance(error, EngineUnavailable)
            self._trouble.failed(error)
        self.on_looked()
