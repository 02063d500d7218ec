"""A session by itself: what it sends, what it keeps, and in which order; no broker around it."""

from collections import deque

import pytest

from mqttlite.core.changes import (
    Change,
    Enqueue,
    RemoveReceived,
    RemoveReleased,
    SaveReceived,
    SaveReleased,
    Sent,
    Settled,
)
from mqttlite.core.effects import Effects
from mqttlite.core.inbound.acknowledgements import Acknowledgements
from mqttlite.core.limits import (
    DISCONNECT,
    DROP_NEWEST,
    DROP_OLDEST,
    FILL_BYTES,
    ITERATION_BYTES,
    Limits,
)
from mqttlite.core.memory import ENTRY_BYTES, INFLIGHT_BYTES, MESSAGE_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.reasons import EXPIRED, NACKED, PACKET_TOO_LARGE, QOS0_OFFLINE, QUEUE_FULL, SESSION_EXPIRED
from mqttlite.core.retained.retained_replay import RetainedReplay
from mqttlite.core.session.session import DROPPED, Session
from mqttlite.topics.retained import RetainedMessages
from mqttlite.wire.constants import MAX_REMAINING_LENGTH, PUBREL, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.errors import ProtocolError
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Packet, Publish
from mqttlite.wire.properties import USER_PROPERTY_BYTES, Properties


class Bench:
    """A session with its turn, and links that come and go."""

    def __init__(self, *, durable: bool = False, receive_maximum: int = 65_535, **limits: object) -> None:
        self.limits = Limits(**limits)  # type: ignore[arg-type]
        self.effects = Effects()
        self.effects.now = 1_000.0
        self.acks = Acknowledgements(self.effects)
        self.session = Session("c", 100 if durable else 0, self.effects, self.limits)
        self.connect(receive_maximum)

    def connect(self, receive_maximum: int = 65_535, version: int = V5, max_packet_bytes: int = 0) -> None:
        self.outbox = Outbox(1, self.effects, self.limits)
        self.outbox.version = version
        self.outbox.limit_packets(max_packet_bytes)
        self.session.attach(self.outbox, receive_maximum)
        self.session.resume()

    def deliver(self, payloads: str, qos: int = 1, **fields: object) -> list[bool]:
        """A message for each letter; whether each was taken."""
        messages = [Message(b"t", letter.encode(), qos, **fields) for letter in payloads]  # type: ignore[arg-type]
        return [self.session.deliver(Delivery(message, qos, False)) != DROPPED for message in messages]

    def sent(self) -> list[Packet]:
        self.effects.dirty.clear()
        self.effects.pending_bytes = 0
        version = self.outbox.version
        framer = Framer(MAX_REMAINING_LENGTH + 5)
        return [decode(first, body, version) for first, body in framer.split(self.outbox.take())]

    def payloads(self) -> str:
        """What was sent, a letter for each message; capital where it says DUP, `*` for a PUBREL."""
        text = ""
        for packet in self.sent():
            if isinstance(packet, Publish):
                letter = packet.payload.decode()
                text += letter.upper() if packet.dup else letter
            elif isinstance(packet, Ack) and packet.packet_type == PUBREL:
                text += "*"
        return text

    def changes(self, kind: type[Change]) -> list[int]:
        """The packet identifiers in the changes of one kind."""
        return [change.packet_id for change in self.effects.changes if isinstance(change, kind)]  # type: ignore[union-attr]

    def sequences(self, kind: type[Enqueue | Sent | Settled]) -> list[int]:
        """The sequences in the changes of one kind."""
        return [change.sequence for change in self.effects.changes if isinstance(change, kind)]


def retained(*payloads: str, qos: int = 0, topic: bytes = b"r") -> list[Delivery]:
    return [Delivery(Message(topic, payload.encode(), qos, True), qos, True) for payload in payloads]


def found(deliveries: list[Delivery]) -> list[RetainedReplay]:
    """As a new subscription finds them, which has nothing left to look for."""
    replay = RetainedReplay(RetainedMessages[Message]().search(b"#"), 2, ())
    replay.deliveries = deque(deliveries)
    return [replay]


# ── QoS 0 ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_qos_0_message_is_sent_at_once_or_counted_while_the_client_is_away() -> None:
    bench = Bench()
    delivery = Delivery(Message(b"t", b"x"), 0, False)
    bench.session.deliver_qos0(delivery)
    assert bench.payloads() == "x"
    bench.session.detach()
    bench.session.deliver_qos0(delivery)
    assert bench.session.drops == {QOS0_OFFLINE: 1}


def test_a_qos_0_message_the_client_finds_too_large_is_not_sent() -> None:
    bench = Bench()
    bench.outbox.limit_packets(10)
    bench.session.deliver_qos0(Delivery(Message(b"t", b"x" * 100), 0, False))
    assert bench.payloads() == ""
    assert bench.outbox.drops == {PACKET_TOO_LARGE: 1}


# ── window and queue ───────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_get_identifiers_from_one_upwards() -> None:
    bench = Bench()
    bench.deliver("abc")
    assert [packet.packet_id for packet in bench.sent()] == [1, 2, 3]  # type: ignore[union-attr]


def test_no_more_are_in_flight_than_the_client_receives() -> None:
    bench = Bench(receive_maximum=2)
    assert bench.deliver("abcd") == [True] * 4
    assert bench.payloads() == "ab"
    assert bench.session.queued == 2
    bench.acks.on_puback(bench.session, 1, 0)
    assert bench.payloads() == "c"
    bench.acks.on_puback(bench.session, 2, 0)
    bench.acks.on_puback(bench.session, 3, 0)
    assert bench.payloads() == "d"
    assert bench.session.window.quota == 1


def test_no_more_are_in_flight_than_the_broker_allows() -> None:
    bench = Bench(max_inflight=3)
    bench.deliver("abcde")
    assert bench.payloads() == "abc"


def test_a_later_message_waits_behind_those_that_wait() -> None:
    bench = Bench(receive_maximum=1)
    bench.deliver("ab")
    bench.acks.on_puback(bench.session, 1, 0)
    bench.deliver("c")
    bench.acks.on_puback(bench.session, 2, 0)
    assert bench.payloads() == "abc"


@pytest.mark.parametrize("packet_id", [2, 7, 65_535])
def test_an_unknown_or_late_acknowledgement_changes_nothing(packet_id: int) -> None:
    bench = Bench(receive_maximum=2)
    bench.deliver("a")
    bench.acks.on_puback(bench.session, packet_id, 0)
    bench.acks.on_pubcomp(bench.session, packet_id)
    assert bench.session.window.quota == 1
    bench.acks.on_puback(bench.session, 1, 0)
    bench.acks.on_puback(bench.session, 1, 0)
    assert bench.session.window.quota == 2


def test_an_acknowledgement_of_the_wrong_kind_is_a_protocol_error() -> None:
    bench = Bench()
    bench.deliver("a", 1)
    bench.deliver("b", 2)
    bench.deliver("c", 2)
    bench.acks.on_pubrec(bench.session, 3, 0)
    with pytest.raises(ProtocolError):
        bench.acks.on_pubrec(bench.session, 1, 0)
    with pytest.raises(ProtocolError):
        bench.acks.on_puback(bench.session, 2, 0)
    with pytest.raises(ProtocolError):
        bench.acks.on_puback(bench.session, 3, 0)
    with pytest.raises(ProtocolError):
        bench.acks.on_pubcomp(bench.session, 1)


def test_the_high_water_marks_are_those_of_this_connection() -> None:
    bench = Bench(receive_maximum=3)
    bench.deliver("abcde")
    assert (bench.session.window.high_water, bench.session.queue_high_water) == (3, 2)
    bench.session.detach()
    bench.connect(receive_maximum=1)
    assert (bench.session.window.high_water, bench.session.queue_high_water) == (1, 5)


@pytest.mark.parametrize(("messages", "taken"), [(1, 1), (2, 2), (3, 2)])
def test_the_queue_takes_as_many_messages_as_its_limit(messages: int, taken: int) -> None:
    bench = Bench(max_queued_messages=2)
    bench.session.detach()
    assert bench.deliver("abc"[:messages]).count(True) == taken
    assert bench.session.drops.get(QUEUE_FULL, 0) == messages - taken
    bench.connect()
    assert bench.payloads() == "abc"[:taken]


@pytest.mark.parametrize(("more", "taken"), [(1, 2), (0, 2), (-1, 1)])
def test_the_queue_takes_as_many_bytes_as_its_limit(more: int, taken: int) -> None:
    limit = 2 * (ENTRY_BYTES + MESSAGE_BYTES + 4) + more
    bench = Bench(max_queued_bytes=limit)
    bench.session.detach()
    message = Message(b"t", b"xyz", 1)
    for _ in range(2):
        bench.session.deliver(Delivery(message, 1, False))
    assert bench.session.queued == taken
    assert bench.session.queued_bytes <= limit


@pytest.mark.parametrize(
    ("properties", "least"),
    [
        (Properties(content_type="t" * 1_000, response_topic="r" * 2_000, correlation_data=b"123"), 3_003),
        (Properties(user_properties=[("", "")] * 40), 40 * USER_PROPERTY_BYTES),
        (Properties(user_properties=[("name", "value" * 1_000)], payload_format_indicator=1), 5_004),
        (Properties(user_properties=[("", "")] * 25, content_type="text"), 25 * USER_PROPERTY_BYTES + 4),
    ],
)
def test_properties_take_room_in_the_queue_too(properties: Properties, least: int) -> None:
    message = Message(b"t", b"xyz", 1, False, properties)
    assert message.memory_bytes > MESSAGE_BYTES + 4 + least
    bytes_of_one = ENTRY_BYTES + message.memory_bytes
    for limit, taken in ((2 * bytes_of_one, 2), (2 * bytes_of_one - 1, 1)):
        bench = Bench(max_queued_bytes=limit)
        bench.session.detach()
        for _ in range(3):
            bench.session.deliver(Delivery(message, 1, False))
        assert bench.session.queued == taken


@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_bytes_are_in_flight_than_allowed_and_the_rest_leaves_with_the_acknowledgements(qos: int) -> None:
    each = INFLIGHT_BYTES + MESSAGE_BYTES + 2
    bench = Bench(max_inflight_bytes=3 * each - 1)
    assert bench.deliver("abcdefg", qos) == [True] * 7
    assert bench.payloads() == "abc", "the third goes beyond the limit, and is the last"
    assert (len(bench.session.inflight), bench.session.queued, bench.session.window.quota) == (3, 4, 997)
    for packet_id, arrives in enumerate("defg", 1):
        if qos == 1:
            bench.acks.on_puback(bench.session, packet_id, 0)
        else:
            bench.acks.on_pubrec(bench.session, packet_id, 0)
            bench.acks.on_pubcomp(bench.session, packet_id)
        assert bench.payloads().strip("*") == arrives
        assert bench.session.inflight.size_bytes == 3 * each


def test_the_bytes_in_flight_are_limited_when_the_client_is_back_too() -> None:
    bench = Bench(max_inflight_bytes=1)
    bench.session.detach()
    bench.deliver("abc")
    bench.connect()
    assert bench.payloads() == "a"
    bench.session.detach()
    bench.connect()
    assert bench.payloads() == "A"
    bench.acks.on_puback(bench.session, 1, 0)
    assert bench.payloads() == "b"


def test_a_queue_of_no_messages_takes_none_and_a_window_is_still_there() -> None:
    for policy in (DROP_NEWEST, DROP_OLDEST):
        bench = Bench(max_queued_messages=0, receive_maximum=1, on_overflow=policy)
        assert bench.deliver("ab") == [True, False]
        assert bench.payloads() == "a"


def test_dropping_the_oldest_makes_room_for_the_newest() -> None:
    bench = Bench(max_queued_messages=2, on_overflow=DROP_OLDEST, durable=True)
    bench.session.detach()
    assert bench.deliver("abcd") == [True] * 4
    assert bench.session.drops == {QUEUE_FULL: 2}
    assert bench.sequences(Settled) == [0, 1]
    bench.connect()
    assert bench.payloads() == "cd"
    assert bench.sequences(Sent) == [2, 3]


def test_dropping_the_oldest_spares_what_was_sent_before() -> None:
    bench = Bench(max_queued_messages=4, on_overflow=DROP_OLDEST)
    bench.deliver("ab")
    bench.session.detach()
    assert bench.deliver("cdef") == [True] * 4
    bench.connect(receive_maximum=1)  # "A" is in flight again, "B" at the front of the queue
    assert bench.deliver("gh") == [True] * 2
    assert bench.session.drops == {QUEUE_FULL: 3}
    text = bench.payloads()
    for packet_id in range(1, 10):
        bench.acks.on_puback(bench.session, packet_id, 0)
        text += bench.payloads()
    assert text == "ABfgh"


def test_sent_messages_are_not_dropped_even_if_no_others_wait() -> None:
    bench = Bench(max_queued_messages=2, on_overflow=DROP_OLDEST)
    bench.deliver("ab")
    bench.session.detach()
    assert bench.deliver("c") == [False]
    bench.connect()
    assert bench.payloads() == "AB"


def test_a_message_larger_than_the_queue_does_not_empty_it() -> None:
    limit = 3 * (ENTRY_BYTES + MESSAGE_BYTES + 2)
    bench = Bench(max_queued_bytes=limit, on_overflow=DROP_OLDEST)
    bench.session.detach()
    bench.deliver("abc")
    assert not bench.session.deliver(Delivery(Message(b"t", b"x" * (limit - MESSAGE_BYTES), 1), 1, False))
    assert bench.session.queued == 3


def test_the_policy_to_disconnect_asks_for_it_only_while_the_client_is_there() -> None:
    bench = Bench(max_queued_messages=1, receive_maximum=1, on_overflow=DISCONNECT)
    bench.deliver("ab")
    assert bench.effects.overflowed == []
    assert bench.deliver("c") == [False]
    assert bench.effects.overflowed == [1]
    bench.effects.overflowed.clear()
    bench.session.detach()
    assert bench.deliver("d") == [False]
    assert bench.effects.overflowed == []


def test_identifiers_go_round_and_skip_those_in_use() -> None:
    bench = Bench(receive_maximum=4)
    bench.session.restore_message(7, Delivery(Message(b"t", b"r", 1), 1, False), 65_533)
    bench.session.restore_message(8, Delivery(Message(b"t", b"q", 2), 2, False), 1)
    bench.session.fill()
    bench.acks.on_pubrec(bench.session, 1, 0)
    bench.session.restore_message(9, Delivery(Message(b"t", b"s", 1), 1, False), 65_534)
    bench.session.fill()
    bench.deliver("x")
    bench.acks.on_puback(bench.session, 65_535, 0)
    bench.deliver("y")
    sent = [(packet.payload, packet.packet_id) for packet in bench.sent() if isinstance(packet, Publish)]
    assert sent == [(b"r", 65_533), (b"q", 1), (b"s", 65_534), (b"x", 65_535), (b"y", 2)]


# ── a long backlog ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_backlog_leaves_in_several_passes() -> None:
    bench = Bench()
    bench.session.detach()
    large = Message(b"t", b"x" * (FILL_BYTES // 4), 1)
    for _ in range(10):
        bench.session.deliver(Delivery(large, 1, False))
    bench.connect()
    counts = [len(bench.sent())]
    while bench.effects.backlogged:
        assert bench.effects.backlogged == [1]
        bench.effects.backlogged.clear()
        bench.outbox.backlogged = False
        bench.session.fill()
        counts.append(len(bench.sent()))
    assert counts == [4, 4, 2]


def test_a_backlog_behind_a_full_window_is_not_hungry() -> None:
    bench = Bench()
    bench.session.detach()
    large = Message(b"t", b"x" * FILL_BYTES, 1)
    for _ in range(2):
        bench.session.deliver(Delivery(large, 1, False))
    bench.connect(receive_maximum=1)
    assert bench.effects.backlogged == []


def test_a_pass_that_has_sent_enough_leaves_the_rest_to_the_next() -> None:
    bench = Bench()
    bench.session.detach()
    bench.deliver("ab")
    bench.effects.pending_bytes = ITERATION_BYTES
    bench.connect()
    assert bench.payloads() == ""
    assert bench.effects.backlogged == [1]
    bench.session.fill()
    assert bench.payloads() == "ab"


def test_a_blocked_link_sends_its_session_nothing_and_the_queue_keeps_it() -> None:
    bench = Bench()
    bench.outbox.block()
    bench.deliver("ab")
    bench.session.fill()
    assert bench.outbox.chunks == []
    bench.outbox.unblock()
    bench.deliver("c")
    assert bench.payloads() == ""
    bench.session.fill()
    assert bench.payloads() == "abc"


def test_acknowledgements_on_a_blocked_link_free_the_window_and_send_nothing() -> None:
    bench = Bench(receive_maximum=1)
    bench.deliver("ab")
    bench.sent()
    bench.outbox.block()
    bench.acks.on_puback(bench.session, 1, 0)
    assert bench.outbox.chunks == []
    bench.outbox.unblock()
    bench.session.fill()
    assert bench.payloads() == "b"


# ── QoS 2 ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_qos_2_message_holds_its_place_in_the_window_until_it_is_complete() -> None:
    bench = Bench(receive_maximum=1)
    bench.deliver("ab", 2)
    assert bench.payloads() == "a"
    bench.acks.on_pubrec(bench.session, 1, 0)
    assert bench.sent() == [Ack(PUBREL, 1)]
    bench.acks.on_pubcomp(bench.session, 1)
    assert bench.payloads() == "b"


def test_a_refused_qos_2_message_is_done_with() -> None:
    bench = Bench(receive_maximum=1, durable=True)
    bench.deliver("ab", 2)
    bench.acks.on_pubrec(bench.session, 1, 0x97)
    assert bench.payloads() == "ab"
    assert bench.sequences(Settled) == [0]
    assert bench.session.drops == {NACKED: 1}


def test_a_repeated_pubrec_is_answered_again() -> None:
    bench = Bench()
    bench.deliver("a", 2)
    bench.acks.on_pubrec(bench.session, 1, 0)
    bench.acks.on_pubrec(bench.session, 1, 0)
    assert bench.payloads() == "a**"


def test_an_unknown_pubrec_is_answered_as_its_version_can_say() -> None:
    bench = Bench()
    bench.acks.on_pubrec(bench.session, 9, 0)
    assert bench.sent() == [Ack(PUBREL, 9, 0x92)]
    bench.acks.on_pubrec(bench.session, 9, 0x80)
    assert bench.sent() == []
    bench.session.detach()
    bench.connect(version=4)
    bench.acks.on_pubrec(bench.session, 9, 0)
    assert bench.sent() == [Ack(PUBREL, 9)]


# ── the client comes back ──────────────────────────────────────────────────────────────────────────────────────────


def test_unacknowledged_messages_are_sent_again_in_order_and_say_so() -> None:
    bench = Bench(receive_maximum=3)
    bench.deliver("a", 1)
    bench.deliver("b", 2)
    bench.deliver("cd", 1)
    bench.acks.on_puback(bench.session, 1, 0)
    assert bench.payloads() == "abcd"
    bench.session.detach()
    bench.deliver("e", 1)
    bench.connect(receive_maximum=4)
    assert bench.payloads() == "BCDe"


def test_a_smaller_window_sends_again_only_what_fits_it() -> None:
    bench = Bench()
    bench.deliver("abc")
    bench.sent()
    bench.session.detach()
    bench.connect(receive_maximum=2)
    assert bench.payloads() == "AB"
    bench.session.detach()
    bench.connect(receive_maximum=1)
    assert bench.payloads() == "A"
    bench.acks.on_puback(bench.session, 1, 0)
    bench.acks.on_puback(bench.session, 2, 0)
    bench.acks.on_puback(bench.session, 3, 0)
    assert bench.payloads() == "BC"
    assert bench.session.window.quota == 1


def test_a_released_identifier_is_released_again_and_counts_in_the_window() -> None:
    bench = Bench()
    bench.deliver("abc", 2)
    bench.acks.on_pubrec(bench.session, 2, 0)
    bench.sent()
    bench.session.detach()
    bench.connect(receive_maximum=2)
    assert bench.payloads() == "*A"
    bench.acks.on_pubcomp(bench.session, 2)
    assert bench.payloads() == "C"


def test_more_released_than_the_window_holds_sends_nothing_until_they_are_complete() -> None:
    bench = Bench()
    bench.deliver("abc", 2)
    bench.acks.on_pubrec(bench.session, 1, 0)
    bench.acks.on_pubrec(bench.session, 2, 0)
    bench.sent()
    bench.session.detach()
    bench.connect(receive_maximum=1)
    assert bench.payloads() == "**"
    bench.acks.on_pubcomp(bench.session, 1)
    assert bench.payloads() == ""
    bench.acks.on_pubcomp(bench.session, 2)
    assert bench.payloads() == "C"


def test_a_message_taken_while_the_client_was_away_is_new_to_it() -> None:
    bench = Bench()
    bench.session.detach()
    bench.deliver("a")
    bench.connect()
    assert bench.payloads() == "a"


def test_a_settled_identifier_is_new_when_it_comes_round_again() -> None:
    bench = Bench()
    bench.deliver("a", 1)
    bench.deliver("b", 2)
    bench.session.detach()
    bench.connect()
    bench.acks.on_puback(bench.session, 1, 0)
    bench.acks.on_pubrec(bench.session, 2, 0)
    bench.acks.on_pubcomp(bench.session, 2)
    bench.sent()
    bench.session.restore_message(9, Delivery(Message(b"t", b"z", 1), 1, False), 65_535)  # the next identifier is 1
    bench.session.fill()
    bench.deliver("cd")
    assert bench.payloads() == "Zcd"


def test_a_message_from_a_store_that_was_sent_keeps_its_identifier() -> None:
    bench = Bench()
    bench.session.detach()
    bench.session.restore_message(9, Delivery(Message(b"t", b"a", 1), 1, False), 5)
    bench.connect()
    bench.deliver("b")
    assert [(packet.packet_id, packet.dup) for packet in bench.sent()] == [(5, True), (6, False)]  # type: ignore[union-attr]


# ── expiry and size ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_that_expires_in_the_queue_is_dropped_unless_it_was_sent_before() -> None:
    bench = Bench(receive_maximum=1)
    bench.deliver("ab", expires_at=1_010.0)
    bench.deliver("c")
    bench.session.detach()
    bench.sent()
    bench.effects.now = 1_010.0
    bench.connect()
    assert bench.payloads() == "Ac"
    assert bench.session.drops == {EXPIRED: 1}


def test_a_message_is_sent_until_it_expires() -> None:
    bench = Bench()
    bench.session.detach()
    bench.deliver("a", expires_at=1_010.0)
    bench.effects.now = 1_009.9
    bench.connect()
    assert bench.payloads() == "a"


def test_a_message_the_client_finds_too_large_is_done_with_and_the_window_stays_open() -> None:
    bench = Bench(receive_maximum=1, durable=True)
    bench.outbox.limit_packets(20)
    assert bench.session.deliver(Delivery(Message(b"t", b"x" * 100, 1), 1, False))
    bench.deliver("a")
    assert bench.payloads() == "a"
    assert bench.outbox.drops == {PACKET_TOO_LARGE: 1}
    assert bench.sequences(Enqueue) == [1], "the store never hears of it"


def test_a_message_that_waited_and_the_client_finds_too_large_is_done_with_for_the_store() -> None:
    bench = Bench(durable=True)
    bench.session.detach()
    bench.deliver("a")
    assert bench.session.deliver(Delivery(Message(b"t", b"x" * 100, 1), 1, False))
    bench.deliver("b")
    bench.connect(max_packet_bytes=20)
    assert bench.payloads() == "ab"
    assert (bench.sequences(Sent), bench.sequences(Settled)) == ([0, 2], [1])


def test_a_message_to_be_sent_again_that_the_client_now_finds_too_large_is_done_with() -> None:
    bench = Bench(durable=True)
    bench.session.deliver(Delivery(Message(b"t", b"x" * 100, 1), 1, False))
    bench.deliver("a")
    bench.session.detach()
    bench.connect(max_packet_bytes=20)
    assert bench.payloads() == "A"
    assert bench.sequences(Settled) == [0]


# ── retained messages for a new subscription ───────────────────────────────────────────────────────────────────────


def test_retained_messages_come_before_later_ones() -> None:
    bench = Bench(receive_maximum=1)
    bench.session.deliver_retained(found(retained("a", "b", qos=1)))
    bench.deliver("c")
    for packet_id in (1, 2, 3):
        bench.acks.on_puback(bench.session, packet_id, 0)
    assert bench.payloads() == "abc"


def test_retained_messages_of_qos_0_need_no_window() -> None:
    bench = Bench(receive_maximum=1)
    bench.deliver("x")
    bench.session.deliver_retained(found(retained("a", "b")))
    assert bench.payloads() == "xab"
    bench.session.deliver_retained(found(retained("c", qos=1) + retained("d")))
    assert bench.payloads() == ""
    bench.acks.on_puback(bench.session, 1, 0)
    assert bench.payloads() == "cd"


def test_a_retained_message_that_was_replaced_or_has_expired_is_passed_over() -> None:
    bench = Bench(receive_maximum=1)
    bench.deliver("x")
    first, second, third = retained("a", "b", "c", qos=1)
    bench.session.deliver_retained(found([first, second, third]))
    first.message.superseded = True
    second.message.superseded = True
    assert bench.session.queued == 3
    bench.acks.on_puback(bench.session, 1, 0)
    assert bench.payloads() == "xc"
    assert bench.session.drops == {}
    expiring = Delivery(Message(b"r", b"e", 0, True, expires_at=1_001.0), 0, True)
    bench.effects.now = 1_001.0
    bench.session.deliver_retained(found([expiring]))
    assert bench.payloads() == ""


def test_retained_messages_that_wait_when_the_client_leaves_are_sent_when_it_is_back() -> None:
    bench = Bench(receive_maximum=1, durable=True)
    bench.deliver("x")
    bench.session.deliver_retained(found(retained("a", qos=1) + retained("b")))
    bench.session.detach()
    assert bench.session.drops == {}
    assert bench.session.queued == 3
    bench.deliver("c")
    bench.connect(receive_maximum=9)
    assert bench.payloads() == "Xabc"


def test_retained_messages_that_wait_end_with_a_session_that_is_not_kept() -> None:
    bench = Bench(receive_maximum=1)
    bench.session.deliver_retained(found(retained("a", "b", "c", qos=1)))
    bench.session.detach()
    assert bench.session.queued == 3


def test_many_retained_messages_leave_in_several_passes() -> None:
    bench = Bench()
    bench.session.deliver_retained(found(retained(*["x" * FILL_BYTES] * 3)))
    assert len(bench.sent()) == 1
    assert bench.effects.backlogged == [1]
    bench.session.fill()
    bench.session.fill()
    assert len(bench.sent()) == 2
    assert bench.session.queued == 0


def test_subscribing_again_and_again_in_one_pass_sends_only_so_much() -> None:
    bench = Bench()
    for _ in range(100):
        bench.session.deliver_retained(found(retained("x" * (FILL_BYTES // 2))))
    assert sum(len(chunk) for chunk in bench.outbox.chunks) < ITERATION_BYTES + FILL_BYTES


# ── what a store must keep ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_durable_session_says_what_must_be_kept_and_its_link_waits_for_that() -> None:
    bench = Bench(durable=True)
    bench.outbox.awaits_commit = False
    bench.deliver("a", 1)
    assert bench.outbox.awaits_commit
    bench.deliver("b", 2)
    bench.acks.on_puback(bench.session, 1, 0)
    bench.outbox.awaits_commit = False
    bench.acks.on_pubrec(bench.session, 2, 0)
    assert bench.outbox.awaits_commit
    bench.acks.on_pubcomp(bench.session, 2)
    assert bench.changes(Enqueue) == [1, 2]
    assert bench.sequences(Settled) == [0]
    assert bench.changes(SaveReleased) == [2]
    assert bench.changes(RemoveReleased) == [2]


def test_a_session_that_ends_with_its_connection_leaves_nothing_to_keep() -> None:
    bench = Bench()
    bench.deliver("a", 1)
    bench.deliver("b", 2)
    bench.acks.on_puback(bench.session, 1, 0)
    bench.acks.on_pubrec(bench.session, 2, 0)
    bench.acks.on_pubcomp(bench.session, 2)
    bench.acks.take_received(bench.session, 5, 1)
    bench.acks.release_received(bench.session, 5)
    assert bench.effects.changes == []
    assert not bench.outbox.awaits_commit


def test_the_clients_own_identifiers_are_kept_until_it_releases_them() -> None:
    bench = Bench(durable=True)
    bench.acks.take_received(bench.session, 5, 1)
    assert bench.acks.release_received(bench.session, 5)
    assert not bench.acks.release_received(bench.session, 5)
    assert bench.changes(SaveReceived) == [5]
    assert bench.changes(RemoveReceived) == [5]
    assert bench.session.received.all() == []


# ── what a session does not use ────────────────────────────────────────────────────────────────────────────────────


def test_sessions_that_have_nothing_queued_share_no_queue_with_those_that_have() -> None:
    """An idle one takes no memory for its queues, whatever another does with its own."""
    busy, idle = Bench(), Bench()
    busy.session.detach()
    busy.deliver("x")
    busy.connect(receive_maximum=1)
    busy.deliver("y")
    busy.session.deliver_retained(found(retained("r", qos=1)))
    busy.session.detach()
    busy.deliver("z")
    assert (busy.session.queued, idle.session.queued) == (4, 0)
    idle.session.fill()
    assert idle.sent() == []


def test_identifiers_in_use_are_passed_over_where_there_are_many() -> None:
    bench = Bench()
    bench.deliver("x" * 301)
    for packet_id in (1, 2, 300):
        bench.acks.on_puback(bench.session, packet_id, 0)
    bench.sent()
    bench.session.window.continue_at(1)
    bench.deliver("abcd")
    assert [packet.packet_id for packet in bench.sent()] == [1, 2, 300, 302]  # type: ignore[union-attr]


def test_a_message_under_way_to_a_session_that_ended_is_dropped_and_not_stored() -> None:
    bench = Bench(durable=True)
    bench.session.detach()
    bench.session.is_over = True
    assert bench.deliver("a") == [False]
    assert bench.session.drops == {SESSION_EXPIRED: 1}
    assert bench.effects.changes == []
