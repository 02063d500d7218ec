"""WebSockets with undecoded frames take turns here, within the work budget of a loop iteration.

Decoding an empty frame takes as long as handling a short packet, and a megabyte holds 170,000 of them. Invariant: a
WebSocket is in the queue once, and each iteration decodes at least a part of the first one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from mqttlite.core.connect.connection import Connection
from mqttlite.core.effects import Effects
from mqttlite.core.limits import ITERATION_WORK, OVERLOADED_BYTES
from mqttlite.net.link import MAX_DEFERRED_BYTES

FRAME_WORK: Final = 9
"""The work of a frame, without its payload."""

BYTES_PER_WORK_UNIT: Final = 512
"""How many bytes of payload are one unit of work to decode, beside what the core charges for them."""

PART_FRAMES: Final = 64
"""How many frames of a WebSocket are decoded before the next one's turn."""


class FrameQueue:
    """One for all listeners of a broker. `wake` makes the loop driver end the iteration and begin a new budget."""

    def __init__(self, effects: Effects, wake: Callable[[], None]) -> None:
        self._effects: Final = effects
        self._wake: Final = wake
        self._waiting: Final[deque[Callable[[], None]]] = deque()
        self._is_scheduled = False
        self._loop: Final = asyncio.get_running_loop()

    @property
    def has_budget(self) -> bool:
        """Whether this iteration has room for another part."""
        return self._effects.work < ITERATION_WORK

    @property
    def most_waiting_bytes(self) -> int:
        """How many bytes may arrive for a WebSocket in the queue before its socket is not read."""
        return OVERLOADED_BYTES if self._effects.is_short else MAX_DEFERRED_BYTES

    def charge(self, connection: Connection, frames: int, size: int) -> None:
        """Charge decoded frames with `size` bytes of payload to the budget, and to their client in an overload."""
        effects = self._effects
        work = FRAME_WORK * frames + size // BYTES_PER_WORK_UNIT
        effects.work += work
        connection.transport_work = work + (connection.transport_work if effects.meters_senders else 0)

    def put(self, decode_part: Callable[[], None]) -> None:
        """Call a WebSocket at its turn. If frames remain after it, the WebSocket queues itself again."""
        self._waiting.append(decode_part)
        self._schedule()

    def _run(self) -> None:
        """Decode part by part while the budget lasts, after the loop has read all sockets.

        The parts are guaranteed the least share, and the work after them as much again.
        """
        self._is_scheduled = False
        effects = self._effects
        used_before = effects.work
        effects.work = min(used_before, effects.share_from)
        while self._waiting and self.has_budget:
            self._waiting.popleft()()
        effects.work = max(used_before, min(effects.work, effects.share_from))
        if self._waiting:
            self._schedule()

    def _schedule(self) -> None:
        """Run before this iteration ends, because the next budget is first for the sockets that the loop reads."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)
            self._wake()
