"""What workers tell each other arrives as it was, wherever the stream is cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.cluster.envelope import (
    BYE,
    READY,
    STATUS,
    envelope,
    read,
    read_traveller,
    wanted,
    write,
    write_batch,
    write_forward,
    write_interests,
    write_outcome,
    write_told,
    write_traveller,
)
from mqttlite.cluster.pieces import Pieces
from mqttlite.core.forwards import (
    ASK,
    COME,
    STAY,
    Arrival,
    Batch,
    Forward,
    Interest,
    Outcome,
    Passage,
    Stream,
    Traveller,
)
from mqttlite.core.message import Block, Message
from mqttlite.wire.constants import PUBLISH, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import NONE, Properties, encode_properties

U16 = st.integers(0, 65_535)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
TOPICS = TEXT.filter(lambda text: text and not set(text) & set("+#")).map(str.encode)
NAMES = st.lists(st.binary(min_size=1, max_size=50), max_size=4)
PROPERTIES = st.just(NONE) | st.builds(
    Properties,
    payload_format_indicator=st.none() | st.integers(0, 1),
    message_expiry_interval=st.none() | U32,
    content_type=st.none() | TEXT,
    response_topic=st.none() | TOPICS.map(bytes.decode),
    correlation_data=st.none() | st.binary(max_size=20),
    user_properties=st.lists(st.tuples(TEXT, TEXT), max_size=3),
)
BLOCKS = PROPERTIES.map(lambda properties: Block(encode_properties(properties, PUBLISH)))
WORDS = TOPICS, st.binary(max_size=300), st.integers(0, 2), st.booleans()
MESSAGES = st.builds(Message, *WORDS, PROPERTIES, st.floats(0, 1e12)) | st.builds(
    Message, *WORDS, st.just(NONE), st.floats(0, 1e12), BLOCKS
)


class Heard:
    """Everything that comes, in the words of a tuple."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []

    def on_batch(self, batch: Batch) -> None:
        self.all.append(said(batch, batch.workers[0]))

    def on_stream(self, stream: Stream) -> None:
        self.all.append(said(stream, stream.worker))

    def on_forward(self, forward: Forward) -> None:
        self.all.append(said(forward, forward.worker))

    def on_outcome(self, outcome: Outcome) -> None:
        self.all.append(said(outcome, outcome.worker))

    def on_passage(self, passage: Passage) -> None:
        self.all.append(("passage", passage.worker, passage.number, passage.what))

    def on_arrival(self, arrival: Arrival) -> None:
        self.all.append(("arrival", arrival.worker, arrival.client_id, arrival.former, arrival.is_known))

    def on_interests(self, serial: int, interests: list[Interest]) -> None:
        self.all.append(("interests", serial, [(each.topic_filter, each.members, each.online) for each in interests]))

    def on_told(self, serial: int) -> None:
        self.all.append(("told", serial))

    def on_status(self, status: bytes) -> None:
        self.all.append(("status", status))

    def on_ready(self) -> None:
        self.all.append(("ready",))

    def on_bye(self) -> None:
        self.all.append(("bye",))


def said(each: Batch | Stream | Forward | Outcome, worker: int = 3) -> tuple[Any, ...]:
    """What is to arrive, from worker 3."""
    if isinstance(each, Stream):
        return "stream", worker, each.version, each.came_at, each.packets()
    if isinstance(each, Batch):
        where = each.head, each.size, each.packets
        return "batch", worker, each.tag, each.qos, each.version, *where, each.expires_at
    if isinstance(each, Outcome):
        counts = each.dropped, each.queued, each.sent
        return "outcome", worker, each.tag, each.code, *counts, each.untaken, each.refused
    message = each.message
    words = message.topic, message.payload, message.qos, message.retain, message.expires_at
    properties = message.properties
    more = properties.present()
    return "forward", worker, each.tag, *words, more, each.plain, each.retain, each.stamp, each.shares


def outcome(refused: list[int], *arguments: Any) -> Outcome:
    made = Outcome(*arguments)
    made.refused = refused
    return made


def stream(worker: int, version: int, came_at: float, pieces: list[bytes]) -> Stream:
    made = Stream(worker, version, came_at, pieces[0])
    for piece in pieces[1:]:
        made.add(piece)
    return made


BATCHES = st.builds(
    Batch, st.lists(st.integers(0, 63), min_size=1), U64, st.integers(1, 2), st.sampled_from([V311, V5]), U32, U32,
    st.binary(max_size=500), st.floats(0, 1e12),
).map(lambda batch: (b"".join(write_batch(batch)), said(batch)))  # fmt: skip
STREAMS = st.builds(
    stream, st.integers(0, 63), st.sampled_from([V311, V5]), st.floats(0, 1e12), st.lists(st.binary(), min_size=1)
).map(lambda stream: (b"".join(write(stream)), said(stream)))
FORWARDS = st.builds(
    Forward, st.integers(0, 63), U64, MESSAGES, st.booleans(), st.booleans(), st.floats(0, 1e12), NAMES
).map(lambda forward: (write_forward(forward), said(forward)))
OUTCOMES = st.builds(
    outcome, st.lists(U32, max_size=5), st.integers(0, 63), U64, st.sampled_from([0, 0x97]), U32, U32, U32, NAMES
).map(lambda outcome: (write_outcome(outcome), said(outcome)))
INTERESTS = st.tuples(U64, st.lists(st.builds(Interest, st.binary(max_size=50), U32, U32), max_size=5)).map(
    lambda told: (
        write_interests(*told),
        ("interests", told[0], [(each.topic_filter, each.members, each.online) for each in told[1]]),
    )
)
PASSAGES = st.tuples(U64, st.sampled_from([ASK, COME, STAY])).map(
    lambda said: (b"".join(write(Passage(9, *said))), ("passage", 3, *said))
)
ARRIVALS = st.tuples(TEXT.map(str.encode), st.integers(0, 63), st.booleans()).map(
    lambda said: (b"".join(write(Arrival(9, *said))), ("arrival", 3, *said))
)
OTHERS = (
    U64.map(lambda serial: (write_told(serial), ("told", serial)))
    | st.binary(max_size=100).map(lambda status: (envelope(STATUS, status), ("status", status)))
    | st.sampled_from([(envelope(READY), ("ready",)), (envelope(BYE), ("bye",))])
)


@given(
    st.lists(BATCHES | STREAMS | FORWARDS | OUTCOMES | INTERESTS | PASSAGES | ARRIVALS | OTHERS, max_size=8), st.data()
)
def test_everything_arrives_in_order_wherever_the_stream_is_cut(
    written: list[tuple[bytes, tuple[Any, ...]]], data: st.DataObject
) -> None:
    stream = b"".join(envelope for envelope, _said in written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    heard = Heard()
    pieces = Pieces()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        chunk = pieces.add(stream[start:end])
        rest = chunk[read(3, chunk, heard) :]
        pieces.keep(rest, wanted(rest))
    assert heard.all == [said for _envelope, said in written]


def test_a_byte_at_a_time_is_enough() -> None:
    forward = Forward(1, 7, Message(b"t", b"x" * 200, 1, True, NONE, 5.0), True, True, 9.0, [b"$share/g/t"])
    heard = Heard()
    pieces = Pieces()
    for byte in write_forward(forward) + write_told(1):
        chunk = pieces.add(bytes((byte,)))
        rest = chunk[read(3, chunk, heard) :]
        pieces.keep(rest, wanted(rest))
    assert heard.all == [said(forward), ("told", 1)]


@pytest.mark.parametrize("topic_bytes", [1, 127, 128, 16_384, 65_535])
@pytest.mark.parametrize("version", [V311, V5])
def test_a_batch_knows_its_topic_however_long(topic_bytes: int, version: int) -> None:
    topic = b"t" * topic_bytes
    packet = encode(Publish(topic, b"payload", 1, packet_id=1), version)
    batch = Batch([3], 1, 1, version, len(packet) - 7, len(packet), packet, 12.5)
    assert batch.topic() == topic
    heard = Heard()
    read(3, b"".join(write_batch(batch)), heard)
    assert heard.all == [said(batch)]


def test_more_shares_than_two_bytes_count_travel_too() -> None:
    names = [b"$share/%d/t" % number for number in range(70_000)]
    forward = Forward(1, 7, Message(b"t", b"", 1), False, False, 0.0, names)
    untaken = outcome([], 1, 7, 0, 0, 0, 0, names)
    heard = Heard()
    read(3, write_forward(forward) + write_outcome(untaken), heard)
    assert heard.all == [said(forward), said(untaken)]


def test_what_is_long_is_copied_once_and_not_with_every_piece() -> None:
    pieces = Pieces()
    data = envelope(STATUS, bytes(1_000_000))
    taken = 0
    for at in range(0, len(data), 1_000):
        chunk = pieces.add(data[at : at + 1_000])
        taken += len(chunk)
        rest = chunk[read(3, chunk, Heard()) :]
        pieces.keep(rest, wanted(rest))
    assert taken == 1_000 + len(data)


@given(st.data())
def test_what_is_known_of_a_client_arrives_as_it_was(data: st.DataObject) -> None:
    traveller = Traveller(data.draw(U64), data.draw(TEXT), data.draw(st.none() | TEXT))
    traveller.broker_id = data.draw(TEXT)
    traveller.received = data.draw(st.lists(st.integers(1, 65_535), max_size=5))
    widths = {"max_packet_bytes": U32, "backpressure_count": U32, "keep_alive_s": U16, "topic_alias_maximum": U16}
    names = [name for name in dir(traveller) if not name.startswith("_")]
    assert len(names) > 20
    for name in names:
        value = getattr(traveller, name)
        if name in ("number", "client_id", "username", "broker_id", "received"):
            continue
        if isinstance(value, bool):
            drawn: object = data.draw(st.booleans())
        elif isinstance(value, float):
            drawn = data.draw(st.floats(0, 1e12))
        else:
            drawn = data.draw(widths.get(name, st.integers(0, 5) if name == "version" else U16))
        setattr(traveller, name, drawn)
    arrived = read_traveller(write_traveller(traveller))
    assert [getattr(arrived, name) for name in names] == [getattr(traveller, name) for name in names]
