"""Retained messages are found by filter, and gone when they are removed."""

from hypothesis import given
from hypothesis import strategies as st

from mqttlite.topics.names import MAX_LEVELS, matches
from mqttlite.topics.retained import RetainedMessages

levels = st.sampled_from([b"", b"a", b"b", b"$s"])
topics = st.lists(levels, min_size=1, max_size=4).map(b"/".join).filter(bool)
filters = st.builds(
    lambda head, hash_: b"/".join([*head, b"#"] if hash_ else head),
    st.lists(levels | st.just(b"+"), max_size=4),
    st.booleans(),
).filter(bool)


@given(st.lists(st.tuples(st.booleans(), topics), max_size=20), filters)
def test_what_is_kept_equals_a_dictionary_and_is_matched_as_the_rule_says(
    steps: list[tuple[bool, bytes]], topic_filter: bytes
) -> None:
    retained: RetainedMessages[int] = RetainedMessages()
    twin: dict[bytes, int] = {}
    for number, (put, topic) in enumerate(steps):
        if put:
            retained.put(topic, number)
            twin[topic] = number
        else:
            assert retained.remove(topic) == twin.pop(topic, None)
        assert len(retained) == len(twin)
        assert retained.get(topic) == twin.get(topic)
    expected = [number for topic, number in twin.items() if matches(topic_filter, topic)]
    assert sorted(retained.match(topic_filter)) == sorted(expected)


def test_an_empty_table_matches_nothing() -> None:
    retained: RetainedMessages[str] = RetainedMessages()
    for topic_filter in (b"#", b"+", b"a", b"a/#", b"+/a"):
        assert retained.match(topic_filter) == []


def test_a_name_as_deep_as_allowed_is_kept_and_found() -> None:
    retained: RetainedMessages[str] = RetainedMessages()
    deepest = b"a" + b"/a" * (MAX_LEVELS - 1)
    retained.put(deepest, "deep")
    assert retained.match(b"#") == ["deep"]
    assert retained.match(b"a/#") == ["deep"]
    assert retained.match(b"+/" * (MAX_LEVELS - 1) + b"a") == ["deep"]
    assert retained.remove(deepest) == "deep"
    assert retained.match(b"#") == []
