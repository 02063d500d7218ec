"""What becomes of messages that are followed, and in what time."""

import pytest

from mqttlite.telemetry import following
from tests.unit.telemetry.story import Story


def test_a_message_at_qos_0_is_followed_to_the_socket() -> None:
    story = Story()
    trace = story.publish(qos=0)
    story.follower.on_sent(trace, "c7", 1, 0)
    story.wait(0.002)
    story.follower.on_written(1)
    assert story.stages == [("route", 0, 0.0), ("queue", 0, 0.0), ("write", 0, 0.002), ("total", 0, 0.002)]
    assert story.ends == [("c7", "sent", "")]
    assert len(story.follower) == 0


def test_a_message_that_waited_is_followed_through_queue_socket_and_acknowledgement() -> None:
    story = Story()
    trace = story.publish(qos=2)
    story.wait(0.5)
    story.follower.on_queued(trace, "c7", "window_full", 3, 1_000)
    story.wait(2.5)
    story.follower.on_sent(trace, "c7", 1, 1)
    story.wait(0.25)
    story.follower.on_written(1)
    assert story.follower.oldest_unacknowledged_s() == 0.0
    story.wait(4)
    assert story.follower.oldest_unacknowledged_s() == 4.0
    assert story.follower.unacknowledged_since("c7") == 1_003.25
    story.follower.on_acknowledged(trace, "c7")
    assert story.stages[1:] == [("queue", 1, 3.0), ("write", 1, 0.25), ("total", 1, 3.25), ("acknowledge", 1, 4.0)]
    assert story.ends == [("c7", "acknowledged", "")]
    assert story.follower.oldest_unacknowledged_s() == 0.0
    assert story.follower.unacknowledged_since("c7") is None
    assert len(story.follower) == 0


def test_a_message_is_over_when_it_is_for_all_its_receivers() -> None:
    story = Story()
    trace = story.publish(receivers=3)
    story.follower.on_sent(trace, "a", 1, 1)
    story.follower.on_dropped(trace, "b", "queue_full", "9/9")
    story.follower.on_written(1)
    story.follower.on_acknowledged(trace, "a")
    assert len(story.follower) == 1
    story.follower.on_dropped(trace, "c", "qos0_offline", "")
    assert len(story.follower) == 0
    assert story.ends == [("b", "dropped", "queue_full"), ("a", "acknowledged", ""), ("c", "dropped", "qos0_offline")]


def test_a_message_that_reaches_nobody_is_over_at_once() -> None:
    story = Story()
    story.follower.on_dropped(story.publish(receivers=0), None, "no_subscribers", "")
    assert story.ends == [(None, "dropped", "no_subscribers")]
    assert len(story.follower) == 0


def test_a_message_that_is_sent_again_is_measured_from_the_first_time() -> None:
    story = Story()
    trace = story.publish()
    story.follower.on_sent(trace, "c7", 1, 1)
    story.follower.on_written(1)
    story.wait(1)
    story.follower.on_gone(1)
    story.follower.on_queued(trace, "c7", "offline", 1, 10)
    story.wait(5)
    story.follower.on_sent(trace, "c7", 2, 1)
    story.follower.on_written(2)
    story.wait(1)
    story.follower.on_acknowledged(trace, "c7")
    assert story.stages[-1] == ("acknowledge", 1, 7.0)
    assert story.ends == [("c7", "acknowledged", "")]
    assert len(story.stages) == 5


def test_an_acknowledgement_of_what_was_never_seen_written_ends_it_all_the_same() -> None:
    story = Story()
    trace = story.publish()
    story.follower.on_queued(trace, "c7", "offline", 1, 10)
    story.follower.on_acknowledged(trace, "c7")
    assert story.ends == [("c7", "acknowledged", "")]


@pytest.mark.parametrize("second", ["queued", "sent"])
def test_a_second_copy_for_a_receiver_is_not_waited_for(second: str) -> None:
    story = Story()
    trace = story.publish(receivers=2)
    story.follower.on_sent(trace, "c7", 1, 1)
    if second == "sent":
        story.follower.on_sent(trace, "c7", 1, 1)
    else:
        story.follower.on_queued(trace, "c7", "window_full", 1, 10)
    story.follower.on_written(1)
    story.follower.on_acknowledged(trace, "c7")
    assert len(story.follower) == 0
    story.follower.on_acknowledged(trace, "c7")
    assert story.ends == [("c7", "acknowledged", "")]


def test_two_copies_in_a_queue_are_one_fate() -> None:
    story = Story()
    trace = story.publish(receivers=2)
    story.follower.on_queued(trace, "c7", "offline", 1, 10)
    story.follower.on_queued(trace, "c7", "offline", 2, 10)
    story.follower.on_dropped(trace, "c7", "session_expired", "")
    assert len(story.follower) == 0


def test_a_drop_after_the_end_is_no_second_end() -> None:
    story = Story()
    trace = story.publish(receivers=2)
    story.follower.on_dropped(trace, "c7", "queue_full", "")
    story.follower.on_dropped(trace, "c7", "queue_full", "")
    assert story.ends == [("c7", "dropped", "queue_full")]


def test_what_a_connection_did_not_get_into_its_socket_is_unfinished_at_qos_0_and_waits_at_qos_1() -> None:
    story = Story()
    first, second = story.publish(qos=0), story.publish(qos=1)
    story.follower.on_sent(first, "c7", 1, 0)
    story.follower.on_sent(second, "c7", 1, 1)
    story.follower.on_gone(1)
    assert story.ends == [("c7", "unfinished", "")]
    assert len(story.follower) == 1


def test_what_was_dropped_after_it_was_sent_is_not_written() -> None:
    story = Story()
    trace = story.publish()
    story.follower.on_sent(trace, "c7", 1, 1)
    story.follower.on_dropped(trace, "c7", "session_expired", "")
    story.follower.on_written(1)
    assert story.ends == [("c7", "dropped", "session_expired")]
    assert [stage for stage, _, _ in story.stages] == ["route", "queue"]


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_the_oldest_message_is_let_go_when_there_are_too_many(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_MESSAGES", 5)
    story = Story()
    traces = [story.publish() for _ in range(5 + beyond)]
    for trace in traces:
        story.follower.on_queued(trace, "c7", "offline", 1, 10)
    assert len(story.follower) == min(5, 5 + beyond)
    assert story.ends == [(None, "unfinished", "")] * max(0, beyond)
    assert story.follower.let_go == max(0, beyond)
    for trace in traces:
        story.follower.on_acknowledged(trace, "c7")  # of the one that was let go nothing more is heard
    assert story.ends.count(("c7", "acknowledged", "")) == min(5, 5 + beyond)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_receivers_are_limited_in_the_same_way(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_FATES", 4)
    story = Story()
    old, new = story.publish(receivers=2), story.publish(receivers=9)
    for receiver in ("a", "b"):
        story.follower.on_queued(old, receiver, "offline", 1, 10)
    for number in range(2 + beyond):
        story.follower.on_queued(new, f"c{number}", "offline", 1, 10)
    let_go = 2 if beyond > 0 else 0
    assert story.follower.let_go == let_go
    assert story.ends == [("a", "unfinished", ""), ("b", "unfinished", "")][:let_go]


def test_of_a_message_for_more_receivers_than_there_is_room_for_the_first_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "MAX_FATES", 3)
    story = Story()
    trace = story.publish(receivers=5)
    for number in range(5):
        story.follower.on_sent(trace, f"c{number}", number, 1)
    for number in range(5):
        story.follower.on_written(number)
        story.follower.on_acknowledged(trace, f"c{number}")
    assert [receiver for receiver, _, _ in story.ends] == ["c0", "c1", "c2"]
    story.follower.end_some(1)
    assert len(story.follower) == 0
    assert story.follower.let_go == 2


def test_at_the_end_all_are_let_go_some_at_a_time() -> None:
    story = Story()
    for _ in range(5):
        story.follower.on_queued(story.publish(), "c7", "offline", 1, 10)
    assert story.follower.end_some(3)
    assert not story.follower.end_some(3)
    assert story.ends == [("c7", "unfinished", "")] * 5
    assert not story.follower.end_some(3)


def test_of_messages_that_nobody_began_to_follow_nothing_is_heard() -> None:
    """They were followed for an observer that is gone."""
    story = Story()
    story.follower.on_routed(7, 1)
    story.follower.on_queued(7, "c7", "offline", 1, 10)
    story.follower.on_sent(7, "c7", 1, 1)
    story.follower.on_written(1)
    story.follower.on_acknowledged(7, "c7")
    story.follower.on_dropped(7, "c7", "queue_full", "")
    assert story.stages == story.ends == []
