"""The work that is counted: each piece the same bytes through the same core, every time. Run inside valgrind.

    python -m bench.guard.driver MARK.SO [NAME ...]

Each piece is done a few times before it counts, so that the interpreter has learned it (PEP 659), and without garbage
collections, which would come at the whim of what ran before.
"""

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.guard.alone import Alone
from bench.guard.bridging import Bridging
from bench.micro.world import World
from mqttlite.core.authorizer import Authorizer
from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import Buckets, BucketTable, Rate
from mqttlite.security.acl_file import AclFile
from mqttlite.security.default_rules import DefaultRules
from mqttlite.security.rule_tree import READ, WRITE, Rule
from mqttlite.security.rules import Rules
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.wire.constants import PUBREL, V5, V311
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Connect, Disconnect, Packet, Publish, Subscribe, SubscriptionRequest, Unsubscribe
from mqttlite.wire.properties import Properties

Work = Callable[[], object]

WARM_UP: Final = 6
PAYLOAD: Final = b"0123456789abcdef"
KEEPING: Final = Properties(session_expiry_interval=3600)
SOME: Final = Properties(content_type="text/plain", user_properties=[("trace", "4bf92f35")])


def calibration() -> Work:
    """What any Python program does, and nothing of ours: the unit of all other figures."""
    names = [b"t/%d" % number for number in range(200)]

    def work() -> int:
        seen: dict[bytes, int] = {}
        for effects in range(20):
            for name in names:
                head, _, tail = name.partition(b"/")
                seen[head + tail] = seen.get(head + tail, 0) + len(name[1:]) + effects
        return sum(seen.values())

    return work


def alone(mark: Any) -> Work:
    """What a fleet does: each message alone, with QoS 1, to three readers that acknowledge."""
    return Alone(mark, [b"site/7/#", b"site/+/device/#", b"+/+/+/+/temp"]).work


def retained_alone(mark: Any) -> Work:
    """A retained one, to a reader and to a member of a shared group."""
    group = [b"$share/workers/site/#"] * 3
    return Alone(mark, [b"site/7/#", *group], retain=True).work


def out_by_a_bridge(mark: Any) -> Work:
    """Messages of QoS 1 through a bridge to another broker, to the last acknowledgement."""
    return Bridging(mark, "out").work


def in_by_a_bridge(mark: Any) -> Work:
    """The same, from another broker."""
    return Bridging(mark, "in").work


def a_batch() -> Work:
    return _through([Publish(b"t/0", PAYLOAD)] * 2_000)


def known_topics() -> Work:
    return _through([Publish(b"t/%d" % (number % 50), PAYLOAD) for number in range(400)])


def known_topics_with_rules() -> Work:
    """The same, with an ACL file that lets both use the topics, and every quota, of which nobody comes near."""
    acl = AclFile("acl.conf")
    acl.anonymous.append(Rule(1, READ | WRITE, b"t/#"))
    return _through(
        [Publish(b"t/%d" % (number % 50), PAYLOAD) for number in range(400)],
        rules=Rules(acl),
        quotas=Quotas(_rates(), _rates()),
    )


def _rates() -> Rates:
    every = Rate(1e9, 1e12)
    of_many = [BucketTable(every) for _ in range(3)]
    return Rates(of_many[0], of_many[1], of_many[2], Buckets(every, 0.0), Buckets(every, 0.0))


def large_payloads() -> Work:
    return _through([Publish(b"t/%d" % (number % 3), b"x" * (4_000 + number % 5)) for number in range(300)])


def with_properties() -> Work:
    return _through([Publish(b"t/0", PAYLOAD, properties=SOME)] * 2_000)


def with_other_properties() -> Work:
    """Each message says something else than the one before."""
    kinds = [Properties(content_type="text/plain", user_properties=[("trace", f"{at:08x}")]) for at in range(100)]
    return _through([Publish(b"t/0", PAYLOAD, properties=each) for each in kinds])


def to_another_version() -> Work:
    return _through([Publish(b"t/%d" % (number % 50), PAYLOAD) for number in range(200)], reader_version=V311)


def to_100_subscribers() -> Work:
    return _through([Publish(b"t/%d" % (number % 2), PAYLOAD) for number in range(40)], readers=100)


def to_50_subscribers_at_qos_1() -> Work:
    return _acknowledged(1, messages=4, readers=50)


def qos_1() -> Work:
    return _acknowledged(1, messages=50)


def qos_1_with_rules() -> Work:
    """An ACL file that lets both use the topic, and a policy of it that changes nothing in its messages."""
    acl = AclFile("acl.conf")
    acl.patterns.append(Rule(1, READ | WRITE, b"t"))
    policy = TopicPolicyOptions(filter="t", on_overflow="drop_oldest", max_payload_bytes=1_000)
    return _acknowledged(1, messages=50, rules=Rules(acl, [policy], {}))


def qos_2() -> Work:
    return _acknowledged(2, messages=50)


def new_topics() -> Work:
    """A route for each, found among a thousand filters of which a tenth begin with a wildcard."""
    world = World()
    reader = world.connect("reader")
    filters = [b"site/%d/device/%d/#", b"site/%d/+/%d/temp", b"site/%d/device/%d/temp", b"+/%d/device/%d/temp"]
    for number in range(0, 1_000, 100):
        requests = [SubscriptionRequest(filters[n % 4] % divmod(n, 100)) for n in range(number, number + 100)]
        world.feed(reader, encode(Subscribe(1, tuple(requests)), V5))
    writer, other = world.connect("writer"), world.connect("other")
    chunk = b"".join([encode(Publish(b"site/%d/device/%d/temp" % divmod(n, 100), PAYLOAD), V5) for n in range(100)])
    everything = encode(Subscribe(1, (SubscriptionRequest(b"#"),)), V5) + encode(Unsubscribe(2, (b"#",)), V5)

    def work() -> None:
        world.feed(other, everything)  # which empties the cache of routes
        world.feed(writer, chunk)
        world.effects()

    return work


def subscribe() -> Work:
    world = World()
    client = world.connect("client")
    filters = [b"site/%d/+/temp" % number if number % 2 else b"site/%d/#" % number for number in range(50)]
    come = encode(Subscribe(1, tuple(SubscriptionRequest(name, 1) for name in filters)), V5)
    go = encode(Unsubscribe(2, tuple(filters)), V5)

    def work() -> None:
        world.feed(client, come)
        world.feed(client, go)
        world.effects()

    return work


def retain() -> Work:
    world = World()
    writer = world.connect("writer")
    chunk = b"".join([encode(Publish(b"state/%d" % n, PAYLOAD, retain=True), V5) for n in range(50)])

    def work() -> None:
        world.feed(writer, chunk)
        world.effects()

    return work


def connect() -> Work:
    """In and out again, with and without a session that stays."""
    world = World()
    bye = encode(Disconnect(), V5)

    def work() -> None:
        for number in range(20):
            connection = world.connect(
                f"device-{number}", keep_alive=60, properties=KEEPING if number % 2 else Properties()
            )
            world.feed(connection, bye)
            world.effects()
            world.broker.close(connection, world.now)
            world.effects()

    return work


def keep_alives() -> Work:
    """The deadlines of all come at once, and all have spoken."""
    world = World()
    connections = [world.connect(f"device-{number}", keep_alive=60) for number in range(200)]

    def work() -> None:
        for connection in connections:
            connection.last_heard = world.now + 45
        world.now += 90
        world.broker.tick(world.now)

    return work


def codec() -> Work:
    """Packets of the kinds that pass through objects, to bytes and back."""
    packets: list[Packet] = [
        Publish(b"site/7/device/1234/temp", PAYLOAD, 1, packet_id=7, properties=SOME),
        Ack(PUBREL, 7),
        Connect("device-1234", keep_alive=60, username="device", password=b"secret", properties=KEEPING),
        Subscribe(7, tuple(SubscriptionRequest(b"site/%d/+/temp" % number, 1) for number in range(5))),
    ]

    def work() -> None:
        framer = Framer(65_536)
        for _ in range(10):
            for packet in packets:
                for first, body in framer.split(encode(packet, V5)):
                    decode(first, body, V5)

    return work


IN_CORE: Final[dict[str, Callable[[], Work]]] = {
    "calibration": calibration,
    "a run of one topic": a_batch,
    "known topics": known_topics,
    "known topics with rules": known_topics_with_rules,
    "new topics": new_topics,
    "large payloads": large_payloads,
    "messages with properties": with_properties,
    "messages with other properties": with_other_properties,
    "messages to another version": to_another_version,
    "fan-out to 100": to_100_subscribers,
    "fan-out to 50 at QoS 1": to_50_subscribers_at_qos_1,
    "QoS 1 there and back": qos_1,
    "QoS 1 with rules": qos_1_with_rules,
    "QoS 2 there and back": qos_2,
    "subscribe and unsubscribe": subscribe,
    "retained messages": retain,
    "connect and leave": connect,
    "keep-alives": keep_alives,
    "encode and decode": codec,
}
"""Without sockets."""


def _without_mark(piece: Callable[[], Work]) -> Callable[[Any], Work]:
    return lambda _mark: piece()


PIECES: Final[dict[str, Callable[[Any], Work]]] = {
    "a message alone": alone,
    "a retained message alone": retained_alone,
    "messages out by a bridge": out_by_a_bridge,
    "messages in by a bridge": in_by_a_bridge,
    **{name: _without_mark(piece) for name, piece in IN_CORE.items()},
}
"""Each is made with the library of `mark.c`."""


def _through(
    messages: list[Publish],
    *,
    readers: int = 1,
    reader_version: int = V5,
    rules: Authorizer | None = None,
    quotas: Quotas | None = None,
) -> Work:
    """A chunk of messages, to each reader."""
    world = World(quotas=quotas)
    if rules is not None:
        world.broker.authorize(DefaultRules(authorizer=rules))
    for number in range(readers):
        world.subscriber(f"reader-{number}", b"t/#", version=reader_version)
    writer = world.connect("writer")
    chunk = b"".join([encode(message, V5) for message in messages])

    def work() -> None:
        world.feed(writer, chunk)
        assert len(world.effects()) == readers

    return work


def _acknowledged(qos: int, *, messages: int, readers: int = 1, rules: Authorizer | None = None) -> Work:
    """Publisher to broker to readers and back, to the last acknowledgement."""
    world = World()
    if rules is not None:
        world.broker.authorize(DefaultRules(authorizer=rules))
    receivers = [world.subscriber(f"reader-{number}", b"t", qos) for number in range(readers)]
    writer = world.connect("writer")
    ids = range(1, messages + 1)
    chunk = b"".join([encode(Publish(b"t", PAYLOAD, qos, packet_id=number), V5) for number in ids])
    releases = b"".join([encode(Ack(PUBREL, number), V5) for number in ids])

    def work() -> None:
        world.feed(writer, chunk)
        written = world.effects()
        for reader in receivers:
            found = [packet_id_of(body) for _first, body in Framer(65_536).split(written[reader.number])]
            world.feed(reader, b"".join([(b"\x40\x02" if qos == 1 else b"\x50\x02") + each for each in found]))
            if qos == 2:
                world.feed(reader, b"".join([b"\x70\x02" + each for each in found]))
        if qos == 2:
            world.feed(writer, releases)
        world.effects()
        assert all(reader.session is not None and not reader.session.inflight for reader in receivers)

    return work


def packet_id_of(body: bytes) -> bytes:
    """The identifier in a PUBLISH to the topic `t`."""
    return body[3:5]


@contextmanager
def counted(mark: ctypes.PyDLL, name: str) -> Iterator[None]:
    mark.work_begins()
    yield
    mark.work_ended(name.encode())


def main() -> None:
    mark, *wanted = sys.argv[1:]
    library = ctypes.PyDLL(mark)  # which keeps Python's lock: to give it up takes instructions
    gc.disable()
    for name in wanted or PIECES:
        work = PIECES[name](library)
        for _ in range(WARM_UP):
            work()
        with counted(library, name):
            work()


if __name__ == "__main__":
    main()
