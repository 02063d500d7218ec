"""Bytes into the core give answers or the end of their connection, never anything else; and short cuts cut nothing."""

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.changes import Change, RemoveReceived, SaveReceived
from mqttlite.core.connect.connection import CLOSED
from mqttlite.core.limits import Limits
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Disconnect, Packet, Pingreq, Publish, Subscribe, Unsubscribe
from mqttlite.wire.properties import NONE, Properties
from tests.fuzz.test_wire import FRAMES, hurt
from tests.support.core_driver import Client, World, request
from tests.support.examples import examples
from tests.support.rounds import todays

CORPUS = [line for line in Path(__file__).with_name("corpus.txt").read_text().splitlines() if not line.startswith("#")]

LIMITS = Limits(max_packet_bytes=4_096, receive_maximum=5, max_queued_messages=50, max_outbox_bytes=20_000)


# ── any bytes, in every state ──────────────────────────────────────────────────────────────────────────────────────


def awaiting_connect(world: World) -> Client:
    return world.open(V5)


def authenticating(world: World) -> Client:
    client = world.open(V5, must_authenticate=True)
    client.connect("rude")
    return client


def authenticating_by_method(world: World) -> Client:
    client = world.open(V5, must_authenticate=True, methods=frozenset({"M"}))
    client.send_bytes(bytes.fromhex("101700044d5154540502000009") + b"\x15\x00\x01M\x16\x00\x02\x00\x01" + b"\x00\x01a")
    return client


def connected5(world: World) -> Client:
    client = world.connect("rude", V5, expiry=100, auto_ack=False)
    return _with_a_past(world, client)


def connected311(world: World) -> Client:
    return _with_a_past(world, world.connect("rude", V311, auto_ack=False))


def blocked(world: World) -> Client:
    client = connected5(world)
    client.block()
    return client


def closed(world: World) -> Client:
    client = connected5(world)
    client.lose()
    return client


def _with_a_past(world: World, client: Client) -> Client:
    """It has messages in flight both ways, so that acknowledgements and aliases mean something."""
    client.subscribe("#", qos=2)
    for number in range(4):
        world.publish("a", str(number), 1 + number % 2)
    client.send(Publish(b"a/b", b"x", 2, packet_id=1), Ack(PUBREC, 2))
    return client


STATES = [awaiting_connect, authenticating, authenticating_by_method, connected5, connected311, blocked, closed]


def try_out(state: int, chunks: list[bytes]) -> None:
    """Feed them; the neighbour does not notice."""
    world = World(LIMITS)
    neighbour = world.connect("neighbour")
    neighbour.subscribe("neighbour/only")
    client = STATES[state](world)
    written = bytearray()
    client.take = lambda data: bytes(written.extend(data) or b"")  # type: ignore[method-assign]
    for chunk in chunks:
        client.send_bytes(chunk)
        if client.closed:
            assert client.connection.state == CLOSED
    assert sum(2 + len(body) + (len(body) > 127) for _, body in Framer(1 << 20).split(bytes(written))) == len(written)
    world.advance(1_000)
    assert not neighbour.closed
    neighbour.received()
    world.publish("neighbour/only", "still here")
    assert neighbour.payloads() == ["still here"]


@examples(80)
@given(st.integers(0, len(STATES) - 1), st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes_are_answered_or_end_their_connection(state: int, chunks: list[bytes]) -> None:
    try_out(state, chunks)


@pytest.mark.parametrize("stream", CORPUS)
def test_bytes_that_once_were_trouble_are_none(stream: str) -> None:
    raw = bytes.fromhex(stream)
    for state in range(len(STATES)):
        try_out(state, [raw])
        try_out(state, [raw[at : at + 1] for at in range(len(raw))])


def hurt_session(seed: int) -> None:
    rng = random.Random(seed)
    for state in range(len(STATES)):
        stream = b"".join(rng.choice(FRAMES) if rng.random() < 0.6 else hurt(rng.choice(FRAMES), rng) for _ in range(6))
        cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(3))
        try_out(state, [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)])


@pytest.mark.parametrize("seed", range(40))
def test_a_hurt_session_is_answered_or_ends_its_connection(seed: int) -> None:
    hurt_session(seed)


@pytest.mark.slow
def test_many_hurt_sessions_are_answered_or_end_their_connections() -> None:
    for seed in todays(range(40, 2_000)):
        hurt_session(seed)


# ── short cuts ─────────────────────────────────────────────────────────────────────────────────────────────────────

topics = st.sampled_from([b"a", b"a/b", b"b", b"+/x", b""])
payloads = st.sampled_from([b"", b"1", b"22", b"x" * 130])
packet_ids = st.integers(1, 5)


def publishes(version: int) -> st.SearchStrategy[Packet]:
    def build(topic: bytes, payload: bytes, qos: int, flags: int, packet_id: int, alias: int | None) -> Publish:
        properties = Properties(topic_alias=alias) if alias is not None and version == V5 else NONE
        return Publish(
            topic, payload, qos, flags & 1 == 1, flags & 2 == 2 and qos > 0, packet_id if qos else 0, properties
        )

    flags = st.sampled_from([0, 0, 0, 0, 1, 2])
    aliases = st.sampled_from([None, None, None, None, 1, 2])
    common = st.sampled_from([b"a", b"a", b"a/b"])
    return st.builds(build, common | topics, payloads, st.integers(0, 2), flags, packet_ids, aliases)


def _run(topic: bytes, qos: int, count: int, first: int, counted: bool) -> list[Packet]:
    """Messages that are alike, with identifiers that are counted up, or the same for all."""
    return [Publish(topic, b"run", qos, packet_id=(first + at * counted) if qos else 0) for at in range(count)]


def _acks(packet_type: int, count: int, first: int) -> list[Packet]:
    return [Ack(packet_type, first + at) for at in range(count)]


def sessions(version: int) -> st.SearchStrategy[list[Packet]]:
    """What a client might say; the plain packets come in runs, for those are what is cut short most."""
    acks = st.builds(Ack, st.sampled_from([PUBACK, PUBREC, PUBREL, PUBCOMP]), packet_ids)
    run = st.builds(
        _run, st.sampled_from([b"a", b"b"]), st.integers(0, 2), st.integers(2, 5), packet_ids, st.booleans()
    )
    run |= st.builds(_acks, st.sampled_from([PUBACK, PUBREC, PUBREL, PUBCOMP]), st.integers(2, 5), st.integers(1, 4))
    one = (
        publishes(version)
        | publishes(version)
        | acks
        | st.builds(Pingreq)
        | st.builds(lambda number: Subscribe(number, (request("a/#", number % 3),)), packet_ids)
        | st.builds(lambda number: Unsubscribe(number, (b"a/#",)), packet_ids)
    )
    said = st.lists(one.map(lambda packet: [packet]) | run, max_size=12)
    return said.map(lambda parts: [packet for part in parts for packet in part])


def played(version: int, listener: int, packets: list[Packet], cuts: list[int], decoded: bool) -> object:
    """All effects of that session: what everybody received, what is durable, how connections ended.

    `decoded`: one packet in each chunk and the longer way, by a remaining length that no short cut reads.
    """
    world = World(LIMITS)
    other = world.connect("other", listener, expiry=100 if listener == V5 else None, auto_ack=False)
    other.subscribe("#", qos=1)
    client = world.connect("rude", version, expiry=100 if version == V5 else None, auto_ack=False)
    client.subscribe("b", "a/b", qos=2)
    for number in range(4):
        world.publish("b", str(number), 1 + number % 2)
    if decoded:
        for packet in packets:
            if client.closed:
                break
            _by_the_long_way(world, client, encode(packet, version))
    else:
        stream = b"".join([encode(packet, version) for packet in packets])
        edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
        for start, end in itertools.pairwise(edges):
            if not client.closed:
                client.send_bytes(stream[start:end])
    session = world.broker.sessions.get("rude")
    return (
        _answers_last(client.received()),
        other.received(),
        _by_table(world.changes),
        client.connection.close_reason if client.closed else None,
        client.connection.reason_code,
        session and (session.inflight.by_id().keys(), session.window.released.all(), session.received.all()),
        session and (session.window.quota, session.queued),
        world.broker.router.drops.by_reason,
        client.closed or (client.connection.received_qos0, client.connection.received_qos1),
    )


def _by_the_long_way(world: World, client: Client, frame: bytes) -> None:
    """Hand a packet to the part of the broker that decodes whole packets, past its short cuts."""
    body = 2
    while frame[body - 1] > 127:
        body += 1
    broker = world.broker
    broker.effects.now = world.now
    try:
        broker._packet_loop._on_packet(client.connection, frame[0], frame[body:])
    except Exception as error:
        broker._closing.fail(client.connection, error)  # type: ignore[arg-type]
    if broker.effects.overflowed:
        broker._closing.end_overflowed()
    world.settle()


def _answers_last(packets: list[Packet]) -> list[Packet]:
    """The messages to a client and the answers to its own, which come in any order, apart from each other."""
    ordered: list[Packet] = []
    answers: list[Packet] = []
    for packet in packets:
        if isinstance(packet, Ack) and packet.packet_type in (PUBACK, PUBREC):
            answers.append(packet)
        elif isinstance(packet, Publish):
            ordered.append(packet)
        else:
            ordered += [*answers, packet]
            answers = []
    return ordered + answers


def _by_table(changes: list[Change]) -> dict[tuple[str, bool], list[tuple[str, ...]]]:
    """What is to be durable, by client; its own identifiers apart, for that order means nothing."""
    tables: dict[tuple[str, bool], list[tuple[str, ...]]] = {}
    for change in changes:
        table = getattr(change, "client_id", ""), isinstance(change, SaveReceived | RemoveReceived)
        tables.setdefault(table, []).append((type(change).__name__, *_fields(change)))
    return tables


def _fields(change: object) -> list[str]:
    return [
        str(getattr(change, name))
        for name in ("client_id", "packet_id", "topic", "topic_filter")
        if hasattr(change, name)
    ]


@pytest.mark.long
@examples(150)
@given(st.data(), st.sampled_from([V311, V5]), st.sampled_from([V311, V5]), st.lists(st.integers(0, 2_000), max_size=5))
def test_short_cuts_and_cut_chunks_have_the_effects_of_packets_decoded_one_by_one(
    data: st.DataObject, version: int, listener: int, cuts: list[int]
) -> None:
    packets = data.draw(sessions(version))
    assert played(version, listener, packets, cuts, False) == played(version, listener, packets, [], True)


def test_the_reference_does_not_take_the_short_cuts() -> None:
    effects = played(V5, V311, [Publish(b"a", b"1"), Disconnect()], [], True)
    assert effects == played(V5, V311, [Publish(b"a", b"1"), Disconnect()], [], False)
