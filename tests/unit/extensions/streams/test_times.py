"""Readers that begin at a time: they get each message from then on, and few of those before are read."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from mqttlite.core.message import Message
from mqttlite.core.question import Entries, LoadEntries, LoadPage
from mqttlite.extensions.streams import history
from mqttlite.extensions.streams.history import first_since
from mqttlite.extensions.streams.limits import SEARCHED
from mqttlite.extensions.streams.position import Position, Start
from mqttlite.extensions.streams.shared_options import SharedGroupSettings
from mqttlite.log.segments import USUALLY_LATE_US, Segments
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.packets import Publish
from tests.support.core_driver import Client, publishes
from tests.support.streams import StreamWorld, at_number, options, subscribe_at

COUNT = 300
FIRST_AT = 1_000.0
KINDS = ("$stream/s", "$share/plain/$stream/s", "$share/shared/$stream/s")
"""A reader, a member of a group, and a member of a shared group."""


class CountingWorld(StreamWorld):
    """Counts the messages that the store is asked for."""

    asked_for = 0
    clients_made = 0

    def read(self, page: LoadPage | LoadEntries) -> object:
        if isinstance(page, LoadEntries):
            self.asked_for += min(page.count, page.end - page.first)
        return super().read(page)

    def begin(self, topic_filter: str, position: str) -> list[Publish]:
        """What a client gets that begins there, and acknowledges all."""
        if "shared" in topic_filter:
            self.streams.set_group("s", "shared", SharedGroupSettings())
        client = self.subscribed(topic_filter, position)
        packets = publishes(client.received())
        client.disconnect()
        if "$share" in topic_filter:
            self.streams.delete_group("s", topic_filter.split("/")[1])
        return packets

    def subscribed(self, topic_filter: str, position: str) -> Client:
        self.clients_made += 1
        client = self.connect(f"c{self.clients_made}", receive_maximum=65_535)
        assert subscribe_at(client, position, topic_filter).reason_codes == b"\x01"
        return client

    def everything(self) -> list[tuple[int, str]]:
        """The number and the payload of each message."""
        return [(number_of(each), each.payload.decode()) for each in self.begin("$stream/s", "earliest")]


def number_of(packet: Publish) -> int:
    return int(dict(packet.properties.user_properties)["message-id"])


@pytest.fixture
def world() -> Iterator[CountingWorld]:
    """Some hundred messages, one a second, in one segment."""
    made = CountingWorld([options(keep_s=86_400 * 366)], MemoryStore(pages=True), now=FIRST_AT)
    for number in range(COUNT):
        made.append(f"{number}")
        made.advance(1.0)
    yield made
    made.end()


@pytest.mark.parametrize("topic_filter", KINDS)
def test_a_reader_that_begins_at_a_time_gets_each_message_from_then_on(world: CountingWorld, topic_filter: str) -> None:
    known = world.everything()
    assert len(known) == COUNT
    for at in (0, 1, 63, 64, 235, 236, 298, 299):
        number = known[at][0]
        for since, first in ((number, at), (number + 1, at + 1), (number - 1, at)):
            found = world.begin(topic_filter, at_number(since))
            assert [each.payload.decode() for each in found] == [payload for _, payload in known[first:]]
            assert "stream-skipped" not in dict(found[0].properties.user_properties) if found else first == COUNT


@pytest.mark.parametrize("topic_filter", KINDS)
def test_few_messages_before_the_time_are_read(world: CountingWorld, topic_filter: str) -> None:
    number, _ = world.everything()[270]
    world.asked_for = 0
    assert len(world.begin(topic_filter, at_number(number))) == COUNT - 270
    assert world.asked_for < COUNT - 270 + 2 * SEARCHED


@pytest.mark.parametrize("topic_filter", KINDS)
def test_messages_that_were_delayed_hide_none_from_a_search(topic_filter: str) -> None:
    """They keep the numbers of when they were taken, which are lower than those of messages before them."""
    world = CountingWorld([options(keep_s=86_400 * 366)], MemoryStore(pages=True), now=FIRST_AT)
    for number in range(200):
        assert world.publish(f"$delayed/{1 + number * 7 % 100}/a", f"late {number}", 1) == 0 or number % 3
        world.append(f"{number}")
        world.advance(1.0)
    known = world.everything()
    assert any(after < before for (before, _), (after, _) in pairwise(known))
    for since, _ in known[::17]:
        found = [each.payload.decode() for each in world.begin(topic_filter, at_number(since))]
        assert found == [payload for number, payload in known if number >= since]
    world = world.restart()  # type: ignore[assignment]
    assert max(world.streams.partition("s", 0).segments.lateness()) > 0, "it is in the store"
    world.end()


def test_an_answer_of_a_search_that_is_over_is_not_taken_for_messages(world: CountingWorld) -> None:
    known = world.everything()
    world.late_pages = []
    client = world.subscribed("$share/g/$stream/s", at_number(known[270][0]))
    world.streams.seek("s", "g", Position(Start.TIME, known[100][0]))
    world.read_late_pages()
    got = [each.payload.decode() for each in publishes(client.received())]
    assert got == [payload for _, payload in known[100:]]


def test_messages_that_came_together_have_segments_of_the_same_time() -> None:
    """A time among theirs finds each of them, also after a restart."""
    world = CountingWorld([options(keep_bytes=12_000)], MemoryStore(pages=True), now=FIRST_AT)
    world.append(*(str(each).ljust(1_200) for each in range(6)))
    assert len(world.streams.partition("s", 0).segments) > 4
    for _ in range(2):
        known = world.everything()
        for at, (number, _) in enumerate(known):
            found = [each.payload.decode() for each in world.begin("$stream/s", at_number(number))]
            assert found == [payload for _, payload in known[at:]]
        world = CountingWorld([options(keep_bytes=12_000)], world.store, world.now)
    world.end()


def test_a_stream_that_keeps_less_than_before_is_trimmed_at_the_start() -> None:
    world = StreamWorld([options(keep_bytes=100_000)], MemoryStore(pages=True))
    world.append(*(str(number).ljust(500) for number in range(50)))
    world = world.restart(options(keep_bytes=20_000))
    assert world.streams.state("s").size_bytes <= 20_000
    assert 0 < world.streams.state("s").messages < 50
    world.end()


def test_a_message_of_a_clock_that_is_ahead_does_not_keep_others() -> None:
    world = StreamWorld([options(keep_s=1_000)], MemoryStore(pages=True), now=10_000.0)
    for number in range(600):
        if number == 100:
            ahead = Message(b"a", b"from a node whose clock is a day ahead", 1)
            ahead.number = int((world.now + 86_400) * 1e6)
            world.streams.append("s", 0, ahead)
            world.settle()
        world.append(str(number))
        world.advance(10.0)
    assert world.streams.state("s").messages < 200


def with_late_message() -> CountingWorld:
    """One message a second in segments of ten, and one of them, the 55th, was published 40 seconds before it came."""
    world = CountingWorld([options(keep_s=2_560)], MemoryStore(pages=True), now=FIRST_AT)
    for number in range(200):
        world.append(f"{number}")
        world.advance(1.0)
        if number == 54:
            append_at(world, "late", world.now - 40.0)
    return world


def append_at(world: StreamWorld, payload: str, published_at: float) -> None:
    message = Message(b"a", payload.encode(), 1)
    message.number = int(published_at * 1e6)
    world.streams.append("s", 0, message)
    world.settle()


def test_a_late_message_is_expected_in_its_segment_alone() -> None:
    world = with_late_message()
    segments = world.streams.partition("s", 0).segments
    late = [each > 1_000_000 for each in segments.lateness()]
    assert (late.count(True), len(late)) == (1, 20)
    assert late.index(True) == 5
    again = world.restart().streams.partition("s", 0).segments
    assert again.lateness() == segments.lateness(), "it is in the store"
    for _ in range(6):
        segments.drop_first(201)
    assert max(segments.lateness()) <= 1_000_000, "it is forgotten with the segment"
    world.end()


def test_a_segment_expects_that_messages_are_late_as_those_before_were_by_a_second_at_most() -> None:
    segments = Segments(most_bytes=2, most_us=0)
    begins = [segments.add(offset, 1_000 * offset, 1, late_us) for offset, late_us in enumerate([0, 70, 0, 90, 0, 150])]
    assert begins == [True, True, True, False, True, True], "a record says each time that more is expected"
    assert segments.lateness() == [140, 140, 300]
    segments.add(6, 6_000, 1, USUALLY_LATE_US * 9)
    segments.add(7, 7_000, 1, 0)
    segments.add(8, 8_000, 1, 0)
    assert segments.lateness()[3:] == [USUALLY_LATE_US * 18, USUALLY_LATE_US]


@pytest.mark.parametrize("topic_filter", KINDS)
def test_a_message_of_a_clock_that_is_ahead_makes_no_search_slow(topic_filter: str) -> None:
    world = CountingWorld([options(keep_s=86_400 * 366)], MemoryStore(pages=True), now=FIRST_AT)
    for number in range(COUNT):
        world.append(f"{number}")
        world.advance(1.0)
        if number == COUNT // 3:
            append_at(world, "ahead", world.now + 86_400)
    number, _ = next(each for each in world.everything() if each[1] == str(COUNT - 30))
    world.asked_for = 0
    found = world.begin(topic_filter, at_number(number))
    assert [each.payload.decode() for each in found] == [str(each) for each in range(COUNT - 30, COUNT)]
    assert world.asked_for < 30 + 2 * SEARCHED
    world.end()


async def test_the_first_message_since_a_time_is_found_among_late_ones() -> None:
    world = with_late_message()
    partition = world.streams.partition("s", 0)
    reads = 0

    async def entries(key: str, first: int, end: int, count: int) -> Entries:
        nonlocal reads
        reads += 1
        return world.store.read_entries(key, first, end, count)

    known = [number for number, _ in world.everything()]
    for at in range(0, len(known), 3):
        for since in (known[at], known[at] + 1):
            expected = next((offset for offset, number in enumerate(known) if number >= since), len(known))
            reads = 0
            assert await first_since(partition, since, entries) == expected
            assert reads <= 8
    world.end()


async def test_a_search_looks_at_a_limited_number_of_messages_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_SOUGHT", 4)
    monkeypatch.setattr(history, "MAX_ANSWERED", 3)
    world = StreamWorld([options(keep_s=86_400)], MemoryStore(pages=True), now=FIRST_AT)
    world.append("0")
    for _ in range(9):
        append_at(world, "late", FIRST_AT - 500)
    world.advance(10.0)
    world.append("10")
    asked = 0

    async def entries(key: str, first: int, end: int, count: int) -> Entries:
        nonlocal asked
        asked += min(count, end - first)
        return world.store.read_entries(key, first, end, count)

    partition = world.streams.partition("s", 0)
    number = int((FIRST_AT + 5) * 1e6)
    offset = await first_since(partition, number, entries)
    assert (offset, asked <= 4 + 8) == (offset, True)
    assert offset < 10, "it ended before the message"
    monkeypatch.setattr(history, "MAX_SOUGHT", 100)
    assert await first_since(partition, number, entries) == 10
    world.end()
