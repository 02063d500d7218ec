"""The shared subscriptions that have members here, for others at which messages are published: each by its name, with
how many members it has, how many of them are connected, and their highest QoS, in one number (`summary`).

Invariant: others know at most `MAX_SHARES_TOLD` of them; a member of a further one counts as `UNTOLD`.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.limits import MAX_SHARES_TOLD, MAX_SHARES_TOLD_BYTES

UNTOLD: Final = -1
"""A member that is not counted."""

NONE_LEFT: Final = -1
"""In place of a summary: it has no members here any more."""

_NOT_ALIKE: Final = NONE_LEFT - 1
"""In place of a summary: not all others know the same."""

_COUNT_BITS: Final = 13
_MOST: Final = (1 << _COUNT_BITS) - 1
"""The highest number that is told. Higher ones are told as this."""

_EXACT: Final = 16
_DIGITS: Final = 4
"""Numbers up to here are told exactly, and of larger ones the first binary digits: so the members of a large group can
come and go without news of each."""

_QOS_BITS: Final = 2
_CONNECTED: Final = _MOST << _QOS_BITS
_BITS: Final = 32
"""For the number of members of one QoS."""


def summary(qos: int, connected: int, members: int) -> int:
    """The highest QoS, and about how many members there are, in 28 bits."""
    return qos | _rounded(connected) << _QOS_BITS | _rounded(members) << (_QOS_BITS + _COUNT_BITS)


def weights_of(summed: int) -> int:
    """A summary without the QoS. It is never 0, and fits into a subscription identifier."""
    return summed >> _QOS_BITS


def qos_of(summed: int) -> int:
    """The highest QoS of a summary."""
    return summed & 3


def connected_of(weights: int) -> int:
    """How many members are connected."""
    return weights & _MOST


def members_of(weights: int) -> int:
    """How many members there are."""
    return weights >> _COUNT_BITS


def _is_soft(former: int, summed: int) -> bool:
    """Whether two summaries differ in nothing but the number of connected members."""
    return former != NONE_LEFT and summed != NONE_LEFT and not (former ^ summed) & ~_CONNECTED


def _rounded(number: int) -> int:
    if number < _EXACT:
        return number
    shift = min(number, _MOST).bit_length() - _DIGITS
    return min(number, _MOST) >> shift << shift


@final
class _Count:
    __slots__ = ("by_qos", "connected", "members", "summed", "told")

    def __init__(self) -> None:
        self.by_qos: int = 0
        """The members: three numbers in one, by QoS."""
        self.connected: int = 0
        self.members: int = 0
        self.summed: int = NONE_LEFT
        self.told: int = NONE_LEFT
        """What it was when it was taken."""


@final
class ShareInterest:
    """`on_news` is called when there is something to take, and must not call back."""

    __slots__ = ("_counts", "_news", "_on_news", "_soft", "has_untold", "size_bytes")

    def __init__(self, on_news: Callable[[], None]) -> None:
        self.size_bytes: int = 0
        """The bytes of all names."""
        self.has_untold: bool = False
        """Whether there was a member that others do not know of."""
        self._on_news: Final = on_news
        self._counts: Final[dict[bytes, _Count]] = {}
        self._news: dict[bytes, None] = {}
        """Those that may have changed since they were taken."""
        self._soft: dict[bytes, None] = {}
        """Others of which only the number of connected members may have changed since then."""

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, name: bytes, qos: int, is_connected: bool, former: int = UNTOLD) -> int:
        """Count a member, which was counted as `former`. Return what it is counted as now."""
        counted = qos << 1 | is_connected
        if counted == former:
            return counted
        found = self._counts.get(name)
        if found is None:
            if len(self._counts) >= MAX_SHARES_TOLD or self.size_bytes + len(name) > MAX_SHARES_TOLD_BYTES:
                self.has_untold = True
                return UNTOLD
            found = self._counts[name] = _Count()
            self.size_bytes += len(name)
        self._add(name, found, counted, 1)
        self.uncount(name, former)
        return counted

    def uncount(self, name: bytes, counted: int) -> None:
        """Count a member no longer."""
        if counted != UNTOLD:
            self._add(name, self._counts[name], counted, -1)

    @property
    def has_news(self) -> bool:
        """Whether there may be something to take that was not due."""
        return len(self._soft) > 0

    def take(self, is_due: bool) -> dict[bytes, int]:
        """Those that have changed since they were taken, with the summary of now, or `NONE_LEFT`. Of those that only
        have another number of connected members, only if it `is_due`: a client that comes back soon is no news."""
        changed, self._news = self._news, {}
        if is_due and self._soft:
            changed |= self._soft
            self._soft = {}
        news: dict[bytes, int] = {}
        for name in changed:
            found = self._counts.get(name)
            self._soft.pop(name, None)
            if found is None:
                news[name] = NONE_LEFT
            elif not is_due and _is_soft(found.told, found.summed):
                self._soft[name] = None
            elif found.told != found.summed:
                news[name] = found.told = found.summed
        return news

    def current(self) -> list[tuple[bytes, int]]:
        """All, with the summaries of now, for somebody who is new. Those that have changed since they were taken will
        be news to all, even if they are again what the others know."""
        for found in self._counts.values():
            if found.told != found.summed:
                found.told = _NOT_ALIKE
        return [(name, found.summed) for name, found in self._counts.items()]

    def _add(self, name: bytes, found: _Count, counted: int, more: int) -> None:
        found.members += more
        found.by_qos += more << _BITS * (counted >> 1)
        if counted & 1:
            found.connected += more
        summed = NONE_LEFT
        if found.members:
            highest = 2 if found.by_qos >> 2 * _BITS else 1 if found.by_qos >> _BITS else 0
            summed = summary(highest, found.connected, found.members)
        else:
            del self._counts[name]
            self.size_bytes -= len(name)
        if summed != found.summed:
            found.summed = summed
            if not self._news:
                self._on_news()
            self._news[name] = None
