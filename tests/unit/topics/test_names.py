"""Which topic names and filters are valid, and which filter matches which name (5.0 §4.7)."""

import pytest

from mqttlite.topics.names import MAX_LEVELS, check_filter, check_name, has_wildcard, matches, shown
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid


@pytest.mark.parametrize("topic", [b"a", b"/", b"a/b", b"//", b"$SYS/x", b"a b", "\N{GRINNING FACE}".encode()])
def test_a_name_may_be_anything_without_wildcards(topic: bytes) -> None:
    check_name(topic)
    check_filter(topic)
    assert not has_wildcard(topic)


@pytest.mark.parametrize("topic", [b"", b"+", b"#", b"a/+", b"a/#", b"a+b", b"a#"])
def test_a_name_is_not_empty_and_has_no_wildcards(topic: bytes) -> None:
    with pytest.raises(TopicNameInvalid):
        check_name(topic)


@pytest.mark.parametrize(
    "topic_filter", [b"#", b"+", b"a/#", b"a/+", b"+/+/#", b"/+", b"+/", b"/#", b"$SYS/#", b"a/+/b"]
)
def test_a_wildcard_is_a_whole_level(topic_filter: bytes) -> None:
    check_filter(topic_filter)
    assert has_wildcard(topic_filter)


@pytest.mark.parametrize("topic_filter", [b"", b"a#", b"#/a", b"a/#/b", b"##", b"a+", b"+a", b"a/b+/c", b"++", b"a/+#"])
def test_a_misplaced_wildcard_is_refused(topic_filter: bytes) -> None:
    with pytest.raises(TopicFilterInvalid):
        check_filter(topic_filter)


def test_a_filter_from_inside_has_no_nul() -> None:
    with pytest.raises(TopicFilterInvalid, match=r"has U\+0000"):
        check_filter(b"a/b\0/#")


def test_a_name_from_inside_must_fit_into_a_packet() -> None:
    check_name(b"x" * 65_535)
    for topic in (b"x" * 65_536, b"a\0b"):
        with pytest.raises(TopicNameInvalid, match="too long, or has U"):
            check_name(topic)


def test_as_many_levels_as_the_limit_are_accepted_and_one_more_is_not() -> None:
    check_name(b"/" * (MAX_LEVELS - 1))
    check_filter(b"/" * (MAX_LEVELS - 1))
    with pytest.raises(TopicNameInvalid, match="202 levels, at most 201"):
        check_name(b"/" * MAX_LEVELS)
    with pytest.raises(TopicFilterInvalid, match="202 levels, at most 201"):
        check_filter(b"/" * MAX_LEVELS)


@pytest.mark.parametrize(
    ("topic_filter", "topic"),
    [
        (b"sport/tennis/player1/#", b"sport/tennis/player1"),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/ranking"),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon"),
        (b"sport/#", b"sport"),
        (b"#", b"sport"),
        (b"#", b"/"),
        (b"sport/tennis/+", b"sport/tennis/player1"),
        (b"sport/+", b"sport/"),
        (b"+/+", b"/finance"),
        (b"/+", b"/finance"),
        (b"+/monitor/#", b"any/monitor"),
        (b"$SYS/#", b"$SYS/a"),
        (b"$SYS/monitor/+", b"$SYS/monitor/Clients"),
        (b"a/$b/+", b"a/$b/c"),
        (b"+/$b", b"a/$b"),
        (b"+/#", b"a"),
    ],
)
def test_a_filter_matches_as_the_standard_says(topic_filter: bytes, topic: bytes) -> None:
    assert matches(topic_filter, topic)


@pytest.mark.parametrize(
    ("topic_filter", "topic"),
    [
        (b"sport/tennis/+", b"sport/tennis/player1/ranking"),
        (b"sport/+", b"sport"),
        (b"+", b"/finance"),
        (b"+/#", b"$SYS"),
        (b"#", b"$SYS/a"),
        (b"+/monitor/Clients", b"$SYS/monitor/Clients"),
        (b"sport", b"Sport"),
        (b"sport", b"sport/"),
        (b"sport/a", b"sport"),
        (b"sport/a/#", b"sport"),
        (b"sport/#", b"sports"),
        (b"a/+/c/#", b"a/b"),
    ],
)
def test_a_filter_does_not_match_topics_that_the_standard_excludes(topic_filter: bytes, topic: bytes) -> None:
    assert not matches(topic_filter, topic)


def test_a_topic_is_shown_on_one_printable_line() -> None:
    assert shown(b"a/b") == "'a/b'"
    assert shown(b"a\nb") == "'a\\nb'"
    assert shown(b"x" * 80) == repr("x" * 80)
    assert shown(b"x" * 81) == repr("x" * 80 + "…")
    assert shown(b"\xff") == repr("\N{REPLACEMENT CHARACTER}")
