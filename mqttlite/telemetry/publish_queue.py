"""Queues the broker's own messages for publishing: client events and `$SYS`.

An event may have many subscribers, and a network failure causes thousands of events at once, so the queue publishes for
`SLICE_S` in each iteration of the event loop, and clients' packets are handled in between. Invariant: all messages are
published, in order.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mqttlite.core.broker import Broker
from mqttlite.core.inbound.inbound import Ticket
from mqttlite.core.limits import ITERATION_WORK
from mqttlite.core.source import THE_BROKER

SLICE_S: Final = 0.004
"""How long the queue publishes in one loop iteration, after its first message and within the work budget. Writing these
messages takes about as long again; together they stay below the 20 ms that one client may delay others."""

MAX_MESSAGES: Final = 50_000
"""The most waiting messages, some 20 MB: all clients of a large broker leave at once. One more publishes the oldest
immediately, which slows the loop but loses no event."""


class _Message(NamedTuple):
    topic: bytes
    payload: bytes
    retain: bool


class PublishQueue:
    """`now` returns the broker's seconds; `wake` makes the loop driver write published messages."""

    def __init__(
        self,
        core: Broker,
        wake: Callable[[], None],
        now: Callable[[], float],
        *,
        call_soon: Callable[[Callable[[], None]], Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._core: Final = core
        self._wake: Final = wake
        self._now: Final = now
        self._call_soon: Final = asyncio.get_running_loop().call_soon if call_soon is None else call_soon
        self._clock: Final = clock
        self._messages: Final[deque[_Message]] = deque()
        self._under_way: Ticket | None = None
        """The fan-out of the latest message, which may take several loop iterations."""
        self._is_scheduled = False

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._messages)

    def put(self, topic: bytes, payload: bytes, *, retain: bool = False) -> None:
        """Publish a message at QoS 0 in one of the next loop iterations."""
        if len(self._messages) >= MAX_MESSAGES:
            self._publish_oldest()
        self._messages.append(_Message(topic, payload, retain))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._publish_slice)

    def clear(self) -> None:
        """Drop all waiting messages, because the broker stops."""
        self._messages.clear()

    def _publish_slice(self) -> None:
        self._is_scheduled = False
        if not self._messages:
            return
        ends_at = self._clock() + SLICE_S
        effects = self._core.effects
        while self._is_free() and self._messages:
            self._publish_oldest()
            if effects.work >= ITERATION_WORK or self._clock() >= ends_at:
                break
        self._wake()
        if self._messages:
            self._is_scheduled = True
            self._call_soon(self._publish_slice)

    def _is_free(self) -> bool:
        """Whether the fan-out of the latest message is done, so that the next cannot overtake it."""
        return self._under_way is None or self._under_way.done

    def _publish_oldest(self) -> None:
        message = self._messages.popleft()
        self._under_way = self._core.publish(
            message.topic, message.payload, 0, message.retain, self._now(), source=THE_BROKER
        )
