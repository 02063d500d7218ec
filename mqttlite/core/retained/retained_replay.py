"""Sends retained messages to a session with new subscriptions, in the order of the subscriptions, found little by
little.

Invariants: only messages that are about to be sent are prepared, however many match; and each filter has at most one
search, so that there are no more searches than subscriptions.
"""

from collections import OrderedDict, deque
from typing import Final, final

from mqttlite.core.limits import LOOKING_BYTES, RETAINED_LOOKED_AT, RETAINED_LOOKED_INTO
from mqttlite.core.message import Delivery, Message
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.retained.publish_order import dated, is_dated
from mqttlite.topics.retained import Search

_NOTHING_FOUND: Final[deque[Delivery]] = deque()
"""Never added to. Most searches find nothing, and an empty deque takes 600 bytes."""


@final
class RetainedReplay:
    """The retained messages for one new subscription: those found so far, and the search for the rest. With `dates`,
    each says when it was published."""

    __slots__ = ("_dates", "_filter", "deliveries", "identifiers", "most", "qos", "search")

    def __init__(
        self,
        search: Search[Message],
        qos: int,
        identifiers: tuple[int, ...],
        message_filter: MessageFilter | None = None,
        dates: bool = False,
    ) -> None:
        self._dates: Final = dates
        self._filter: Final = message_filter
        self.most: Final = (
            RETAINED_LOOKED_AT if message_filter is None or not message_filter.reads_payload else RETAINED_LOOKED_INTO
        )
        """How many messages to examine between two checks of the budget."""
        self.search: Final = search
        self.qos: Final = qos
        self.identifiers: Final = identifiers
        self.deliveries: deque[Delivery] = _NOTHING_FOUND

    def __len__(self) -> int:
        """How many messages are known to wait; at least 1 while the search is unfinished."""
        left = len(self.search)
        if left and not self.search.everything:
            left = 1
        return len(self.deliveries) + left

    def put(self, message: Message) -> int:
        """Queue a found message if it passes the subscription's filter. Return how many bytes of work that was.

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
        if self._dates and not is_dated(message):
            message = dated(message, message.number)
        self.deliveries.append(Delivery(message, min(message.qos, self.qos), True, self.identifiers))
        return looked_at

    def start_tracing(self, former: "RetainedReplay") -> None:
        """Take over the found messages of an earlier subscription with the same filter. They are sent first."""
        former.deliveries.extend(self.deliveries)
        self.deliveries = former.deliveries


@final
class RetainedReplays:
    """The replays of a session by filter. The first one is being sent."""

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
        """The subscription ended: send nothing more for it."""
        replay = self._replays.pop(topic_filter, None)
        if replay is not None:
            self._waiting -= len(replay)

    def first(self) -> Delivery | None:
        """The next message to send. None if the search has to find it first. Call it only while messages wait."""
        deliveries = self._first().deliveries
        return deliveries[0] if deliveries else None

    def pop(self) -> None:
        replay = self._first()
        replay.deliveries.popleft()
        self._waiting -= 1
        if not len(replay):
            self._replays.popitem(last=False)

    def look(self, now: float) -> int:
        """Search for more messages. Return how many bytes of work that was."""
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
        """Drop the replays of QoS 0 subscriptions. With `all_searches`, also end the searches of the others.

        Returns how many found messages are lost.
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
