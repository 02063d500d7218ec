"""Reads links whose clients send much in turn, a few in each iteration of the loop, so that iterations stay short.

By itself, the loop reads every socket that has bytes, up to a quarter of a megabyte each, in one iteration: with a
thousand clients at full speed that was 200 MB in 0.7 s. Invariant: a link that is held only for its turn waits here
once; all other links are read whenever they have bytes.
"""

from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import LIGHT_BYTES
from mqttlite.core.reasons import HoldReason
from mqttlite.net.link import LinkPort

READ_BYTES: Final = 262_144
"""How many bytes an iteration reads from heavy links before they take turns, estimated from the latest chunk of each:
some tenths of a millisecond. The iteration in which a link becomes heavy may read more."""

SHORT_READ_BYTES: Final = 131_072
SHORT_READS: Final = 8
"""The same while iterations are short, and the most links read: each takes some 20 microseconds even with few bytes."""

USUAL_BYTES: Final = 65_536
"""The bytes assumed for a link that was held for another reason when its turn came."""


@final
class ReadingTurns:
    """`links` is the loop driver's table, by the number of the connection."""

    __slots__ = ("_effects", "_left", "_links", "_waiting")

    def __init__(self, effects: Effects, links: dict[int, LinkPort]) -> None:
        self._effects: Final = effects
        self._links: Final = links
        self._waiting: Final[dict[int, int]] = {}
        """The links that are held only for their turn, and how many bytes were last read from each."""
        self._left = READ_BYTES
        """How many bytes this iteration may still read before links take turns."""

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, link: LinkPort, size: int) -> None:
        """`size` bytes were read from a link that sends much."""
        self._left -= size
        connection = link.connection
        if self._effects.is_short or self._left < 0:
            link.hold(HoldReason.TURN)
            if connection.hold_reasons == HoldReason.TURN:
                self._waiting[connection.number] = size
        elif not self._effects.meters_senders:
            connection.much_bytes = LIGHT_BYTES

    def wait(self, link: LinkPort) -> None:
        """A link is now held only for its turn."""
        self._waiting[link.connection.number] = USUAL_BYTES

    def go_on(self) -> None:
        """The next iteration begins: release the first links in turn."""
        is_short = self._effects.is_short
        left = SHORT_READ_BYTES if is_short else READ_BYTES
        reads = SHORT_READS if is_short else len(self._waiting)
        waiting = self._waiting
        while waiting and left > 0 and reads > 0:
            number = next(iter(waiting))
            left -= waiting.pop(number)
            link = self._links.get(number)
            if link is not None and link.connection.hold_reasons == HoldReason.TURN:
                reads -= 1
                link.release(HoldReason.TURN)
        self._left = left
