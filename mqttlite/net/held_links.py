"""Holds the links that the core selects: their clients exceeded a quota, or send most during overload.

Invariant: `HoldReason.RATE` and `HoldReason.OVERLOAD` hold a link exactly between the two effects that name it.
"""

import logging
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.effects import Hold
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

    def apply(self, holds: list[Hold]) -> None:
        """Hold and release links. A link that is gone is held for its quota, too: what it sent before goes on when it
        is released."""
        for each in holds:
            link = self._links.get(each.number)
            if link is None:
                continue
            if not each.is_held:
                link.release(each.reason)
            elif each.reason == HoldReason.RATE:
                link.hold(each.reason)
                self._log_held(link)
            elif not link.gone:
                link.hold(each.reason)

    def _log_held(self, link: LinkPort) -> None:
        """Log only the 1st, 2nd, 4th, 8th … time."""
        self._times += 1
        throttle = link.connection.throttle
        if self._times & (self._times - 1) == 0 and throttle is not None:
            _log.warning(
                "%s client %r sends more than the quota of its %s allows: not read for %.1f s; so far: %d",
                link.address,
                link.connection.client_id,
                throttle.held_for,
                throttle.held_until - self._clock(),
                self._times,
                extra=about(link),
            )
