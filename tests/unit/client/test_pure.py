"""The client's parts that need no loop: backoff, keep-alive, topics, packet identifiers, the window, options."""

import pytest

from mqttlite.client import Filter, Message
from mqttlite.client.backoff import Backoff
from mqttlite.client.errors import ConnectionLost, MqttError, PublishRefused
from mqttlite.client.inflight import Outgoing, PacketIds, Window
from mqttlite.client.keep_alive import Due, KeepAlive
from mqttlite.client.limits import ServerLimits
from mqttlite.client.message import PublishOutcome, Will, payload_bytes
from mqttlite.client.options import HIGHEST_MAX_INFLIGHT, Options
from mqttlite.client.topics import check_filter, check_name, matches
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Packet, Publish
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode

# filters


def test_a_filter_is_asked_about_messages_that_have_arrived() -> None:
    wanted = Filter("topic: 'a/' AND attributes.n >= 2 AND NOT retain = true")
    properties = Properties(user_properties=[("n", "2")])
    arrived = Message("a/b", b"x", properties=properties)
    assert wanted.matches(arrived)
    assert not wanted.matches(Message("a/b", b"x", retain=True, properties=properties))
    assert not wanted.matches(Message("b", b"x"))
    assert [part.found for part in wanted.explain(arrived).parts] == ["a/b", "2", None]
    assert repr(wanted) == f"Filter({wanted.expression!r})"


# backoff


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next_s(1.0) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_chance_takes_up_to_half_of_a_delay() -> None:
    assert Backoff(1.0, 5.0).next_s(0.0) == 0.5


def test_a_connection_that_lasted_begins_anew_and_a_short_one_does_not() -> None:
    backoff = Backoff(1.0, 8.0)
    for _ in range(3):
        backoff.next_s(1.0)
    backoff.on_lost(7.9)
    assert backoff.next_s(1.0) == 8.0
    backoff.on_lost(8.0)
    assert backoff.next_s(1.0) == 1.0


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_delays_out_of_order_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="reconnect delays"):
        Backoff(low, high)


# keep-alive


def test_a_quiet_line_is_pinged_after_the_interval() -> None:
    keep_alive = KeepAlive(60, 10, now=0)
    assert keep_alive.run(59) == (Due.NOTHING, 60)
    assert keep_alive.run(60) == (Due.PING, 70)


def test_a_busy_sender_that_hears_nothing_pings_too() -> None:
    keep_alive = KeepAlive(60, 10, now=0)
    keep_alive.sent_at = 59
    assert keep_alive.run(60) == (Due.PING, 70)


def test_a_ping_without_answer_means_that_the_line_is_lost() -> None:
    keep_alive = KeepAlive(60, 10, now=0)
    keep_alive.run(60)
    keep_alive.sent_at = 60
    assert keep_alive.run(69) == (Due.NOTHING, 70)
    assert keep_alive.run(70) == (Due.LOST, 70)


def test_any_packet_answers_a_ping() -> None:
    keep_alive = KeepAlive(60, 10, now=0)
    keep_alive.run(60)
    keep_alive.sent_at, keep_alive.received_at = 60, 61
    assert keep_alive.run(70) == (Due.NOTHING, 120)


def test_silence_proves_nothing_while_we_do_not_read() -> None:
    keep_alive = KeepAlive(60, 10, now=0)
    keep_alive.run(60)
    keep_alive.sent_at = 60
    assert keep_alive.run(70, deaf=True) == (Due.NOTHING, 120)


# topics


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/b", "a", False),
        ("a", "a/b", False),
        ("a/+", "a/b", True),
        ("a/+", "a/b/c", False),
        ("+/+", "/x", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("$share/group/a/+", "a/b", True),
    ],
)
def test_a_filter_matches_as_the_standard_says(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


@pytest.mark.parametrize("name", ["", "a/+", "#", "a\0b", "\ud800", "x" * 65_536])
def test_an_invalid_topic_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="topic"):
        check_name(name)


@pytest.mark.parametrize(
    "topic_filter", ["", "a+", "a/#/b", "#/", "a/b#", "$share/g", "$share/g/", "$share//x", "$share/+/x", "$share/#"]
)
def test_an_invalid_topic_filter_is_refused(topic_filter: str) -> None:
    with pytest.raises(ValueError, match="topic filter"):
        check_filter(topic_filter)


def test_a_payload_is_bytes_text_or_nothing() -> None:
    assert [payload_bytes(x) for x in (b"a", "ä", None, bytearray(b"b"), memoryview(b"c"), 5, -2.5)] == [
        b"a",
        "ä".encode(),
        b"",
        b"b",
        b"c",
        b"5",
        b"-2.5",
    ]
    with pytest.raises(ValueError, match="not list"):
        payload_bytes([5])  # type: ignore[arg-type]


# packet identifiers


def test_identifiers_go_in_a_circle_and_skip_those_in_use() -> None:
    ids = PacketIds()
    assert [ids.take(), ids.take()] == [1, 2]
    ids.release(1)
    for expected in range(3, 65_536):
        assert ids.take() == expected
    assert ids.take() == 1
    with pytest.raises(MqttError, match="65 535"):
        ids.take()


# the window


class Waiter:
    """Keeps the outcome."""

    def __init__(self) -> None:
        self.outcome: PublishOutcome | MqttError | None = None

    def done(self) -> bool:
        return self.outcome is not None

    def set_result(self, result: PublishOutcome, /) -> None:
        assert self.outcome is None
        self.outcome = result

    def set_exception(self, error: MqttError, /) -> None:
        assert self.outcome is None
        self.outcome = error


class Line:
    """A window, what it wrote, and how often it had room again."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.out = b""
        self.integration = 0
        self.window = Window(PacketIds(), V5, self._on_room)
        self.connect(limits)

    def _on_room(self) -> None:
        self.integration += 1

    def _write(self, frame: bytes) -> None:
        self.out += frame

    def connect(self, limits: ServerLimits | None = None, *, session_present: bool = True) -> None:
        self.window.resume(self._write, limits or ServerLimits(), session_present=session_present)

    def place(self, qos: int = 1, payload: bytes = b"p", retain: bool = False) -> Outgoing[Waiter]:
        head, tail = publish_parts(b"t", payload, qos, retain, NONE, V5)
        outgoing = Outgoing("t", head, tail, qos, retain, Waiter())
        self.window.place(outgoing)
        return outgoing

    def sent(self) -> list[Packet]:
        """What was written since the last time."""
        out, self.out = self.out, b""
        return [decode(first, body, V5) for first, body in Framer(1_000_000).split(out)]


def test_answers_to_nothing_are_harmless() -> None:
    line = Line()
    line.place(1)
    line.place(2)
    line.sent()
    line.window.on_puback(Ack(PUBACK, 2))
    line.window.on_puback(Ack(PUBACK, 9))
    line.window.on_pubcomp(Ack(PUBCOMP, 2))
    assert (len(line.window), line.sent()) == (2, [])


def test_an_unknown_pubrec_is_told_so() -> None:
    line = Line()
    line.window.on_pubrec(Ack(PUBREC, 7))
    line.window.on_pubrec(Ack(PUBREC, 8, ReasonCode.NOT_AUTHORIZED))
    assert line.sent() == [Ack(PUBREL, 7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


@pytest.mark.parametrize(("qos", "packet_type"), [(1, PUBACK), (2, PUBREC)])
def test_a_refusal_says_code_and_reason(qos: int, packet_type: int) -> None:
    line = Line()
    outgoing = line.place(qos)
    line.sent()
    ack = Ack(packet_type, 1, ReasonCode.QUOTA_EXCEEDED, Properties(reason_string="come back tomorrow"))
    (line.window.on_puback if qos == 1 else line.window.on_pubrec)(ack)
    error = outgoing.waiter.outcome
    assert isinstance(error, PublishRefused)
    assert (error.reason_code, error.reason_string) == (ReasonCode.QUOTA_EXCEEDED, "come back tomorrow")
    assert (line.sent(), len(line.window)) == ([], 0)


def test_no_more_is_unacknowledged_than_the_server_takes() -> None:
    line = Line(ServerLimits(receive_maximum=2))
    for _ in range(4):
        line.place()
    assert [packet.packet_id for packet in line.sent() if isinstance(packet, Publish)] == [1, 2]
    line.window.on_puback(Ack(PUBACK, 1))
    assert line.sent() == [Publish(b"t", b"p", 1, packet_id=3)]
    assert line.window.unacknowledged == 2


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ServerLimits(maximum_packet_size=16), ReasonCode.PACKET_TOO_LARGE),
        (ServerLimits(maximum_qos=1), ReasonCode.QOS_NOT_SUPPORTED),
        (ServerLimits(retain_available=False), ReasonCode.RETAIN_NOT_SUPPORTED),
    ],
)
def test_messages_that_the_server_does_not_accept_are_not_sent(limits: ServerLimits, code: int) -> None:
    line = Line(limits)
    outgoing = line.place(2, b"x" * 20, retain=True)
    assert isinstance(outgoing.waiter.outcome, PublishRefused)
    assert outgoing.waiter.outcome.reason_code == code
    assert (line.sent(), line.integration) == ([], 1)


def test_a_packet_of_the_maximum_size_is_sent_and_one_byte_more_is_not() -> None:
    exact = len(Line().place(1, b"x" * 20).frame())
    assert Line(ServerLimits(maximum_packet_size=exact)).place(1, b"x" * 20).sent
    assert not Line(ServerLimits(maximum_packet_size=exact - 1)).place(1, b"x" * 20).sent


def test_a_kept_session_gets_duplicates_and_pubrels_in_order() -> None:
    line = Line()
    line.place(1, b"one")
    line.place(2, b"two")
    line.place(2, b"three")
    line.window.on_pubrec(Ack(PUBREC, 2))
    line.window.suspend()
    line.place(1, b"four")
    line.sent()
    line.connect(session_present=True)
    assert line.sent() == [
        Ack(PUBREL, 2),
        Publish(b"t", b"one", 1, dup=True, packet_id=1),
        Publish(b"t", b"three", 2, dup=True, packet_id=3),
        Publish(b"t", b"four", 1, packet_id=4),
    ]


def test_a_lost_session_gets_new_messages_and_no_pubrel() -> None:
    line = Line()
    one = line.place(1, b"one")
    two = line.place(2, b"two")
    line.window.on_pubrec(Ack(PUBREC, 2))
    line.window.suspend()
    line.sent()
    line.connect(session_present=False)
    assert line.sent() == [Publish(b"t", b"one", 1, packet_id=1)]
    assert (one.waiter.outcome, two.waiter.outcome) == (None, PublishOutcome())


def test_a_server_with_a_smaller_receive_maximum_gets_the_rest_later() -> None:
    line = Line()
    for _ in range(3):
        line.place()
    line.window.suspend()
    line.sent()
    line.connect(ServerLimits(receive_maximum=1))
    assert line.sent() == [Publish(b"t", b"p", 1, dup=True, packet_id=1)]
    line.window.on_puback(Ack(PUBACK, 1))
    assert line.sent() == [Publish(b"t", b"p", 1, dup=True, packet_id=2)]


def test_a_message_that_was_never_sent_can_be_withdrawn_and_others_cannot() -> None:
    line = Line(ServerLimits(receive_maximum=1))
    sent, unsent = line.place(), line.place()
    for outgoing in (sent, unsent, unsent):
        line.window.withdraw(outgoing)
    assert (len(line.window), line.integration) == (1, 1)


def test_an_outcome_without_a_waiter_is_dropped() -> None:
    line = Line()
    outgoing = line.place()
    outgoing.waiter.outcome = PublishOutcome(1)
    line.window.on_puback(Ack(PUBACK, 1))
    assert (outgoing.waiter.outcome, len(line.window)) == (PublishOutcome(1), 0)


def test_the_end_reaches_everybody() -> None:
    line = Line()
    all_of_them = [line.place() for _ in range(3)]
    error = ConnectionLost("gone")
    line.window.fail(error)
    assert [outgoing.waiter.outcome for outgoing in all_of_them] == [error] * 3
    assert line.integration == 3


# options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hostname": ""}, "hostname"),
        ({"port": 0}, "port"),
        ({"keep_alive": 65_536}, "keep_alive"),
        ({"receive_maximum": 0}, "receive_maximum"),
        ({"max_inflight": HIGHEST_MAX_INFLIGHT + 1}, "max_inflight"),
        ({"max_queued_messages": 0}, "max_queued_messages"),
        ({"timeout": 0.0}, "timeout"),
        ({"version": "4"}, "version"),
        ({"version": "3.1.1", "session_expiry_interval": 5}, "5.0 only"),
        ({"version": "3.1.1", "properties": Properties(receive_maximum=5)}, "5.0 only"),
        ({"version": "3.1.1", "clean_start": False}, "client_id"),
        ({"version": "3.1.1", "password": "x"}, "username"),
        ({"properties": Properties(topic_alias_maximum=5)}, "topic_alias_maximum"),
        ({"properties": Properties(topic_alias=5)}, "topic_alias"),
        ({"will": Will("a/#")}, "wildcard"),
        ({"client_id": "a\0"}, "U\\+0000"),
    ],
)
def test_options_that_cannot_be_sent_are_refused_by_name(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Options(**{"hostname": "h", **options})  # type: ignore[arg-type]


def test_named_parameters_and_properties_meet_in_connect() -> None:
    options = Options(hostname="h", session_expiry_interval=9, properties=Properties(user_properties=[("a", "b")]))
    assert options.connect_packet("", True).properties == Properties(
        session_expiry_interval=9, user_properties=[("a", "b")]
    )


def test_only_3_1_makes_an_identifier_of_its_own() -> None:
    assert [bool(Options(hostname="h", version=v).first_client_id()) for v in ("5.0", "3.1.1", "3.1")] == [
        False,
        False,
        True,
    ]
