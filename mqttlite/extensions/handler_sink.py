"""A receiver that is a function of an extension: the publisher is acknowledged when the function is done.

Invariant: a message that the function did not take is a drop, unless its publisher will send it again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.message import Message
from mqttlite.core.reasons import NACKED, QUEUE_FULL
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import DROPPED, QUEUED, QUOTA_EXCEEDED, SENT, Tally
from mqttlite.core.session.session import Session
from mqttlite.core.source import Source
from mqttlite.extensions.ending import end
from mqttlite.extensions.incoming import Incoming, incoming
from mqttlite.extensions.simple_sink import SimpleSink

MAX_WAITING: Final = 1_000
"""Messages that wait for one handler. One more is refused with 0x97, so that its publisher sends it again."""

MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""The size of these messages: a large one is taken only if it does not exceed this, or waits alone."""

FAILED: Final = 0x83
"""The reason code for a message whose handler raised: *implementation specific error*."""

_BUSY: Final = "its function was busy"
"""Why a message waits, for `mqttlite why`."""

_STOPPED: Final = "the broker stopped before it was done"
"""Why a message was dropped."""

_NO_CONNECTION: Final = 0
"""Connections have numbers from 1 on."""

MAX_DETAIL: Final = 200
"""The characters of an exception that the log of drops has."""

Handler = Callable[[Incoming], Awaitable[None] | None]
"""A function or coroutine that takes one message."""

_log = logging.getLogger("mqttlite.extensions")


class _Waiting(NamedTuple):
    """A message that waits for the handler, or that it has. `tally` is None where nobody waits for it."""

    message: Message
    source: Source
    tally: Tally | None


class HandlerSink(SimpleSink):
    """A `Sink`. Its messages are handled one after the other, in their order. `wake` has the broker send the answers
    that became ready."""

    def __init__(self, name: str, handler: Handler, effects: Effects, drops: Drops, wake: Callable[[], None]) -> None:
        self.name: Final = name
        self._handler: Final = handler
        self._effects: Final = effects
        self._drops: Final = drops
        self._wake: Final = wake
        self._waiting: Final[deque[_Waiting]] = deque()
        self._bytes = 0
        self._handled: _Waiting | None = None
        """The message that the handler has."""
        self._task: asyncio.Task[None] | None = None
        self._fails = False
        self._has_stopped = False

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
            self._drop(message, QUEUE_FULL, f"{len(self._waiting)}/{MAX_WAITING}", tally)
            tally.code = QUOTA_EXCEEDED
            return
        tally.queued += 1
        waits: Tally | None = None
        if message.qos:
            tally.pend()
            waits = tally
        self._waiting.append(_Waiting(message, source, waits))
        if message.trace and self._effects.tracer is not None:
            self._effects.tracer.on_queued(message.trace, self.name, _BUSY, len(self._waiting), MAX_WAITING)
        self._bytes += message.size()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting:
                waiting = self._handled = self._waiting.popleft()
                self._bytes -= waiting.message.size()
                try:
                    code = await self._handle(waiting)
                except asyncio.CancelledError:  # by `stop`, which leaves the message
                    return
                if self._handled is not waiting:  # `stop` did not wait any longer
                    return
                self._handled = None
                if waiting.tally is not None:
                    waiting.tally.settle(code)
                    self._wake()
        finally:
            self._task = None

    async def _handle(self, waiting: _Waiting) -> int:
        """The reason code for the publisher of one message."""
        message = waiting.message
        try:
            result = self._handler(incoming(message, waiting.source))
            if isinstance(result, Awaitable):
                await result
        except (Exception, asyncio.CancelledError) as error:  # the program's own code may raise anything
            if self._has_stopped:
                raise asyncio.CancelledError from error
            if not self._fails:  # one line until it works again
                _log.exception("%s failed for a message to %r, which is dropped", self.name, message.topic.decode())
            self._fails = True
            self._take_back(waiting, f"it raised {error!r}"[:MAX_DETAIL])
            return FAILED
        self._fails = False
        tracer = self._effects.tracer
        if message.trace and tracer is not None:
            tracer.on_sent(message.trace, self.name, _NO_CONNECTION, message.qos)
            tracer.on_acknowledged(message.trace, self.name)
        return 0

    def _take_back(self, waiting: _Waiting, detail: str) -> None:
        """Count a message as a drop that counted as queued."""
        if waiting.tally is not None:
            waiting.tally.queued -= 1
        self._drop(waiting.message, NACKED, detail, waiting.tally)

    def _drop(self, message: Message, reason: str, detail: str, tally: Tally | None) -> None:
        if tally is not None:
            tally.drop(reason)
        self._drops.add(reason, 1, message.topic, message.trace, detail, self.name)

    async def stop(self) -> None:
        """Handle no more. Publishers that can send a message again keep it; the others learn that it was dropped."""
        self._has_stopped = True
        while self._waiting:
            self._leave(self._waiting.popleft())
        self._bytes = 0
        if self._task is not None:
            await end([self._task], f"the function of {self.name}")
        if self._handled is not None:
            self._leave(self._handled)
            self._handled = None

    def _leave(self, waiting: _Waiting) -> None:
        """Give up a message that was not handled. A client is not answered, and sends it again: in 3.1.1 the answer
        could only be that it was."""
        tally = waiting.tally
        if tally is not None and isinstance(waiting.source, Session):
            return
        self._take_back(waiting, _STOPPED)
        if tally is not None:
            tally.settle(FAILED)
            self._wake()
