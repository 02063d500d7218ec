"""Topics of one broker become topics of the other."""

import pytest

from mqttlite.extensions.bridge.options import BridgeTopic
from mqttlite.extensions.bridge.topic_map import FILTERED, NO_ENTRY, NO_TOPIC, RESERVED, Mapped, TopicMap
from mqttlite.wire.packets import Publish


def _of(topic: bytes, payload: bytes = b"", qos: int = 0) -> Publish:
    return Publish(topic, payload, qos, packet_id=min(qos, 1))


@pytest.mark.parametrize(
    ("topic", "local", "remote"),
    [
        (BridgeTopic(pattern="#", direction="both"), b"a/b", b"a/b"),
        (BridgeTopic(pattern="s/#", direction="both", local_prefix="l/", remote_prefix="r/"), b"l/s/x", b"r/s/x"),
        (BridgeTopic(pattern="s/+", direction="both", remote_prefix="r/"), b"s/x", b"r/s/x"),
        (BridgeTopic(pattern="#", direction="both", local_prefix="l/", remote_prefix="r/"), b"l", b"r"),
        (BridgeTopic(direction="both", local_prefix="l/one", remote_prefix="r/two"), b"l/one", b"r/two"),
    ],
)
def test_a_prefix_is_replaced_in_both_directions(topic: BridgeTopic, local: bytes, remote: bytes) -> None:
    assert TopicMap([topic], out=True).get(_of(local)) == Mapped(remote, True)
    assert TopicMap([topic], out=False).get(_of(remote)) == Mapped(local, True)


def test_the_first_entry_of_a_direction_applies() -> None:
    topics = [
        BridgeTopic(pattern="a/#", direction="in", remote_prefix="in/"),
        BridgeTopic(pattern="a/b", remote_prefix="1/", retained=False),
        BridgeTopic(pattern="a/#", remote_prefix="2/"),
    ]
    out = TopicMap(topics, out=True)
    assert [out.get(_of(each)) for each in (b"a/b", b"a/c", b"c")] == [
        Mapped(b"1/a/b", False),
        Mapped(b"2/a/c", True),
        NO_ENTRY,
    ]


@pytest.mark.parametrize(
    ("local_prefix", "topic"), [("", b"l"), ("l" * 10 + "/", b"r/" + b"x" * 65_530)], ids=["empty", "too long"]
)
def test_a_topic_that_would_be_no_topic_is_not_carried(local_prefix: str, topic: bytes) -> None:
    out = local_prefix == ""
    rule = BridgeTopic(
        pattern="#", direction="both", local_prefix=local_prefix or "l/", remote_prefix="" if out else "r/"
    )
    assert TopicMap([rule], out=out).get(_of(topic)) == NO_TOPIC


def test_a_bounded_number_of_names_is_remembered() -> None:
    out = TopicMap([BridgeTopic(pattern="#")], out=True, max_known=2)
    for name in (b"a", b"b", b"c"):
        assert out.get(_of(name)) == Mapped(name, True)
    assert len(out._known) == 1


def test_a_prefix_carries_no_topic_into_a_reserved_namespace() -> None:
    into = TopicMap([BridgeTopic(pattern="#", direction="in", remote_prefix="plant/")], out=False)
    assert into.get(_of(b"plant/$stream/s")) == RESERVED
    out = TopicMap([BridgeTopic(pattern="#", local_prefix="plant/")], out=True)
    assert out.get(_of(b"plant/$SYS/x")) == RESERVED
    named = TopicMap([BridgeTopic(pattern="$SYS/#")], out=True)
    assert named.get(_of(b"$SYS/x")) == Mapped(b"$SYS/x", True)


def test_the_first_entry_whose_filter_passes_applies() -> None:
    topics = [
        BridgeTopic(pattern="a/#", direction="both", remote_prefix="hot/", filter="payload > 30"),
        BridgeTopic(pattern="a/#", direction="both", remote_prefix="all/"),
        BridgeTopic(pattern="#", direction="both", remote_prefix="never/"),
    ]
    out = TopicMap(topics, out=True)
    assert [out.get(_of(b"a/b", payload)) for payload in (b"31", b"29", b"x")] == [
        Mapped(b"hot/a/b", True),
        Mapped(b"all/a/b", True),
        Mapped(b"all/a/b", True),
    ]


def test_a_message_that_passes_no_filter_does_not_come_in() -> None:
    into = TopicMap([BridgeTopic(pattern="#", direction="in", filter="payload > 30")], out=False)
    assert into.get(_of(b"a", b"30")) == FILTERED
    assert into.get(_of(b"a", b"31")) == Mapped(b"a", True)


def test_a_message_that_passed_its_subscription_goes_out_although_its_qos_is_lower_now() -> None:
    out = TopicMap([BridgeTopic(pattern="#", qos=0, filter="qos >= 1")], out=True)
    assert out.get(_of(b"a")) == Mapped(b"a", True)
