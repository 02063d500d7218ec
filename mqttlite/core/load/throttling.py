"""Enforces the rate quotas of clients: the link of a client above its rate is not read for a while, or its connection
ends.

What was read together is handled in parts (`Broker._walk_in_parts`), each charged, so no message is lost or reordered,
and what may not pass yet waits; the pause lasts until the debt is paid. Invariant: a connection that is held for its
rate has an armed deadline.
"""

from typing import Final, final

from mqttlite.core.connect.closing import Closing
from mqttlite.core.connect.connection import CLOSED, Connection
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.load.quotas import CLIENT, Quotas, Throttle
from mqttlite.core.outbound.pace import Pace, Paced
from mqttlite.core.reasons import CloseReason, HoldReason
from mqttlite.wire.reason_codes import ReasonCode


@final
class Throttling:
    """One for each broker."""

    __slots__ = ("_closing", "_deadlines", "_effects", "held", "refused")

    def __init__(self, closing: Closing, deadlines: Deadlines, effects: Effects) -> None:
        self._closing: Final = closing
        self._deadlines: Final = deadlines
        self._effects: Final = effects
        self.held: int = 0
        """How often a client was held or disconnected because it exceeded a quota."""
        self.refused: Final[dict[str, int]] = {}
        """Refused subscriptions and dropped messages, by the exhausted quota."""

    def start(self, connection: Connection, quotas: Quotas, owner: Paced) -> None:
        """Start to limit an accepted client."""
        now = self._effects.now
        client_id, username, address = connection.client_id, connection.username, connection.quota_address
        connection.throttle = quotas.throttle(client_id, username, connection.bytes_received, now, address)
        buckets = quotas.outgoing.of(client_id, username, address, now)
        if buckets:
            connection.outbox.pace = Pace(connection.number, quotas, buckets, self._deadlines, owner)

    def charge(self, connection: Connection, throttle: Throttle) -> None:
        """Charge the input since the last call."""
        now = self._effects.now
        messages = connection.received_qos0 + connection.received_qos1 + connection.received_qos2
        wait_s = throttle.take(messages, connection.bytes_received, now)
        if wait_s <= 0.0 or connection.state == CLOSED:
            return
        quotas = throttle.quotas
        self.held += not throttle.is_held
        if quotas.disconnects and throttle.scope == CLIENT:
            quotas.count_held("disconnect")
            if throttle.is_over_messages:
                code, what = ReasonCode.MESSAGE_RATE_TOO_HIGH, "messages"
            else:
                code, what = ReasonCode.QUOTA_EXCEEDED, "bytes"
            detail = f"the client sends more {what} a second than its quota allows (quotas.{what}_per_s)"
            self._closing.end(connection, CloseReason.QUOTA_EXCEEDED, code, detail)
            return
        throttle.held_until = now + wait_s
        if not throttle.is_held:
            throttle.is_held = True
            throttle.times += 1
            throttle.held_for = throttle.scope
            quotas.count_held(throttle.scope)
            self._effects.hold(connection.number, HoldReason.RATE)
            self._deadlines.arm(_HoldEnd(self._deadlines, self._effects, connection.number, throttle), now + wait_s)


@final
class _HoldEnd(Deadline):
    """Due when a held link may be read again."""

    __slots__ = ("_deadlines", "_effects", "_number", "_throttle")

    def __init__(self, deadlines: Deadlines, effects: Effects, number: int, throttle: Throttle) -> None:
        super().__init__()
        self._deadlines: Final = deadlines
        self._effects: Final = effects
        self._number: Final = number
        self._throttle: Final = throttle

    def on_due(self) -> None:
        throttle = self._throttle
        if throttle.held_until > self._effects.now:  # bytes read before the hold were charged since
            self._deadlines.arm(self, throttle.held_until)
            return
        throttle.is_held = False
        self._effects.release(self._number, HoldReason.RATE)
