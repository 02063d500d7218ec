"""Messages of the broker's own that wait to be published: of clients that come and go, and of `$SYS`.

One event may cost a delivery for each of many watchers, and a network failure makes thousands of events at once, so
the queue publishes for `SLICE_S` in each iteration of the event loop and lets the clients' packets in between.
Invariant: messages are published in the order in which they were put, and none is left out.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mqttlite.core.broker import Broker
from mqttlite.core.limits import ITERATION_WORK
from mqttlite.core.source import THE_BROKER

SLICE_S: Final = 0.004
"""How long the queue publishes in one loop iteration, after its first message and within the iteration's work budget.
What it published is written in the same iteration, which takes about as long again; both stay below the 20 ms that one
client may hold up the others."""

MAX_MESSAGES: Final = 50_000
"""Messages that wait, some 20 MB: the clients of a large broker that all leave at once. One more publishes the oldest
at once, which slows the loop that makes the events, and loses none of them."""


class _Message(NamedTuple):
    topic: bytes
    payload: bytes
    retain: bool


class PublishQueue:
    """`now` gives the broker's seconds, `wake` has the loop driver write what was published."""

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
        """Publish nothing of what waits: the broker stops."""
        self._messages.clear()

    def _publish_slice(self) -> None:
        self._is_scheduled = False
        if not self._messages:
            return
        ends_at = self._clock() + SLICE_S
        self._publish_oldest()
        effects = self._core.effects
        while self._messages and effects.work < ITERATION_WORK and self._clock() < ends_at:
            self._publish_oldest()
        self._wake()
        if self._messages:
            self._is_scheduled = True
            self._call_soon(self._publish_slice)

    def _publish_oldest(self) -> None:
        message = self._messages.popleft()
        self._core.publish(message.topic, message.payload, 0, message.retain, self._now(), source=THE_BROKER)
