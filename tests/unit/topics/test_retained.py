"""Retained messages are found by filter, as of when the search began, and gone when they are removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.topics.names import MAX_LEVELS, matches
from mqttlite.topics.retained import BUCKET_LEVELS, EMPTY_ENTRIES, FEW, MANY, RetainedMessages
from tests.support.examples import examples

levels = st.sampled_from([b"", b"a", b"b", b"$s"])
topics = st.lists(levels, min_size=1, max_size=4).map(b"/".join).filter(bool)
filters = st.builds(
    lambda head, hash_: b"/".join([*head, b"#"] if hash_ else head),
    st.lists(levels | st.just(b"+"), max_size=4),
    st.booleans(),
).filter(bool)


def found(retained: RetainedMessages[int], topic_filter: bytes) -> list[int]:
    return sorted(retained.search(topic_filter).take(10**6))


@pytest.mark.long
@given(st.lists(st.tuples(st.booleans(), topics), max_size=20), filters)
def test_retained_messages_equal_a_dictionary_and_match_as_the_rule_says(
    steps: list[tuple[bool, bytes]], topic_filter: bytes
) -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    oracle: dict[bytes, int] = {}
    for number, (put, topic) in enumerate(steps):
        if put:
            retained.put(topic, number)
            oracle[topic] = number
        else:
            assert retained.remove(topic) == oracle.pop(topic, None)
        assert len(retained) == len(oracle)
        assert retained.get(topic) == oracle.get(topic)
    expected = sorted(number for topic, number in oracle.items() if matches(topic_filter, topic))
    assert found(retained, topic_filter) == expected
    assert sorted(retained.values()) == sorted(oracle.values())


def nested(number: int) -> bytes:
    """Names of one to ten levels, most below a few others."""
    return b"/".join(b"%d" % (number // 3**level % 3) for level in range(1 + number % 10)) + b"/%d" % number


@examples(30)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers(1, 200)), max_size=6))
def test_shelves_that_become_full_and_empty_lose_no_message(steps: list[tuple[bool, int, int]]) -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    oracle: dict[bytes, int] = {}
    for put, first, count in steps:
        for number in range(first, first + count):
            if put:
                retained.put(nested(number), number)
                oracle[nested(number)] = number
            else:
                assert retained.remove(nested(number)) == oracle.pop(nested(number), None)
        for topic_filter in (
            b"#",
            b"0/#",
            b"0/1/#",
            b"0/+/2/#",
            b"1/0/0/0/0/0/0/0/0/#",
            b"2/2/2/2/2/2/2/2/+",
            b"+/+/#",
        ):
            expected = sorted(number for topic, number in oracle.items() if matches(topic_filter, topic))
            assert found(retained, topic_filter) == expected
    for topic in list(oracle):
        retained.remove(topic)
    for number in range(EMPTY_ENTRIES + 1):  # which push the others out
        retained.put(b"%d" % number, number)
        retained.remove(b"%d" % number)
    assert len(retained) == 0
    assert len(retained._entries) == EMPTY_ENTRIES
    assert not retained._below
    assert retained.buckets == 0


def test_a_shelf_has_a_list_of_all_while_they_are_many() -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    topics = [b"a/%d/x" % number for number in range(MANY + 1)]
    for number, topic in enumerate(topics):
        assert number == 0 or retained._below[b"a"].all is None
        retained.put(topic, number)
    bucket = retained._below[b"a"]
    assert bucket.all is not None
    assert len(bucket.all) == MANY + 1
    assert retained.buckets == 1 + len(topics)
    for number in range(2 * EMPTY_ENTRIES):
        retained.put(b"%d" % number, number)
        retained.remove(b"%d" % number)  # so that whatever is removed now pushes another out
    for topic in topics:
        retained.remove(topic)
    for left in range(EMPTY_ENTRIES, 0, -1):
        kept = bucket.few if bucket.all is None else bucket.all
        assert (len(kept), bucket.all is None, retained.buckets == 1) == (left, left < FEW, left < FEW)
        assert found(retained, b"a/#") == []
        retained.put(b"other-%d" % left, 0)
        retained.remove(b"other-%d" % left)


def test_the_deepest_bucket_holds_any_number_of_names() -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    prefix = b"a/" * BUCKET_LEVELS
    topics = [prefix + b"%d/x" % number for number in range(2 * MANY)]
    for number, topic in enumerate(topics):
        retained.put(topic, number)
    assert retained.buckets == BUCKET_LEVELS
    assert found(retained, prefix + b"7/#") == [7]
    assert found(retained, prefix + b"#") == list(range(2 * MANY))
    for topic in topics:
        retained.remove(topic)
    for number in range(EMPTY_ENTRIES + 1):
        retained.put(b"%d" % number, number)
        retained.remove(b"%d" % number)  # which pushes the others out
    assert retained.buckets == 0


def test_an_empty_table_matches_nothing() -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    for topic_filter in (b"#", b"+", b"a", b"a/#", b"+/a"):
        assert found(retained, topic_filter) == []


def test_a_name_as_deep_as_allowed_is_kept_and_found() -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    deepest = b"a" + b"/a" * (MAX_LEVELS - 1)
    retained.put(deepest, 7)
    for topic_filter in (
        b"#",
        b"a/#",
        b"+/" * (MAX_LEVELS - 1) + b"a",
        deepest[:-1] + b"#",
        b"a/" * BUCKET_LEVELS + b"#",
    ):
        assert found(retained, topic_filter) == [7]
    assert found(retained, b"a/" * (BUCKET_LEVELS + 1) + b"b/#") == []
    assert retained.remove(deepest) == 7
    assert found(retained, b"#") == []


def test_a_search_finds_entries_that_are_there_from_its_begin_to_its_end() -> None:
    for topic_filter in (b"a/#", b"a/+", b"#", b"+/+"):
        retained: RetainedMessages[int] = RetainedMessages()
        for number in range(10):
            retained.put(b"a/%d" % number, number)
        search = retained.search(topic_filter)
        assert len(search) == 10
        assert search.take(3) == [0, 1, 2]
        retained.put(b"a/4", 104)  # a later one: a search finds it when it gets there
        retained.remove(b"a/5")
        retained.put(b"a/10", 110)
        assert len(search) == 7
        assert search.take(100) == [3, 6, 7, 8, 9]
        assert (len(search), search.take(1)) == (0, [])
    search = retained.search(b"#")
    search.end()
    assert search.take(100) == []


def test_a_search_among_few_names_leaves_out_none_when_one_goes() -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    for number in range(4):
        retained.put(b"a/%d" % number, number)
    search = retained.search(b"a/#")
    assert search.take(2) == [0, 1]
    retained.remove(b"a/0")
    for number in range(EMPTY_ENTRIES):
        retained.put(b"%d" % number, number)
        retained.remove(b"%d" % number)  # the last one pushes the name out
    assert search.take(100) == [2, 3]


def test_a_search_says_whether_it_will_find_all_that_it_looks_at() -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    for topic, everything in [
        (b"#", True),
        (b"a/#", True),
        (b"a", True),
        (b"+/a", False),
        (b"a/+", False),
        (b"+/#", False),
        (b"a/" * BUCKET_LEVELS + b"#", True),
        (b"a/" * BUCKET_LEVELS + b"a/#", False),
    ]:
        assert retained.search(topic).everything is everything


def test_searches_share_their_list_of_names_however_many_come_and_go() -> None:
    """Else each that waits would have one of its own, and a client can have thousands of them."""
    retained: RetainedMessages[int] = RetainedMessages()
    for number in range(2 * MANY):
        retained.put(b"a/%d/x" % number, number)
    for topic_filter in (b"+/+/x", b"a/+/x"):
        searches = []
        for number in range(2 * MANY):
            searches.append(retained.search(topic_filter))
            retained.put(b"a/%s-%d/x" % (topic_filter[:1].hex().encode(), number), 0)
            if number % 2:
                retained.remove(b"a/%s-%d/x" % (topic_filter[:1].hex().encode(), number))
        assert len({id(search._entries) for search in searches}) == 1
        assert len(found(retained, topic_filter)) == len(retained)
        assert searches[0].take(10**6) == list(range(2 * MANY)) + [0] * (len(retained) - 3 * MANY)


def test_a_list_of_names_is_made_anew_when_most_of_them_are_gone() -> None:
    for topic_filter in (b"+/#", b"a/#"):
        retained: RetainedMessages[int] = RetainedMessages()
        for number in range(4 * MANY):
            retained.put(b"a/%d" % number, number)
        search = retained.search(topic_filter)
        for number in range(3 * MANY):
            retained.remove(b"a/%d" % number)
        assert len(retained.search(topic_filter)) == 4 * MANY  # half of them are gone
        retained.remove(b"a/%d" % (3 * MANY))
        assert len(retained.search(topic_filter)) == 2 * MANY - 1
        assert found(retained, topic_filter) == search.take(10**6) == list(range(3 * MANY + 1, 4 * MANY))


def test_topics_below_a_name_are_found_together_with_it() -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    retained.put(b"sport", 1)
    retained.put(b"sport/tennis", 2)
    assert found(retained, b"sport/#") == [1, 2]
    assert found(retained, b"sport/+/#") == [2]
    search, later = retained.search(b"sport/#"), retained.search(b"sport/#")
    retained.remove(b"sport")
    assert (len(search), search.take(1), search.take(1)) == (2, [], [2])
    retained.put(b"sport", 3)  # which comes as a message
    assert later.take(2) == [2]
    for depth in range(1, BUCKET_LEVELS + 3):
        retained.put(b"/".join([b"a"] * depth), depth)
    for depth in range(1, BUCKET_LEVELS + 3):  # also where both are in the last bucket
        assert found(retained, b"a/" * depth + b"#") == list(range(depth, BUCKET_LEVELS + 3))
