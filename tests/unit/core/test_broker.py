"""The broker's inputs, one by one; and what one client may not do to another."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.changes import RemoveReceived, SaveReceived
from mqttlite.core.limits import (
    CLOSE_WORK,
    DEADLINE_WORK,
    DISCONNECT,
    FILL_BYTES,
    ITERATION_BYTES,
    ITERATION_WORK,
    Limits,
)
from mqttlite.core.memory import CHUNK_BYTES
from mqttlite.core.reasons import BUFFER_FULL, CloseReason, HoldReason
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.packets import (
    Ack,
    Connect,
    Disconnect,
    Pingreq,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, end_iteration, publishes, request
from tests.support.examples import examples
from tests.support.packets import KINDS, kinds, raw


def ended_with(client: Client) -> tuple[CloseReason, int]:
    """Why a connection was closed, and with which code its client heard so; 0: it heard nothing."""
    assert client.closed
    codes = [packet.reason_code for packet in client.received() if isinstance(packet, Disconnect)]
    return client.connection.close_reason, codes[0] if codes else 0


# ── feed: the bytes of one connection ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
def test_where_the_bytes_are_cut_does_not_matter() -> None:
    sent = [
        Connect("c"),
        Subscribe(1, (request("t/#", 2),)),
        *[Publish(b"t/%d" % qos, b"x" * size, qos, packet_id=qos and size) for qos in (0, 1, 2) for size in (1, 130)],
        Ack(PUBREL, 1),
        Pingreq(),
        Unsubscribe(2, (b"t/#",)),
        Publish(b"t/0", b"y" * 17_000),
        Disconnect(),
    ]
    chunk = b"".join(encode(packet, V5) for packet in sent)
    expected = None
    for cut in (len(chunk), 1, 2, 3, 7, 100, 1_000):
        client = World().open()
        client.auto_ack = False
        for at in range(0, len(chunk), cut):
            client.send_bytes(chunk[at : at + cut])
        assert client.connection.close_reason == CloseReason.CLIENT_DISCONNECTED
        if expected is None:
            expected = client.received()
            assert len(publishes(expected)) == 6
        else:
            assert client.received() == expected
        assert client.connection.bytes_received == len(chunk)
        assert (client.connection.received_qos0, client.connection.received_qos1) == (3, 2)


def test_packets_behind_a_disconnect_are_ignored() -> None:
    world = World()
    seen = world.connect("s")
    seen.subscribe("t")
    client = world.connect("c")
    client.send_bytes(encode(Disconnect(), V5) + encode(Publish(b"t", b"x"), V5) + b"\xff\xff\xff\xff\xff\xff")
    assert seen.payloads() == []
    assert ended_with(client) == (CloseReason.CLIENT_DISCONNECTED, 0)
    client.send(Publish(b"t", b"x"))
    client.lose()
    assert seen.payloads() == []


@pytest.mark.parametrize("size", [5, 999, 1_000])
def test_a_packet_up_to_the_limit_is_taken(size: int) -> None:
    world = World(Limits(max_packet_bytes=1_000))
    client = world.connect("c", V311)
    client.subscribe("t")
    head = 5 if size < 130 else 6
    client.publish("t", "x" * (size - head))
    assert client.payloads() == ["x" * (size - head)]


def test_a_larger_packet_is_refused_as_soon_as_its_length_is_known() -> None:
    world = World(Limits(max_packet_bytes=1_000))
    client = world.connect("c")
    client.send_bytes(raw("30 e607"))  # 998 and the header make 1001
    assert ended_with(client) == (CloseReason.PACKET_TOO_LARGE, 0x95)


@pytest.mark.parametrize(
    ("chunk", "reason", "code"),
    [
        ("30 01 00", CloseReason.MALFORMED_PACKET, 0x81),  # ends in its topic's length
        ("30 03 0005 'a'", CloseReason.MALFORMED_PACKET, 0x81),  # topic longer than the packet
        ("30 02 0000", CloseReason.MALFORMED_PACKET, 0x81),  # no room for properties
        ("30 03 0000 00", CloseReason.PROTOCOL_ERROR, 0x82),  # neither topic nor alias
        ("32 06 0001 'a' 0000 00", CloseReason.MALFORMED_PACKET, 0x81),  # packet identifier zero
        ("36 06 0001 'a' 0001 00", CloseReason.MALFORMED_PACKET, 0x81),  # both QoS bits
        ("30 04 0001 ff 00", CloseReason.MALFORMED_PACKET, 0x81),  # not UTF-8
        ("30 04 0001 '+' 00", CloseReason.PROTOCOL_ERROR, 0x90),  # a wildcard
        ("30 06 0001 'a' 02 0b01", CloseReason.PROTOCOL_ERROR, 0x82),  # a subscription identifier
        ("30 07 0001 'a' 03 230000", CloseReason.PROTOCOL_ERROR, 0x94),  # topic alias zero
        ("30 07 0001 'a' 03 230041", CloseReason.PROTOCOL_ERROR, 0x94),  # topic alias above the maximum
        ("30 06 0000 03 230001", CloseReason.PROTOCOL_ERROR, 0x82),  # topic alias never introduced
        ("40 02 0000", CloseReason.MALFORMED_PACKET, 0x81),  # PUBACK for nothing
        ("60 02 0001", CloseReason.MALFORMED_PACKET, 0x81),  # PUBREL with the wrong flags
        ("20 03 00 00 00", CloseReason.PROTOCOL_ERROR, 0x82),  # CONNACK from a client
        ("00 00", CloseReason.PROTOCOL_ERROR, 0x82),  # no such packet
        ("c0 8000", CloseReason.MALFORMED_PACKET, 0x81),  # a length longer than it need be
        ("c0 ffffffff7f", CloseReason.MALFORMED_PACKET, 0x81),  # a length of five bytes
        ("c0 01 00", CloseReason.MALFORMED_PACKET, 0x81),  # PINGREQ with a body
    ],
)
def test_a_client_that_breaks_a_rule_hears_which_and_is_closed(chunk: str, reason: CloseReason, code: int) -> None:
    world = World()
    other = world.connect("other")
    client = world.connect("c")
    client.send_bytes(raw(chunk))
    assert ended_with(client) == (reason, code)
    assert not other.closed


def test_a_reason_string_is_sent_only_where_it_is_wanted_and_fits() -> None:
    def reason(maximum: int | None, problem_information: int | None) -> str | None:
        client = World().open()
        properties = Properties(maximum_packet_size=maximum, request_problem_information=problem_information)
        client.send(Connect("c", properties=properties))
        client.received()
        client.send(Connect("c"))
        (packet,) = client.received()
        assert isinstance(packet, Disconnect)
        assert packet.reason_code == 0x82
        return packet.properties.reason_string

    assert reason(None, None) == "CONNECT is not a client's to send now"
    assert reason(None, 1) == reason(None, None)
    assert reason(None, 0) is None
    assert reason(40, 1) is None


@pytest.mark.long
@examples(50)
@given(st.lists(st.one_of([KINDS[name](V5) for name in kinds(V5)]) | st.binary(max_size=20), max_size=6), st.booleans())
def test_no_input_of_a_client_ends_another_connection(sent: list[object], connected: bool) -> None:
    world = World()
    other = world.connect("other client")
    other.subscribe("#", qos=2)
    client = world.connect("c") if connected else world.open()
    for each in sent:
        chunk = each if isinstance(each, bytes) else encode(each, V5)  # type: ignore[arg-type]
        client.send_bytes(chunk)
    assert not other.closed
    other.received()
    other.publish("t", "x", 1)
    assert other.payloads() == ["x"]


# ── QoS 2 from a client ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["short", "long"])
def test_acknowledgements_are_understood_in_both_forms(form: str) -> None:
    world = World()
    client = world.connect("c", auto_ack=False)
    client.subscribe("t", qos=2)

    def acknowledge(packet_type: int, packet_id: int) -> None:
        first = packet_type << 4 | (2 if packet_type == PUBREL else 0)
        body = packet_id.to_bytes(2, "big") + (b"" if form == "short" else b"\0\0")
        client.send_bytes(bytes([first, len(body)]) + body)

    world.publish("t", "a", 1)
    world.publish("t", "b", 2)
    session = world.session("c")
    acknowledge(PUBACK, 1)
    acknowledge(PUBREC, 2)
    acknowledge(PUBCOMP, 2)
    assert (session.inflight.by_id(), session.window.released.all()) == ({}, [])
    client.publish("u", "c", 2, packet_id=5)
    acknowledge(PUBREL, 5)
    assert session.received.all() == []


@pytest.mark.parametrize("release", ["62020001", "6203000100"])
def test_an_answer_waits_for_the_commit_of_what_it_says(release: str) -> None:
    world = World()
    client = world.connect("c", expiry=100, auto_ack=False)
    outbox = client.connection.outbox
    effects = world.broker.effects
    for packet, kind in [
        (encode(Publish(b"t", b"x", 2, packet_id=1), V5), SaveReceived),
        (bytes.fromhex(release), RemoveReceived),
    ]:
        world.broker.feed(client.connection, packet, world.now)
        assert [type(change) for change in effects.changes] == [kind]
        assert outbox.awaits_commit
        world.settle()
        assert not outbox.awaits_commit
    world.broker.feed(client.connection, bytes.fromhex(release), world.now)
    assert effects.changes == []
    assert not outbox.awaits_commit


# ── close, shut_down ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_connection_is_over_once() -> None:
    world = World()
    client = world.connect("c")
    world.advance(5)
    world.broker.close(client.connection, world.now, "reset by peer")
    world.broker.close(client.connection, world.now + 1, "again")
    world.settle()
    connection = client.connection
    assert (connection.close_reason, connection.close_detail) == (CloseReason.CONNECTION_LOST, "reset by peer")
    assert connection.ended_at == world.now


def test_the_counts_of_a_connection_are_known_when_it_ends() -> None:
    world = World(Limits(max_queued_messages=1, min_drain_rate=0))
    client = world.connect("c", receive_maximum=1, auto_ack=False)
    client.subscribe("t", "u", qos=1)
    for _ in range(3):
        world.publish("t", "x", 1)
    client.lose()
    connection = client.connection
    assert connection.subscriptions == 2
    assert (connection.inflight_high_water, connection.queue_high_water) == (1, 1)
    assert connection.drops == {"queue_full": 1}
    assert connection.outbox.sent_qos1 == 1


def test_shutting_down_says_so_and_keeps_what_is_to_be_kept() -> None:
    world = World()
    five, three = world.connect("5", expiry=100), world.connect("3", V311)
    waiting = world.open()
    five.subscribe("t", qos=1)
    world.publish("r", "kept", retain=True)
    world.broker.shut_down(world.now)
    world.settle()
    assert ended_with(five) == (CloseReason.SERVER_SHUTDOWN, 0x8B)
    assert ended_with(three) == ended_with(waiting) == (CloseReason.SERVER_SHUTDOWN, 0)
    after = world.restart()
    assert after.session("5").subscriptions.keys() == {b"t"}


def test_shutting_down_a_broker_full_of_wills_ends_every_connection() -> None:
    world = World(Limits(max_outbox_messages=1, on_overflow=DISCONNECT))
    clients = [world.connect(f"c{number}", will=Will(b"w", b"x")) for number in range(4)]
    for client in clients:
        client.subscribe("w")
        client.block()
    world.broker.shut_down(world.now)
    world.settle()
    assert all(client.closed for client in clients)


# ── time ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_that_sends_no_connect_is_closed_in_time() -> None:
    world = World(Limits(connect_timeout_s=10))
    silent, slow = world.open(), world.open()
    chunk = encode(Connect("c"), V5)
    for byte in chunk[:9]:
        world.advance(1)
        slow.send_bytes(bytes([byte]))
    assert not silent.closed
    world.advance(1)
    assert ended_with(silent) == ended_with(slow) == (CloseReason.CONNECT_TIMEOUT, 0)
    assert silent.connection.close_detail == "no CONNECT accepted within 10 s"


@pytest.mark.parametrize("version", [V5, V311])
def test_a_client_silent_for_one_and_a_half_keep_alives_is_closed(version: int) -> None:
    world = World()
    client = world.connect("c", version, keep_alive=10)
    world.advance(14)
    client.send(Pingreq())
    world.advance(14.9)
    assert not client.closed
    client.received()
    world.advance(0.1)
    assert ended_with(client) == (CloseReason.KEEP_ALIVE_TIMEOUT, 0x8D if version == V5 else 0)
    assert client.connection.close_detail == "silent for 15.0 s with a keep-alive of 10 s"


def test_the_client_is_heard_by_its_packets_and_by_the_pieces_of_a_long_one() -> None:
    world = World()
    client = world.connect("c", keep_alive=10)
    client.send_bytes(raw("30 904e 0001 't' 00"))  # 10 000 bytes
    for _ in range(5):
        world.advance(14)
        client.send_bytes(b"x" * 1_000)
    assert not client.closed
    client.send_bytes(b"x" * 4_000)
    for _ in range(3):  # less than a thousand bytes are missing: no reason to be that slow
        world.advance(7)
        client.send_bytes(b"x")
    assert client.closed


def test_a_silent_client_is_closed_however_much_it_is_sent() -> None:
    world = World()
    client = world.connect("c", keep_alive=10)
    client.subscribe("t")
    world.now += 15
    world.broker.publish(b"t", b"x", 0, False, world.now)
    world.broker.tick(world.now)
    world.settle()
    assert client.closed


def test_a_client_whose_link_is_not_read_is_not_silent() -> None:
    world = World()
    client = world.connect("c", keep_alive=10)
    client.connection.hold_reasons = HoldReason.COMMIT
    world.advance(15)
    assert not client.closed
    world.advance(14)
    client.connection.hold_reasons = 0
    client.connection.last_heard = world.now
    world.advance(14.9)
    assert not client.closed
    world.advance(0.1)
    assert client.closed


def test_many_keep_alives_ring_each_at_its_time() -> None:
    world = World()
    clients = [world.connect(f"c{number}", keep_alive=number) for number in range(1, 20)]
    for client in clients:
        alive_s = 1.5 * client.connection.keep_alive_s
        world.advance(alive_s - (world.now - client.connection.connected_at))
        assert client.closed
        assert [other.closed for other in clients].count(False) == 19 - client.connection.keep_alive_s


# ── publish from inside ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_publisher_inside_hears_who_got_it() -> None:
    world = World(Limits(max_queued_messages=1))
    assert world.publish("t", "x", 1) == 0x10
    client = world.connect("c", expiry=10)
    client.subscribe("t", qos=1)
    assert world.publish("t", "x", 1) == 0
    client.lose()
    assert world.publish("t", "x", 1) == 0
    assert world.publish("t", "x", 1) == 0x97


def test_a_bad_topic_from_inside_is_an_exception() -> None:
    with pytest.raises(TopicNameInvalid):
        World().publish("a/#")


# ── clients that do not read ───────────────────────────────────────────────────────────────────────────────────────


def test_a_blocked_client_costs_the_others_nothing_and_gets_its_messages_later() -> None:
    world = World()
    slow, quick = world.connect("slow"), world.connect("quick")
    for client in (slow, quick):
        client.subscribe("#", qos=1)
    slow.block()
    for number in range(5):
        world.publish("t", str(number), number % 2)
    assert quick.payloads() == ["0", "1", "2", "3", "4"]
    assert slow.payloads() == []
    world.advance(3)
    slow.unblock()
    assert sorted(slow.payloads()) == ["0", "1", "2", "3", "4"]
    assert (slow.connection.backpressure_count, slow.connection.backpressure_s) == (1, 3.0)


def frozen(world: World, client_id: str, messages: int) -> Client:
    """A client that missed that many messages of 100,000 bytes."""
    client = world.connect(client_id)
    client.subscribe("t")
    client.block()
    for number in range(messages):
        world.publish("t", str(number).ljust(100_000))
    return client


def test_a_long_backlog_leaves_in_parts_and_then_the_back_pressure_ends() -> None:
    world = World()
    client = frozen(world, "c", 30)
    connection = client.connection
    world.now += 2
    world.broker.unblock(connection, world.now)
    assert 0 < connection.outbox.sent_qos0 <= FILL_BYTES // 100_000 + 1
    assert world.broker.due_at() == world.now
    world.publish("t", "last")
    assert [int(payload) for payload in client.payloads()[:-1]] == list(range(30))
    assert connection.backpressure_count == 1
    assert connection.backpressure_s == 2.0
    assert not connection.outbox.blocked


def test_many_backlogs_together_take_no_more_of_an_iteration_than_one_may() -> None:
    world = World()
    clients = [frozen(world, f"c{number}", 1) for number in range(2)]
    for number in range(30):
        clients.append(frozen(world, f"d{number}", 0))
    for number in range(10):
        world.publish("t", str(number).ljust(100_000))
    for client in clients:
        world.broker.unblock(client.connection, world.now)
    assert world.broker.effects.pending_bytes < ITERATION_BYTES + FILL_BYTES + 100_100
    world.settle()
    assert [len(client.payloads()) for client in clients] == [12, 11] + [10] * 30


def test_a_link_that_takes_no_more_of_a_backlog_keeps_the_rest_for_later() -> None:
    world = World()
    client = frozen(world, "c", 30)
    world.broker.unblock(client.connection, world.now)
    world.broker.block(client.connection, world.now)
    world.settle()
    taken = len(client.payloads())
    assert 0 < taken < 5, "what was on its way"
    world.advance(1)
    assert client.payloads() == []
    assert client.connection.backpressure_count == 1
    client.unblock()
    assert len(client.payloads()) == 30 - taken
    assert client.connection.backpressure_s == 1.0


def test_blocking_twice_and_unblocking_twice_are_harmless() -> None:
    world = World()
    client = world.connect("c")
    client.unblock()
    client.block()
    world.advance(1)
    client.block()
    world.advance(1)
    client.unblock()
    world.advance(1)
    client.unblock()
    assert (client.connection.backpressure_count, client.connection.backpressure_s) == (1, 2.0)


def test_a_link_may_block_before_connect_and_after_the_end() -> None:
    world = World()
    early = world.open()
    early.block()
    early.unblock()
    assert early.connect("c") is not None
    early.block()
    world.advance(2)
    early.lose()
    early.block()
    early.unblock()
    assert early.connection.backpressure_s == 2.0


def test_the_policy_to_disconnect_cuts_off_who_does_not_read_and_nobody_else() -> None:
    world = World(Limits(max_outbox_messages=2, on_overflow=DISCONNECT))
    slow, quick = world.connect("slow", expiry=10), world.connect("quick")
    for client in (slow, quick):
        client.subscribe("t")
    slow.block()
    publisher = world.connect("p")
    publisher.send(*[Publish(b"t", b"%d" % number) for number in range(5)])
    assert slow.closed
    assert ended_with(slow) == (CloseReason.BUFFER_FULL, 0x97)
    assert slow.connection.drops == {BUFFER_FULL: 5}
    assert len(quick.payloads()) == 5
    assert not publisher.closed


def test_a_session_whose_queue_is_full_loses_its_client_by_that_policy() -> None:
    world = World(Limits(max_queued_messages=1, on_overflow=DISCONNECT))
    client = world.connect("c", receive_maximum=1, auto_ack=False)
    client.subscribe("t", qos=1)
    world.publish("t", "1", 1)
    world.publish("t", "2", 1)
    assert not client.closed
    world.publish("t", "3", 1)
    assert client.closed


def test_a_client_that_asks_without_reading_is_cut_off() -> None:
    world = World(Limits(max_outbox_bytes=512 * (CHUNK_BYTES + 2)))
    client = world.connect("c")
    client.block()
    client.send(*[Pingreq()] * 512)
    assert not client.closed
    client.send(Pingreq())
    assert client.closed
    assert client.connection.close_reason == CloseReason.BUFFER_FULL


@pytest.mark.parametrize("how", ["lose", "take over", "take over later", "expire", "overflow"])
def test_a_will_that_is_too_much_for_another_cuts_that_one_off_in_the_same_turn(how: str) -> None:
    world = World(Limits(max_outbox_messages=1, on_overflow=DISCONNECT))
    slow, other = world.connect("slow", will=Will(b"w", b"slow")), world.connect("other", will=Will(b"w", b"other"))
    third = world.connect("third", will=Will(b"x", b"third"))
    slow.subscribe("w")
    other.subscribe("x")
    third.subscribe("w")
    for client in (slow, other, third):
        client.block()
    world.publish("w", "fits")
    world.publish("x", "fits")
    last = world.connect("last", expiry=100, will=Will(b"w", b"last", properties=Properties(will_delay_interval=0)))
    if how == "lose":
        last.lose()
    elif how == "take over":
        world.connect("last")
    elif how == "take over later":
        successor = world.open(must_authenticate=True)
        successor.connect("last")
        world.answer(successor, True)
    elif how == "expire":
        delayed = Will(b"w", b"x", properties=Properties(will_delay_interval=1))
        world.connect("another", expiry=10, will=delayed).lose()
        assert not slow.closed
        world.advance(1)
    else:
        world.publish("w", "too much")
    assert slow.closed
    assert third.closed
    assert other.closed, "by the will of the third"


def test_a_long_backlog_leaves_in_passes_and_everybody_has_a_turn() -> None:
    world = World(Limits(max_queued_messages=100))
    clients = []
    for number in range(6):
        client = world.connect(f"c{number}", expiry=100)
        client.subscribe("t", qos=1)
        client.lose()
        clients.append(client)
    for _ in range(12):
        world.publish("t", "x" * (FILL_BYTES // 4), 1)
    effects = world.broker.effects
    back = [world.connect(f"c{number}", clean_start=False, expiry=100, auto_ack=False) for number in range(6)]
    assert [len(client.payloads()) for client in back] == [12] * 6
    for client in back:
        client.lose()
    settle = world.settle
    world.settle = lambda: None  # type: ignore[method-assign]
    again = [world.open() for _ in range(6)]
    for number, client in enumerate(again):
        client.connect(f"c{number}", clean_start=False, expiry=100, auto_ack=False)
    first_pass = [sum(map(len, client.connection.outbox.chunks)) for client in again]
    assert sum(first_pass) < ITERATION_BYTES + 2 * FILL_BYTES
    assert len(effects.backlogged) == 6
    world._run()
    world.broker.tick(world.now)
    second_pass = [sum(map(len, client.connection.outbox.chunks)) for client in again]
    assert all(first or second for first, second in zip(first_pass, second_pass, strict=True))
    settle()
    assert [len(client.payloads()) for client in again] == [12] * 6


def test_a_client_that_asks_repeatedly_has_no_more_turns_than_others() -> None:
    world = World()
    greedy, other = world.connect("greedy"), world.connect("other")
    for number in range(2):
        world.publish(f"r/{number}", "x" * FILL_BYTES, 0, True)
    world.settle = lambda: None  # type: ignore[method-assign]
    for _ in range(20):
        greedy.send(Subscribe(1, (SubscriptionRequest(b"r/#", 0),)))
    other.send(Subscribe(1, (SubscriptionRequest(b"r/#", 0),)))
    effects = world.broker.effects
    assert effects.backlogged == [greedy.connection.number, other.connection.number]
    effects.pending_bytes = 0
    world.broker.tick(world.now)
    assert effects.backlogged == [greedy.connection.number, other.connection.number], (
        "each had one turn, and wants another"
    )


@pytest.mark.long
@pytest.mark.parametrize("above", [-1, 0, 1])
def test_more_deadlines_than_an_iteration_has_room_for_wait_for_the_next(above: int) -> None:
    """After a network cut, say: all those clients are silent at the same moment."""
    world = World()
    room = math.ceil(ITERATION_WORK / (DEADLINE_WORK + CLOSE_WORK))
    for number in range(room + above):
        world.connect(f"c{number}", keep_alive=10)
    now = world.now + 15
    due_at = world.broker.tick(now)
    left = max(0, above)
    assert len(world.broker.connections) == left
    if left:
        assert due_at is not None
        assert due_at <= now
        end_iteration(world.broker.effects)
        world.broker.tick(now)
    assert not world.broker.connections


def test_a_hungry_client_that_leaves_is_forgotten() -> None:
    world = World()
    client = world.connect("c", expiry=100)
    client.subscribe("t", qos=1)
    client.lose()
    for _ in range(3):
        world.publish("t", "x" * FILL_BYTES, 1)
    world.settle = lambda: None  # type: ignore[method-assign]
    again = world.open()
    again.connect("c", clean_start=False, expiry=100)
    assert world.broker.due_at() == world.now
    world.broker.close(again.connection, world.now)
    world.broker.tick(world.now)
    assert world.broker.effects.backlogged == []
    assert world.session("c").queued == 3


@pytest.mark.parametrize("dup", [False, True])
def test_a_topic_name_that_breaks_the_rules_does_so_under_an_identifier_that_is_taken_too(dup: bool) -> None:
    world = World()
    client = world.connect("rude")
    client.publish("a", qos=2, packet_id=1)
    client.publish("a/+", qos=2, packet_id=1, dup=dup)
    assert client.closed
    assert client.connection.reason_code == 0x90
