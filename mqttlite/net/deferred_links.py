"""Links whose clients sent more than one loop iteration may handle. They continue in turn after the loop has read all
links.

Invariant: a link with unhandled packets is here once, unless it waits for something else first.
"""

import logging
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import CONNECTED
from mqttlite.core.effects import Effects
from mqttlite.core.limits import ITERATION_WORK, LIGHT_BYTES, LIGHTEST_BYTES, OVERLOADED_BYTES
from mqttlite.core.reasons import HoldReason
from mqttlite.net.link import MAX_DEFERRED_BYTES, LinkPort, about

_log = logging.getLogger("mqttlite.net")


@final
class DeferredLinks:
    """`links` is the loop driver's table, by the number of the connection."""

    __slots__ = (
        "_broker",
        "_clock",
        "_connected",
        "_connected_are_first",
        "_connecting",
        "_light",
        "_lightest",
        "_links",
    )

    def __init__(self, broker: Broker, links: dict[int, LinkPort], clock: Callable[[], float]) -> None:
        self._broker: Final = broker
        self._links: Final = links
        self._clock: Final = clock
        self._connected: dict[int, LinkPort] = {}
        self._connecting: dict[int, LinkPort] = {}
        """Links of clients that are not accepted yet. They have their own queue, so that thousands that connect at once
        do not delay the others."""
        self._light: dict[int, LinkPort] = {}
        """Links of connected clients that sent little. They go before the others."""
        self._lightest: dict[int, LinkPort] = {}
        """Links of clients that sent least. They go first."""
        self._connected_are_first = True

    def __len__(self) -> int:
        return len(self._lightest) + len(self._light) + len(self._connected) + len(self._connecting)

    def add(self, effects: Effects) -> None:
        """Take over the deferred links of the effects."""
        most_bytes = OVERLOADED_BYTES if effects.is_short else MAX_DEFERRED_BYTES
        for number in effects.deferred:
            link = self._links.get(number)
            if link is not None:
                link.rest(most_bytes)
                self._place(number, link)
        effects.deferred.clear()

    def _place(self, number: int, link: LinkPort) -> None:
        kept_bytes = link.connection.framer.kept_bytes
        if link.connection.state != CONNECTED:
            self._connecting[number] = link
        elif kept_bytes <= LIGHTEST_BYTES:
            self._lightest[number] = link
        elif kept_bytes <= LIGHT_BYTES:
            self._light[number] = link
        else:
            self._connected[number] = link

    def go_on(self) -> None:
        """Continue links while the budget lasts: those with the least bytes first, but always at least one of the
        others. The others alternate between connected and not yet connected clients.

        They are guaranteed their least share of this iteration, whatever the loop read before.
        """
        lightest, self._lightest = self._lightest, {}
        light, self._light = self._light, {}
        connected, self._connected = self._connected, {}
        connecting, self._connecting = self._connecting, {}
        effects = self._broker.effects
        effects.work = min(effects.work, effects.share_from)
        while lightest and effects.work < ITERATION_WORK:
            self._go_on_with(lightest.pop(next(iter(lightest))))
        while light and effects.work < ITERATION_WORK:
            self._go_on_with(light.pop(next(iter(light))))
        waiting, others = (connected, connecting) if self._connected_are_first else (connecting, connected)
        self._connected_are_first = not self._connected_are_first
        if not waiting:
            waiting, others = others, waiting
        if waiting and effects.work >= ITERATION_WORK:
            effects.work = ITERATION_WORK - 1  # room for at least one packet, however many light links there are
        while (waiting or others) and effects.work < ITERATION_WORK:
            if waiting:
                self._go_on_with(waiting.pop(next(iter(waiting))))
            waiting, others = others, waiting
        self._lightest = {**lightest, **self._lightest}
        self._light = {**light, **self._light}
        self._connected = {**connected, **self._connected}  # a link that waits already goes first next time
        self._connecting = {**connecting, **self._connecting}

    def _go_on_with(self, link: LinkPort) -> None:
        if link.connection.hold_reasons & ~HoldReason.STOPS_READING:
            return  # it continues when it is released
        try:
            link.go_on()
        except Exception:  # an error with one client must not stop the others
            _log.exception("%s: what it sent could not be handled", link.address, extra=about(link))
            self._broker.close(link.connection, self._clock(), "what it sent could not be handled")
            link.abort()
            if link.gone:
                link.go_on()  # this ends the connection
        if not link.connection.deferred:
            link.release(HoldReason.DEFERRED)
