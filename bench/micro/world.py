"""A core without sockets, and clients that cost next to nothing: they send frames made beforehand, and look at none.

`effects` does what the shell does after each pass of its loop, but for the writing.
"""

from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import Connection, Peer
from mqttlite.core.limits import Limits
from mqttlite.core.load.quotas import Quotas
from mqttlite.core.message_filter import FilterCompiler
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import NONE, Properties

START: Final = 1_000.0


class World:
    """One broker. Time stands still until `now` is set."""

    def __init__(
        self, limits: Limits | None = None, filters: FilterCompiler | None = None, quotas: Quotas | None = None
    ) -> None:
        self.broker: Final = Broker(limits or Limits(), filters=filters)
        self._peer: Final = Peer(quotas=quotas)
        self.now = START

    def connect(
        self, client_id: str, version: int = V5, *, keep_alive: int = 0, properties: Properties = NONE
    ) -> Connection:
        """A client that is let in."""
        connection = self.broker.open(self._peer, self.now)
        packet = Connect(client_id, version, clean_start=False, keep_alive=keep_alive, properties=properties)
        self.feed(connection, encode(packet, version))
        assert connection.accepted
        self.effects()
        return connection

    def subscriber(self, client_id: str, topic_filter: bytes, qos: int = 0, version: int = V5) -> Connection:
        """A client that is let in and subscribes."""
        connection = self.connect(client_id, version)
        self.feed(connection, encode(Subscribe(1, (SubscriptionRequest(topic_filter, qos),)), version))
        self.effects()
        return connection

    def feed(self, connection: Connection, chunk: bytes) -> None:
        self.broker.feed(connection, chunk, self.now)

    def effects(self) -> dict[int, bytes]:
        """What would now be written, by the number of the connection; until nobody has more to say."""
        effects = self.broker.effects
        written = self._write()
        while effects.deferred:
            deferred, effects.deferred = effects.deferred, []
            for number in deferred:
                self.broker.feed(self.broker.connections[number], b"", self.now)
            for number, data in self._write().items():
                written[number] = written.get(number, b"") + data
        return written

    def _write(self) -> dict[int, bytes]:
        effects = self.broker.effects
        effects.changes.clear()
        effects.connected.clear()
        effects.pending_bytes = 0
        effects.work = 0
        dirty, effects.dirty = effects.dirty, []
        written: dict[int, bytes] = {}
        for outbox in dirty:
            outbox.awaits_commit = False
            written[outbox.number] = outbox.take()
        effects.closed.clear()
        return written
