"""What a tracer hears of all messages and clients: what is dropped, who subscribes, whose socket takes nothing."""

import pytest

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.effects import Effects
from mqttlite.core.limits import DROP_NEWEST, DROP_OLDEST, Limits
from mqttlite.core.memory import CHUNK_BYTES, ENTRY_BYTES, FRAME_BYTES, MESSAGE_BYTES, PLACE_BYTES
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.reasons import BUFFER_FULL
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish, Subscribe, SubscriptionRequest, Unsubscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import World
from tests.support.recorder import Recorder

TWO_QUEUED = 2 * (ENTRY_BYTES + MESSAGE_BYTES + 2)
"""What two messages take in a queue whose topic and payload are one letter each."""


def watched(limits: Limits | None = None, recorder: Recorder | None = None) -> tuple[World, Recorder]:
    world = World(limits)
    recorder = recorder or Recorder()
    world.broker.watch(recorder)
    return world, recorder


# ── drops ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qos", [0, 1])
def test_no_client_subscribes_or_may_be_published_to(qos: int) -> None:
    world, recorder = watched()
    writer = world.connect("w")
    writer.send(*[Publish(b"t/1", b"x", qos, packet_id=number if qos else 0) for number in (1, 2)])
    writer.publish("t/1", "longer", qos)
    writer.publish("$SYS/x", "x", qos)
    assert recorder.drops == {(None, "no_subscribers"): 3, (None, "not_authorized"): 1}
    assert recorder.drops.total() == sum(world.broker.router.drops.by_reason.values())
    assert recorder.details == [("t/1", ""), ("t/1", ""), ("$SYS/x", "")]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_payload_is_not_what_it_says(qos: int) -> None:
    world, recorder = watched()
    text = Properties(payload_format_indicator=1)
    writer = world.open(capabilities=Capabilities(check_payload_format=True))
    writer.connect("w")
    writer.send(Publish(b"t", b"\xff", qos, packet_id=qos, properties=text))
    assert recorder.drops == {(None, "schema_invalid"): 1}
    assert recorder.details == [("t", "")]


def test_the_client_is_away() -> None:
    world, recorder = watched()
    reader = world.connect("r", expiry=100)
    reader.subscribe("t", "u", qos=0)
    reader.lose()
    writer = world.connect("w")
    writer.send(*[Publish(b"t", b"x")] * 3)
    writer.publish("u", "x", qos=1)
    assert recorder.drops == {("r", "qos0_offline"): 4}
    assert recorder.details == [("t", ""), ("u", "")]


def test_retained_messages_that_were_on_their_way() -> None:
    world, recorder = watched(Limits(max_inflight=1))
    world.publish("t", "x", retain=True)
    reader = world.connect("r", expiry=100, auto_ack=False)
    reader.block()
    session = world.session("r")
    reader.send(Subscribe(1, (SubscriptionRequest(b"t"),)))
    assert session.retained_waiting == 1
    reader.lose()
    assert recorder.drops["r", "qos0_offline"] == 1


@pytest.mark.parametrize(
    ("limits", "detail"),
    [
        (Limits(max_queued_messages=2), "2/2"),
        (Limits(max_queued_messages=2, on_overflow=DROP_OLDEST), "2/2"),
        (Limits(max_queued_bytes=TWO_QUEUED), f"{TWO_QUEUED}+{TWO_QUEUED // 2}/{TWO_QUEUED} bytes"),
        (
            Limits(max_queued_bytes=TWO_QUEUED, on_overflow=DROP_OLDEST),
            f"{TWO_QUEUED}+{TWO_QUEUED // 2}/{TWO_QUEUED} bytes",
        ),
    ],
    ids=str,
)
def test_a_queue_is_full(limits: Limits, detail: str) -> None:
    world, recorder = watched(limits)
    reader = world.connect("r", expiry=100)
    reader.subscribe("t", qos=1)
    reader.lose()
    writer = world.connect("w")
    for _ in range(3):
        writer.publish("t", "x", qos=1)
    assert recorder.drops == {("r", "queue_full"): 1}
    assert recorder.details == [("t", detail)]
    assert world.session("r").drops == {"queue_full": 1}


def test_a_packet_is_too_large_for_its_receiver() -> None:
    world, recorder = watched()
    world.connect("r", maximum_packet_size=20).subscribe("t", qos=1)
    writer = world.connect("w")
    for qos in (0, 1):
        writer.publish("t", "x" * 30, qos)
    assert recorder.drops == {("r", "packet_too_large"): 2}
    assert recorder.details == [("t", "36/20 bytes"), ("t", "38/20 bytes")]


def test_a_message_expires_in_the_queue() -> None:
    world, recorder = watched()
    reader = world.connect("r", expiry=100)
    reader.subscribe("t", qos=1)
    reader.lose()
    world.connect("w").send(Publish(b"t", b"x", 1, packet_id=1, properties=Properties(message_expiry_interval=5)))
    world.advance(10)
    world.connect("r", clean_start=False)
    assert recorder.drops == {("r", "expired"): 1}
    assert recorder.details == [("t", "")]


def test_a_session_ends_with_messages_in_its_queue() -> None:
    world, recorder = watched()
    reader = world.connect("r", expiry=10)
    reader.subscribe("t", qos=1)
    reader.lose()
    for _ in range(3):
        world.publish("t", "x", qos=1)
    world.advance(20)
    assert recorder.drops == {("r", "session_expired"): 3}
    assert recorder.details == [("", "")]


def outbox_of(recorder: Recorder, limits: Limits) -> Outbox:
    effects = Effects()
    effects.tracer = recorder
    outbox = Outbox(7, effects, limits)
    outbox.client_id = "r"
    outbox.block()
    return outbox


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("on_overflow", [DROP_NEWEST, DROP_OLDEST])
@pytest.mark.parametrize("payload_bytes", [10, 200])
def test_an_outbox_is_full_of_messages(on_overflow: str, version: int, payload_bytes: int) -> None:
    recorder = Recorder()
    outbox = outbox_of(recorder, Limits(max_outbox_messages=3, on_overflow=on_overflow))
    packet = encode(Publish(b"the/topic", b"x" * payload_bytes), version)
    outbox.offer(packet * 2, 2)
    outbox.offer(packet * 3, 3)
    assert recorder.drops == {("r", "buffer_full"): 2} == {("r", reason): n for reason, n in outbox.drops.items()}
    assert recorder.details == [("the/topic", "2/3")], "one call for each piece"


def test_an_outbox_is_full_of_bytes() -> None:
    recorder = Recorder()
    waiting = PLACE_BYTES + FRAME_BYTES + 1_007
    limit = waiting + 20
    outbox = outbox_of(recorder, Limits(max_outbox_bytes=limit))
    outbox.offer(encode(Publish(b"t", b"x" * 1_000), V5), 1)
    outbox.offer(encode(Publish(b"t", b"x" * 1_000), V5), 1)
    assert recorder.details == [("t", f"{waiting}+1007/{limit} bytes")]
    outbox.send(b"x" * 100)
    waiting += CHUNK_BYTES + 100
    assert recorder.details[1:] == [("t", f"{waiting}+0/{limit} bytes")]
    assert recorder.drops == {("r", "buffer_full"): 2}


def test_an_outbox_with_room_says_that_it_gives_way_to_qos_1_and_2() -> None:
    recorder = Recorder()
    outbox = outbox_of(recorder, Limits())
    outbox.yields = True
    assert outbox.offer(encode(Publish(b"t", b"x"), V5), 1) == BUFFER_FULL
    assert recorder.details == [("t", "QoS 1 and 2 messages wait for the client, and QoS 0 gives way to them")]
    assert recorder.drops == {("r", "buffer_full"): 1}


def test_memory_is_short_for_an_outbox_and_for_a_queue() -> None:
    world, recorder = watched(Limits(max_memory_bytes=1_000_000))
    reader, away = world.connect("r"), world.connect("a", expiry=100)
    reader.subscribe("t")
    reader.block()
    away.subscribe("q", qos=1)
    away.lose()
    memory = world.broker.effects.memory
    memory.used = 990_000
    world.publish("t", "x")
    world.publish("q", "x", 1)
    assert recorder.drops == {("r", "buffer_full"): 1, ("a", "queue_full"): 1}
    assert [detail.split("/")[1] for _topic, detail in recorder.details] == ["1000000 bytes", "1000000 bytes"]
    assert all(detail.startswith("memory: 99") for _topic, detail in recorder.details)


def test_a_connection_ends_with_messages_in_its_outbox() -> None:
    world, recorder = watched()
    reader = world.connect("r")
    reader.subscribe("t", "u")
    reader.block()
    world.publish("t", "x")
    world.connect("w").send(*[Publish(b"u", b"x")] * 3)
    reader.lose()
    assert recorder.drops == {("r", "buffer_full"): 4}
    assert recorder.details == [("t", ""), ("u", "")]


# ── clients ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("version", "refusal"), [(V311, 0x80), (V5, 0x97)])
def test_subscriptions_come_and_go(version: int, refusal: int) -> None:
    world, recorder = watched(Limits(max_subscriptions=2))
    client = world.connect("c", version)
    assert client.subscribe("a", "b", "c", qos=1) == bytes((1, 1, refusal))
    client.subscribe("a", qos=2)
    client.send(Unsubscribe(9, (b"a", b"x")))
    number = client.connection.number
    assert recorder.told == [
        ("subscribed", number, "a", 1, 1, False),
        ("subscribed", number, "b", 1, 1, False),
        ("subscribed", number, "c", 1, 0x97, False),
        ("subscribed", number, "a", 2, 2, True),
        ("unsubscribed", number, "a"),
    ]


def test_a_socket_takes_no_more_and_takes_bytes_again() -> None:
    world, recorder = watched()
    reader = world.connect("r")
    reader.subscribe("t")
    recorder.told.clear()
    reader.block()
    reader.block()
    world.publish("t", "x")
    world.now += 2.5
    waiting = reader.connection.outbox.waiting_bytes
    reader.unblock()
    reader.unblock()
    number = reader.connection.number
    assert waiting == PLACE_BYTES + FRAME_BYTES + 7
    assert recorder.told == [("blocked", number), ("unblocked", number, 2.5, waiting)]


def test_a_former_watcher_is_told_nothing() -> None:
    world, recorder = watched(recorder=Recorder(clients=("r",), one_in=1))
    reader = world.connect("r", expiry=100, auto_ack=False)
    reader.subscribe("t", qos=1)
    writer = world.connect("w")
    for number in range(4):
        writer.publish("t", f"{number}", qos=min(number, 1))
    reader.lose()
    writer.publish("t", "4", qos=1)
    told = list(recorder.told)
    drops = recorder.drops.copy()
    world.broker.watch(None)
    reader = world.connect("r", clean_start=False, expiry=100)
    reader.block()
    writer.publish("t", "5")
    reader.unblock()
    reader.lose()
    for qos in (0, 1):
        writer.publish("t", "6", qos)
        writer.publish("nobody", "6", qos)
    world.advance(200)
    assert recorder.told == told
    assert recorder.drops == drops
    assert world.broker.router.drops.by_reason["session_expired"] == 1
