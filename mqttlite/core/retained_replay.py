"""The retained messages on their way to a session with new subscriptions: found by and by, in the order of these.

Invariants: only as many are made ready as are about to be sent, however many there are; and a filter is searched for
once at a time, so that there are no more searches than subscriptions.
"""

from collections import OrderedDict, deque
from typing import Final, final

from mqttlite.core.limits import LOOKING_BYTES, RETAINED_LOOKED_AT, RETAINED_LOOKED_INTO
from mqttlite.core.message import Delivery, Message
from mqttlite.core.message_filter import MessageFilter
from mqttlite.topics.retained import Search

_NOTHING_FOUND: Final[deque[Delivery]] = deque()
"""Never added to: most searches find nothing, and an empty deque takes 600 bytes."""


@final
class RetainedReplay:
    """The retained messages for one new subscription: those found so far, and the search for the rest."""

    __slots__ = ("_filter", "deliveries", "identifiers", "most", "qos", "search")

    def __init__(
        self,
        search: Search[Message],
        qos: int,
        identifiers: tuple[int, ...],
        message_filter: MessageFilter | None = None,
    ) -> None:
        self._filter: Final = message_filter
        self.most: Final = (
            RETAINED_LOOKED_AT if message_filter is None or not message_filter.reads_payload else RETAINED_LOOKED_INTO
        )
        """How many messages to look at before the next look at the room that there is."""
        self.search: Final = search
        self.qos: Final = qos
        self.identifiers: Final = identifiers
        self.deliveries: deque[Delivery] = _NOTHING_FOUND

    def __len__(self) -> int:
        """How many messages wait, as far as that is known; 1 at least while it is not."""
        left = len(self.search)
        if left and not self.search.everything:
            left = 1
        return len(self.deliveries) + left

    def put(self, message: Message) -> int:
        """A message was found: it is to be sent, if it passes the subscription's filter. How many bytes that looked at.

        It has RETAIN 1 [3.1.1 MQTT-3.3.1-8], and the subscription's identifier [MQTT-3.3.4-5].
        """
        looked_at = 0
        if self._filter is not None:
            if self._filter.reads_payload:
                looked_at = len(message.payload)
            if not self._filter.matches(message):
                return looked_at
        if self.deliveries is _NOTHING_FOUND:
            self.deliveries = deque()
        self.deliveries.append(Delivery(message, min(message.qos, self.qos), True, self.identifiers))
        return looked_at

    def start_tracing(self, former: "RetainedReplay") -> None:
        """The filter was subscribed to before: what was found for that goes first, what was not is found by this."""
        former.deliveries.extend(self.deliveries)
        self.deliveries = former.deliveries


@final
class RetainedReplays:
    """Findings by filter, the first of which is being sent."""

    __slots__ = ("_replays", "_waiting")

    def __init__(self) -> None:
        self._replays: Final[OrderedDict[bytes, RetainedReplay]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, replay: RetainedReplay) -> None:
        topic_filter = replay.search.topic_filter
        former = self._replays.pop(topic_filter, None)
        if former is not None:
            self._waiting -= len(former)
            if former.deliveries:
                replay.start_tracing(former)
        if len(replay):
            self._replays[topic_filter] = replay
            self._waiting += len(replay)

    def discard(self, topic_filter: bytes) -> None:
        """The subscription is over: nothing more of it is sent."""
        replay = self._replays.pop(topic_filter, None)
        if replay is not None:
            self._waiting -= len(replay)

    def first(self) -> Delivery | None:
        """The next message to send, while any waits; None where the search has to find it first."""
        deliveries = self._first().deliveries
        return deliveries[0] if deliveries else None

    def pop(self) -> None:
        replay = self._first()
        replay.deliveries.popleft()
        self._waiting -= 1
        if not len(replay):
            self._replays.popitem(last=False)

    def look(self, now: float) -> int:
        """Look for more; as how many bytes that counts."""
        replay = self._first()
        before, left = len(replay), len(replay.search)
        looked_at = 0
        for message in replay.search.take(replay.most):
            if not message.expired(now):
                looked_at += replay.put(message)
        self._waiting += len(replay) - before
        if not len(replay):
            self._replays.popitem(last=False)
        return looked_at + LOOKING_BYTES * (left - len(replay.search))

    def give_up(self, all_searches: bool) -> int:
        """Let go of what QoS 0 subscriptions found, and of what all of them could find yet or only those.

        Returns how many messages that were found are lost.
        """
        lost = 0
        for replay in list(self._replays.values()):
            if replay.qos == 0:
                lost += len(replay.deliveries)
                self.discard(replay.search.topic_filter)
            elif all_searches:
                self._waiting -= len(replay) - len(replay.deliveries)
                replay.search.end()
                if not replay.deliveries:
                    self.discard(replay.search.topic_filter)
        return lost

    def _first(self) -> RetainedReplay:
        return next(iter(self._replays.values()))
