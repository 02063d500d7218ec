"""Which namespace a topic filter or name is of, and what its parts are."""

import re

import pytest

from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.topics.names import check_filter, check_name
from mqttlite.topics.namespaces import (
    DELAYED,
    MAX_DELAY_S,
    ORDINARY,
    RESERVED,
    SHARED,
    Namespaces,
    ParsedTopic,
    unavailable,
)
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid


def parts(parsed: ParsedTopic) -> tuple[int, bytes, bytes]:
    return parsed.namespace, parsed.name, parsed.rest


@pytest.mark.parametrize(
    ("topic_filter", "namespace", "name", "rest"),
    [
        (b"$share/workers/jobs/+", SHARED, b"workers", b"jobs/+"),
        (b"$share/a//b", SHARED, b"a", b"/b"),
        (b"$queue/orders", RESERVED, b"orders", b""),
        (b"$queue/orders/shop/+/order", RESERVED, b"orders", b"shop/+/order"),
        (b"$queue/#", RESERVED, b"#", b""),
        (b"$stream/orders", RESERVED, b"orders", b""),
        (b"$stream/orders/shop/#", RESERVED, b"orders", b"shop/#"),
        (b"$delayed/30/lamp/off", DELAYED, b"30", b"lamp/off"),
        (b"$dlq/orders", RESERVED, b"orders", b""),
        (b"$dlq/orders/#", RESERVED, b"orders", b"#"),
    ],
)
def test_a_filter_has_the_parts_of_its_namespace(topic_filter: bytes, namespace: int, name: bytes, rest: bytes) -> None:
    check_filter(topic_filter)
    assert parts(NAMESPACES.parse_filter(topic_filter)) == (namespace, name, rest)


@pytest.mark.parametrize("topic", [b"$queue", b"$queue/", b"$queue/q", b"$queue/q/a"])
def test_messages_to_a_queue_are_refused_where_nothing_takes_them(topic: bytes) -> None:
    with pytest.raises(TopicNameInvalid, match=r"^\$queue/…: nothing takes that; consumers publish to \$queue"):
        NAMESPACES.check_is_served(topic)


def test_one_queue_can_be_subscribed_to_by_its_name() -> None:
    for good in (b"$queue/q", b"$queue/q/", b"$queue/q/a/+/#"):
        assert NAMESPACES.parse_filter(good).filter_refusal == ""
    for bad in (b"$queue", b"$queue/", b"$queue//a", b"$queue/+", b"$queue/#", b"$queue/+/a", b"$queue/q/$ack"):
        assert NAMESPACES.parse_filter(bad).filter_refusal.startswith("$queue/…: ")


def test_dead_letters_have_names_of_their_own() -> None:
    for topic in (b"$dlq", b"$dlq/q"):
        assert NAMESPACES.parse_name(topic).name_refusal == NAMESPACES.parse_filter(topic).filter_refusal == ""
        assert NAMESPACES.tells(topic)
    assert not NAMESPACES.tells(b"$dlqs/q")
    assert not NAMESPACES.tells(b"dlq")


def test_a_stream_can_be_published_to_and_its_position_is_not_a_part_of_its_name() -> None:
    NAMESPACES.check_is_served(b"$stream/orders")
    parsed = NAMESPACES.parse_filter(b"$stream/orders@earliest/shop/#")
    assert parts(parsed) == (RESERVED, b"orders@earliest", b"shop/#")
    assert (parsed.target, parsed.max_qos, parsed.has_members) == (b"$stream/orders", 1, True)
    grouped = NAMESPACES.parse_filter(b"$share/g/$stream/orders@earliest")
    assert (grouped.target, grouped.max_qos, grouped.has_members) == (b"$stream/orders", 1, True)
    assert not NAMESPACES.parse_filter(b"$share/g/$queue/orders").has_members
    assert not NAMESPACES.parse_filter(b"$share/g/$SYS/a").has_members
    assert NAMESPACES.parse_filter(b"$share/g/a").max_qos == 2


def test_a_namespace_without_a_feature_refuses_everything() -> None:
    namespaces = Namespaces([unavailable(b"$stream", "$stream/…: this broker has no streams")])
    for topic in (b"$stream", b"$stream/", b"$stream//", b"$stream/a", b"$stream/a/b/c"):
        assert namespaces.parse_name(topic).namespace == namespaces.parse_filter(topic).namespace != ORDINARY
        assert namespaces.parse_name(topic).name_refusal == namespaces.parse_filter(topic).filter_refusal
        assert namespaces.parse_name(topic).name_refusal == "$stream/…: this broker has no streams"
        with pytest.raises(TopicNameInvalid, match=r"^\$stream/…: this broker has no streams$"):
            namespaces.check_is_served(topic)


def test_the_parts_of_a_name() -> None:
    assert parts(NAMESPACES.parse_name(b"$queue/orders")) == (RESERVED, b"orders", b"")
    assert parts(NAMESPACES.parse_name(b"$delayed/30/lamp/off")) == (DELAYED, b"30", b"lamp/off")
    assert parts(NAMESPACES.parse_name(b"$delayed/30//off")) == (DELAYED, b"30", b"/off")
    assert parts(NAMESPACES.parse_name(b"$stream")) == (RESERVED, b"", b"")


@pytest.mark.parametrize(
    "topic", [b"a", b"a/$queue/b", b"/$queue", b"$queues/a", b"$RESERVED/a", b"$SYS/a", b"$shared/a/b", b"$share", b"$"]
)
def test_a_topic_that_only_looks_like_a_namespace_is_ordinary(topic: bytes) -> None:
    check_name(topic)
    NAMESPACES.check_is_served(topic)
    for parsed in (NAMESPACES.parse_name(topic), NAMESPACES.parse_filter(topic)):
        assert parts(parsed) == (ORDINARY, b"", topic)
        assert parsed.name_refusal == parsed.filter_refusal == ""


def test_share_is_reserved_in_filters_only() -> None:
    assert parts(NAMESPACES.parse_name(b"$share/a/b")) == (ORDINARY, b"", b"$share/a/b")


@pytest.mark.parametrize(
    "bad", ["$share//jobs", "$share/+/jobs", "$share/a#/jobs", "$share/workers", "$share/workers/"]
)
def test_a_share_needs_a_plain_name_and_a_filter(bad: str) -> None:
    with pytest.raises(TopicFilterInvalid):
        NAMESPACES.parse_filter(bad.encode())


def test_a_shared_filter_is_refused_where_the_filter_in_it_is() -> None:
    assert NAMESPACES.parse_filter(b"$share/g/jobs").filter_refusal == ""
    assert NAMESPACES.parse_filter(b"$share/g/$dlq/jobs").filter_refusal == ""
    assert NAMESPACES.parse_filter(b"$share/g/$queue/jobs").filter_refusal.startswith(
        "$share/…: the consumers of a queue"
    )
    for filter_ in (b"$stream/+", b"$delayed/5/jobs"):
        assert (
            NAMESPACES.parse_filter(b"$share/g/" + filter_).filter_refusal
            == NAMESPACES.parse_filter(filter_).filter_refusal
            != ""
        )


@pytest.mark.parametrize(
    ("topic", "delay_s", "target"),
    [
        (b"$delayed/0/a", 0, b"a"),
        (b"$delayed/60/a/b", 60, b"a/b"),
        (b"$delayed/0000060//b", 60, b"/b"),
        (b"$delayed/4294967/$own/a", MAX_DELAY_S, b"$own/a"),
    ],
)
def test_a_delayed_name_has_seconds_and_a_topic(topic: bytes, delay_s: int, target: bytes) -> None:
    NAMESPACES.check_is_served(topic)
    parsed = NAMESPACES.parse_name(topic)
    assert (parsed.delay_s, parsed.rest, parsed.name_refusal) == (delay_s, target, "")
    assert parsed.filter_refusal.startswith("$delayed/…: no message comes on it; subscribe to ")


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        *[
            (b"$delayed/" + seconds + b"/a", f"'{seconds.decode()}' is no whole number of seconds from 0 to 4294967")
            for seconds in (b"", b"x", b"-1", b"1.5", b" 1", b"1_0", b"4294968", b"00000060", b"\xd9\xa3")
        ],
        (b"$delayed", "'' is no whole number of seconds from 0 to 4294967"),
        (b"$delayed/60", "no topic follows the seconds"),
        (b"$delayed/60/", "no topic follows the seconds"),
        (b"$delayed/60/$SYS", "messages to '$SYS' cannot be delayed"),
        (b"$delayed/60/$SYS/a", "messages to '$SYS/a' cannot be delayed"),
        (b"$delayed/60/$delayed/60/a", "messages to '$delayed/60/a' cannot be delayed"),
        (b"$delayed/60/$queue/a", "messages to '$queue/a' cannot be delayed"),
    ],
)
def test_another_delayed_name_is_refused_and_told_why(topic: bytes, reason: str) -> None:
    check_name(topic)
    assert NAMESPACES.parse_name(topic).name_refusal == f"$delayed/…: {reason}"
    with pytest.raises(TopicNameInvalid, match=re.escape(reason)):
        NAMESPACES.check_is_served(topic)


def test_a_name_of_thousands_of_levels_is_parsed_like_a_short_one() -> None:
    topic = b"$delayed/1/" * 5_000 + b"a"
    assert NAMESPACES.parse_name(topic).name_refusal.startswith("$delayed/…: messages to '$delayed/1/")


def test_unreserved_namespaces_are_ordinary() -> None:
    for topic in (b"$queue/q", b"$dlq/q", b"$stream/s"):
        parsed = Namespaces().parse_name(topic)
        assert parts(parsed) == (ORDINARY, b"", topic)
        assert parsed.name_refusal == parsed.filter_refusal == parsed.shown == ""
