"""The MQTT consumers of a queue: sessions with a subscription to it, in the order of their turns.

Invariant: a consumer that may have room for a message is once in the ring of its queue.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.authorizer import SUBSCRIBE
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session


@final
class Consumer:
    """A `Puller`: a session with its subscription to a queue. `asked` is the filter to check against the rules."""

    __slots__ = (
        "_asked",
        "_is_allowed",
        "_permissions",
        "_role",
        "_rules",
        "delivered",
        "in_ring",
        "ring",
        "session",
        "subscription",
    )

    def __init__(self, session: Session, subscription: Subscription, permissions: Permissions, asked: bytes) -> None:
        self.session: Final = session
        self._permissions: Final = permissions
        self._asked: Final = asked
        self._rules = 0
        self._role = 0
        self._is_allowed = True
        self.subscription: Subscription = subscription
        self.ring: ConsumerRing | None = None
        """The ring of its queue; None while the queue does not exist."""
        self.in_ring: bool = False
        self.delivered: int = 0

    def on_room(self) -> None:
        ring = self.ring
        if ring is not None:
            ring.on_room(self)

    def on_gone(self) -> None:
        """Implements `Puller`: its leases end as they go back."""

    def may_consume(self) -> bool:
        """Whether the rules in force let it subscribe to the queue. Checked once after each change of the rules or its
        role. A consumer that may not stays, and gets messages again when the rules allow it."""
        permissions, session = self._permissions, self.session
        if not permissions.restricts or session.identity.is_trusted:
            return True
        role = permissions.role_of(session)
        if self._rules != permissions.rules or self._role != role:
            self._rules, self._role = permissions.rules, role
            self._is_allowed = permissions.may_subscribe(session, self._asked)
            if not self._is_allowed:
                permissions.deny(session, SUBSCRIBE, self._asked)
        return self._is_allowed


@final
class ConsumerRing:
    """The consumers of one queue. `deliver` delivers available messages to them."""

    __slots__ = ("_deliver", "_ring")

    def __init__(self, deliver: Callable[[], None]) -> None:
        self._deliver: Final = deliver
        self._ring: Final[deque[Consumer]] = deque()

    def __len__(self) -> int:
        """How many consumers may have room."""
        return len(self._ring)

    def join(self, consumer: Consumer) -> None:
        """A session consumes from now on."""
        consumer.ring = self
        self._add(consumer)

    def leave(self, consumer: Consumer) -> None:
        """A session no longer consumes. It may still acknowledge its messages."""
        consumer.ring = None
        if consumer.in_ring:
            self._ring.remove(consumer)
            consumer.in_ring = False

    def on_room(self, consumer: Consumer) -> None:
        """A consumer may have room for a message."""
        self._add(consumer)
        self._deliver()

    def next(self, keeps_ids: bool) -> Consumer | None:
        """The next consumer: the first one with room; None if there is none. `keeps_ids` says that it must also have
        room to keep another packet identifier."""
        ring = self._ring
        while ring:
            consumer = ring[0]
            session = consumer.session
            if session.can_borrow and (not keeps_ids or session.window.may_keep) and consumer.may_consume():
                return consumer
            ring.popleft()
            consumer.in_ring = False
        return None

    def turn(self) -> None:
        """The first consumer got a message: move it to the end."""
        if len(self._ring) > 1:
            self._ring.rotate(-1)

    def clear(self) -> None:
        """The queue is deleted."""
        for consumer in self._ring:
            consumer.in_ring = False
        self._ring.clear()

    def _add(self, consumer: Consumer) -> None:
        if not consumer.in_ring:
            consumer.in_ring = True
            self._ring.append(consumer)
