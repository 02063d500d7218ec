"""A broker without sockets that is watched: what would be written is in `rows`, by table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from mqttlite.core.connect.connection import Connection
from mqttlite.core.limits import Limits
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.event_hub import CoreTracer, EventHub
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.extensions.dataset.recorder import DatasetRecorder
from mqttlite.extensions.dataset.tables import Row
from mqttlite.filters import Filters
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.telemetry.observer import Observer
from mqttlite.telemetry.wall import Wall
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish
from tests.support.core_driver import START, Client, World

BROKER = "5f2c0123456789ab"


@dataclass(frozen=True)
class Link:
    connection: Connection
    address: str = "192.0.2.7:1234"
    listener: str = "door"
    transport: str = "tcp"
    tls_version: str | None = None
    tls_cipher: str | None = None
    proxied_tls: None = None
    unsent_bytes: int = 0


class Watched(World):
    """`begin` it once there is a loop; `interval` ends an interval by hand."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        delivery_log: DeliveryLogOptions | None = None,
        dataset: bool = True,
        names: Pseudonyms | None = None,
        **options: Any,
    ) -> None:
        super().__init__(limits, filters=Filters())
        self.rows: dict[str, list[Row]] = {}
        self.links: dict[int, Link] = {}
        self.wall_s = START
        self.wall = Wall(START, wall_clock=lambda: self.wall_s, steady_clock=lambda: START)
        options.setdefault("interval_s", 1e6)
        self.hub = EventHub()
        self._recorder = None
        if dataset:
            self._recorder = DatasetRecorder(
                *(self.broker, self.links, BROKER, self.wall, names or Pseudonyms(), self.write),
                TelemetryOptions(directory="nowhere", **options),
                clock=lambda: self.now,
            )
        self.observer = Observer(
            self.broker,
            self.wall,
            clock=lambda: self.now,
            stopwatch=lambda: self.now,
            recorder=self._recorder,
            delivery_log_options=delivery_log,
            seed=1,
        )

    def write(self, table: str, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)

    def begin(self) -> "Watched":
        self.observer.start()
        self.hub.register(self.observer)
        if self._recorder is not None:
            self._recorder.start(max_connections=99)
            self.hub.register(self._recorder)
            self.hub.register(self._recorder.events)
        self.broker.watch(CoreTracer(self.hub, self.observer))
        return self

    async def stop(self) -> None:
        await self.observer.stop()
        if self._recorder is not None:
            await self._recorder.stop()

    @property
    def recorder(self) -> DatasetRecorder:
        assert self._recorder is not None
        return self._recorder

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table as they would be in a file."""
        found: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(self.rows.get(name, [])))
        return found

    def interval(self) -> int:
        """End an interval; in how many steps."""
        return sum(1 for _ in self.recorder.intervals.sweep(self.now))

    def flood(self, client: Client, topic: str, payloads: Sequence[bytes], qos: int = 0) -> None:
        """Many messages in one chunk."""
        packets = [Publish(topic.encode(), payload, qos, packet_id=client.packet_id()) for payload in payloads]
        client.send_bytes(b"".join([encode(packet, client.version) for packet in packets]))

    # ------------------------------------------------------------------ what the assembly does

    def open(self, version: int = V5, **options: Any) -> Client:
        client = super().open(version, **options)
        self.links[client.connection.number] = Link(client.connection)
        return client

    def connect(self, client_id: str = "", version: int = V5, **options: object) -> Client:
        client = super().connect(client_id, version, **options)
        self.hub.on_connected(self.links[client.connection.number])
        return client

    def settle(self) -> None:
        before = dict(self.clients)
        super().settle()
        for number in before.keys() - self.clients.keys():
            self.hub.on_ended(self.links.pop(number))

    def _hand_over(self, client: Client, outbox: Outbox) -> None:
        traced, outbox.traced = outbox.traced, False
        super()._hand_over(client, outbox)
        if traced:
            self.observer.on_written(outbox.number)
