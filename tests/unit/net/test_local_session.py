"""A session inside the process: its consumer acknowledges when it wants to, and a kept one goes on after a crash."""

import asyncio

import pytest

from mqttlite.core.broker import Broker
from mqttlite.core.limits import Limits
from mqttlite.core.reasons import CloseReason
from mqttlite.core.source import THE_PROGRAM, Source
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.filters import Filters
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession, encoded_filter
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.packets import Ack, Publish, Suback, SubscriptionRequest, Unsuback
from tests.support.stores import SlowStore, loaded


class Bench:
    """A broker with what `store` kept, and its loop driver. One that is left without a word has crashed."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = MemoryStore() if store is None else store
        self.broker = Broker(Limits(), filters=Filters())
        self.broker.restore(self.store.load(), 0.0)
        self.driver = LoopDriver(
            self.broker,
            self.store,
            on_connected=lambda _: None,
            on_closed=lambda _: None,
            on_question=lambda *_: None,
            on_memory_short=lambda *_: None,
        )
        self.woken = 0

    def _wake(self) -> None:
        self.woken += 1

    def open(self, client_id: str = "", expiry_s: int = 0, window: int = 10) -> LocalSession:
        """A connected session of the program."""
        session = LocalSession(self.broker, self.driver, self._wake)
        client = LocalClient(client_id=client_id, clean_start=not expiry_s, session_expiry_s=expiry_s, is_trusted=True)
        session.connect(client, window)
        return session

    async def subscriber(self, topic_filter: bytes, qos: int, client_id: str = "", **options: bool) -> LocalSession:
        """The same, with a subscription. With a client identifier it is kept."""
        session = self.open(client_id, 1_000 if client_id else 0)
        answer = session.subscribe_at_once(SubscriptionRequest(topic_filter, qos, **options))
        assert answer.reason_codes == bytes((qos,))
        await self.settle()
        return session

    async def publish(self, *payloads: bytes, qos: int = 1, source: Source = THE_PROGRAM, retain: bool = False) -> None:
        for payload in payloads:
            self.broker.publish(b"t", payload, qos, retain, 0.0, source=source)
        await self.settle()

    async def settle(self) -> None:
        """Let what was said be heard, on disk and written."""
        for _ in range(3):
            await self.driver.settled()
            await asyncio.sleep(0)

    def waiting(self, client_id: str) -> list[int]:
        """How many messages a session has that are sent, and that wait."""
        session = self.broker.sessions.get(client_id)
        return [] if session is None else [len(session.window.inflight.by_id()), session.queued]


def messages(session: LocalSession) -> list[Publish]:
    """The messages that can be read now."""
    found: list[Publish] = []
    while (each := session.receive()) is not None:
        if isinstance(each, Publish):
            found.append(each)
    return found


def releases(session: LocalSession) -> list[Ack]:
    """What a bridge reads, which answers PUBREL itself."""
    return [each for each in iter(session.link.receive, None) if isinstance(each, Ack)]


def payloads(session: LocalSession) -> list[bytes]:
    return [each.payload for each in messages(session)]


async def test_messages_come_in_order_and_the_consumer_is_woken() -> None:
    bench = Bench()
    session = await bench.subscriber(b"t", 1)
    woken = bench.woken
    await bench.publish(b"1", b"2", b"3")
    assert bench.woken > woken
    assert payloads(session) == [b"1", b"2", b"3"]
    assert session.receive() is None


@pytest.mark.parametrize("qos", [1, 2])
async def test_messages_are_acknowledged_late_and_in_any_order(qos: int) -> None:
    bench = Bench()
    session = await bench.subscriber(b"t", qos, "b")
    await bench.publish(b"1", b"2", b"3", qos=qos)
    one, two, three = messages(session)
    assert bench.waiting("b") == [3, 0]
    session.acknowledge(two)
    await bench.settle()
    assert [session.number_of(each.packet_id) > 0 for each in (one, two, three)] == [True, False, True]
    session.acknowledge(three)
    session.acknowledge(one)
    await bench.settle()
    assert payloads(session) == []  # reads the releases, and completes them
    await bench.settle()
    assert bench.waiting("b") == [0, 0]
    found = bench.broker.sessions.get("b")
    assert found is not None
    assert not found.window.released


@pytest.mark.parametrize("missing", [1, 2, 3])
async def test_a_packet_whose_end_does_not_come_is_none(missing: int) -> None:
    bench = Bench()
    reader = await bench.subscriber(b"t", 1)
    writer = bench.open("w", 1_000)
    whole = encode(Publish(b"t", b"whole", 1, packet_id=1), V5)
    writer.link.feed(whole + encode(Publish(b"t", b"cut", 1, packet_id=2), V5)[:-missing])
    await bench.settle()
    writer.link.leave()
    await bench.settle()
    assert payloads(reader) == [b"whole"]
    assert bench.waiting("w"), "its session is kept"


async def test_no_more_than_the_window_is_unacknowledged() -> None:
    bench = Bench()
    session = bench.open("b", 1_000, window=2)
    session.subscribe_at_once(SubscriptionRequest(b"t", 1))
    await bench.publish(b"1", b"2", b"3", b"4")
    first, second = messages(session)
    assert bench.waiting("b") == [2, 2]
    session.acknowledge(second)
    await bench.settle()
    assert payloads(session) == [b"3"]
    session.acknowledge(first)
    await bench.settle()
    assert payloads(session) == [b"4"]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_refused_message_is_dropped_and_does_not_come_again(qos: int) -> None:
    bench = Bench()
    session = await bench.subscriber(b"t", qos, "b")
    await bench.publish(b"1", qos=qos)
    (message,) = messages(session)
    session.refuse(message)
    await bench.settle()
    assert session.dropped() == 1
    again = await Bench(bench.store).subscriber(b"t", qos, "b")
    assert messages(again) == []


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_crash_before_the_acknowledgement_brings_the_message_again_with_its_packet_identifier(qos: int) -> None:
    bench = Bench()
    session = await bench.subscriber(b"t", qos, "b")
    await bench.publish(b"1", b"2", b"3", qos=qos)
    first, second, third = messages(session)
    session.acknowledge(second)
    await bench.settle()
    after = Bench(bench.store)
    again = await after.subscriber(b"t", qos, "b")
    assert again.session_present
    found = messages(again)
    assert [(each.payload, each.packet_id, each.dup) for each in found] == [
        (b"1", first.packet_id, True),
        (b"3", third.packet_id, True),
    ]


async def test_a_crash_after_the_acknowledgement_brings_the_release_and_not_the_message() -> None:
    bench = Bench()
    session = await bench.subscriber(b"t", 2, "b")
    await bench.publish(b"1", qos=2)
    (message,) = messages(session)
    session.acknowledge(message)
    await bench.settle()
    after = Bench(bench.store)
    again = after.open("b", 1_000)
    await after.settle()
    (release,) = releases(again)
    assert release.packet_id == message.packet_id
    again.complete(release.packet_id)
    await after.settle()
    last = Bench(bench.store).open("b", 1_000)
    assert releases(last) == []


async def test_a_packet_identifier_is_not_used_again_before_the_consumer_completes_its_release() -> None:
    bench = Bench()
    session = bench.open("b", 1_000, window=1)
    session.subscribe_at_once(SubscriptionRequest(b"t", 2))
    await bench.publish(b"1", b"2", qos=2)
    (message,) = messages(session)
    session.acknowledge(message)
    await bench.settle()
    (release,) = releases(session)
    assert payloads(session) == []
    session.complete(release.packet_id)
    await bench.settle()
    assert payloads(session) == [b"2"]


async def test_a_kept_session_delivers_nothing_before_it_is_on_disk() -> None:
    store = SlowStore()
    bench = Bench(store)
    session = bench.open("b", 1_000)
    assert session.subscribe_at_once(SubscriptionRequest(b"t", 1)).reason_codes == b"\1"
    bench.broker.publish(b"t", b"1", 1, False, 0.0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert session.receive() is None
    store.patient = False
    store.finish()
    await bench.settle()
    assert payloads(session) == [b"1"]


async def test_a_closed_session_is_kept_and_one_that_was_left_is_not() -> None:
    bench = Bench()
    session = await bench.subscriber(b"t", 1, "b")
    session.end()
    session.end()
    await bench.publish(b"1")
    assert bench.waiting("b") == [0, 1]
    again = await bench.subscriber(b"t", 1, "b")
    assert payloads(again) == [b"1"]
    again.leave()
    again.leave()
    await bench.settle()
    assert bench.waiting("b") == []
    assert (again.is_over, again.receive()) == (True, None)
    assert loaded(bench.store) == []


async def test_an_answer_is_found_behind_messages_which_are_then_received_in_order() -> None:
    bench = Bench()
    session = await bench.subscriber(b"t", 1, "b")
    await bench.publish(b"1", b"2")
    asked = session.subscribe([SubscriptionRequest(b"u", 0), SubscriptionRequest(b"v", 1)])
    other = session.unsubscribe([b"v"])
    assert session.answer_to(asked) is None
    await bench.settle()
    answer = session.answer_to(asked)
    assert isinstance(answer, Suback)
    assert answer.reason_codes == b"\0\1"
    assert session.filters == [b"t", b"u"]
    assert payloads(session)[:2] == [b"1", b"2"]
    session.unsubscribe([b"u"])
    await bench.settle()
    answers = [session.receive()]
    assert isinstance(answers[0], Unsuback)
    assert answers[0].packet_id == other + 1


async def test_no_local_leaves_out_messages_of_the_session_and_the_program() -> None:
    bench = Bench()
    session = await bench.subscriber(b"t", 1, no_local=True)
    other = await bench.subscriber(b"t", 1)
    assert session.source is not None
    assert other.source is not None
    await bench.publish(b"own", source=session.source)
    await bench.publish(b"program")
    await bench.publish(b"other", source=other.source)
    assert payloads(session) == [b"other"]
    assert payloads(other) == [b"own", b"program", b"other"]


async def test_retain_as_published_and_retain_handling_are_those_of_the_standard() -> None:
    bench = Bench()
    await bench.publish(b"kept", retain=True)
    silent = bench.open()
    silent.subscribe_at_once(SubscriptionRequest(b"t", 1, retain_as_published=True, retain_handling=2))
    told = await bench.subscriber(b"t", 1)
    await bench.publish(b"new", retain=True)
    assert [(each.payload, each.retain) for each in messages(silent)] == [(b"new", True)]
    assert [(each.payload, each.retain) for each in messages(told)] == [(b"kept", True), (b"new", False)]


async def test_a_content_filter_is_applied_and_a_wrong_one_is_refused() -> None:
    bench = Bench()
    session, wrong = bench.open(), bench.open()
    assert session.subscribe_at_once(SubscriptionRequest(b"t", 1), "payload > 1").reason_codes == b"\1"
    assert wrong.subscribe_at_once(SubscriptionRequest(b"t", 1), "payload ==").reason_codes[0] >= 0x80
    await bench.publish(b"1", b"2")
    assert payloads(session) == [b"2"]


async def test_a_second_connection_with_its_client_identifier_takes_the_session_over() -> None:
    bench = Bench()
    first = await bench.subscriber(b"t", 1, "b")
    await bench.publish(b"1")
    second = await bench.subscriber(b"t", 1, "b")
    assert first.is_over
    assert first.link.connection.close_reason == CloseReason.TAKEN_OVER
    assert payloads(second) == [b"1"]
    for message in messages(first):
        first.acknowledge(message)
    await bench.settle()
    assert bench.waiting("b") == [1, 0]


async def test_no_other_client_takes_the_session_of_the_program_over_even_after_a_crash() -> None:
    bench = Bench()
    await bench.subscriber(b"t", 1, "b")
    for each in (bench, Bench(bench.store)):
        stranger = LocalSession(each.broker, each.driver, lambda: None)
        with pytest.raises(ConnectionRefusedError, match="the program that runs the broker"):
            stranger.connect(LocalClient(client_id="b"), 10)
        assert each.waiting("b") == [0, 0]


@pytest.mark.parametrize("name", ["", "a/#/b", "a\0", "a" * 65_536, "$share/g"])
def test_a_filter_that_would_end_the_connection_is_refused_before(name: str) -> None:
    with pytest.raises(TopicFilterInvalid):
        encoded_filter(name, NAMESPACES)
