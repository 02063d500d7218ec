"""Why a message was or was not delivered: a sentence of each kind, and how much the delivery log keeps."""

import json
import re

import msgspec
import pytest

from mqttlite.telemetry.alike import FEW
from mqttlite.telemetry.answers import MAX_ENTRIES, MAX_LINES, SETTLED_AFTER_S
from mqttlite.telemetry.delivery_log import ENTRY_BYTES, DeliveryLogOptions
from mqttlite.telemetry.why import REASONS, WAITS, duration
from tests.unit.telemetry.scenario import Scenario

HEAD = "1795262594201041 on plant/7/temp from c3 at 12:03:14.201: "


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


def test_a_message_that_a_function_of_an_extension_took() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_queued(trace, "extension shop:Audit", "its function was busy", 1, 1_000)
    scenario.wait(0.012)
    scenario.message_tracer.on_sent(trace, "extension shop:Audit", 0, 1)
    scenario.message_tracer.on_acknowledged(trace, "extension shop:Audit")
    assert told(scenario) == (
        "delivered to extension shop:Audit at QoS 1 after 12 ms (12 ms of that in its queue, because its function was"
        " busy), acknowledged"
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
        "expired in the queue of c7 after 1 min 0 s (it is not connected): its Message Expiry Interval was over"
    )


def test_a_message_at_qos_0_for_a_client_that_is_away() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(qos=0), "c7", "qos0_offline", "")
    assert told(scenario) == (
        "dropped for c7: qos0_offline, because the receiver was not connected, and messages of QoS 0 do not wait;"
        " see QoS"
    )


@pytest.mark.parametrize(("detail", "shown"), [("qos = 1", " (qos = 1)"), ("", "")])
def test_a_message_that_a_filter_keeps_from_a_client(detail: str, shown: str) -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(), "c7", "filter_mismatch", detail)
    assert told(scenario) == (
        f"not for c7: filter_mismatch{shown}, because the subscription's filter does not let it through"
    )


def test_a_message_without_a_subscriber() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(receivers=0), None, "no_subscribers", "")
    assert told(scenario) == "reached nobody: no_subscribers, because nobody subscribes to its topic"
    scenario.filters["c7"] = []
    assert scenario.why(client="c7") == [
        "1795262594201041 was not for c7: it subscribes to nothing. It was for nobody."
    ]


def test_a_message_of_the_brokers_own() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_queued(scenario.publish(publisher=None), "c7", "backpressure", 1, 9)
    assert scenario.why() == [
        "1795262594201041 on plant/7/temp from the broker itself at 12:03:14.201: waits for c7 since 12:03:14.201, "
        "for 0.00 ms: its socket takes nothing (1 of 9 waited then)"
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


def test_with_a_client_only_messages_for_it_and_from_it_are_answered() -> None:
    scenario = Scenario()
    trace = scenario.publish(receivers=2)
    for receiver in ("c7", "c8"):
        scenario.message_tracer.on_queued(trace, receiver, "offline", 1, 9)
    assert len(scenario.why()) == 2
    assert told(scenario, client="c7").startswith("waits for c7")
    assert len(scenario.why(client="c3")) == 2, "it published the message"
    scenario.filters["c9"] = [b"x"]
    assert scenario.why(client="c9") == [
        "1795262594201041 was not for c9: it subscribes to x, which does not match. It was for c7, c8."
    ]


def test_a_message_is_found_by_its_id_its_topic_and_a_filter() -> None:
    scenario = Scenario()
    for topic in ("plant/7/temp", "plant/8/temp", "plant/7/temp"):
        scenario.message_tracer.on_queued(scenario.publish(topic), "c7", "offline", 1, 9)
    for target, found in (
        ("1795262594201042", ["1795262594201042"]),
        ("1795262594201043", ["1795262594201043"]),
        ("plant/7/temp", ["1795262594201041", "1795262594201043"]),
        ("plant/+/temp", ["1795262594201041", "1795262594201042", "1795262594201043"]),
        ("plant/8/#", ["1795262594201042"]),
    ):
        answer = scenario.answers.why(target)
        assert [entry["message_id"] for entry in answer["entries"]] == found
        assert [sentence.split(" ")[0] for sentence in answer["sentences"]] == found
        assert answer["known"]


def test_an_answer_is_json() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(), "c7", "queue_full", "9/9")
    (entry,) = json.loads(msgspec.json.encode(scenario.answers.why("1795262594201041")))["entries"]
    assert entry == {
        "message_id": "1795262594201041",
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


def test_a_message_that_is_not_followed_is_reported_with_the_option_to_set() -> None:
    scenario = Scenario(topics=("plant/7/#", "lab"), clients=("c7",))
    scenario.filters["c9"] = []
    assert scenario.why("plant/9/temp", "c9") == [
        "Nothing is known of any message on plant/9/temp.",
        "Traced are the topics plant/7/#, lab; the messages from and to c7; one in 12 of all others.",
        "The delivery log goes back to 12:03:14.201.",
        "To trace every message of it from now on, run: mqttlite why --follow 'plant/9/temp'. To trace it always, put"
        ' topics = ["plant/9/temp"] or clients = ["c9"] below [delivery_log] and start again.',
    ]
    assert not scenario.answers.why("plant/9/temp")["known"]


def test_following_needs_no_configuration() -> None:
    scenario = Scenario(topics=("plant/#",), sampled=False)
    assert scenario.why("plant/9") == [
        "Nothing is known of any message on plant/9.",
        "Traced are the topics plant/#.",
        "The delivery log goes back to 12:03:14.201.",
    ]
    scenario = Scenario(clients=("c7",))
    scenario.filters["c7"] = []
    assert len(scenario.why("x", "c7")) == 3


def test_of_an_id_that_is_not_known_is_told_when_the_message_came() -> None:
    scenario = Scenario(entries=1)
    for _ in range(2):
        scenario.message_tracer.on_queued(scenario.publish(), "c7", "offline", 1, 9)
        scenario.wait(1)
    assert scenario.why("1795262594201041")[0] == (
        "A message 1795262594201041 came at 2026-11-21 12:03:14 UTC, if there was one: it was not traced, or is no "
        "longer in the delivery log, which goes back to 12:03:15."
    )
    assert scenario.why("1795262594201041")[2] == (
        "The delivery log goes back to 12:03:15.201 and holds 1 outcomes; "
        "[delivery_log] entries and max_bytes limit it."
    )


def test_a_number_that_no_message_has_is_a_topic() -> None:
    assert Scenario().why("7" * 5_000)[0].startswith("Nothing is known of any message on 777")


@pytest.mark.parametrize("target", ["", "a/#/b", "a+"])
def test_a_node_that_is_no_target_is_refused_without_a_hint_to_configure_it(target: str) -> None:
    (first, *rest) = Scenario().why(target)
    assert first.startswith(f"{target!r} is neither a message id nor a topic: ")
    assert not any("put topics" in sentence for sentence in rest)


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
    assert scenario.answers.why("t0")["known"] == (beyond <= 0)
    assert scenario.answers.why(f"t{4 + beyond}")["known"]


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_it_holds_so_many_bytes(beyond: int) -> None:
    size = ENTRY_BYTES + 100 + 2
    scenario = Scenario(max_bytes=3 * size)
    for number in range(3 + beyond):
        scenario.message_tracer.on_queued(scenario.publish(f"{number:0100}"), "c7", "offline", 1, 9)
    assert len(scenario.delivery_log) == min(3, 3 + beyond)
    assert scenario.delivery_log.size_bytes == len(scenario.delivery_log) * size


def test_an_answer_has_a_bounded_number_of_lines_and_entries() -> None:
    scenario = Scenario()
    for number in range(MAX_ENTRIES + 5):
        scenario.message_tracer.on_queued(scenario.publish(f"t{number}"), "c7", "offline", 1, 9)
    answer = scenario.answers.why("#")
    assert (
        answer["sentences"][0]
        == f"The latest {MAX_LINES} of {MAX_ENTRIES + 5} lines, about {MAX_ENTRIES + 5} messages:"
    )
    assert len(answer["sentences"]) == 1 + MAX_LINES
    assert len(answer["entries"]) == MAX_ENTRIES


def test_messages_that_are_alike_are_one_line_with_a_count() -> None:
    scenario = Scenario()
    for number in range(20):
        trace = scenario.publish()
        scenario.message_tracer.on_sent(trace, "c7", 1, 1)
        scenario.wait(0.002 if number == 5 else 0.001)
        scenario.message_tracer.on_written(1)
        scenario.message_tracer.on_acknowledged(trace, "c7")
        scenario.wait(1)
    assert scenario.why() == [
        "20 messages on plant/7/temp from c3, 12:03:14.201 to 12:03:33.221 "
        "(1795262594201041 to 1795262594201060): delivered to c7 at QoS 1 after 2.00 ms, acknowledged "
        "0.00 ms later; the times are those of the slowest"
    ]
    assert len(scenario.answers.why("plant/7/temp")["entries"]) == 20
    scenario.message_tracer.on_dropped(scenario.publish(), "c7", "queue_full", "9/9")
    assert [line.partition(" ")[0] for line in scenario.why()] == ["20", "1795262594201061"]


def test_each_receiver_of_a_drop_is_named() -> None:
    """Up to twenty: an operator looks for the device that lost the message."""
    scenario = Scenario()
    trace = scenario.publish(receivers=22)
    for number in range(22):
        scenario.message_tracer.on_dropped(trace, f"c{number}", "queue_full", "9/9")
    text = told(scenario)
    assert f"22 clients ({', '.join(f'c{number}' for number in range(20))} and 2 others)" in text


def test_receivers_that_are_alike_are_one_line() -> None:
    scenario = Scenario()
    trace = scenario.publish(receivers=5)
    for number in range(5):
        scenario.receiver_state = f"c{number} was not connected"
        scenario.message_tracer.on_queued(trace, f"c{number}", "offline", 1, 9)
    assert told(scenario) == (
        "waits for 5 clients (c0, c1, c2 and 2 others) since 12:03:14.201, for 0.00 ms: they are not connected"
        " (1 of 9 waited then); the times are those of the slowest"
    )


def test_few_that_are_alike_are_told_one_by_one() -> None:
    scenario = Scenario()
    for _ in range(FEW - 1):
        trace = scenario.publish(qos=0, receivers=FEW - 1)
        for number in range(FEW - 1):
            scenario.message_tracer.on_dropped(trace, f"c{number}", "qos0_offline", "")
    assert len(scenario.why()) == (FEW - 1) ** 2


def test_a_message_that_the_client_refused() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_sent(trace, "c7", 1, 1)
    scenario.message_tracer.on_written(1)
    scenario.message_tracer.on_dropped(trace, "c7", "nacked", "reason code 0x83")
    assert told(scenario) == ("refused by c7 after 0.00 ms: nacked, with implementation specific error (0x83)")
    for detail, words in (("", "no reason code"), ("odd", "odd")):
        trace = scenario.publish("x")
        scenario.message_tracer.on_dropped(trace, "c7", "nacked", detail)
        assert scenario.why(str(trace))[0].endswith(f"refused by c7: nacked, with {words}")
    trace = scenario.publish("y")
    scenario.message_tracer.on_dropped(trace, "$queue/q", "nacked", "it is in $dlq/q after 3 deliveries (deadline)")
    assert scenario.why(str(trace))[0].endswith("given up by $queue/q: it is in $dlq/q after 3 deliveries (deadline)")


def test_a_message_that_expired_before_a_socket_took_it() -> None:
    scenario = Scenario()
    scenario.message_tracer.on_dropped(scenario.publish(qos=0), "c7", "expired", "")
    assert told(scenario) == "expired before the socket of c7 took it: its Message Expiry Interval was over"


def test_the_retained_message_is_explained() -> None:
    scenario = Scenario()
    scenario.retained[b"plant/7/temp"] = 1, 5
    said = (
        "A message of 5 bytes at QoS 1 is retained on plant/7/temp: a client gets it when it subscribes, and that is "
        "not traced."
    )
    assert scenario.why()[:2] == ["Nothing is known of any message on plant/7/temp.", said]
    scenario.message_tracer.on_dropped(scenario.publish(receivers=0), None, "no_subscribers", "")
    assert scenario.why()[1:] == [said]
    assert said not in scenario.why("plant/#")


def test_an_unknown_client_is_one_sentence() -> None:
    scenario = Scenario()
    for _ in range(20):
        scenario.message_tracer.on_queued(scenario.publish(), "c7", "offline", 1, 9)
    said = ["There is no client c9: it has no session, and no message in the delivery log is from it or for it."]
    assert scenario.why(client="c9") == said
    assert scenario.why("1795262594201041", "c9") == said
    assert scenario.why("no/topic", "c9") == said
    assert scenario.why("", "c9") == said
    assert scenario.answers.why("", "c9")["known"] is False


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ([], "it subscribes to nothing"),
        ([b"a", b"b"], "it subscribes to a, b, which does not match"),
        ([b"a", b"b", b"c", b"d", b"e"], "it subscribes to a, b, c and 2 others, which does not match"),
        (
            [b"a", b"$share/g/plant/#"],
            "it subscribes to $share/g/plant/# now, and either did not when they came or is not the member that its"
            " shared subscription chose",
        ),
    ],
)
def test_a_client_that_messages_were_not_for_is_one_sentence(filters: list[bytes], why: str) -> None:
    scenario = Scenario()
    scenario.filters["c9"] = filters
    for _ in range(20):
        scenario.message_tracer.on_queued(scenario.publish(), "c7", "offline", 1, 9)
    assert scenario.why(client="c9") == [f"None of 20 messages was for c9: {why}. They were for c7."]
    assert scenario.why("1795262594201041", "c9") == [f"1795262594201041 was not for c9: {why}. It was for c7."]


def test_a_client_alone_is_about_all_of_its_messages() -> None:
    scenario = Scenario()
    for topic, publisher, receiver in (("a", "c1", "c2"), ("b", "c2", "c3"), ("c", "c3", "c4")):
        scenario.message_tracer.on_queued(scenario.publish(topic, publisher=publisher), receiver, "offline", 1, 9)
    heads = [line.partition(" at ")[0] for line in scenario.why("", "c2")]
    assert heads == ["1795262594201041 on a from c1", "1795262594201042 on b from c2"]
    scenario.filters["c5"] = []
    assert scenario.why("", "c5")[0] == "Nothing is known of any message from or to c5."


def test_the_identifier_of_a_client_will_do_as_the_log_shows_it() -> None:
    scenario = Scenario()
    client = "mqttlite-5f2c0123456789ab"
    scenario.message_tracer.on_queued(scenario.publish(publisher=client), "c7", "offline", 1, 9)
    assert scenario.why(client) == scenario.why("", client) == scenario.why("1795262594201041")
    scenario.filters["silent"] = []
    assert scenario.why("silent")[0] == "Nothing is known of any message from or to silent."


def test_a_followed_message_is_reported_once_it_is_settled() -> None:
    scenario = Scenario(sampled=False)
    scenario.delivery_log.followed = frozenset({b"plant/#"})
    first = scenario.answers.follow("plant/#", None)
    assert (first["sentences"], first["latest"]) == ([], 0)
    done, waiting, done_behind = (scenario.publish() for _ in range(3))
    for trace in (done, done_behind):
        scenario.message_tracer.on_dropped(trace, "c7", "qos0_offline", "")
    scenario.message_tracer.on_queued(waiting, "c7", "offline", 1, 9)
    other = scenario.publish("office")
    second = scenario.answers.follow("plant/#", first["latest"])
    assert [entry["message_id"] for entry in second["entries"]] == [str(done)]
    scenario.wait(SETTLED_AFTER_S)
    third = scenario.answers.follow("plant/#", second["latest"])
    assert [entry["outcome"] for entry in third["entries"]] == ["waiting", "dropped"]
    assert third["latest"] == done_behind
    scenario.message_tracer.on_dropped(other, None, "no_subscribers", "")
    assert scenario.answers.follow("plant/#", third["latest"])["sentences"] == []
    assert scenario.why("x")[1] == "Traced are the topics plant/#."
    scenario.delivery_log.followed = frozenset()
    assert scenario.why("x")[1] == "Nothing is traced now."


def test_of_a_client_that_is_followed_all_that_it_sends_and_gets_is_told() -> None:
    scenario = Scenario(sampled=False)
    assert not scenario.delivery_log.traces_client("c7")
    scenario.delivery_log.followed_clients = frozenset({"c7"})
    assert scenario.delivery_log.traces_client("c7")
    sent, got, other = scenario.publish(publisher="c7"), scenario.publish(), scenario.publish()
    for trace, receiver in ((sent, "c1"), (got, "c7"), (got, "c1"), (other, "c1")):
        scenario.message_tracer.on_dropped(trace, receiver, "qos0_offline", "")
    found = scenario.answers.follow("", None, client="c7")["entries"] + scenario.answers.follow("", 0, "c7")["entries"]
    assert [(each["message_id"], each["receiver"]) for each in found] == [(str(sent), "c1"), (str(got), "c7")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": ("a", "b/#/c")}, r"topics\[1\]: '#' in 'b/#/c' is not a whole last level"),
        ({"entries": 0}, "entries is 0: 1 at least"),
        ({"max_bytes": 0}, "max_bytes is 0: 1 at least"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeliveryLogOptions(**options)  # type: ignore[arg-type]


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


def test_limits_that_a_client_met_are_said_beside_its_messages_and_without_any() -> None:
    scenario = Scenario()
    scenario.cuts["c7"] = ["c7 at 12:00:00.000: memory was short"]
    found = scenario.answers.why("", "c7")
    assert (found["known"], found["sentences"][1]) == (True, "c7 at 12:00:00.000: memory was short")
    assert scenario.answers.why("c7")["sentences"] == found["sentences"]
    assert not scenario.answers.why("", "c8")["known"]


def test_a_message_for_which_the_queues_of_a_user_had_no_room_names_that_quota() -> None:
    scenario = Scenario()
    trace = scenario.publish()
    scenario.message_tracer.on_dropped(trace, "c7", "queue_full", "user_queued_bytes: 1828/2000")
    assert told(scenario) == (
        "dropped for c7: queue_full (user_queued_bytes: 1828/2000), because the session's queue was full; "
        "see quotas.user_queued_bytes"
    )
