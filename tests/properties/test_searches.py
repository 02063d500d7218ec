"""Searches for retained messages find each that was there when they began and still is, once; beside a dictionary.

Many searches go on at once and are taken in pieces, while messages are kept, replaced and removed. The limits of the
table are so small that buckets fill up and empty, lists end and names are forgotten all the time.
"""

from random import Random

import pytest

from mqttlite.topics import retained as table
from mqttlite.topics.names import matches
from mqttlite.topics.retained import Entry, PrefixBucket, RetainedMessages, Search
from tests.support.rounds import todays

LEVELS = [b"a", b"a", b"b", b"", b"$s", b"c"]

Value = tuple[bytes, int]
"""The topic, and which of all values it is."""


class Oracle:
    """A search, and what it must find."""

    def __init__(self, search: Search[Value], topic_filter: bytes, kept: dict[bytes, Value]) -> None:
        self.search = search
        self.there = {value for topic, value in kept.items() if matches(topic_filter, topic)}
        assert len(search) >= len(self.there)
        self.found: set[Value] = set()

    def take(self, most: int, kept: dict[bytes, Value]) -> None:
        left = len(self.search)
        for value in self.search.take(most):
            assert value in self.there, "it came later, or does not match"
            assert kept.get(value[0]) == value, "it is gone"
            assert value not in self.found, "it was found before"
            self.found.add(value)
        assert len(self.search) == max(0, left - most)
        if len(self.search) == 0:
            assert {value for value in self.there if kept.get(value[0]) == value} <= self.found


def topic_of(random: Random) -> bytes:
    return b"/".join(random.choices(LEVELS, k=random.randint(1, 5))) or b"a"


def filter_of(random: Random) -> bytes:
    levels = random.choices([*LEVELS, b"+"], k=random.randint(0, 5))
    return b"/".join([*levels, b"#"] if not levels or random.random() < 0.5 else levels) or b"#"


def check_buckets(retained: RetainedMessages[Value]) -> None:
    """Each name is in the buckets of its prefixes as far down as they are split, and nothing else is in any."""
    assert check_level(retained, retained._below, []) == retained.buckets


def check_level(retained: RetainedMessages[Value], below: dict[bytes, PrefixBucket[Value]], prefix: list[bytes]) -> int:
    """Check the buckets below a prefix, and return how many there are."""
    depth = len(prefix) + 1
    names: dict[bytes, dict[bytes, Entry[Value]]] = {}
    for topic, entry in retained._entries.items():
        levels = topic.split(b"/")
        if len(levels) > depth and levels[: depth - 1] == prefix:
            names.setdefault(levels[depth - 1], {})[topic] = entry
    assert names.keys() == below.keys()
    buckets = len(below)
    for level, bucket in below.items():
        if bucket.all is None:
            assert (bucket.below, bucket.listed) == (None, None)
            assert len(bucket.few) <= table.MANY
            assert sorted(each.topic for each in bucket.few) == sorted(names[level])
            continue
        assert bucket.all == names[level]
        assert len(bucket.all) >= table.FEW
        assert bucket.few == []
        assert bucket.listed is None or len(bucket.listed) - bucket.gone == len(bucket.all)
        assert (bucket.below is None) == (depth == table.BUCKET_LEVELS)
        if bucket.below is not None:
            buckets += check_level(retained, bucket.below, [*prefix, level])
    return buckets


def play(seed: int, steps: int) -> None:
    random = Random(seed)
    retained: RetainedMessages[Value] = RetainedMessages()
    kept: dict[bytes, Value] = {}
    searches: list[Oracle] = []
    topics = [topic_of(random) for _ in range(random.choice([5, 30, 200]))]
    for step in range(steps):
        topic = random.choice(topics)
        dice = random.random()
        if dice < 0.4:
            kept[topic] = (topic, step)
            retained.put(topic, kept[topic])
        elif dice < 0.6 + 0.3 * (step // 200 % 2):  # fuller and emptier by turns
            assert retained.remove(topic) == kept.pop(topic, None)
        elif dice < 0.95 or not searches:
            topic_filter = filter_of(random)
            searches.append(Oracle(retained.search(topic_filter), topic_filter, kept))
        for oracle in random.sample(searches, min(3, len(searches))):
            oracle.take(random.choice([1, 2, 7, 100]), kept)
            if len(oracle.search) == 0:
                searches.remove(oracle)
        assert len(retained) == len(kept)
        assert len(retained._entries) == len(kept) + len(retained._empty)
        if step % 50 == 0:
            check_buckets(retained)
    for oracle in searches:
        oracle.take(10**6, kept)
    assert sorted(retained.values()) == sorted(kept.values())


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    if str(table.__file__).endswith(".py"):  # a compiled module has its limits as they are
        for name, value in {"MANY": 6, "FEW": 3, "EMPTY_ENTRIES": 2, "BUCKET_LEVELS": 3}.items():
            monkeypatch.setattr(table, name, value)


@pytest.mark.long
@pytest.mark.usefixtures("tiny")
def test_each_message_is_found_once_by_every_search_that_began_before_and_ends_behind_it() -> None:
    for seed in range(40):
        play(seed, 400)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_each_message_is_found_once_in_many_worlds() -> None:
    for seed in todays(range(1_000, 2_300)):
        play(seed, 600)
