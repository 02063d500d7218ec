"""A long queue is in the store, but for its first messages, and comes back page by page, in order, and whole."""

import pytest

from mqttlite.core.limits import DROP_OLDEST, KEPT_MESSAGES, MAX_PAGES_AT_ONCE, PAGE_MESSAGES, Limits
from mqttlite.core.memory import MemoryAccount
from mqttlite.core.message import Delivery, Message, StoredOrigin
from mqttlite.core.question import Entries, LoadEntries, LoadPage
from mqttlite.core.questions import Questions
from mqttlite.core.session.session_queue import SessionQueue
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack
from tests.support.core_driver import Client, World
from tests.support.stores import loaded

MANY = KEPT_MESSAGES + 100
LIMITS = Limits(max_queued_messages=100_000, max_inflight=50)


def paged(limits: Limits = LIMITS) -> World:
    return World(limits, MemoryStore(pages=True))


def offline(world: World, client_id: str = "c", messages: int = MANY, topic_filter: str = "t") -> None:
    """A session whose client left, and for which so many messages wait."""
    client = world.connect(client_id, expiry=1_000)
    client.subscribe(topic_filter, qos=1)
    client.disconnect()
    for at in range(messages):
        world.publish("t", f"{at}", qos=1)


def payloads(client: Client) -> list[int]:
    return [int(each) for each in client.payloads()]


def test_a_long_queue_keeps_only_its_first_messages_in_memory() -> None:
    world = paged()
    offline(world)
    queue = world.session("c").queue
    assert len(queue.deliveries) == KEPT_MESSAGES
    assert queue.stored == 100
    assert world.session("c").queued == MANY
    used = world.broker.effects.memory.used
    for _ in range(1_000):
        world.publish("t", "x" * 100, qos=1)
    assert world.broker.effects.memory.used == used


@pytest.mark.long
def test_stored_messages_are_sent_in_order_behind_unstored_ones() -> None:
    world = paged()
    offline(world, messages=2 * PAGE_MESSAGES + 10)
    client = world.connect("c", clean_start=False, expiry=1_000)
    assert payloads(client) == list(range(2 * PAGE_MESSAGES + 10))
    assert world.session("c").queued == 0
    world.publish("t", "7", qos=1)
    assert payloads(client) == [7]
    client.disconnect()
    world.end()


def test_a_restart_reads_nothing_of_a_queue_until_its_client_is_there() -> None:
    world = paged()
    offline(world)
    again = world.restart()
    session = again.session("c")
    assert (len(session.queue.deliveries), session.queue.stored) == (0, MANY)
    assert session.queued_bytes == world.session("c").queued_bytes
    again.publish("t", str(MANY), qos=1)
    client = again.connect("c", clean_start=False, expiry=1_000)
    assert payloads(client) == list(range(MANY + 1))


def test_sequences_go_on_after_a_restart_with_an_empty_queue() -> None:
    world = paged()
    offline(world, messages=3)
    client = world.connect("c", clean_start=False, expiry=1_000)
    client.disconnect()
    again = world.restart()
    assert again.session("c").queue.first == 3


def test_a_page_that_comes_late_holds_nothing_up_and_loses_nothing() -> None:
    world = paged()
    offline(world)
    world.late_pages = []
    client = world.connect("c", clean_start=False, expiry=1_000)
    assert payloads(client) == list(range(KEPT_MESSAGES))
    world.publish("t", str(MANY), qos=1)
    assert payloads(client) == []
    assert len(world.late_pages) == 1, "one page at a time"
    world.read_late_pages()
    assert payloads(client) == list(range(KEPT_MESSAGES, MANY + 1))


def test_a_page_for_a_client_that_left_meanwhile_is_read_again_when_it_is_back() -> None:
    world = paged()
    offline(world)
    world.late_pages = []
    client = world.connect("c", clean_start=False, expiry=1_000)
    seen = payloads(client)
    client.disconnect()
    world.read_late_pages()
    client = world.connect("c", clean_start=False, expiry=1_000)
    assert seen + payloads(client) == list(range(MANY))


def test_a_client_that_leaves_a_page_behind_leaves_it_to_the_store() -> None:
    world = paged()
    offline(world)
    client = world.connect("c", clean_start=False, expiry=1_000, auto_ack=False)
    queue = world.session("c").queue
    assert (len(queue.deliveries), queue.stored) == (MANY - LIMITS.max_inflight, 0)
    size = world.session("c").queued_bytes
    client.lose()
    assert (len(queue.deliveries), queue.stored) == (KEPT_MESSAGES, 100 - LIMITS.max_inflight)
    assert queue.size_bytes + queue.stored_bytes == size
    client = world.connect("c", clean_start=False, expiry=1_000)
    assert payloads(client) == list(range(MANY))


def test_a_page_for_a_session_that_ended_meanwhile_is_nobodys() -> None:
    world = paged()
    offline(world)
    world.late_pages = []
    client = world.connect("c", clean_start=False, expiry=1_000)
    client.disconnect()
    world.broker.end_session("c", world.now)
    world.settle()
    world.late_pages = None
    assert world.broker.sessions.get("c") is None


@pytest.mark.reaches
@pytest.mark.long
def test_clients_that_come_back_at_once_have_their_pages_read_in_turn() -> None:
    world = paged()
    names = [f"c{at}" for at in range(MAX_PAGES_AT_ONCE + 2)]
    for name in names:
        world.connect(name, expiry=1_000).subscribe("t", qos=1)
    for client in list(world.clients.values()):
        client.disconnect()
    for at in range(MANY):
        world.publish("t", f"{at}", qos=1)
    world.late_pages = []
    clients = [world.connect(name, clean_start=False, expiry=1_000) for name in names]
    assert len(world.late_pages) == MAX_PAGES_AT_ONCE
    clients[-1].disconnect()  # whose turn comes, and who wants none any more
    world.read_late_pages()
    for client in clients[:-1]:
        assert payloads(client) == list(range(MANY))


def test_the_oldest_are_dropped_where_they_are_only_in_the_store() -> None:
    world = paged(Limits(max_queued_messages=MANY, on_overflow=DROP_OLDEST))
    offline(world)
    again = world.restart()
    for at in range(5):
        again.publish("t", f"{MANY + at}", qos=1)
    assert again.session("c").drops == {"queue_full": 5}
    client = again.connect("c", clean_start=False, expiry=1_000)
    assert payloads(client) == list(range(5, MANY + 5))


def test_a_purge_reaches_what_is_only_in_the_store() -> None:
    world = paged()
    offline(world)
    assert world.broker.purge("c", KEPT_MESSAGES + 10, world.now) == KEPT_MESSAGES + 10
    world.settle()
    client = world.restart().connect("c", clean_start=False, expiry=1_000)
    assert payloads(client) == list(range(KEPT_MESSAGES + 10, MANY))


def test_a_message_dropped_while_a_page_was_read_is_skipped() -> None:
    world = paged()
    offline(world)
    world.late_pages = []
    client = world.connect("c", clean_start=False, expiry=1_000)
    payloads(client)
    assert world.broker.purge("c", 10, world.now) == 10
    world.settle()
    world.read_late_pages()
    assert payloads(client) == list(range(KEPT_MESSAGES + 10, MANY))


@pytest.mark.parametrize("lost", [[0], [1, 2, 50], [99]])
def test_a_message_that_the_store_has_lost_is_dropped_and_counted(lost: list[int]) -> None:
    class Damaged(MemoryStore):
        def read(self, client_id: str, first: int, count: int) -> list[Delivery | None]:
            page = super().read(client_id, first, count)
            gone = [KEPT_MESSAGES + at for at in lost]
            return [None if sequence in gone else each for sequence, each in enumerate(page, first)]

    world = World(LIMITS, Damaged(pages=True))
    offline(world)
    client = world.connect("c", clean_start=False, expiry=1_000)
    assert payloads(client) == [at for at in range(MANY) if at - KEPT_MESSAGES not in lost]
    assert world.session("c").drops == {"store_damaged": len(lost)}


def test_a_session_that_is_to_end_with_its_connection_still_gets_what_is_stored() -> None:
    world = paged()
    offline(world)
    client = world.connect("c", clean_start=False, expiry=0, auto_ack=False)
    world.publish("t", str(MANY), qos=1)
    client.auto_ack = True
    for packet_id in range(1, 51):
        client.send(Ack(PUBACK, packet_id))
    assert payloads(client) == list(range(MANY + 1))
    client.disconnect()
    assert world.broker.sessions.get("c") is None
    assert loaded(world.store) == []


def test_a_crash_ends_such_a_session() -> None:
    world = paged()
    offline(world)
    world.connect("c", clean_start=False, expiry=0, auto_ack=False)
    again = world.restart()
    again.advance(1)
    assert again.broker.sessions.get("c") is None


def test_messages_of_a_group_that_are_only_in_the_store_go_to_another_member() -> None:
    world = paged()
    offline(world, topic_filter="$share/g/t")
    other = world.connect("other")
    other.subscribe("$share/g/t", qos=1)
    again = world.restart()
    other = again.connect("other")
    other.subscribe("$share/g/t", qos=1)
    again.broker.end_session("c", again.now)
    again.settle()
    assert payloads(other) == list(range(MANY))
    assert loaded(again.store) == []


def test_messages_of_a_group_are_lost_if_their_member_begins_another_session_meanwhile() -> None:
    world = paged()
    offline(world, topic_filter="$share/g/t")
    world.late_pages = []
    client = world.connect("c", clean_start=True, expiry=1_000)
    client.subscribe("t", qos=1)
    client.disconnect()
    for at in range(MANY):
        world.publish("t", f"new {at}", qos=1)
    other = world.connect("other")
    other.subscribe("$share/g/t", qos=1)
    world.read_late_pages()
    assert other.payloads() == []
    assert world.broker.router.drops.by_reason["session_expired"] >= MANY - KEPT_MESSAGES
    client = world.connect("c", clean_start=False, expiry=1_000)
    assert client.payloads() == [f"new {at}" for at in range(MANY)]


def test_other_messages_of_a_session_that_ends_are_counted_where_they_are() -> None:
    world = paged()
    offline(world)
    world.broker.end_session("c", world.now)
    world.settle()
    assert world.broker.router.drops.by_reason == {"session_expired": MANY}
    world.end()


def test_memory_that_is_short_sends_messages_to_the_store_at_once() -> None:
    world = paged(Limits(max_memory_bytes=100_000))
    offline(world, messages=0)
    world.broker.effects.memory.used += 60_000
    world.publish("t", "1", qos=1)
    queue = world.session("c").queue
    assert (len(queue.deliveries), queue.stored) == (0, 1)
    world.broker.effects.memory.used -= 60_000
    client = world.connect("c", clean_start=False, expiry=1_000)
    assert payloads(client) == [1]


def test_a_queue_in_memory_wants_no_page() -> None:
    queue = SessionQueue(MemoryAccount(0))
    queue.append(Delivery(Message(b"t", b""), 1, False))
    assert not queue.wants_page
    assert not queue.is_long


def test_an_urgent_question_is_asked_whatever_others_wait() -> None:
    world = paged(Limits())
    questions = Questions(world.broker.effects, most=0)
    offline(world, messages=MANY)
    assert len(questions) == 0


def test_an_origin_that_is_only_a_name_cannot_be_told_anything() -> None:
    delivery = Delivery(Message(b"t", b""), 1, False, (), StoredOrigin(b"$share/g/t"))
    with pytest.raises(AssertionError):
        StoredOrigin(b"g").settled(delivery, 0)
    with pytest.raises(AssertionError):
        StoredOrigin(b"g").returned(delivery)


def test_a_message_that_is_stored_for_want_of_memory_is_sent_without_another_to_push_it() -> None:
    world = paged(Limits(max_memory_bytes=1_000_000))
    client = world.connect("c", expiry=1_000)
    client.subscribe("t", qos=1)
    memory = world.broker.effects.memory
    memory.used += 1_000_000
    world.publish("t", "1", qos=1)
    assert payloads(client) == [1]
    world.late_pages = []
    world.publish("t", "2", qos=1)
    assert [page.count for page in world.late_pages] == [1]
    world.read_late_pages()
    assert payloads(client) == [2]
    memory.used -= 1_000_000


@pytest.mark.long
def test_a_page_is_short_while_memory_is() -> None:
    world = paged()
    offline(world, messages=2 * PAGE_MESSAGES)
    world.broker.effects.memory.used += world.broker.effects.memory.half
    world.late_pages = []
    client = world.connect("c", clean_start=False, expiry=1_000)
    assert [page.count for page in world.late_pages] == [KEPT_MESSAGES]
    world.read_late_pages()
    assert payloads(client) == list(range(2 * PAGE_MESSAGES))


class Log:
    """An `EntryReader`."""

    def __init__(self, name: str, asked: list[str], questions: int = 1) -> None:
        self._name = name
        self._asked = asked
        self._questions = questions

    def next_entries(self) -> LoadEntries | None:
        if not self._questions:
            return None
        self._questions -= 1
        self._asked.append(self._name)
        return LoadEntries(self._name, 0, 1, 1)

    def take_entries(self, entries: Entries) -> None:
        self._asked.append(f"{self._name}: {entries.following}")


class Queue:
    """A `PageReader`."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self._name = name
        self._asked = asked

    def next_page(self) -> LoadPage | None:
        self._asked.append(self._name)
        return LoadPage(self._name, 0, 1)

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """It goes on to the next reader."""


def test_queues_and_logs_take_turns() -> None:
    world = paged()
    world.late_pages = []
    reads, asked = world.broker.page_reads, list[str]()
    for at in range(MAX_PAGES_AT_ONCE):
        reads.want(Queue(f"first {at}", asked))
    for at in range(4):
        reads.want(Queue(f"queue {at}", asked))
    for at in range(3):
        reads.want_entries(Log(f"log {at}", asked))
    reads.want_entries(Log("none", asked, questions=0))
    asked.clear()
    for question in (questions := world.broker.effects.questions):  # more come as they are answered
        assert reads.has_waiting == (len(asked) < 7)
        assert isinstance(question, LoadPage | LoadEntries)
        reads.on_answer(question, [] if isinstance(question, LoadPage) else Entries([], 1))
        asked[:] = [each for each in asked if ":" not in each]
    assert asked == ["log 0", "queue 0", "log 1", "queue 1", "log 2", "queue 2", "queue 3"]
    assert len(questions) == MAX_PAGES_AT_ONCE + len(asked)
