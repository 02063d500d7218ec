"""What it takes to publish below `$queue` and `$dlq`."""

import pytest

from mqttlite.extensions.queues.namespace import right_of


@pytest.mark.parametrize(
    ("topic", "asked", "takes_subscribing", "takes_rule"),
    [
        (b"$queue/q/$ack", b"$queue/q", True, False),
        (b"$queue/q/$nack", b"$queue/q", True, False),
        (b"$queue/q/$extend", b"$queue/q", True, False),
        (b"$queue/q/$ack/a/b", b"$queue/q/$ack", False, False),
        (b"$queue/q/$seek", b"$queue/q/$seek", False, False),
        (b"$queue/q/$seek/ops/answers", b"$queue/q/$seek", False, False),
        (b"$queue/q/$create", b"$queue/q/$create", False, True),
        (b"$queue/q/$delete/ops/answers", b"$queue/q/$delete", False, True),
        (b"$queue/$create", b"$queue/$create", False, False),
        (b"$queue/q", b"$queue/q", False, False),
        (b"$dlq", b"", False, False),
        (b"$dlq/q", b"", False, False),
    ],
)
def test_a_publish_to_a_queue_takes_a_right(
    topic: bytes, asked: bytes, takes_subscribing: bool, takes_rule: bool
) -> None:
    right = right_of(topic)
    assert right is not None
    assert (right.topic, right.takes_subscribing, right.takes_rule) == (asked, takes_subscribing, takes_rule)
    assert bool(right.denial) == (takes_rule or not asked)


@pytest.mark.parametrize("topic", [b"a/q/$create", b"$queue", b"$queues/q/$ack", b"$dlqs/q", b"$SYS/broker"])
def test_topics_of_others_take_what_the_rules_say(topic: bytes) -> None:
    assert right_of(topic) is None
