"""The way in for publishers that are no connection: HTTP callers, the program that embeds the broker, answers.

A message that is offered here meets what a PUBLISH meets: limits of payloads, overload, readers whose queues fill up,
room under `block` and `reject`, and then the router with permissions, policies and schemas. Invariant: a ticket is
done once, and only when every receiver has the message, or nobody gets it.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.inbound.held_message import INSIDE, HeldMessage
from mqttlite.core.inbound.priority import OVERLOADED, is_low, shed_reason
from mqttlite.core.inbound.readers import Readers
from mqttlite.core.inbound.room import NO_ROOM, Room
from mqttlite.core.limits import MAX_WAITING_INSIDE
from mqttlite.core.message import Message
from mqttlite.core.reasons import PACKET_TOO_LARGE, QUEUE_FULL
from mqttlite.core.route.fan_out import FanOut
from mqttlite.core.route.route import Route
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.tally import QUOTA_EXCEEDED, Tally
from mqttlite.core.source import BROKER, Source
from mqttlite.topics.namespaces import is_control

MANY_WAIT: Final = f"{MAX_WAITING_INSIDE} messages from inside wait for receivers already"


@final
class Inbound:
    """One for each broker."""

    __slots__ = ("_drops", "_effects", "_readers", "_room", "_router", "_routes", "waiting")

    def __init__(
        self, routes: Routes, router: Router, room: Room, readers: Readers, drops: Drops, effects: Effects
    ) -> None:
        self._routes: Final = routes
        self._router: Final = router
        self._room: Final = room
        self._readers: Final = readers
        self._drops: Final = drops
        self._effects: Final = effects
        self.waiting: int = 0
        """How many offered messages wait for receivers, at most `MAX_WAITING_INSIDE`."""

    def offer(self, message: Message, source: Source) -> "Ticket":
        """Publish a message, or make it wait as a client's would.

        The broker's own messages neither wait nor are shed: they tell what goes on. Raises `TopicNameInvalid`.
        """
        route = self._routes.find(message.topic)
        ticket = Ticket(self, message, source)
        if source.kind != BROKER and not self._take(ticket, message, source, route):
            return ticket
        self.publish(ticket, route)
        return ticket

    def _take(self, ticket: "Ticket", message: Message, source: Source, route: Route) -> bool:
        """Whether a message can be published now. If not, its ticket waits, or says why nobody gets it."""
        effects = self._effects
        size = len(message.payload)
        if size > source.topic_limits.max_payload_bytes and not is_control(message.topic):
            ticket.end(PACKET_TOO_LARGE, source.topic_limits.payload_refusal(size))
            return False
        if effects.sheds_low_priority:
            reason = shed_reason(effects, message.topic, message.qos, route.is_low or is_low(message.properties))
            if reason and (route.is_open or self._router.may_publish(route, message.topic, source)):
                ticket.end(reason, OVERLOADED if message.qos else "")
                return False
        if message.qos and effects.filling:
            reader = self._readers.full(message, route, source, INSIDE)
            if reader is not None:
                if self._has_place(ticket):
                    self._readers.hold(reader, ticket, route)
                return False
        if not route.asks_room or not self._room.is_missing(message, route, source):
            return True
        if not self._room.may_wait(route):
            ticket.end(QUEUE_FULL, NO_ROOM)
        elif self._has_place(ticket):
            self._room.hold(ticket)
        return False

    def _has_place(self, ticket: "Ticket") -> bool:
        """Whether one more message may wait. If not, its ticket says so."""
        if self.waiting < MAX_WAITING_INSIDE:
            return True
        ticket.end(QUEUE_FULL, MANY_WAIT)
        return False

    def publish(self, ticket: "Ticket", route: Route) -> None:
        """Hand a message to the router."""
        ticket.begin(self._router.publish(ticket.message, route, ticket.source))

    def go_on(self, ticket: "Ticket") -> None:
        """Publish a message that waited."""
        self.publish(ticket, self._routes.find(ticket.message.topic))

    def drop(self, message: Message, reason: str) -> None:
        """Count a message that nobody gets."""
        self._drops.add(reason, 1, message.topic)

    def identify(self, message: Message) -> int:
        return self._effects.identify(message)


@final
class Ticket(HeldMessage):
    """What becomes of a message that was offered. `tally` is final once the ticket is `done`."""

    __slots__ = ("_fan_out", "_inbound", "done", "on_done", "tally")

    def __init__(self, inbound: Inbound, message: Message, source: Source) -> None:
        super().__init__(message, source, INSIDE)
        self._inbound: Final = inbound
        self._fan_out: FanOut | None = None
        self.tally: Tally = Tally()
        self.done: bool = False
        self.on_done: Callable[[], None] | None = None
        """Called when it is done, if it was not done at once."""

    def message_id(self) -> int:
        """The number of its message, given now if it has none."""
        return self._inbound.identify(self.message) if self._fan_out is None else self._fan_out.message_id()

    def begin(self, fan_out: FanOut) -> None:
        """The message is on its way to its receivers."""
        self._fan_out = fan_out
        self.tally = fan_out.tally
        if fan_out.done:
            self._finish()
        else:
            fan_out.on_done = self._finish

    def end(self, reason: str, refusal: str) -> None:
        """Nobody gets the message. With a `refusal`, the publisher may send it again later."""
        self._inbound.drop(self.message, reason)
        tally = self.tally
        tally.drop(reason)
        if refusal:
            tally.code, tally.refusal = QUOTA_EXCEEDED, refusal
        else:
            tally.reached = 1  # it may have had receivers
        self._finish()

    def wait(self) -> None:
        self._inbound.waiting += 1

    def is_over(self) -> bool:
        return False

    def go_on(self, has_room: bool) -> None:
        self._inbound.waiting -= 1
        if has_room:
            self._inbound.go_on(self)
        else:
            self.end(QUEUE_FULL, NO_ROOM)

    def _finish(self) -> None:
        self.done = True
        if self.on_done is not None:
            self.on_done()
