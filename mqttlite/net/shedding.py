"""Drops QoS 0 messages of the clients that hold most while memory is short, and reports it.

The core chooses the clients. Invariant: the begin and the end of a shortage are reported once each.
"""

import logging
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.broker import Broker
from mqttlite.core.memory import MemoryAccount
from mqttlite.net.link import LinkPort, about

REPORT_INTERVAL_S: Final = 1.0
"""How often the clients that hold most are reported at most: memory can be short for many iterations."""

MAX_REPORTED: Final = 10
"""How many clients a report names: when many clients do not read, the first ones hold most."""

_log = logging.getLogger("mqttlite.net")


@final
class Shedding:
    """`links` is the loop driver's table, by the number of the connection. `on_memory_short` is called with True at the
    begin of a shortage, with False at its end, and with what uses the memory."""

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
        """Whether memory was short and has not recovered yet: `check` is to be called again."""
        self.on_shed: Callable[[LinkPort, int, int], None] | None = None
        """Called with each of the `MAX_REPORTED` clients that held most, whose QoS 0 messages were dropped, and how
        many bytes and messages these were: once in `REPORT_INTERVAL_S` at most."""
        self._broker: Final = broker
        self._links: Final = links
        self._clock: Final = clock
        self._on_memory_short: Final = on_memory_short
        self._reported_at = -REPORT_INTERVAL_S
        self._times = 0
        """How often a client lost its messages."""

    def check(self, memory: MemoryAccount) -> None:
        """Shed while memory is short; report the begin and the end of it."""
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
        """Log the 1st, 2nd, 4th, 8th … time, and not a line for each."""
        self._times += 1
        link = self._links.get(number)
        if link is not None and self._times & (self._times - 1) == 0:
            _log.warning(
                "%s client %r is the biggest hoarder of memory (%d bytes): its QoS 0 messages are dropped; so far: %d",
                *(link.address, link.connection.client_id, size, self._times),
                extra=about(link),
            )
