"""A reader: a subscription of a session to a stream, which gets the messages of all partitions from its positions on.

It is paced by the session's window, and nothing is copied to the session's queue. Invariant: messages of one partition
leave in order; each is sent again until it is acknowledged, and after that not again.
"""

from collections.abc import Callable
from typing import ClassVar, Final, final

from mqttlite.core.jobs import Job, has_budget
from mqttlite.core.limits import JSON_BYTES_PER_WORK_UNIT, SENDING_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.extensions.streams.entry import Entry, end_of
from mqttlite.extensions.streams.feed import Feed
from mqttlite.extensions.streams.group import Group
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.right import ReadingRight
from mqttlite.extensions.streams.stream import Stream
from mqttlite.log.cursor import Cursor, Place
from mqttlite.topics.names import matches

_WORK: Final = 8
"""The work of delivering a message; of looking at one that is not delivered, a quarter."""


@final
class _Reading:
    """An `Origin`: a message that was sent to a reader and is not acknowledged."""

    __slots__ = ("_offset", "_partition", "_place", "_reader")
    name: ClassVar[bytes] = b""
    keeps: ClassVar[bool] = True

    def __init__(self, reader: "Reader", partition: int, place: Place, offset: int) -> None:
        self._reader: Final = reader
        self._partition: Final = partition
        self._place: Final = place
        self._offset: Final = offset

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        self._place.acknowledge(self._offset)
        self._reader.on_progress(self._partition, self._place)

    def returned(self, delivery: Delivery) -> bool:
        return True  # the reader has gone back before


@final
class _EndTold:
    """An `Origin`: the message that says that the reader was at the end."""

    __slots__ = ("_reader",)
    name: ClassVar[bytes] = b""
    keeps: ClassVar[bool] = True

    def __init__(self, reader: "Reader") -> None:
        self._reader: Final = reader

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        self._reader.on_end_told()

    def returned(self, delivery: Delivery) -> bool:
        return True  # it will be told again


@final
class Reader(Job):
    """A `Puller` and a `FeedOwner`, and with a group one of its members. `save` records its positions."""

    def __init__(
        self,
        session: Session,
        subscription: Subscription,
        stream: Stream,
        cursor: Cursor,
        topic_filter: bytes,
        message_filter: MessageFilter | None,
        since: int,
        save: Callable[["Reader"], None],
        group: Group | None = None,
    ) -> None:
        self.session: Final = session
        self.subscription: Subscription = subscription
        self.stream: Final = stream
        self.cursor: Final = cursor
        self.topic_filter: Final = topic_filter
        """Behind the name of the stream; empty: all topics."""
        self.message_filter: Final = message_filter
        self.expression: Final = "" if message_filter is None else message_filter.expression
        self.since: Final = since
        """The lowest number of a message that it gets, if it is in no group."""
        self._save: Final = save
        self._effects: Final = stream.context.effects
        self.group: Final = group
        self._is_member = False
        """Whether the group knows that it is connected."""
        self._feed: Final = Feed(stream, cursor, self)
        if group is None:
            self._feed.add(range(len(stream.partitions)))
        self._right: Final = ReadingRight(session, stream.topic, stream.context.permissions)
        self._is_job = False
        self._is_changed = False
        """Whether a position changed that is not recorded."""
        self.tells_end: bool = False
        """Whether the client is to be told that it has what was in the stream when it asked for that."""
        self._began: Final[dict[int, int]] = {}
        """By partition that it read from the first message on: how many tombstones had been forgotten."""
        self._has_missed = False
        """Whether it may have passed the place of a tombstone that was forgotten since it began."""
        if stream.last_value and group is None:
            for each, place in zip(stream.partitions, cursor.places, strict=True):
                if place.position <= each.first:
                    self._began[each.number] = each.forgettings
                else:  # it may go on for a reader that began earlier
                    self._has_missed |= each.clean > 0
        self._until: Final[dict[int, int]] = {}
        """What that is: the ends of the partitions that it has not reached."""
        self._has_told = False
        """Whether that message is sent, and unacknowledged."""
        self.is_over: bool = False
        self.skipped: int = 0
        """How many messages were removed before it came to them."""
        self._untold = 0
        """How many of them the client was not told of."""
        self.lost: int = 0
        """How many messages the store has lost."""

    # ------------------------------------------------------------------ what makes it go on

    def on_room(self) -> None:
        """Implements `Puller`."""
        self.wake()

    def on_gone(self) -> None:
        """Implements `Puller`: what is unacknowledged will be sent again."""
        self._feed.clear()
        if self.group is not None:
            self._is_member = False
            self.group.leave(self)
            return
        self.cursor.go_back()
        if self.tells_end:
            self.tell_end()
        self._feed.add(range(len(self.stream.partitions)))

    def on_progress(self, partition: int, place: Place) -> None:
        """A message was acknowledged, at what was the place in its partition when it was sent."""
        if place is self.cursor.places[partition]:
            self._note_progress(partition)
            self.wake()

    def refuses(self, partition: int, offset: int) -> bool:
        """Whether this member cannot finish a message: it does not have the partition, was not sent the message, or has
        finished all up to that."""
        group, places = self.group, self.cursor.places
        if group is None or not 0 <= partition < len(places) or group.owners[partition] is not self:
            return True
        place = places[partition]
        return not place.position <= offset < place.head

    def finish_to(self, partition: int, offset: int) -> None:
        """The member has finished the messages of a partition up to this one, which it does not refuse."""
        self.cursor.places[partition].finish_before(offset + 1)
        self._note_progress(partition)

    def take(self, partition: int) -> None:
        """Implements `Member`."""
        self._feed.add((partition,))
        self.wake()

    def leave(self, partition: int) -> None:
        """Implements `Member`."""
        self._feed.drop(partition)

    def _note_progress(self, partition: int) -> None:
        self._is_changed = True
        if self.group is not None:
            self.group.on_progress(partition)

    def wake(self) -> None:
        """Go on in this iteration or the next."""
        if not self._is_job and not self.is_over:
            self._is_job = True
            self.stream.context.jobs.queue(self)

    def step(self) -> bool:
        """Implements `Job`."""
        self._is_job = False
        if self.is_over:
            return True
        if self.session.outbox is None:
            pass
        elif not self._right.is_given():
            if self._is_member and self.group is not None:
                self._is_member = False
                self.group.leave(self)
        else:
            if self.group is not None and not self._is_member:
                self._is_member = True
                self.group.join(self)
            self._deliver_some()
            if self.tells_end:
                self._tell_end_soon()
        if self._is_changed:
            self._is_changed = False
            self._save(self)
        return True

    def tell_end(self) -> None:
        """Tell the client when it has what is in the stream now."""
        self.tells_end = True
        self._has_told = False
        for each in self.stream.partitions:
            self._until[each.number] = each.end

    def on_end_told(self) -> None:
        """The client knows."""
        if self._has_told:
            self.tells_end = self._has_told = False
            self._is_changed = True
            self.wake()

    def end(self) -> None:
        """The subscription or the stream ended."""
        self.is_over = True
        self.stream.readers -= 1
        self.session.pull_no_more(self)
        self._feed.clear()
        if self.group is not None:
            self.group.leave(self)

    # ------------------------------------------------------------------ delivery

    def _deliver_some(self) -> None:
        """Deliver while there are messages, room and budget."""
        session, effects, feed = self.session, self._effects, self._feed
        while session.can_borrow:
            if not has_budget(effects):
                self.wake()
                return
            entry = feed.next()
            if entry is None:
                return
            if feed.is_new:
                self._outbox.awaits_commit = True  # a restarted broker gives no seen offset again
            self._deliver(entry, self.cursor.places[entry.partition])

    def may_take(self) -> bool:
        """Implements `FeedOwner`."""
        return not self.is_over and self.session.outbox is not None

    def lowest(self) -> int:
        """Implements `FeedOwner`."""
        return self.since if self.group is None else self.group.since

    def on_passed(self, partition: Partition, messages: int, is_missing: bool) -> None:
        """Implements `FeedOwner`."""
        if is_missing and not self.stream.last_value:
            self.lost += messages
        else:
            self._has_missed |= self._began.get(partition.number, -1) != partition.forgettings
            self.skipped += messages
            self._untold += messages
        self._note_progress(partition.number)

    @property
    def _outbox(self) -> Outbox:
        outbox = self.session.outbox
        assert outbox is not None, "the client is connected"
        return outbox

    def _deliver(self, entry: Entry, place: Place) -> None:
        session, effects = self.session, self._effects
        if not self._wants(entry.message):
            effects.work += _WORK // 4
            self._skip(entry.partition, place)
            return
        effects.work += _WORK
        subscription, outbox = self.subscription, self._outbox
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        seen = entry.seen(outbox.version, self._untold)
        message = entry.fitting(seen, outbox, identifiers, effects.now)
        self._untold = 0
        effects.pending_bytes += message.size() + SENDING_BYTES
        if subscription.qos == 0:
            delivery = Delivery(message, 0, False, identifiers) if identifiers else entry.delivery(message)
            session.deliver_qos0(delivery)
            self._skip(entry.partition, place)
        else:
            reading = _Reading(self, entry.partition, place, entry.offset)
            if session.lend(Delivery(message, 1, False, identifiers, reading)):
                place.send()
            else:  # the client cannot take it
                self._skip(entry.partition, place)

    def _skip(self, partition: int, place: Place) -> None:
        """The message at the head is done."""
        place.skip()
        self._note_progress(partition)

    def _wants(self, message: Message) -> bool:
        """Whether a message is for this reader."""
        if message.number < self.lowest():
            return False
        if message.expired(self._effects.now) and not self.stream.is_tombstone(message):
            return False
        if self.topic_filter and not matches(self.topic_filter, message.topic):
            return False
        message_filter = self.message_filter
        if message_filter is None:
            return True
        if message_filter.reads_payload:
            self._effects.work += len(message.payload) // JSON_BYTES_PER_WORK_UNIT
        return message_filter.matches(message)

    def _tell_end_soon(self) -> None:
        """Tell the client that it was at the end, if it was and there is room."""
        places, session = self.cursor.places, self.session
        for number in list(self._until):
            if places[number].take() < self._until[number]:
                return
            del self._until[number]
        if self._has_told or not session.can_borrow:
            return
        self._has_told = True
        subscription = self.subscription
        topic = session.identity.mount_point + self.stream.topic
        message = end_of(
            topic, [each.take() for each in places], has_missed=self._has_missed and self.stream.last_value
        )
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        self._outbox.awaits_commit = True  # no offset before these is given again
        self._effects.pending_bytes += message.size() + SENDING_BYTES
        if subscription.qos == 0:
            session.deliver_qos0(Delivery(message, 0, False, identifiers))
        elif session.lend(Delivery(message, 1, False, identifiers, _EndTold(self))):
            return
        self.on_end_told()  # nobody acknowledges it
