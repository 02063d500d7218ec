"""Sends the backlogs of connected clients in parts when they read again, and drops them when memory is short.

Invariant: a connection whose backlog may move is in `Effects.backlogged` exactly once.
"""

from typing import Final, final

from mqttlite.core.connect.connection import Connection
from mqttlite.core.effects import Effects
from mqttlite.core.limits import FILL_BYTES, FILL_BYTES_PER_WORK_UNIT, ITERATION_BYTES, ITERATION_WORK
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.route.due_messages import DueMessages


@final
class Backlogs:
    """`connections` is the broker's table, by number."""

    __slots__ = ("_connections", "_due_messages", "_effects")

    def __init__(self, connections: dict[int, Connection], due_messages: DueMessages, effects: Effects) -> None:
        self._connections: Final = connections
        self._due_messages: Final = due_messages
        self._effects: Final = effects

    def fill(self) -> None:
        """Send more from the sessions with a backlog, one after another. The next iteration starts with the sessions
        that had no turn.

        They may send at least `FILL_BYTES`, however many bytes wait for other links.
        """
        effects = self._effects
        backlogged, effects.backlogged = effects.backlogged, []
        others_bytes = max(0, effects.pending_bytes - ITERATION_BYTES + FILL_BYTES)
        effects.pending_bytes -= others_bytes
        for at, number in enumerate(backlogged):
            if effects.work >= ITERATION_WORK or effects.pending_bytes >= ITERATION_BYTES:
                effects.backlogged = backlogged[at:] + effects.backlogged
                break
            connection = self._connections.get(number)
            if connection is not None and connection.session is not None:
                connection.outbox.backlogged = False
                pending_bytes = effects.pending_bytes
                if connection.outbox.draining:
                    self.drain(connection)
                else:
                    connection.session.fill()
                effects.work += (effects.pending_bytes - pending_bytes) // FILL_BYTES_PER_WORK_UNIT
        effects.pending_bytes += others_bytes

    def drain(self, connection: Connection) -> None:
        """Move as much of a backlog as this iteration has room for."""
        effects = self._effects
        outbox = connection.outbox
        waiting = outbox.waiting_bytes
        effects.pending_bytes += outbox.drain(FILL_BYTES if effects.pending_bytes < ITERATION_BYTES else 0)
        if outbox.draining:
            if not outbox.backlogged:
                outbox.backlogged = True
                effects.backlogged.append(outbox.number)
            return
        if connection.blocked_at:
            self._due_messages.on_unblocked(connection.number)
            duration_s = effects.now - connection.blocked_at
            connection.blocked_at = 0.0
            connection.backpressure_s += duration_s
            if effects.tracer is not None:
                effects.tracer.on_unblocked(connection.number, duration_s, waiting)
        if connection.session is not None:
            connection.session.fill()

    def on_pace_over(self, number: int) -> None:
        """Implements `Paced`: send the backlog if the link takes bytes."""
        connection = self._connections.get(number)
        if connection is not None and not connection.outbox.link_blocked:
            self.drain(connection)

    def shed(self) -> list[tuple[int, int, int]]:
        """Drop waiting QoS 0 messages, largest outbox first, until there is enough memory. Return (connection number,
        bytes, messages) for each outbox that lost messages."""
        memory = self._effects.memory
        shed: list[tuple[int, int, int]] = []
        if not memory.droppable:
            return shed
        blocked = [connection.outbox for connection in self._connections.values() if connection.outbox.blocked]
        blocked.sort(key=_backlog_bytes, reverse=True)
        for outbox in blocked:
            if memory.used <= memory.shed_above or not outbox.backlog_bytes:
                break
            size = outbox.backlog_bytes
            shed.append((outbox.number, size, outbox.shed()))
            memory.sheds += 1
        return shed


def _backlog_bytes(outbox: Outbox) -> int:
    return outbox.backlog_bytes
