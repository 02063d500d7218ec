"""Handles topics with the policy `block` or `reject`: a message goes to no receiver while one of them has no room for
it.

A blocked publisher waits in the state `ROOM` for up to `Limits.max_block_s`; then its message is refused. Invariant: a
connection has at most one message here, which is charged to the memory account.
"""

from typing import Final, Protocol, final

from mqttlite.core.connection import CLOSED, NOTHING, ROOM, Connection
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.limits import OUTBOXES_PER_WORK_UNIT, ROOM_LOOK_S, Limits
from mqttlite.core.message import Message
from mqttlite.core.receipts import Receipt
from mqttlite.core.route import Route
from mqttlite.core.router import Router
from mqttlite.core.routes import Routes

NO_ROOM: Final = "a receiver has no room for the message, and the topic's policy is that nobody gets it then"


class RoomOwner(Protocol):
    """Publishes or refuses the waiting messages. A QoS 0 message has no receipt."""

    def on_room(self, connection: Connection, message: Message, receipt: Receipt | None) -> None:
        """Publish a message: there is room for it now."""
        ...

    def on_no_room(self, message: Message, receipt: Receipt | None) -> None:
        """Refuse a message."""
        ...


@final
class Room:
    """One for each broker."""

    __slots__ = ("_deadlines", "_effects", "_limits", "_owner", "_router", "_routes")

    def __init__(
        self,
        owner: RoomOwner,
        routes: Routes,
        router: Router,
        deadlines: Deadlines,
        effects: Effects,
        limits: Limits,
    ) -> None:
        self._owner: Final = owner
        self._routes: Final = routes
        self._router: Final = router
        self._deadlines: Final = deadlines
        self._effects: Final = effects
        self._limits: Final = limits

    def is_missing(self, connection: Connection, message: Message, route: Route, receipt: Receipt | None) -> bool:
        """Whether a receiver has no room for a message. If so, the message waits or is refused."""
        if not self._lacks_room(connection, message, route):
            return False
        policy = route.policy
        assert policy is not None, "it asks for room"
        if policy.blocks and self._limits.max_block_s > 0.0:
            connection.waits_for = ROOM
            connection.deferred = True
            self._effects.memory.hold(message)
            blocked = _Blocked(self, connection, message, receipt, self._effects.now + self._limits.max_block_s)
            self._deadlines.arm(blocked, self._effects.now + ROOM_LOOK_S)
        else:
            self._owner.on_no_room(message, receipt)
        return True

    def look(self, blocked: "_Blocked") -> None:
        """Check again for room. If the connection has ended, drop its message, which was never acknowledged."""
        connection, message = blocked.connection, blocked.message
        now = self._effects.now
        if connection.state != CLOSED and connection.waits_for == ROOM:
            is_missing = self._lacks_room(connection, message, self._routes.find(message.topic))
            if is_missing and now < blocked.until:
                self._deadlines.arm(blocked, now + ROOM_LOOK_S)
                return
            connection.waits_for = NOTHING
            if is_missing:
                self._owner.on_no_room(message, blocked.receipt)
            else:
                self._owner.on_room(connection, message, blocked.receipt)
            if connection.waits_for == NOTHING:
                self._effects.deferred.append(connection.number)
        self._effects.memory.let_go(message)

    def _lacks_room(self, connection: Connection, message: Message, route: Route) -> bool:
        """Whether lack of room is the only reason that a message cannot be published."""
        policy, session = route.policy, connection.session
        if policy is None or not route.asks_room:
            return False
        assert session is not None, "the client is connected"
        if policy.refusal(message.qos, message.retain, len(message.payload)):
            return False
        self._effects.work += len(route.receivers) // OUTBOXES_PER_WORK_UNIT
        return self._router.may_publish(route, message.topic, session) and not route.has_room(
            message, min(message.qos, policy.max_qos), session
        )


@final
class _Blocked(Deadline):
    """A publisher that waits."""

    __slots__ = ("_room", "connection", "message", "receipt", "until")

    def __init__(
        self, room: Room, connection: Connection, message: Message, receipt: Receipt | None, until: float
    ) -> None:
        super().__init__()
        self._room: Final = room
        self.connection: Final = connection
        self.message: Final = message
        self.receipt: Final = receipt
        self.until: Final = until

    def on_due(self) -> None:
        self._room.look(self)
