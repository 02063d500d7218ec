"""Which known names a filter may match: never too few, and few where one of its levels is rare."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.topics.known import KnownTopics
from mqttlite.topics.names import matches

MOST = 3

levels = st.sampled_from([b"", b"a", b"b", b"$s"])
topics = st.lists(levels, min_size=1, max_size=4).map(b"/".join).filter(bool)
filters = st.builds(
    lambda head, hash_: b"/".join([*head, b"#"] if hash_ else head),
    st.lists(levels | st.just(b"+"), max_size=5),
    st.booleans(),
).filter(bool)


@pytest.mark.long
@given(st.lists(topics, max_size=20, unique=True), filters)
def test_no_name_that_matches_is_left_out_and_no_list_is_long(names: list[bytes], topic_filter: bytes) -> None:
    known = KnownTopics(MOST)
    for name in names:
        known.add(name)
    found = known.candidates(topic_filter)
    if found is not None:
        assert len(found) <= MOST
        assert {name for name in names if matches(topic_filter, name)} <= set(found) <= set(names)
        assert len(set(found)) == len(found)
        return
    assert len(names) > MOST
    for entry, level in enumerate(topic_filter.split(b"/")):  # so many that no level of the filter tells them apart
        if level not in (b"+", b"#"):
            assert sum(name.split(b"/")[entry : entry + 1] == [level] for name in names) > MOST


def test_one_rare_level_is_enough() -> None:
    known = KnownTopics(MOST)
    for number in range(100):
        known.add(b"devices/%d/temp" % number)
    known.add(b"devices/7/alarm")
    assert known.candidates(b"devices/+/temp") is None
    assert known.candidates(b"#") is None
    assert known.candidates(b"devices/+/alarm") == [b"devices/7/alarm"]
    assert known.candidates(b"+/7/#") == [b"devices/7/temp", b"devices/7/alarm"]
    assert known.candidates(b"+/+/none") == known.candidates(b"+/+/+/+") == known.candidates(b"a/+/temp") == []


def test_after_clearing_nothing_is_known() -> None:
    known = KnownTopics(MOST)
    for number in range(100):
        known.add(b"%d" % number)
    known.clear()
    assert known.candidates(b"#") == known.candidates(b"7") == []
    known.add(b"7")
    assert known.candidates(b"#") == known.candidates(b"+") == [b"7"]
