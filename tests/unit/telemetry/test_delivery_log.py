"""Why a message was or was not delivered: a sentence of each kind, and how much the delivery log keeps."""

import json
import re

import msgspec
import pytest

from mqttlite.telemetry.delivery_log import ENTRY_BYTES, MAX_ANSWERED, MAX_RECEIVERS, Options
from mqttlite.telemetry.why import REASONS, WAITS, duration
from tests.unit.telemetry.scenario import Scenario

HEAD = "5f2c-41 on plant/7/temp from c3 at 12:03:14.201: "


def told(scenario: Scenario, target: str = "plant/7/temp", client: str | None = None) -> str:
    """The one sentence of an answer, without its head."""
    (sentence,) = scenario.why(target, client)
    assert sentence.startswith(HEAD)
    return sentence.removeprefix(HEAD)


def test_a_message_that_was_written_at_qos_0() -> None:
    scenario = Scenario()
    trace = scenario.publish(qos=0)
    scenario.message_tracer.on_sent(trace, "c7", 1, 0)
    assert told(scenario) == "sent to c7 at QoS 0, and not yet handed to its socket"
    scenario.wait(0.0003)
    scenario.message_tracer.on_written(1)
    assert told(scenario) == "written to the socket of c7 after 0.30 ms; QoS 0, which nobody acknowledges"


def test_a_message_that_was_delivered_and_acknowledged() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    scenario.wait(0.002)
    scenario.message_tracer.on_written(1)
    scenario.wait(3.2)
    assert told(scenario) == "handed to the socket of c7 at QoS 1 after 2.00 ms, unacknowledged for 3.2 s"
    scenario.message_tracer.on_acknowledged(trace, "c7")
    scenario.wait(100)
    assert told(scenario) == "delivered to c7 at QoS 1 after 2.00 ms, acknowledged 3.2 s later"


def test_a_message_that_waited_before_it_was_delivered() -> None:
    scenario = Scenario()
    scenario.receiver_state = "20 of 20 were unacknowledged since 12:03:11.000"
    trace = scenario.publish()
    scenario.message_tracer.on_queued(trace, "c7", "window_full", 4, 1_000)
    scenario.wait(4.1)
    assert told(scenario) == (
        "waits for c7 since 12:03:14.201, for 4.1 s: 20 of 20 were unacknowledged since 12:03:11.000"
        " (4 of 1000 waited then)"
    )
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    scenario.message_tracer.on_written(1)
    scenario.wait(0.012)
    scenario.message_tracer.on_acknowledged(trace, "c7")
    assert told(scenario) == (
        "delivered to c7 at QoS 1 after 4.1 s (4.1 s of that in its queue, because 20 of 20 were unacknowledged since"
        " 12:03:11.000), acknowledged 12 ms later"
    )


def test_a_message_that_waits_for_a_client_that_is_away() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_queued(scenario.publish(), "c7", "offline", 1, 1_000)
    scenario.wait(200)
    assert told(scenario) == (
        "waits for c7 since 12:03:14.201, for 3 min 20 s: it is not connected (1 of 1000 waited then)"
    )


def test_a_message_whose_receiver_went_without_acknowledging_it_and_came_back() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    scenario.message_tracer.on_written(1)
    scenario.message_tracer.on_gone(1)
    scenario.message_tracer.on_queued(trace, "c7", "offline", 1, 1_000)
    scenario.wait(7_300)
    assert told(scenario) == (
        "handed to the socket of c7 at QoS 1 after 0.00 ms, unacknowledged for 2 h 1 min: it is not connected"
    )
    scenario.message_tracer.on_sent(trace, "c7", 2, 1)
    scenario.message_tracer.on_acknowledged(trace, "c7")
    assert told(scenario) == "delivered to c7 at QoS 1 after 0.00 ms, sent again 1 time, acknowledged 2 h 1 min later"


def test_a_message_that_was_dropped_from_a_full_queue() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_queued(trace, "c7", "window_full", 1_000, 1_000)
    scenario.wait(4.1)
    scenario.receiver_state = "20 of 20 were unacknowledged since 12:03:11.000"
    scenario.message_tracer.on_dropped(trace, "c7", "queue_full", "1000/1000")
    assert told(scenario) == (
        "queued for c7 4.1 s, then dropped: queue_full (1000/1000), because 20 of 20 were unacknowledged since"
        " 12:03:11.000; see limits.max_queued_messages, limits.max_queued_bytes, limits.on_overflow"
    )


def test_a_message_that_expired_in_its_queue() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_queued(trace, "c7", "offline", 1, 1_000)
    scenario.wait(60)
    scenario.message_tracer.on_dropped(trace, "c7", "expired", "")
    assert told(scenario) == (
        "queued for c7 1 min 0 s (because it is not connected), then dropped: expired, because its Message Expiry"
        " Interval was over; see Message Expiry Interval"
    )


def test_a_message_at_qos_0_for_a_client_that_is_away() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(qos=0), "c7", "qos0_offline", "")
    assert told(scenario) == (
        "dropped for c7: qos0_offline, because the receiver was not connected, and messages of QoS 0 do not wait;"
        " see QoS"
    )


def test_a_message_that_nobody_subscribes_to() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(receivers=0), None, "no_subscribers", "")
    assert told(scenario) == "reached nobody: no_subscribers, because nobody subscribes to its topic"
    assert told(scenario, client="c7").startswith("was not for c7, who had no subscription that matches")
    assert told(scenario, client="c7").endswith("it was for nobody")


def test_a_message_of_the_brokers_own() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_queued(scenario.publish(publisher=None), "c7", "backpressure", 1, 9)
    assert scenario.why() == [
        "5f2c-41 on plant/7/temp from the broker itself at 12:03:14.201: waits for c7 since 12:03:14.201, for 0.00 ms:"
        " its socket takes nothing (1 of 9 waited then)"
    ]


def test_messages_that_were_lost_sight_of() -> None:
    scenario = Scenario()
    lost = scenario.publish(qos=0)
    scenario.message_tracer.on_sent(lost, "c7", 1, 0)
    scenario.message_tracer.on_gone(1)
    assert told(scenario) == "sent to c7, whose connection ended before its socket took it"
    scenario = Scenario()
    scenario.message_tracer.on_queued(scenario.publish(), "c7", "offline", 1, 9)
    scenario.message_tracer.end_some(9)
    assert told(scenario) == "for c7: lost sight of, for too many others were traced"
    scenario = Scenario()
    scenario.publish()
    scenario.message_tracer.end_some(9)
    assert told(scenario) == "lost sight of before it reached anybody: too many others were traced"


def test_a_reason_without_words_is_told_as_it_is() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(), "c7", "eaten", "")
    assert told(scenario) == "dropped for c7: eaten"


def test_with_a_client_only_what_became_of_messages_for_it_and_from_it() -> None:
    scenario = Scenario()
    trace = scenario.publish(receivers=2)
    for receiver in ("c7", "c8"):
        scenario.message_tracer.on_queued(trace, receiver, "offline", 1, 9)
    assert len(scenario.why()) == 2
    assert told(scenario, client="c7").startswith("waits for c7")
    assert len(scenario.why(client="c3")) == 2, "it published the message"
    assert told(scenario, client="c9") == (
        "was not for c9, who had no subscription that matches, or is not the one its shared subscription chose;"
        " it was for c7, c8"
    )


def test_a_message_is_found_by_its_id_its_topic_and_a_filter() -> None:
    scenario = Scenario()
    for topic in ("plant/7/temp", "plant/8/temp", "plant/7/temp"):
        scenario.message_tracer.on_queued(scenario.publish(topic), "c7", "offline", 1, 9)
    for target, found in (
        ("5f2c-42", ["5f2c-42"]),
        ("5f2c0123456789ab-43", ["5f2c-43"]),
        ("plant/7/temp", ["5f2c-41", "5f2c-43"]),
        ("plant/+/temp", ["5f2c-41", "5f2c-42", "5f2c-43"]),
        ("plant/8/#", ["5f2c-42"]),
    ):
        answer = scenario.delivery_log.why(target)
        assert [entry["message_id"] for entry in answer["entries"]] == found
        assert [sentence.split(" ")[0] for sentence in answer["sentences"]] == found
        assert answer["known"]


def test_an_answer_is_json() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(), "c7", "queue_full", "9/9")
    (entry,) = json.loads(msgspec.json.encode(scenario.delivery_log.why("5f2c-41")))["entries"]
    assert entry == {
        "message_id": "5f2c-41",
        "at": "2026-11-21T12:03:14.201000+00:00",
        "topic": "plant/7/temp",
        "qos": 1,
        "publisher": "c3",
        "receiver": "c7",
        "outcome": "dropped",
        "reason": "queue_full",
        "detail": "9/9",
        "rule": "limits.max_queued_messages, limits.max_queued_bytes, limits.on_overflow",
        "queued_s": None,
        "written_s": None,
        "acknowledged_s": None,
    }


def test_what_is_not_followed_is_told_with_what_to_configure() -> None:
    scenario = Scenario(topics=("plant/7/#", "lab"), clients=("c7",))
    assert scenario.why("plant/9/temp", "c9") == [
        "Nothing is known of any message on plant/9/temp.",
        "Traced are the topics plant/7/#, lab; the messages from and to c7; one in 12 of all others.",
        "The delivery log goes back to 12:03:14.201.",
        'To have every message of it traced, put topics = ["plant/9/temp"] or clients = ["c9"] below [delivery_log]'
        " and start again.",
    ]
    assert not scenario.delivery_log.why("plant/9/temp")["known"]


def test_of_what_is_followed_nothing_is_to_be_configured() -> None:
    scenario = Scenario(topics=("plant/#",), sampled=False)
    assert scenario.why("plant/9") == [
        "Nothing is known of any message on plant/9.",
        "Traced are the topics plant/#.",
        "The delivery log goes back to 12:03:14.201.",
    ]
    assert len(Scenario(clients=("c7",)).why("x", "c7")) == 3


def test_ids_of_another_run_of_the_future_and_of_the_past_are_told_apart() -> None:
    scenario = Scenario(entries=1)
    for _ in range(2):
        scenario.message_tracer.on_queued(scenario.publish(), "c7", "offline", 1, 9)
        scenario.wait(1)
    assert scenario.why("77aa-41")[0] == "77aa-41 is no message of this run: its messages begin with 5f2c-."
    assert scenario.why("5f2c-99")[0] == "There is no message 5f2c-99: the latest that was entered is 5f2c-42."
    assert scenario.why("5f2c-41")[0] == "Nothing is known of 5f2c-41 any more, or it was not entered."
    assert scenario.why("5f2c-41")[2] == (
        "The delivery log goes back to 12:03:15.201 and holds 1 outcomes; "
        "[delivery_log] entries and max_bytes limit it."
    )


def test_a_number_that_no_message_has_is_a_topic() -> None:
    assert Scenario().why(f"5f2c-{'7' * 5_000}")[0].startswith("Nothing is known of any message on 5f2c-777")


@pytest.mark.parametrize("target", ["", "a/#/b", "a+"])
def test_what_is_no_target_is_told_so_and_not_to_be_configured(target: str) -> None:
    (first, *rest) = Scenario().why(target)
    assert first.startswith(f"{target!r} is neither a message id nor a topic: ")
    assert not any("put topics" in sentence for sentence in rest)


def test_of_many_messages_that_were_not_for_a_client_the_latest_are_told() -> None:
    scenario = Scenario()
    for _ in range(MAX_ANSWERED + 5):
        scenario.message_tracer.on_queued(scenario.publish(), "c7", "offline", 1, 9)
    first, *rest = scenario.why(client="c9")
    assert first == f"The latest {MAX_ANSWERED} of {MAX_ANSWERED + 5} messages:"
    assert len(rest) == MAX_ANSWERED
    assert all("was not for c9" in sentence for sentence in rest)


def test_by_chance_followed_messages_are_entered_only_where_the_options_say_so() -> None:
    for sampled, entries in ((True, 3), (False, 2)):
        scenario = Scenario(topics=("plant/#",), clients=("c7",), sampled=sampled)
        for topic, receiver in (("plant/7", "c1"), ("lab", "c7"), ("lab", "c1")):
            scenario.message_tracer.on_queued(scenario.publish(topic), receiver, "offline", 1, 9)
        assert len(scenario.delivery_log) == entries


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_it_holds_so_many_outcomes(beyond: int) -> None:
    scenario = Scenario(entries=5)
    for number in range(5 + beyond):
        scenario.message_tracer.on_queued(scenario.publish(f"t{number}"), "c7", "offline", 1, 9)
    assert len(scenario.delivery_log) == min(5, 5 + beyond)
    assert scenario.delivery_log.why("t0")["known"] == (beyond <= 0)
    assert scenario.delivery_log.why(f"t{4 + beyond}")["known"]


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_it_holds_so_many_bytes(beyond: int) -> None:
    size = ENTRY_BYTES + 100 + 2
    scenario = Scenario(max_bytes=3 * size)
    for number in range(3 + beyond):
        scenario.message_tracer.on_queued(scenario.publish(f"{number:0100}"), "c7", "offline", 1, 9)
    assert len(scenario.delivery_log) == min(3, 3 + beyond)
    assert scenario.delivery_log.size_bytes == len(scenario.delivery_log) * size


def test_an_answer_tells_the_latest_messages_and_some_of_their_receivers() -> None:
    scenario = Scenario()
    for _ in range(MAX_ANSWERED + 5):
        trace = scenario.publish(receivers=MAX_RECEIVERS + 2)
        for number in range(MAX_RECEIVERS + 2):
            scenario.message_tracer.on_queued(trace, f"c{number}", "offline", 1, 9)
    answer = scenario.delivery_log.why("plant/7/temp")
    assert answer["sentences"][0] == f"The latest {MAX_ANSWERED} of {MAX_ANSWERED + 5} messages:"
    assert answer["sentences"][-1].endswith(": and 2 other receivers")
    assert len(answer["sentences"]) == 1 + MAX_ANSWERED * (MAX_RECEIVERS + 1)
    assert len(answer["entries"]) == MAX_ANSWERED * MAX_RECEIVERS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": ("a", "b/#/c")}, r"topics\[1\]: '#' in 'b/#/c' is not a whole last level"),
        ({"sampled": False}, "topics and clients are empty and sampled is false: there would be nothing to enter"),
        ({"entries": 0}, "entries is 0: 1 at least"),
        ({"max_bytes": 0}, "max_bytes is 0: 1 at least"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options(**options)  # type: ignore[arg-type]


def test_every_drop_reason_of_the_reference_has_its_words() -> None:
    with open("docs/reference/telemetry.md", encoding="utf-8") as reference:
        listed = reference.read().split("Drop reasons: ")[1].split(".\n")[0]
    assert set(REASONS) == set(re.findall(r"`(\w+)`", listed))


def test_every_reason_to_wait_has_its_words() -> None:
    assert set(WAITS) == {"offline", "backpressure", "window_full"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.00031, "0.31 ms"),
        (0.012, "12 ms"),
        (4.1, "4.1 s"),
        (59.94, "59.9 s"),
        (200, "3 min 20 s"),
        (7_260, "2 h 1 min"),
    ],
)
def test_durations_are_told_as_people_do(seconds: float, words: str) -> None:
    assert duration(seconds) == words
