"""While memory is short, drops waiting QoS 0 messages of the clients that hold most, and reports it.

The core selects the clients. Invariant: the beginning and the end of a shortage are reported once each.
"""

import logging
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.broker import Broker
from mqttlite.core.memory import MemoryAccount
from mqttlite.net.link import LinkPort, about

REPORT_INTERVAL_S: Final = 1.0
"""The least interval between reports of the clients that hold most: memory can be short for many iterations."""

MAX_REPORTED: Final = 10
"""The most clients named in a report, those that hold most."""

_log = logging.getLogger("mqttlite.net")


@final
class Shedding:
    """`links` is the loop driver's table, by the number of the connection. `on_memory_short` is called with True at the
    beginning of a shortage, with False at its end, and with a text on the memory in use."""

    __slots__ = (
        "_broker",
        "_clock",
        "_links",
        "_on_memory_short",
        "_reported_at",
        "_times",
        "is_short",
        "on_shed",
    )

    def __init__(
        self,
        broker: Broker,
        links: dict[int, LinkPort],
        clock: Callable[[], float],
        on_memory_short: Callable[[bool, str], None],
    ) -> None:
        self.is_short: bool = False
        """Whether a shortage is not over. While it is true, `check` must be called again."""
        self.on_shed: Callable[[LinkPort, int, int], None] | None = None
        """Called at most once in `REPORT_INTERVAL_S` with each of the up to `MAX_REPORTED` largest holders, and the
        bytes and messages that each lost."""
        self._broker: Final = broker
        self._links: Final = links
        self._clock: Final = clock
        self._on_memory_short: Final = on_memory_short
        self._reported_at = -REPORT_INTERVAL_S
        self._times = 0
        """How often a client lost its messages."""

    def check(self, memory: MemoryAccount) -> None:
        """Shed while memory is short, and report the beginning and the end of a shortage."""
        if memory.used > memory.shed_above:
            if not self.is_short:
                self.is_short = True
                self._on_memory_short(True, memory.detail())
            shed = self._broker.shed(self._clock())
            self._report(shed)
            for number, size, _ in shed:
                self._log_shed(number, size)
        elif memory.used < memory.enough_below:
            self.is_short = False
            self._on_memory_short(False, memory.detail())

    def _report(self, shed: list[tuple[int, int, int]]) -> None:
        now = self._clock()
        if self.on_shed is None or not shed or now - self._reported_at < REPORT_INTERVAL_S:
            return
        self._reported_at = now
        for number, size, messages in shed[:MAX_REPORTED]:
            link = self._links.get(number)
            if link is not None:
                self.on_shed(link, size, messages)

    def _log_shed(self, number: int, size: int) -> None:
        """Log only the 1st, 2nd, 4th, 8th … time."""
        self._times += 1
        link = self._links.get(number)
        if link is not None and self._times & (self._times - 1) == 0:
            _log.warning(
                "%s client %r is the biggest hoarder of memory (%d bytes): its QoS 0 messages are dropped; so far: %d",
                link.address,
                link.connection.client_id,
                size,
                self._times,
                extra=about(link),
            )
