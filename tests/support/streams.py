"""A core with streams, and what readers read in the properties of their messages."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from mqttlite.core.broker import Broker
from mqttlite.core.limits import Limits
from mqttlite.core.message_filter import FilterCompiler, NoFilters
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.service import Streams
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V5
from mqttlite.wire.packets import Ack, Publish, Suback, Subscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import START, Client, World, publishes, request
from tests.support.memory import assert_nothing_is_held, end_everything


def options(name: str = "s", *filters: str, **fields: object) -> StreamOptions:
    """A stream of `a/#` with one partition."""
    return StreamOptions(name=name, filters=filters or ("a/#",), **{"partitions": 1, **fields})  # type: ignore[arg-type]


class StreamWorld(World):
    """`streams` are those of the configuration."""

    def __init__(
        self,
        streams: Sequence[StreamOptions] = (),
        store: MemoryStore | None = None,
        now: float = START,
        limits: Limits | None = None,
        filters: FilterCompiler | None = None,
    ) -> None:
        self._made: list[Streams] = []
        self._options = tuple(streams)

        def serve(broker: Broker) -> None:
            made = Streams(broker, streams, lambda: self.now, 0, filters or NoFilters())
            self._made.append(made)
            broker.serve(made)

        super().__init__(limits, store, now, filters=filters, before_restore=serve)
        self.settle()

    @property
    def streams(self) -> Streams:
        return self._made[-1]

    def restart(self, *streams: StreamOptions) -> "StreamWorld":
        """Another broker with the same store, and the same configuration without another one; it was killed."""
        return StreamWorld(streams or self._options, self.store, self.now)

    def append(self, *payloads: str, topic: str = "a", key: str = "") -> None:
        """Publish at QoS 1."""
        properties = {"user_properties": [("ordering-key", key)]} if key else {}
        for payload in payloads:
            assert self.publish(topic, payload, 1, **properties) == 0

    def end(self) -> None:
        """Check that nothing is held in memory when all is deleted."""
        for name in self.streams.names:
            self.streams.delete(name)
        end_everything(self.broker, self.now)
        self.settle()
        self.streams._context.latest = None  # what is shared with the next message
        assert_nothing_is_held(self.broker.effects.memory)


def reader(
    world: StreamWorld,
    topic_filter: str = "$stream/s@earliest",
    name: str = "r",
    version: int = V5,
    qos: int = 1,
    **fields: object,
) -> Client:
    """A reader that acknowledges when it is told to."""
    client = world.connect(name, version, **{"auto_ack": False, **fields})
    assert client.subscribe(topic_filter, qos=qos) == bytes([qos])
    return client


def subscribe_at(client: Client, position: str, topic_filter: str = "$stream/s", *more: tuple[str, str]) -> Suback:
    """Subscribe at QoS 1 with the position, and `more`, in user properties."""
    properties = Properties(user_properties=[("stream-offset", position), *more])
    client.send(Subscribe(client.packet_id(), (request(topic_filter, 1),), properties))
    (suback,) = [each for each in client.packets if isinstance(each, Suback)]
    client.packets.remove(suback)
    return suback


def at_number(number: int) -> str:
    """The position of the time that is this number of a message: microseconds of Unix time."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)).isoformat()


def ack(client: Client, *packets: Publish) -> None:
    """The reader sends PUBACKs."""
    for packet in packets:
        client.send(Ack(PUBACK, packet.packet_id))


def got(client: Client) -> list[str]:
    """The payloads that a client received since the last call."""
    return [each.payload.decode() for each in publishes(client.received())]


def places(packets: Sequence[Publish]) -> list[tuple[int, int]]:
    """Partition and offset of each message."""
    told = [dict(each.properties.user_properties) for each in packets]
    return [(int(each["stream-partition"]), int(each["stream-offset"])) for each in told]
