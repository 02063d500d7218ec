"""Messages that are followed: which these are, and what is told of each on its way to each receiver."""

import pytest

from mqttlite.core.limits import DROP_OLDEST, Limits
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, publishes, request
from tests.support.recorder import NOBODY, Everything, Recorder
from tests.support.rules import OpenRules


def watched(recorder: Recorder | None = None, limits: Limits | None = None) -> tuple[World, Recorder]:
    world = World(limits)
    recorder = recorder or Everything()
    world.broker.watch(recorder)
    return world, recorder


def alike(letters: str, qos: int, topic: bytes = b"t") -> list[Publish]:
    return [Publish(topic, letter.encode(), qos, packet_id=at if qos else 0) for at, letter in enumerate(letters, 1)]


def received(recorder: Recorder) -> list[object]:
    """The topics of the messages that are followed."""
    return [each[2] for each in recorder.told if each[0] == "received"]


# ── which messages ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_those_of_a_topic(qos: int) -> None:
    world, recorder = watched(Recorder(topics=(b"a", b"nobody")))
    world.connect("r").subscribe("#", qos=2)
    writer = world.connect("w")
    writer.send(*alike("xyz", qos, b"a"), *alike("xyz", qos, b"b"))
    writer.publish("a", "x", qos, retain=True)
    assert received(recorder) == ["a"] * 4


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_those_from_a_client(qos: int) -> None:
    world, recorder = watched(Recorder(clients=("w",)))
    world.connect("r").subscribe("#", qos=2)
    for name in ("w", "v"):
        world.connect(name).send(*alike("xyz", qos), Publish(b"t", b"", qos, True, packet_id=9 if qos else 0))
    assert [each for each in recorder.told if each[0] == "received"] == [
        ("received", trace, "t", qos, 1 if trace < 4 else 0, "w") for trace in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("qos", [0, 1])
def test_those_to_a_client_and_then_all_who_get_them_are_told_of(qos: int) -> None:
    world, recorder = watched(Recorder(clients=("r",)))
    writer = world.connect("w")
    for name in ("r", "s"):
        world.connect(name).subscribe("a", qos=1)
    world.connect("s2").subscribe("b", qos=1)
    writer.send(*alike("xy", qos, b"a"), *alike("xy", qos, b"b"))
    assert received(recorder) == ["a"] * 2
    assert {each[2] for each in recorder.told if each[0] == "sent"} == {"r", "s"}


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("qos", [0, 1])
def test_those_to_a_group_with_a_member_that_is_followed(qos: int, together: int) -> None:
    world, recorder = watched(Recorder(clients=("m",)))
    writer = world.connect("w")
    members = {name: world.connect(name) for name in "mno"}
    members["n"].subscribe("$share/g/t", "$share/other/u", qos=1)
    publish(writer, qos, together)
    assert received(recorder) == []
    members["m"].subscribe("x", "$share/g/t", qos=1)
    publish(writer, qos, together)
    assert received(recorder) == ["t"] * together
    members["n"].lose()
    publish(writer, qos, together)
    assert received(recorder) == ["t"] * 2 * together, "it is still there"
    members["o"].subscribe("$share/g/t", qos=1)
    members["m"].lose()
    publish(writer, qos, together)
    assert received(recorder) == ["t"] * 2 * together


def publish(writer: Client, qos: int, together: int) -> None:
    writer.send(*alike("x" * together, qos))


def test_whether_a_client_is_followed_is_asked_when_it_connects_and_when_somebody_else_watches() -> None:
    world, recorder = watched(Recorder())
    reader = world.connect("r", expiry=100)
    reader.subscribe("$share/g/a", "b")
    writer = world.connect("w")
    recorder.clients = ("r",)
    writer.publish("a")
    assert received(recorder) == []
    world.connect("r", clean_start=False, expiry=100)
    writer.publish("a")
    writer.publish("b")
    assert received(recorder) == ["a", "b"]
    other = Recorder()
    world.broker.watch(other)
    writer.publish("a")
    writer.publish("b")
    assert received(other) == []
    world.broker.watch(recorder)
    writer.publish("a")
    assert received(recorder) == ["a", "b", "a"]


def test_a_session_from_a_store_is_followed_too() -> None:
    world = World()
    world.connect("r", expiry=100).subscribe("a")
    again = World(store=None)
    recorder = Recorder(clients=("r",))
    again.broker.watch(recorder)
    again.broker.restore(world.store.load(), again.now)
    again.connect("w").publish("a")
    assert received(recorder) == ["a"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_in_so_many_the_first_of_their_run(qos: int) -> None:
    world, recorder = watched(Recorder(one_in=5))
    reader = world.connect("r")
    reader.subscribe("#", qos=2)
    writer = world.connect("w")
    writer.send(*alike("abcd", qos))
    assert received(recorder) == []
    writer.send(*alike("efgh", qos))
    assert received(recorder) == ["t"]
    writer.send(*alike("i" * 12, qos))
    assert received(recorder) == ["t"] * 4, "of a long run as many as fall into it"
    writer.send(*alike("j" * 4, qos, b"u"))
    writer.publish("v", "k", qos, retain=True)
    assert received(recorder) == [*"tttt", "v"], "they are counted across topics and ways"
    assert "".join(reader.payloads()) == "abcdefgh" + "i" * 12 + "jjjjk"
    outbox = reader.connection.outbox
    assert [outbox.sent_qos0, outbox.sent_qos1, outbox.sent_qos2] == [25 * (each == qos) for each in range(3)]


def test_the_brokers_own_messages_but_not_what_it_says_of_itself() -> None:
    world, recorder = watched(Recorder(one_in=1))
    world.connect("r").subscribe("#", "$SYS/#")
    world.publish("$SYS/x")
    world.publish("t")
    assert [each for each in recorder.told if each[0] == "received"] == [("received", 1, "t", 0, 0, None)]
    recorder.topics = (b"$SYS/x",)
    world.publish("$SYS/x")
    assert received(recorder) == ["t", "$SYS/x"]


def test_a_will_is_its_clients_message() -> None:
    world, recorder = watched()
    world.connect("w", will=Will(b"t", b"bye")).lose()
    assert recorder.of(1) == [
        ("received", "t", 0, 3, "w"),
        ("routed", 0),
        ("dropped", NOBODY, "no_subscribers"),
    ]


# ── what is told of them ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_from_one_socket_to_the_other_and_back(qos: int, granted: int, version: int) -> None:
    world, recorder = watched()
    reader = world.connect("r", version)
    reader.subscribe("t", qos=granted)
    world.connect("w").send(*alike("ab", qos))
    at = min(qos, granted)
    expected: list[tuple[object, ...]] = [
        ("received", "t", qos, 1, "w"),
        ("routed", 1),
        ("sent", "r", reader.connection.number, at),
    ]
    expected += [("acknowledged", "r")] * (at > 0)
    assert recorder.of(1) == recorder.of(2) == expected
    assert reader.connection.outbox.traced, "for the link that writes it"


@pytest.mark.parametrize(("qos", "answer"), [(1, PUBACK), (2, PUBREC)])
def test_acknowledgements_in_any_order_and_those_of_others_in_between(qos: int, answer: int) -> None:
    world, recorder = watched(Recorder(topics=(b"f",)))
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("#", qos=2)
    writer = world.connect("w")
    for topic in (b"x", b"f", b"x", b"f", b"x", b"f"):
        writer.send(*alike("..", qos, topic))
    inflight = world.session("r").inflight
    assert inflight.watched == 6
    reader.send(*[Ack(answer, packet_id) for packet_id in (1, 2, 3)])
    assert acknowledged(recorder) == [1]
    reader.send(Ack(answer, 12), Ack(answer, 7))
    assert acknowledged(recorder) == [1, 6, 3]
    reader.send(*[Ack(answer, packet_id) for packet_id in (4, 5, 6, 8, 9, 10, 11)])
    assert acknowledged(recorder) == [1, 6, 3, 2, 4, 5]
    assert inflight.watched == 0
    writer.send(*alike("..", qos, b"f"))
    reader.send(Ack(answer, 14))
    reader.send(Ack(answer, 13))
    assert acknowledged(recorder)[6:] == [8, 7]


def acknowledged(recorder: Recorder) -> list[object]:
    return [each[1] for each in recorder.told if each[0] == "acknowledged"]


def test_of_links_of_both_qos_only_those_of_that_one_are_acknowledged() -> None:
    world, recorder = watched()
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("t", qos=2)
    writer = world.connect("w")
    for qos in (1, 1, 2, 1):
        writer.publish("t", "x", qos)
    reader.send_bytes(b"".join([b"\x40\x02\x00" + bytes((packet_id,)) for packet_id in (1, 2)]))
    assert acknowledged(recorder) == [1, 2]
    reader.send(Ack(PUBREC, 3))
    assert acknowledged(recorder) == [1, 2, 3]


def test_a_window_is_full() -> None:
    world, recorder = watched(limits=Limits(max_inflight=1, max_queued_messages=10))
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("t", qos=1)
    writer = world.connect("w")
    writer.send(*alike("abc", 1))
    number = reader.connection.number
    assert recorder.of(2)[2:] == [("queued", "r", "window_full", 1, 10)]
    assert recorder.of(3)[2:] == [("queued", "r", "window_full", 2, 10)]
    for packet_id in (1, 2, 3):
        reader.send(Ack(PUBACK, packet_id))
    assert recorder.of(3)[3:] == [("sent", "r", number, 1), ("acknowledged", "r")]


def test_a_client_is_away_and_comes_back_and_is_away_again_before_it_answers() -> None:
    world, recorder = watched()
    reader = world.connect("r", expiry=100)
    reader.subscribe("t", qos=1)
    reader.lose()
    world.publish("t", "x", qos=1)
    assert recorder.of(1)[2:] == [("queued", "r", "offline", 1, 10_000)]
    again = world.connect("r", clean_start=False, expiry=100, auto_ack=False)
    again.lose()
    last = world.connect("r", clean_start=False, expiry=100)
    assert recorder.of(1)[3:] == [
        ("sent", "r", again.connection.number, 1),
        ("queued", "r", "offline", 1, 10_000),
        ("sent", "r", last.connection.number, 1),
        ("acknowledged", "r"),
    ]
    assert world.session("r").inflight.watched == 0


@pytest.mark.parametrize("answer", [PUBACK, PUBREC])
def test_a_client_answers_from_its_former_connection(answer: int) -> None:
    world, recorder = watched()
    qos = 1 if answer == PUBACK else 2
    reader = world.connect("r", expiry=100, auto_ack=False)
    reader.subscribe("t", qos=qos)
    for _ in range(2):
        world.publish("t", "x", qos=qos)
    reader.lose()
    again = world.connect("r", clean_start=False, expiry=100, receive_maximum=1, auto_ack=False)
    again.send(Ack(answer, 2))
    assert acknowledged(recorder) == [2]
    assert world.session("r").inflight.watched == 1


def test_a_refusal_is_an_answer_too() -> None:
    world, recorder = watched()
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("t", qos=2)
    for qos in (1, 2):
        world.publish("t", "x", qos=qos)
    reader.send(Ack(PUBACK, 1, 0x97), Ack(PUBREC, 2, 0x80))
    assert acknowledged(recorder) == []
    assert [recorder.of(trace)[-1] for trace in (1, 2)] == [("dropped", "r", "nacked")] * 2
    assert recorder.details == [("t", "reason code 0x97"), ("t", "reason code 0x80")]
    assert world.session("r").drops == {"nacked": 2}
    assert world.session("r").inflight.watched == 0
    world.publish("t", "x", qos=2)
    reader.send(Ack(PUBREC, 3, 0x10))
    assert acknowledged(recorder) == [3], "a code below 0x80 is none of refusal"


def test_a_socket_takes_nothing() -> None:
    world, recorder = watched(limits=Limits(max_outbox_messages=2))
    reader = world.connect("r")
    reader.subscribe("t", "u", qos=1)
    reader.block()
    writer = world.connect("w")
    writer.send(*alike("abc", 0))
    writer.publish("u", "d", qos=1)
    number = reader.connection.number
    assert recorder.of(2)[2:] == [("queued", "r", "backpressure", 2, 2)]
    assert recorder.of(3)[2:] == [("dropped", "r", "buffer_full")]
    assert recorder.of(4)[2:] == [("queued", "r", "backpressure", 1, 10_000)]
    assert not reader.connection.outbox.traced
    reader.unblock()
    assert recorder.of(1)[3:] == recorder.of(2)[3:] == [("sent", "r", number, 0)]
    assert recorder.of(4)[3:] == [("sent", "r", number, 1), ("acknowledged", "r")]
    assert reader.payloads() == ["a", "b", "d"]


def test_a_message_makes_room_for_a_later_one() -> None:
    world, recorder = watched(limits=Limits(max_outbox_messages=1, max_queued_messages=1, on_overflow=DROP_OLDEST))
    reader = world.connect("r")
    reader.subscribe("t", qos=1)
    reader.block()
    for qos in (0, 0, 1, 1):
        world.publish("t", "x", qos=qos)
    assert recorder.of(1)[3:] == [("dropped", "r", "buffer_full")]
    assert recorder.of(3)[3:] == [("dropped", "r", "queue_full")]
    reader.lose()
    assert recorder.of(2)[3:] == [("dropped", "r", "buffer_full")]


def test_it_is_too_large_or_too_late() -> None:
    world, recorder = watched()
    small = world.connect("small", maximum_packet_size=20)
    small.subscribe("t", qos=1)
    away = world.connect("away", expiry=100)
    away.subscribe("u", qos=1)
    away.lose()
    writer = world.connect("w")
    for qos in (0, 1):
        writer.publish("t", "x" * 30, qos)
    writer.send(Publish(b"u", b"x", 1, packet_id=5, properties=Properties(message_expiry_interval=5)))
    writer.publish("u", "x")
    world.advance(10)
    world.connect("away", clean_start=False)
    outcomes = [recorder.of(trace)[-1] for trace in (1, 2, 3, 4)]
    assert outcomes == [
        ("dropped", "small", "packet_too_large"),
        ("dropped", "small", "packet_too_large"),
        ("dropped", "away", "expired"),
        ("dropped", "away", "qos0_offline"),
    ]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_it_is_for_nobody_or_not_allowed(qos: int) -> None:
    world, recorder = watched()
    writer = world.connect("w")
    writer.send(*alike("ab", qos))
    writer.send(*alike("ab", qos, b"$SYS/x"))
    for trace, reason in ((1, "no_subscribers"), (2, "no_subscribers"), (3, "not_authorized"), (4, "not_authorized")):
        assert recorder.of(trace)[1:] == [("routed", 0), ("dropped", NOBODY, reason)]
    assert recorder.drops == {(None, "no_subscribers"): 2, (None, "not_authorized"): 2}


@pytest.mark.parametrize("qos", [1, 2])
def test_of_a_run_for_nobody_the_one_that_is_followed_is_told_alone(qos: int) -> None:
    world, recorder = watched(Recorder(one_in=2))
    world.connect("w").send(*alike("abc", qos))
    assert recorder.of(1)[1:] == [("routed", 0), ("dropped", NOBODY, "no_subscribers")]
    assert recorder.drops == {(None, "no_subscribers"): 3}
    assert world.broker.router.drops.by_reason == {"no_subscribers": 3}


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_with_no_local_does_not_receive_its_own_messages(qos: int) -> None:
    world, recorder = watched()
    writer = world.connect("w")
    writer.subscribe(request("t", no_local=True))
    writer.send(*alike("ab", qos))
    assert recorder.of(2)[1:] == [("routed", 0), ("dropped", NOBODY, "no_subscribers")]
    world.connect("o").send(*alike("ab", qos))
    assert recorder.of(4)[1:] == [("routed", 1), ("sent", "w", writer.connection.number, 0)]


@pytest.mark.parametrize("qos", [1, 2])
def test_receivers_with_identifiers_and_windows_of_their_own_get_a_run_in_its_order(qos: int) -> None:
    world, recorder = watched(Recorder(one_in=1), Limits(max_inflight=3))
    readers = [world.connect(name, auto_ack=False) for name in "abc"]
    readers[0].subscribe("t", qos=2, identifier=7)
    readers[1].subscribe("t", qos=2)
    readers[2].subscribe("t", qos=0)
    writer = world.connect("w")
    writer.send(*alike("12345", qos))
    writer.publish("t", "6", qos)
    assert [reader.payloads() for reader in readers] == [["1", "2", "3"], ["1", "2", "3"], list("123456")]
    assert recorder.of(1)[1:] == [
        ("routed", 3),
        ("sent", "a", readers[0].connection.number, qos),
        ("sent", "b", readers[1].connection.number, qos),
        ("sent", "c", readers[2].connection.number, 0),
    ]
    assert recorder.of(6)[2:4] == [("queued", name, "window_full", 3, 10_000) for name in "ab"]


def test_refusals_of_a_run_are_those_of_its_messages() -> None:
    world, _recorder = watched(Recorder(one_in=1), Limits(max_inflight=1, max_queued_messages=1, min_drain_rate=0))
    world.connect("r", auto_ack=False).subscribe("t", qos=1)
    writer = world.connect("w", auto_ack=False)
    writer.send(*alike("abcd", 1))
    codes = [packet.reason_code for packet in writer.received() if isinstance(packet, Ack)]
    assert codes == [0, 0, 0x97, 0x97]


def test_a_session_ends_before_it_was_sent_and_a_group_passes_it_on() -> None:
    world, recorder = watched(Recorder(topics=(b"t",)))
    for name in ("m", "n"):
        member = world.connect(name, expiry=10 if name == "m" else 1_000)
        member.subscribe("$share/g/t", *(["t", "u"] if name == "m" else []), qos=1)
        member.lose()
    for _ in range(2):
        world.publish("t", "x", qos=1)
    world.publish("u", "x", qos=1)
    shared = [each[1] for each in recorder.told if each[0] == "queued"]
    assert sorted(shared, key=str) == [1, 1, 2, 2]
    recorder.told.clear()
    world.advance(20)
    assert recorder.drops["m", "session_expired"] == 3
    assert world.broker.router.drops.by_reason["session_expired"] == 3
    assert len([each for each in recorder.told if each[0] == "queued"]) == 1, "of what m had of the group"
    assert [each[1] for each in recorder.told if each[0] == "dropped"] == [1, 2], "what it had by itself"


def test_receivers_of_retained_messages_are_not_reported() -> None:
    world, recorder = watched()
    world.publish("t", "x", retain=True)
    world.publish("$SYS/x", "x", retain=True)
    recorder.told.clear()
    reader = world.connect("r")
    reader.subscribe("t", "$SYS/x", qos=1)
    assert len(publishes(reader.received())) == 2
    assert [each[0] for each in recorder.told] == ["subscribed"] * 2
    world.publish("t", "y", retain=True)
    assert reader.payloads() == ["y"]


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_that_only_an_analyst_may_publish_are_followed_on_their_own_route(qos: int, together: int) -> None:
    world, recorder = watched()
    world.broker.authorize(built_in_rules(frozenset({"w"})))
    reader = world.connect("r")
    reader.subscribe("$SYS/#")
    world.connect("w").send(*alike("x" * together, qos, b"$SYS/analytics/x"))
    world.connect("v").send(*alike("x" * together, qos, b"$SYS/analytics/x"))
    outcomes = [recorder.of(trace)[1:] for trace in range(1, 2 * together + 1)]
    sent = [("routed", 1), ("sent", "r", reader.connection.number, 0)]
    assert outcomes == [sent] * together + [[("routed", 0), ("dropped", NOBODY, "not_authorized")]] * together


def test_a_tracer_that_changes_its_mind_is_asked_again() -> None:
    world = World()
    recorder = Recorder()
    world.broker.watch(recorder)
    client = world.connect("c")
    client.publish("a", "x")
    recorder.topics = (b"a",)
    client.publish("a", "x")
    assert recorder.traces == 0, "its answers are kept"
    until_sample = world.broker.effects.until_sample
    world.broker.ask_tracer_again()
    assert world.broker.effects.until_sample == until_sample
    client.publish("a", "x")
    assert recorder.traces == 1


class NoWriters(OpenRules):
    def is_open(self, topic: bytes) -> bool:
        return False

    def may_publish(self, role: int, topic: bytes) -> bool:
        return False


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_run_that_nobody_may_publish_is_refused_together(is_watched: bool) -> None:
    world, recorder = watched(Recorder(topics=(b"t",) if is_watched else (b"other",)))
    world.broker.authorize(built_in_rules(authorizer=NoWriters()))
    world.connect("r").subscribe("t")
    writer = world.connect("w")
    world.broker.effects.work = 0
    world.broker.feed(writer.connection, b"".join(encode(each, V5) for each in alike("abcdefghij", 0)), world.now)
    assert world.broker.effects.work < 2 * 10
    assert world.broker.router.drops.by_reason == {"not_authorized": 10}
    assert received(recorder) == ["t"] * 10 * is_watched
    assert writer.connection.received_qos0 == 10


def test_a_run_of_which_some_are_sampled_is_refused_in_full() -> None:
    world, recorder = watched(Recorder(one_in=4))
    world.broker.authorize(built_in_rules(authorizer=NoWriters()))
    writer = world.connect("w")
    writer.send(*alike("abcdefghij", 0))
    assert 0 < len(received(recorder)) < 10
    assert world.broker.router.drops.by_reason == {"not_authorized": 10}
