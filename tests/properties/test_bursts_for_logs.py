"""QoS 1 and 2 messages for a queue or a stream that come together are what each of them would be by itself: kept,
refused, acknowledged and delivered alike."""

from collections.abc import Callable
from dataclasses import asdict, replace
from random import Random

import pytest

from mqttlite.core.limits import Limits
from mqttlite.extensions.streams.stream import ENTRY_BYTES
from mqttlite.filters import Filters
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Packet, Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import Client, World, answer_to, publishes
from tests.support.queues import QueueWorld
from tests.support.queues import options as queue_options
from tests.support.streams import StreamWorld
from tests.support.streams import options as stream_options

BESIDE = (
    NONE,
    NONE,
    NONE,
    Properties(user_properties=[("ordering-key", "k")]),
    Properties(user_properties=[("dedup-id", "one")]),
    Properties(user_properties=[("dedup-id", "two")]),
    Properties(user_properties=[("acks", "s/g/0:0-1")]),
    Properties(user_properties=[("kind", "x")]),
)


def _queue(random: Random) -> QueueWorld:
    policy = {"max_messages": random.choice([0, 5, 12]), "max_bytes": random.choice([0, 4_000])}
    drawn: dict[str, object] = {name: value for name, value in policy.items() if value}
    drawn["filter"] = random.choice(["", "", 'attributes.kind = "x"', "payload < 4"])
    made = queue_options(retain_acked=random.choice([False, True]), **drawn)
    return QueueWorld([made], filters=Filters())


def _stream(random: Random) -> StreamWorld:
    keep_bytes = random.choice([1_000_000, 20 * ENTRY_BYTES, 3_000])
    made = stream_options(keep_bytes=keep_bytes, partitions=3, last_value=random.choice([False, False, True]))
    limits = random.choice([None, Limits(max_memory_bytes=30_000)])
    return StreamWorld([made], limits=limits)


class Side:
    """A broker with a publisher and a consumer, which answers when it is told to."""

    def __init__(self, world: World, target: str, topic: bytes) -> None:
        self.world = world
        self.topic = topic
        self.publisher = world.connect("p")
        self.consumer: Client | None = None
        self._target = target
        self._owed: list[Ack] = []

    def publish(self, topic: bytes, qos: int, payloads: list[bytes], properties: Properties, is_run: bool) -> None:
        """In one chunk. If they are no run, an acknowledgement that answers nothing is between any two."""
        packets: list[Packet] = []
        for each in payloads:
            packets.append(Publish(topic, each, qos, packet_id=self.publisher.packet_id(), properties=properties))
            if not is_run:
                packets.append(Ack(PUBACK, 60_000))
        self.publisher.send(*packets)

    def consume(self, window: int) -> None:
        if self.consumer is None:
            self.consumer = self.world.connect("c", receive_maximum=window, auto_ack=False)
            self.consumer.send(Subscribe(1, (SubscriptionRequest(self._target.encode(), 1),)))
            self.consumer.received()

    def answer(self) -> None:
        if self.consumer is not None and self._owed:
            owed, self._owed = self._owed, []
            self.consumer.send(*owed)

    def seen(self) -> tuple[object, ...]:
        answers = [each for each in self.publisher.received() if isinstance(each, Ack)]
        came = [] if self.consumer is None else publishes(self.consumer.received())
        self._owed += [owed for each in came if (owed := answer_to(each)) is not None]
        came.sort(key=_partition)  # nothing orders those of different partitions
        shown = [(_partition(each), each.topic, each.payload[:9]) for each in came]
        return sorted((each.packet_id, each.reason_code) for each in answers), shown


def _partition(packet: Publish) -> str:
    return dict(packet.properties.user_properties).get("stream-partition", "")


@pytest.mark.parametrize("kind", ["queue", "stream"])
@pytest.mark.parametrize("seed", range(40))
def test_a_burst_is_what_its_messages_are_one_by_one(kind: str, seed: int) -> None:
    make: Callable[[Random], World] = _queue if kind == "queue" else _stream
    target, topic = ("$queue/q", b"a/1") if kind == "queue" else ("$stream/s", b"a/1")
    together, apart = (Side(make(Random(seed)), target, topic) for _ in range(2))
    random = Random(seed)
    for _ in range(15):
        step = random.choice(["publish", "publish", "publish", "consume", "answer", "answer"])
        count, qos, properties = random.choice([2, 5, 9]), random.choice([1, 1, 2]), random.choice(BESIDE)
        to = random.choice([topic, topic, b"$stream/s" if kind == "stream" else topic])
        payloads = [b"%d" % each + b" " * random.choice([10, 400]) for each in range(count)]
        payloads = [each.ljust(len(payloads[0]), b" ")[: len(payloads[0])] for each in payloads]
        window = random.choice([1, 4, 100])
        for side in (together, apart):
            if step == "publish":
                side.publish(to, qos, payloads, properties, side is together)
            elif step == "consume":
                side.consume(window)
            else:
                side.answer()
        assert together.seen() == apart.seen()
        assert _state(together.world) == _state(apart.world)


def _state(world: World) -> dict[str, object]:
    if isinstance(world, QueueWorld):
        return asdict(world.queues.state("q"))
    assert isinstance(world, StreamWorld)
    state = world.streams.state("s")
    same = [replace(each, oldest_us=0) for each in state.partitions]
    return asdict(replace(state, partitions=same))
