"""The way in for messages: of clients, HTTP callers, the program that embeds the broker, and the broker itself.

`takes` asks about every message: hooks, overload, back-pressure. The router asks for permissions, policies and schemas.
`admit` asks what a connection answers with its link: bans, expiry, quotas.
Invariant: a ticket is done once, and only when every receiver has the message, or nobody gets it.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.hook import Hook, HookAnswer
from mqttlite.core.inbound.back_pressure import BackPressure
from mqttlite.core.inbound.held_message import INSIDE, HeldMessage
from mqttlite.core.inbound.priority import OVERLOADED, is_low, shed_reason
from mqttlite.core.limits import MAX_WAITING_INSIDE
from mqttlite.core.message import Message
from mqttlite.core.ports import BanOf
from mqttlite.core.reasons import (
    CREDENTIALS_EXPIRED,
    HOOK_REJECTED,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    QUEUE_FULL,
    RATE_LIMITED,
)
from mqttlite.core.route.fan_out import FanOut
from mqttlite.core.route.route import Route
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.tally import NOT_AUTHORIZED_CODE, QUOTA_EXCEEDED, Tally
from mqttlite.core.source import BROKER, Publisher, Source
from mqttlite.core.tracer import NOT_TRACED
from mqttlite.topics.namespaces import DELAYED
from mqttlite.wire.errors import TopicNameInvalid

MANY_WAIT: Final = f"{MAX_WAITING_INSIDE} messages from inside wait for receivers already"


@final
class Inbound:
    """One for each broker."""

    __slots__ = ("_back_pressure", "_drops", "_effects", "_router", "_routes", "ban_of", "waiting")

    def __init__(
        self, routes: Routes, router: Router, back_pressure: BackPressure, drops: Drops, effects: Effects
    ) -> None:
        self._routes: Final = routes
        self._router: Final = router
        self._back_pressure: Final = back_pressure
        self._drops: Final = drops
        self._effects: Final = effects
        self.ban_of: BanOf | None = None
        self.waiting: int = 0
        """How many offered messages wait for receivers, at most `MAX_WAITING_INSIDE`."""

    def offer(self, message: Message, source: Source) -> "Ticket":
        """Publish a message, or make it wait as a client's would. Raises `TopicNameInvalid`."""
        route = self._routes.find(message.topic)
        ticket = Ticket(self, message, source)
        size = len(message.payload)
        if (refused := self.admit(source, 1, size)) is not None:
            ticket.refuse(refused)
        elif source.topic_limits.is_too_large(message.topic, size):
            ticket.end(PACKET_TOO_LARGE, source.topic_limits.payload_refusal(size))
        elif self.takes(ticket, route):
            self.publish(ticket)
        return ticket

    def admit(self, source: Source, messages: int, size: int) -> Tally | None:
        """Why a source may publish nothing now; None if it may, and the messages are counted against its quotas."""
        if not isinstance(source, Publisher):
            return None  # a connection is closed or held back, and others have no limits
        if self.ban_of is not None and (ban := self.ban_of(source.client_id, source.username, source.address)):
            return _refused(NOT_AUTHORIZED_CODE, NOT_AUTHORIZED, ban)
        if source.grants.expires_at <= self._effects.now:
            return _refused(NOT_AUTHORIZED_CODE, NOT_AUTHORIZED, CREDENTIALS_EXPIRED)
        scope = source.charge(messages, size, self._effects.now)
        if scope:
            return _refused(QUOTA_EXCEEDED, RATE_LIMITED, f"the {scope} publishes more than its quota allows (quotas)")
        return None

    def takes(self, held: HeldMessage, route: Route) -> bool:
        """Whether a message can be published now. If not, it waits, or its publisher is told why nobody gets it.

        The broker's own messages are not shed, because they tell what goes on.
        """
        effects, message, source = self._effects, held.message, held.source
        if route.hook is not None and not held.is_hooked and not source.identity.is_relay:
            held.is_hooked = True
            if self._may_publish(route, message.topic, source):
                self._ask(route.hook, held, route)
                return False
        if effects.sheds_low_priority and source.kind != BROKER and (held.is_told or not message.qos):
            reason = shed_reason(effects, message.topic, message.qos, route.is_low or is_low(message.properties))
            if reason and (route.is_open or self._router.may_publish(route, message.topic, source)):
                held.end(reason, OVERLOADED if message.qos else "")
                return False
        return self._back_pressure.takes(held, route)

    def _may_publish(self, route: Route, topic: bytes, source: Source) -> bool:
        """Whether a source may publish to a topic, or, if it is delayed, to the one behind the seconds."""
        if route.delayed is not None:
            topic = route.delayed.rest
            route = self._routes.find(topic)
        return self._router.may_publish(route, topic, source)

    def _ask(self, hook: Hook, held: HeldMessage, route: Route) -> None:
        """Ask the hook of a topic about a message, and go on with its answer."""
        if not held.may_wait():
            return
        message = held.message
        answer = hook.ask(
            message if route.delayed is None else message.for_topic(route.delayed.rest), held.source, held
        )
        if answer is None:
            held.wait()
            self._effects.memory.hold(message)
        elif self._may_go_on(held, answer):
            held.publish()

    def on_hooked(self, held: HeldMessage, answer: HookAnswer) -> None:
        """A hook answers late. A QoS 0 message is published also if its client is gone, which may send one and go."""
        message = held.message
        if held.is_over():
            if message.qos == 0 and self._may_go_on(held, answer):
                self._router.publish(held.message, self._routes.find(held.message.topic), held.source)
        elif self._may_go_on(held, answer):
            held.go_on()
        self._effects.memory.let_go(message)

    def _may_go_on(self, held: HeldMessage, answer: HookAnswer) -> bool:
        """Whether a message can be published now, as its hook wants it. If not, it waits, or its publisher is told."""
        if answer.code:
            held.end(HOOK_REJECTED, answer.reason, answer.code, answer.detail)
            return False
        changed = answer.message
        if changed is not None:
            former = self._routes.namespaces.parse_name(held.message.topic)
            if former.namespace == DELAYED:
                changed = changed.for_topic(b"$delayed/" + former.name + b"/" + changed.topic)
            held.message = changed
        message = held.message
        if held.source.topic_limits.is_too_large(message.topic, len(message.payload)):
            held.end(PACKET_TOO_LARGE, held.source.topic_limits.payload_refusal(len(message.payload)))
            return False
        try:
            route = self._routes.find(message.topic)
        except TopicNameInvalid as error:  # `$delayed/<seconds>/` made it too long
            held.end(HOOK_REJECTED, str(error))
            return False
        return self.takes(held, route)

    def publish(self, ticket: "Ticket") -> None:
        """Hand a message to the router, as it is now."""
        route = self._routes.find(ticket.message.topic)
        ticket.begin(self._router.publish(ticket.message, route, ticket.source))

    def drop(self, message: Message, reason: str, detail: str) -> None:
        """Count a message that nobody gets."""
        self._drops.add(reason, 1, message.topic, NOT_TRACED, detail)

    def identify(self, message: Message) -> int:
        return self._effects.identify(message)


@final
class Ticket(HeldMessage):
    """What becomes of a message that was offered. `tally` is final once the ticket is `done`."""

    __slots__ = ("_inbound", "_waits", "done", "on_done", "tally")

    def __init__(self, inbound: Inbound, message: Message, source: Source) -> None:
        super().__init__(message, source, INSIDE, is_told=True)
        self._inbound: Final = inbound
        self._waits = False
        self.tally: Tally = Tally()
        self.done: bool = False
        self.on_done: Callable[[], None] | None = None
        """Called when it is done, if it was not done at once."""

    def message_id(self) -> int:
        """The number of its message, given now if it has none."""
        return self._inbound.identify(self.message)

    def begin(self, fan_out: FanOut) -> None:
        """The message is on its way to its receivers."""
        self.tally = fan_out.tally
        if fan_out.done:
            self._finish()
        else:
            fan_out.on_done = self._finish

    def end(self, reason: str, refusal: str, code: int = QUOTA_EXCEEDED, detail: str = "") -> None:
        if refusal:
            self.refuse(_refused(code, reason, refusal), detail)
            return
        self.tally.reached = 1  # it may have had receivers
        self.tally.drop(reason)
        self._drop(reason, detail)

    def refuse(self, tally: Tally, detail: str = "") -> None:
        """Nobody gets the message, for the reason in this outcome."""
        self.tally = tally
        self._drop(next(iter(tally.dropped)), detail)

    def _drop(self, reason: str, detail: str) -> None:
        self._stop_waiting()
        self._inbound.drop(self.message, reason, detail)
        self._finish()

    def may_wait(self) -> bool:
        if self._inbound.waiting < MAX_WAITING_INSIDE:
            return True
        self.end(QUEUE_FULL, MANY_WAIT)
        return False

    def wait(self) -> None:
        self._inbound.waiting += not self._waits
        self._waits = True

    def is_over(self) -> bool:
        return False

    def publish(self) -> None:
        self._inbound.publish(self)

    def go_on(self) -> None:
        self._stop_waiting()
        self.publish()

    def _stop_waiting(self) -> None:
        self._inbound.waiting -= self._waits
        self._waits = False

    def _finish(self) -> None:
        self.done = True
        if self.on_done is not None:
            self.on_done()


def _refused(code: int, reason: str, sentence: str) -> Tally:
    """The outcome of a message that nobody gets."""
    tally = Tally(code)
    tally.drop(reason)
    tally.refusal = sentence
    return tally
