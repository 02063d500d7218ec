"""Handles topics with the policy `block` or `reject`: a message goes to no receiver while one of them has no room for
it.

A blocked publisher waits for up to `Limits.max_block_s`; then its message is refused. Invariant: a waiting message is
charged to the memory account.
"""

from typing import Final, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.inbound.held_message import HeldMessage
from mqttlite.core.limits import OUTBOXES_PER_WORK_UNIT, ROOM_LOOK_S, Limits
from mqttlite.core.message import Message
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.core.route.route import Route
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.source import Source

NO_ROOM: Final = "a receiver has no room for the message, and the topic's policy is that nobody gets it then"


@final
class Room:
    """One for each broker."""

    __slots__ = ("_deadlines", "_effects", "_limits", "_router", "_routes")

    def __init__(self, routes: Routes, router: Router, deadlines: Deadlines, effects: Effects, limits: Limits) -> None:
        self._routes: Final = routes
        self._router: Final = router
        self._deadlines: Final = deadlines
        self._effects: Final = effects
        self._limits: Final = limits

    def is_missing(self, message: Message, route: Route, source: Source) -> bool:
        """Whether lack of room is the only reason that a message cannot be published."""
        policy = route.policy
        if policy is None or not route.asks_room:
            return False
        if policy.refusal(message.qos, message.retain, len(message.payload)):
            return False
        self._effects.work += len(route.receivers) // OUTBOXES_PER_WORK_UNIT
        return self._router.may_publish(route, message.topic, source) and not route.has_room(
            message, min(message.qos, policy.max_qos), source
        )

    def may_wait(self, route: Route) -> bool:
        """Whether a message without room waits for it; else it is refused at once."""
        policy = route.policy
        return policy is not None and policy.blocks and self._limits.max_block_s > 0.0

    def hold(self, held: HeldMessage, until: float) -> None:
        """Make a message wait for room, at most until then."""
        held.wait()
        self._effects.memory.hold(held.message)
        blocked = _Blocked(self, held, min(until, self._effects.now + self._limits.max_block_s))
        self._deadlines.arm(blocked, self._effects.now + ROOM_LOOK_S)

    def look(self, blocked: "_Blocked") -> None:
        """Check again for room."""
        held = blocked.held
        now = self._effects.now
        if not held.is_over():
            is_missing = self.is_missing(held.message, self._routes.find(held.message.topic), held.source)
            if is_missing and now < blocked.until:
                self._deadlines.arm(blocked, now + ROOM_LOOK_S)
                return
            if is_missing:
                held.end(QUEUE_FULL, NO_ROOM)
            else:
                held.go_on()
        self._effects.memory.let_go(held.message)


@final
class _Blocked(Deadline):
    """A publisher that waits."""

    __slots__ = ("_room", "held", "until")

    def __init__(self, room: Room, held: HeldMessage, until: float) -> None:
        super().__init__()
        self._room: Final = room
        self.held: Final = held
        self.until: Final = until

    def on_due(self) -> None:
        self._room.look(self)
