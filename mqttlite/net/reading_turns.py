"""Links whose clients send much are read in turn, a few in each iteration of the loop, so that iterations stay short.

The loop reads every socket that has bytes, up to a quarter of a megabyte of each, before anybody else has a turn: of a
thousand clients that send as fast as they can, an iteration read 200 MB in 0.7 s. Invariant: a link that is held for
its turn, and for nothing else, waits here once, and the others are read whenever they have something.
"""

from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import LIGHT_BYTES
from mqttlite.core.reasons import HoldReason
from mqttlite.net.link import LinkPort

READ_BYTES: Final = 262_144
"""How much of links that send much an iteration reads, from the latest chunk of each, before they take turns: some
tenths of a millisecond. An iteration in which one of them begins may read more."""

SHORT_READ_BYTES: Final = 131_072
SHORT_READS: Final = 8
"""The same while iterations are to be short, and how many of those links: each takes some 20 microseconds even if it
has little."""

USUAL_BYTES: Final = 65_536
"""The bytes that are assumed of a link that was held for another reason when its turn came."""


@final
class ReadingTurns:
    """`links` is the loop driver's table, by the number of the connection."""

    __slots__ = ("_effects", "_left", "_links", "_waiting")

    def __init__(self, effects: Effects, links: dict[int, LinkPort]) -> None:
        self._effects: Final = effects
        self._links: Final = links
        self._waiting: Final[dict[int, int]] = {}
        """The links that are held for their turn alone, and how many bytes of each were read last."""
        self._left = READ_BYTES
        """How many bytes this iteration may still read before they take turns."""

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, link: LinkPort, size: int) -> None:
        """So many bytes were read from a link that sends much."""
        self._left -= size
        connection = link.connection
        if self._effects.is_short or self._left < 0:
            link.hold(HoldReason.TURN)
            if connection.hold_reasons == HoldReason.TURN:
                self._waiting[connection.number] = size
        elif not self._effects.meters_senders:
            connection.much_bytes = LIGHT_BYTES

    def wait(self, link: LinkPort) -> None:
        """A link is held for its turn alone from now on."""
        self._waiting[link.connection.number] = USUAL_BYTES

    def go_on(self) -> None:
        """The next iteration begins: let the first in turn be read again."""
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
