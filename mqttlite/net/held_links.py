"""Holds the links that the core selects: their clients exceeded a quota, or send most during overload.

Invariant: `HoldReason.RATE` and `HoldReason.OVERLOAD` hold a link exactly between the two effects that name it.
"""

import logging
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.reasons import HoldReason
from mqttlite.net.link import LinkPort, about

_log = logging.getLogger("mqttlite.net")


@final
class HeldLinks:
    """`links` is the loop driver's table, by the number of the connection."""

    __slots__ = ("_clock", "_links", "_times")

    def __init__(self, links: dict[int, LinkPort], clock: Callable[[], float]) -> None:
        self._links: Final = links
        self._clock: Final = clock
        self._times = 0
        """How often a link was held for a quota."""

    def hold_throttled(self, effects: Effects) -> None:
        """Stop reading the links whose clients exceeded their quotas. Also those that are gone: what they sent before
        goes on when they are released."""
        throttled, effects.throttled = effects.throttled, []
        for number in throttled:
            link = self._links.get(number)
            if link is not None:
                link.hold(HoldReason.RATE)
                self._log_held(link)

    def release_throttled(self, effects: Effects) -> None:
        """Read the links again that have paid their debt."""
        unthrottled, effects.unthrottled = effects.unthrottled, []
        self._release(unthrottled, HoldReason.RATE)

    def slow_senders(self, effects: Effects) -> None:
        """Hold the links that overload slows, and release those that may be read again."""
        slowed, effects.slowed = effects.slowed, []
        unslowed, effects.unslowed = effects.unslowed, []
        for number in slowed:
            link = self._links.get(number)
            if link is not None and not link.gone:
                link.hold(HoldReason.OVERLOAD)
        self._release(unslowed, HoldReason.OVERLOAD)

    def _release(self, numbers: list[int], reason: int) -> None:
        for number in numbers:
            link = self._links.get(number)
            if link is not None:
                link.release(reason)

    def _log_held(self, link: LinkPort) -> None:
        """Log only the 1st, 2nd, 4th, 8th … time."""
        self._times += 1
        throttle = link.connection.throttle
        if self._times & (self._times - 1) == 0 and throttle is not None:
            _log.warning(
                "%s client %r sends more than the quota of its %s allows: not read for %.1f s; so far: %d",
                *(link.address, link.connection.client_id, throttle.held_for),
                *(throttle.held_until - self._clock(), self._times),
                extra=about(link),
            )
