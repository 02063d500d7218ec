"""What becomes of messages that are traced, and in what time."""

import pytest

from mqttlite.telemetry import tracing
from tests.unit.telemetry.scenario import Scenario


def test_a_message_at_qos_0_is_followed_to_the_socket() -> None:
    scenario = Scenario()
    trace = scenario.publish(qos=0)
    scenario.message_tracer.on_sent(trace, "c7", 1, 0)
    scenario.wait(0.002)
    scenario.message_tracer.on_written(1)
    assert scenario.stages == [("route", 0, 0.0), ("queue", 0, 0.0), ("write", 0, 0.002), ("total", 0, 0.002)]
    assert scenario.ends == [("c7", "sent", "")]
    assert len(scenario.message_tracer) == 0


def test_a_message_that_waited_is_followed_through_queue_socket_and_acknowledgement() -> None:
    scenario = Scenario()
    trace = scenario.publish(qos=2)
    scenario.wait(0.5)
    scenario.message_tracer.on_queued(trace, "c7", "window_full", 3, 1_000)
    scenario.wait(2.5)
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    scenario.wait(0.25)
    scenario.message_tracer.on_written(1)
    assert scenario.message_tracer.oldest_unacknowledged_s() == 0.0
    scenario.wait(4)
    assert scenario.message_tracer.oldest_unacknowledged_s() == 4.0
    assert scenario.message_tracer.unacknowledged_since("c7") == 1_003.25
    scenario.message_tracer.on_acknowledged(trace, "c7")
    assert scenario.stages[1:] == [("queue", 1, 3.0), ("write", 1, 0.25), ("total", 1, 3.25), ("acknowledge", 1, 4.0)]
    assert scenario.ends == [("c7", "acknowledged", "")]
    assert scenario.message_tracer.oldest_unacknowledged_s() == 0.0
    assert scenario.message_tracer.unacknowledged_since("c7") is None
    assert len(scenario.message_tracer) == 0


def test_the_time_in_a_queue_of_consumers_is_waiting_and_not_writing() -> None:
    scenario = Scenario()
    trace = scenario.publish(receivers=2)
    scenario.message_tracer.on_queued(trace, "$queue/jobs", "no consumer had room", 1, 1_000)
    scenario.wait(60)
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    scenario.wait(0.25)
    scenario.message_tracer.on_written(1)
    assert scenario.stages[1:] == [("queue", 1, 60.0), ("write", 1, 0.25), ("total", 1, 60.25)]


def test_a_message_is_over_when_it_is_for_all_its_receivers() -> None:
    scenario = Scenario()
    trace = scenario.publish(receivers=3)
    scenario.message_tracer.on_sent(trace, "a", 1, 1)
    scenario.message_tracer.on_dropped(trace, "b", "queue_full", "9/9")
    scenario.message_tracer.on_written(1)
    scenario.message_tracer.on_acknowledged(trace, "a")
    assert len(scenario.message_tracer) == 1
    scenario.message_tracer.on_dropped(trace, "c", "qos0_offline", "")
    assert len(scenario.message_tracer) == 0
    assert scenario.ends == [
        ("b", "dropped", "queue_full"),
        ("a", "acknowledged", ""),
        ("c", "dropped", "qos0_offline"),
    ]


def test_a_message_without_a_receiver_is_over_at_once() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(receivers=0), None, "no_subscribers", "")
    assert scenario.ends == [(None, "dropped", "no_subscribers")]
    assert len(scenario.message_tracer) == 0


def test_a_message_that_is_sent_again_is_measured_from_the_first_time() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    scenario.message_tracer.on_written(1)
    scenario.wait(1)
    scenario.message_tracer.on_gone(1)
    scenario.message_tracer.on_queued(trace, "c7", "offline", 1, 10)
    scenario.wait(5)
    scenario.message_tracer.on_sent(trace, "c7", 2, 1)
    scenario.message_tracer.on_written(2)
    scenario.wait(1)
    scenario.message_tracer.on_acknowledged(trace, "c7")
    assert scenario.stages[-1] == ("acknowledge", 1, 7.0)
    assert scenario.ends == [("c7", "acknowledged", "")]
    assert len(scenario.stages) == 5


def test_an_acknowledgement_ends_a_message_that_was_never_seen_written() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_queued(trace, "c7", "offline", 1, 10)
    scenario.message_tracer.on_acknowledged(trace, "c7")
    assert scenario.ends == [("c7", "acknowledged", "")]


@pytest.mark.parametrize("second", ["queued", "sent"])
def test_a_second_copy_for_a_receiver_is_not_waited_for(second: str) -> None:
    scenario = Scenario()
    trace = scenario.publish(receivers=2)
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    if second == "sent":
        scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    else:
        scenario.message_tracer.on_queued(trace, "c7", "window_full", 1, 10)
    scenario.message_tracer.on_written(1)
    scenario.message_tracer.on_acknowledged(trace, "c7")
    assert len(scenario.message_tracer) == 0
    scenario.message_tracer.on_acknowledged(trace, "c7")
    assert scenario.ends == [("c7", "acknowledged", "")]


def test_two_copies_in_a_queue_are_one_fate() -> None:
    scenario = Scenario()
    trace = scenario.publish(receivers=2)
    scenario.message_tracer.on_queued(trace, "c7", "offline", 1, 10)
    scenario.message_tracer.on_queued(trace, "c7", "offline", 2, 10)
    scenario.message_tracer.on_dropped(trace, "c7", "session_expired", "")
    assert len(scenario.message_tracer) == 0


def test_a_drop_after_the_end_is_no_second_end() -> None:
    scenario = Scenario()
    trace = scenario.publish(receivers=2)
    scenario.message_tracer.on_dropped(trace, "c7", "queue_full", "")
    scenario.message_tracer.on_dropped(trace, "c7", "queue_full", "")
    assert scenario.ends == [("c7", "dropped", "queue_full")]


def test_unwritten_messages_are_unfinished_at_qos_0_and_wait_at_qos_1() -> None:
    scenario = Scenario()
    first, second = scenario.publish(qos=0), scenario.publish(qos=1)
    scenario.message_tracer.on_sent(first, "c7", 1, 0)
    scenario.message_tracer.on_sent(second, "c7", 1, 1)
    scenario.message_tracer.on_gone(1)
    assert scenario.ends == [("c7", "unfinished", "")]
    assert len(scenario.message_tracer) == 1


def test_a_message_dropped_after_it_was_sent_is_not_written() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    scenario.message_tracer.on_dropped(trace, "c7", "session_expired", "")
    scenario.message_tracer.on_written(1)
    assert scenario.ends == [("c7", "dropped", "session_expired")]
    assert [stage for stage, _, _ in scenario.stages] == ["route", "queue"]


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_the_oldest_message_is_let_go_when_there_are_too_many(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_MESSAGES", 5)
    scenario = Scenario()
    traces = [scenario.publish() for _ in range(5 + beyond)]
    for trace in traces:
        scenario.message_tracer.on_queued(trace, "c7", "offline", 1, 10)
    assert len(scenario.message_tracer) == min(5, 5 + beyond)
    assert scenario.ends == [(None, "unfinished", "")] * max(0, beyond)
    assert scenario.message_tracer.evicted == max(0, beyond)
    for trace in traces:
        scenario.message_tracer.on_acknowledged(trace, "c7")  # of the one that was let go nothing more is heard
    assert scenario.ends.count(("c7", "acknowledged", "")) == min(5, 5 + beyond)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_receivers_are_limited_in_the_same_way(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_DELIVERIES", 4)
    scenario = Scenario()
    old, new = scenario.publish(receivers=2), scenario.publish(receivers=9)
    for receiver in ("a", "b"):
        scenario.message_tracer.on_queued(old, receiver, "offline", 1, 10)
    for number in range(2 + beyond):
        scenario.message_tracer.on_queued(new, f"c{number}", "offline", 1, 10)
    evicted = 2 if beyond > 0 else 0
    assert scenario.message_tracer.evicted == evicted
    assert scenario.ends == [("a", "unfinished", ""), ("b", "unfinished", "")][:evicted]


def test_of_a_message_for_more_receivers_than_there_is_room_for_the_first_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "MAX_DELIVERIES", 3)
    scenario = Scenario()
    trace = scenario.publish(receivers=5)
    for number in range(5):
        scenario.message_tracer.on_sent(trace, f"c{number}", number, 1)
    for number in range(5):
        scenario.message_tracer.on_written(number)
        scenario.message_tracer.on_acknowledged(trace, f"c{number}")
    assert [receiver for receiver, _, _ in scenario.ends] == ["c0", "c1", "c2"]
    scenario.message_tracer.end_some(1)
    assert len(scenario.message_tracer) == 0
    assert scenario.message_tracer.evicted == 2


def test_at_the_end_all_are_let_go_some_at_a_time() -> None:
    scenario = Scenario()
    for _ in range(5):
        scenario.message_tracer.on_queued(scenario.publish(), "c7", "offline", 1, 10)
    assert scenario.message_tracer.end_some(3)
    assert not scenario.message_tracer.end_some(3)
    assert scenario.ends == [("c7", "unfinished", "")] * 5
    assert not scenario.message_tracer.end_some(3)


def test_messages_that_are_not_followed_are_not_reported() -> None:
    """They were traced for an observer that is gone."""
    scenario = Scenario()
    scenario.message_tracer.on_routed(7, 1)
    scenario.message_tracer.on_queued(7, "c7", "offline", 1, 10)
    scenario.message_tracer.on_sent(7, "c7", 1, 1)
    scenario.message_tracer.on_written(1)
    scenario.message_tracer.on_acknowledged(7, "c7")
    scenario.message_tracer.on_dropped(7, "c7", "queue_full", "")
    assert scenario.stages == scenario.ends == []


def test_the_puback_of_a_refused_attempt_is_not_that_of_the_next_attempt() -> None:
    scenario = Scenario()
    tracer = scenario.message_tracer
    trace = scenario.publish(receivers=2)
    tracer.on_queued(trace, "$queue/jobs", "no consumer had room", 1, 1_000)
    tracer.on_sent(trace, "c7", 1, 1)
    tracer.on_written(1)
    tracer.on_returned(trace, "c7", "nacked")
    tracer.on_acknowledged(trace, "c7")
    assert scenario.ends == []
    scenario.wait(1)
    tracer.on_sent(trace, "c7", 1, 1)
    tracer.on_written(1)
    scenario.wait(2)
    tracer.on_acknowledged(trace, "c7")
    assert scenario.ends == [("c7", "acknowledged", "")]
    assert scenario.stages[-1] == ("acknowledge", 1, 2.0)


def test_an_attempt_of_a_queue_ends_with_its_deadline_and_is_no_drop() -> None:
    scenario = Scenario()
    tracer = scenario.message_tracer
    trace = scenario.publish()
    tracer.on_queued(trace, "$queue/jobs", "no consumer had room", 1, 1_000)
    for attempt in range(2):
        tracer.on_sent(trace, "c7", 1, 1)
        tracer.on_written(1)
        scenario.wait(10)
        assert tracer.oldest_unacknowledged_s() == 10.0
        tracer.on_returned(trace, "c7", "deadline")
        tracer.on_returned(trace, "c7", "deadline")
        assert (tracer.oldest_unacknowledged_s(), tracer.unacknowledged_since("c7")) == (0.0, None)
        assert scenario.ends == [], f"attempt {attempt} is no outcome of the message"
    tracer.on_sent(trace, "c8", 2, 1)
    tracer.on_written(2)
    tracer.on_acknowledged(trace, "$queue/jobs")
    tracer.on_acknowledged(trace, "c8")
    assert scenario.ends == [("$queue/jobs", "acknowledged", ""), ("c8", "acknowledged", "")]
    assert len(tracer) == 0
    tracer.on_returned(trace, "c8", "late")
