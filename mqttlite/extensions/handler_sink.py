"""A receiver that is a function of an extension: the publisher is acknowledged when the function is done."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import DROPPED, QUEUED, QUOTA_EXCEEDED, SENT, Tally
from mqttlite.core.source import Source
from mqttlite.extensions.incoming import Incoming, incoming

MAX_WAITING: Final = 1_000
"""Messages that wait for one handler. One more is refused with 0x97, so that its publisher sends it again."""

MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""The size of these messages: a large one is taken only if it does not exceed this, or waits alone."""

FAILED: Final = 0x83
"""The reason code for a message whose handler raised: *implementation specific error*."""

Handler = Callable[[Incoming], Awaitable[None] | None]
"""A function or coroutine that takes one message."""

_log = logging.getLogger("mqttlite.extensions")


class HandlerSink:
    """A `Sink`. Its messages are handled one after the other, in their order. `wake` has the broker send the answers
    that became ready."""

    def __init__(self, name: str, handler: Handler, wake: Callable[[], None]) -> None:
        self.name: Final = name
        self._handler: Final = handler
        self._wake: Final = wake
        self._waiting: Final[deque[tuple[Incoming, int, Tally | None]]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._fails = False
        self._has_stopped = False

    def prepare(self, messages: int) -> bool:
        """Implements `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        """Implements `Sink`."""
        if self._has_stopped or len(self._waiting) >= MAX_WAITING:
            return False
        return not self._waiting or self._bytes + message.size() <= MAX_WAITING_BYTES

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        if not self.has_room(message, message.qos):
            return [planned_sink(self.name, DROPPED, QUEUE_FULL)]
        return [planned_sink(self.name, QUEUED if self._task is not None else SENT)]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        if not self.has_room(message, message.qos):
            tally.drop(QUEUE_FULL)
            tally.code = QUOTA_EXCEEDED
            return
        tally.queued += 1
        waits: Tally | None = None
        if message.qos:
            tally.pend()
            waits = tally
        self._waiting.append((incoming(message, source), message.size(), waits))
        self._bytes += message.size()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        for at in range(batch.count):
            self.accept(batch.delivery(at, 0).message, source, tally)

    async def _work(self) -> None:
        try:
            while self._waiting:
                message, size, tally = self._waiting.popleft()
                self._bytes -= size
                code = FAILED
                try:
                    code = await self._handle(message)
                finally:
                    if tally is not None:
                        tally.settle(code)
                        self._wake()
        finally:
            self._task = None

    async def _handle(self, message: Incoming) -> int:
        """The reason code for the publisher of one message."""
        try:
            result = self._handler(message)
            if isinstance(result, Awaitable):
                await result
        except (Exception, asyncio.CancelledError):  # the program's own code may raise anything
            if self._has_stopped:
                raise
            if not self._fails:  # one line until it works again
                _log.exception("%s failed for a message to %r, and the publisher is told", self.name, message.topic)
            self._fails = True
            return FAILED
        self._fails = False
        return 0

    async def stop(self) -> None:
        """Handle no more. Messages that wait are refused, so that their publishers keep them."""
        self._has_stopped = True
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        while self._waiting:
            tally = self._waiting.popleft()[2]
            if tally is not None:
                tally.settle(FAILED)
