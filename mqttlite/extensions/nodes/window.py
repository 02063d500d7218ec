"""How much of what two nodes tell each other is on its way: `Window` of what is sent, `Receipt` of what comes.

Packets leave the window when the broker of the other node has *handled* them, and news when they are *kept*, on its
disk. What is kept is known from SUBACKs among packets, which wait while the window of packets is full: if packets
waited for that too, two nodes whose windows are full would wait for each other. Invariant: room for packets depends on
the other node's broker alone, on no packet that this node is to send or to read.
"""

from collections import deque
from typing import Final, NamedTuple

UNDER_WAY_BYTES: Final = 4 * 1_048_576
"""How many bytes of packets the other node may have to handle. More wait in the session, as for a slow client."""

NEWS_UNDER_WAY: Final = 4_096
"""How many topic filters the other node may have to keep. With more on their way it would not hear in time that its
connection to NATS is well. More wait in `News`, where a later change of a filter takes the place of an earlier one."""

ANSWER_BYTES: Final = UNDER_WAY_BYTES // 8
"""After so many bytes of packets the other node is told that they are handled. After topic filters it is told at
once."""


class _UnderWay(NamedTuple):
    number: int
    size: int


class _NewsUnderWay(NamedTuple):
    number: int
    news: int
    """How many news were sent until then, with those in it."""


class Window:
    """What was sent on a connection and is not answered."""

    def __init__(self) -> None:
        self.number: int = 0
        """Of the latest blob."""
        self.packet_bytes: int = 0
        self.news_sent: int = 0
        self.news_kept: int = 0
        """How many news the other node has on its disk."""
        self._packets: Final[deque[_UnderWay]] = deque()
        self._news: Final[deque[_NewsUnderWay]] = deque()

    def begin(self) -> None:
        """A connection begins, or has ended."""
        self.number = self.packet_bytes = self.news_sent = self.news_kept = 0
        self._packets.clear()
        self._news.clear()

    @property
    def has_room(self) -> bool:
        """For packets."""
        return self.packet_bytes < UNDER_WAY_BYTES

    @property
    def has_room_for_news(self) -> bool:
        return self.news_sent - self.news_kept < NEWS_UNDER_WAY

    def send(self, packet_bytes: int, news_sent: int) -> int:
        """Count a blob, and return its number. Until then so many news are sent, with those in it."""
        self.number += 1
        if packet_bytes:
            self._packets.append(_UnderWay(self.number, packet_bytes))
            self.packet_bytes += packet_bytes
        if news_sent > self.news_sent:
            self._news.append(_NewsUnderWay(self.number, news_sent))
            self.news_sent = news_sent
        return self.number

    def on_answer(self, kept: int, handled: int) -> None:
        """The other node has kept, and handled, all up to these numbers. One of an earlier release says only the
        first."""
        while self._packets and self._packets[0].number <= max(kept, handled):
            self.packet_bytes -= self._packets.popleft().size
        while self._news and self._news[0].number <= kept:
            self.news_kept = self._news.popleft().news


class Receipt:
    """What has come on a connection, and what the other node is to be told of it."""

    def __init__(self) -> None:
        self.received: int = 0
        """The number of the latest blob."""
        self.handled: int = 0
        """Of the latest one that the broker has handled."""
        self.kept: int = 0
        """Of the latest one whose news are on disk, with all before."""
        self._owed = 0
        """Of the latest one that is to be answered soon."""
        self._unanswered_bytes = 0
        """Bytes of packets since then."""
        self._told = 0, 0

    def begin(self) -> None:
        """A connection begins."""
        self.received = self.handled = self.kept = self._owed = self._unanswered_bytes = 0
        self._told = 0, 0

    def take(self, number: int, packet_bytes: int, has_news: bool) -> bool:
        """Count a blob. False if one before it is missing."""
        if number != self.received + 1:
            return False
        self.received = number
        self._unanswered_bytes += packet_bytes
        if has_news or self._unanswered_bytes >= ANSWER_BYTES:
            self._owed = number
            self._unanswered_bytes = 0
        return True

    def on_handled(self, kept: int) -> bool:
        """The broker has handled all that was received, and what is on disk is known. Return whether that is more than
        before."""
        before = self.kept, self.handled
        self.kept, self.handled = kept, self.received
        return before != (self.kept, self.handled)

    @property
    def owes(self) -> bool:
        """Whether the other node is to be told soon."""
        kept, handled = self._told
        return kept < min(self.kept, self._owed) or handled < min(self.handled, self._owed)

    def told(self) -> None:
        """The other node is told how it stands."""
        self._told = self.kept, self.handled
