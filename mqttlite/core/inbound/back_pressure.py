"""Back-pressure: the publisher waits, for up to `Limits.max_block_s`, while a receiver has no room for its message.

The topic decides which of two promises makes it wait. Under the policy `block` or `reject`, a message goes to no
receiver while one of them has no room; after the wait it is refused. On topics without `on_overflow`, publishers of QoS
1 and 2 messages wait for connected clients whose queues fill up: an acknowledged message must not be dropped because
its receiver reads more slowly than the publisher sends. After the wait it is published all the same. A receiver that
hardly reads must cost publishers nothing, so each reader's pace is measured, and nobody waits for one that takes fewer
than `min_drain_rate` messages a second: it loses messages, like an absent one.

Invariant: a message waits in one place at a time, and is charged to the memory account; the publishers of a reader
continue in turn.
"""

from collections import deque
from collections.abc import Iterator
from math import inf
from typing import Final, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.inbound.held_message import INSIDE, HeldMessage
from mqttlite.core.limits import (
    ITERATION_WORK,
    LOOK_WORK,
    MAX_ROOM_LOOKS,
    OUTBOXES_PER_WORK_UNIT,
    PACE_S,
    READER_GOES_ON_S,
    READER_LOOK_S,
    ROOM_LOOK_S,
    SLOW_LOOK_S,
    TURN_MESSAGES,
    Limits,
)
from mqttlite.core.message import Message
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.core.route.route import Route
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.shared_subscription import SharedSubscription
from mqttlite.core.session.session import Session
from mqttlite.core.session.session_backlog import EMPTYING, FILLING, SLOW
from mqttlite.core.source import BROKER, Publisher, Source

NO_ROOM: Final = "a receiver has no room for the message, and the topic's policy is that nobody gets it then"


@final
class BackPressure:
    """One for each broker."""

    __slots__ = ("_deadlines", "_effects", "_limits", "_readers", "_router", "_routes")

    def __init__(self, routes: Routes, router: Router, deadlines: Deadlines, effects: Effects, limits: Limits) -> None:
        self._routes: Final = routes
        self._router: Final = router
        self._deadlines: Final = deadlines
        self._effects: Final = effects
        self._limits: Final = limits
        self._readers: Final[dict[int, Reader]] = {}
        """By connection number."""

    def takes(self, held: HeldMessage, route: Route) -> bool:
        """Whether the receivers of a message have room for it. If not, it waits, or its publisher is told why nobody
        gets it."""
        if route.asks_room:
            if self._has_room(held.message, route, held.source):
                return True
            self._block(held, route)
            return False
        if not held.message.qos or not self._effects.filling:
            return True
        reader = self._full(held.message, route, held.source, held.number)
        if reader is None:
            return True
        if held.may_wait():
            self._effects.held_back += 1
            reader.waiting.append(self._hold(held, inf))
        return False

    def _hold(self, held: HeldMessage, until: float) -> "_Waiting":
        """Make a message wait, at most until then."""
        held.wait()
        self._effects.memory.hold(held.message)
        return _Waiting(self, held, min(until, self._effects.now + self._limits.max_block_s))

    # ------------------------------------------------------------------ topics with `block` or `reject`

    def _has_room(self, message: Message, route: Route, source: Source) -> bool:
        """Whether each receiver has room. True also if the message is refused for another reason, and for the broker's
        own messages: they come from messages that were accepted before."""
        policy = route.policy
        assert policy is not None, "it asks for room"
        if source.kind == BROKER or policy.refusal(message.qos, message.retain, len(message.payload)):
            return True
        self._effects.work += len(route.receivers) // OUTBOXES_PER_WORK_UNIT
        return not self._router.may_publish(route, message.topic, source) or route.has_room(
            message, min(message.qos, policy.max_qos), source
        )

    def _block(self, held: HeldMessage, route: Route) -> None:
        """Make a message wait for room, or refuse it."""
        now, policy = self._effects.now, route.policy
        assert policy is not None, "it asks for room"
        until = held.source.blocks_until if isinstance(held.source, Publisher) else inf
        if not policy.blocks or self._limits.max_block_s <= 0.0 or until <= now:
            held.end(QUEUE_FULL, NO_ROOM)
        elif held.may_wait():
            self._deadlines.arm(self._hold(held, until), now + ROOM_LOOK_S)

    def look_for_room(self, waiting: "_Waiting") -> None:
        """Check again for room."""
        held, now = waiting.held, self._effects.now
        if not held.is_over():
            route = self._routes.find(held.message.topic)
            if not route.asks_room or self._has_room(held.message, route, held.source):
                held.go_on()
            elif now < waiting.until:
                self._deadlines.arm(waiting, now + ROOM_LOOK_S)
                return
            else:
                held.end(QUEUE_FULL, NO_ROOM)
        self._effects.memory.let_go(held.message)

    # ------------------------------------------------------------------ clients whose queues fill up

    def asks_readers(self, route: Route) -> bool:
        """Whether messages of a route may have to wait for a reader, not counting shared subscriptions. Ask only while
        `Effects.filling` is not empty."""
        receivers = route.receivers
        if len(receivers) > MAX_ROOM_LOOKS:
            return False
        self._effects.work += len(receivers) // OUTBOXES_PER_WORK_UNIT
        return any(receiver.qos and receiver.session.filling == FILLING for receiver in receivers)

    def would_wait_for(self, message: Message, route: Route, publisher: Session) -> Session | None:
        """The session for which a QoS 1 or 2 message would have to wait. Measures and changes nothing."""
        if not self._effects.filling or (route.policy is not None and route.policy.on_overflow):
            return None
        number = 0 if publisher.outbox is None else publisher.outbox.number
        for receiver in route.receivers if self.asks_readers(route) else ():
            session = receiver.session
            if not receiver.qos or session.filling != FILLING or session is publisher:
                continue
            outbox = session.outbox
            reader = None if outbox is None else self._readers.get(outbox.number)
            if not session.has_room_to_spare(message) or (reader is not None and not reader.is_turn_of(number)):
                return session
        return next(self._members(message, route, publisher), None)

    def _full(self, message: Message, route: Route, publisher: Source, number: int) -> "Reader | None":
        """The first reader for which the publisher must wait: it has no room, or other publishers wait before. None if
        the topic policy says what happens instead."""
        if route.policy is not None and route.policy.on_overflow:
            return None
        for receiver in route.receivers if self.asks_readers(route) else ():
            session = receiver.session
            if not receiver.qos or session.filling != FILLING or session is publisher:
                continue  # a client that publishes to itself would wait for its own acknowledgements
            reader = self._of(session)
            if not session.has_room_to_spare(message) or not reader.may_go_on(number):
                return reader
        member = next(self._members(message, route, publisher), None)
        return None if member is None else self._of(member)

    def _members(self, message: Message, route: Route, publisher: Source) -> Iterator[Session]:
        """One reading member of each shared subscription without room."""
        for sink in route.sinks:
            member = sink.reader(message, publisher) if isinstance(sink, SharedSubscription) else None
            if member is not None:
                yield member

    def _of(self, session: Session) -> "Reader":
        """The reader of a session. A new one is measured from now on."""
        outbox = session.outbox
        assert outbox is not None, "the queue of a client that is away does not fill"
        reader = self._readers.get(outbox.number)
        if reader is None:
            now = self._effects.now
            reader = self._readers[outbox.number] = Reader(self, session, outbox.number, now)
            self._deadlines.arm(reader, now + READER_LOOK_S)
        return reader

    def look_at(self, reader: "Reader") -> None:
        """Measure a reader, and release publishers for which there is room."""
        now = self._effects.now
        session = reader.session
        outbox = session.outbox
        is_connected = outbox is not None and outbox.number == reader.number
        reader.measure(now, self._limits.min_drain_rate)
        if is_connected:
            session.fill_up(FILLING if reader.reads else SLOW)
        effects = self._effects
        most_work = min(ITERATION_WORK, effects.work + LOOK_WORK)
        while reader.waiting and effects.work < most_work:
            first = reader.waiting[0]
            may_wait = is_connected and reader.reads and now < first.until
            if may_wait and not session.has_room_to_spare(first.held.message):
                break
            self._let_go_on(reader, reader.waiting.popleft())
        if reader.waiting:
            self._deadlines.arm(reader, now + (READER_LOOK_S if effects.work < most_work else READER_GOES_ON_S))
            return
        reader.turns.clear()
        if not is_connected:
            del self._readers[reader.number]
        elif not session.fills:
            session.fill_up(EMPTYING)
            del self._readers[reader.number]
        else:
            self._deadlines.arm(reader, now + (READER_LOOK_S if reader.reads else SLOW_LOOK_S))

    def _let_go_on(self, reader: "Reader", waited: "_Waiting") -> None:
        """Publish a message that waited, or make it wait for another reader."""
        held = waited.held
        if not held.is_over():
            if held.number != INSIDE:  # many wait there, and would overtake each other
                reader.turns[held.number] = TURN_MESSAGES
            other: Reader | None = None
            if self._effects.now < waited.until:
                route = self._routes.find(held.message.topic)
                other = self._full(held.message, route, held.source, held.number)
            if other is not None and other is not reader:
                other.waiting.append(waited)
                return
            held.go_on()
        self._effects.memory.let_go(held.message)


@final
class Reader(Deadline):
    """A connected client whose queue fills up."""

    __slots__ = ("_back_pressure", "_measured_at", "_taken", "number", "reads", "session", "turns", "waiting")

    def __init__(self, back_pressure: BackPressure, session: Session, number: int, now: float) -> None:
        super().__init__()
        self._back_pressure: Final = back_pressure
        self.session: Final = session
        self.number: Final = number
        self.waiting: Final[deque[_Waiting]] = deque()
        """The publishers that wait for it, first come, first served."""
        self.turns: Final[dict[int, int]] = {}
        """How many messages each released publisher may still publish before it has to queue again."""
        self.reads: bool = True
        """Whether it takes enough messages. True until the first measurement."""
        self._measured_at = now
        self._taken = session.queue.first

    def is_turn_of(self, number: int) -> bool:
        """Whether a publisher may go before the waiting ones."""
        return not self.waiting or self.turns.get(number, 0) > 0

    def may_go_on(self, number: int) -> bool:
        """The same, and count one message of the publisher's turn."""
        if not self.waiting:
            return True
        left = self.turns.pop(number, 0)
        if left > 1:
            self.turns[number] = left - 1
        return left > 0

    def measure(self, now: float, min_drain_rate: int) -> None:
        """Update `reads` from the number of messages that left the queue since the last measurement."""
        passed_s = now - self._measured_at
        if passed_s >= PACE_S:
            taken = self.session.queue.first
            self.reads = taken - self._taken >= min_drain_rate * passed_s
            self._measured_at, self._taken = now, taken

    def on_due(self) -> None:
        self._back_pressure.look_at(self)


@final
class _Waiting(Deadline):
    """A message that waits, until the end of its patience. The deadline is armed if it waits for room."""

    __slots__ = ("_back_pressure", "held", "until")

    def __init__(self, back_pressure: BackPressure, held: HeldMessage, until: float) -> None:
        super().__init__()
        self._back_pressure: Final = back_pressure
        self.held: Final = held
        self.until: Final = until

    def on_due(self) -> None:
        self._back_pressure.look_for_room(self)
