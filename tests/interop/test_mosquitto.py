"""mosquitto_pub and mosquitto_sub, 3.1.1 and 5.0: what goes beyond the matrix of all clients."""

import json

import pytest

from tests.interop.support import READY, Line, MosquittoSub, Paho, RunningBroker, eventually, mosquitto_pub, published

VERSIONS = pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])


@pytest.fixture(autouse=True)
def _ready(broker: RunningBroker) -> None:
    published(broker.tcp, "-t", READY, "-m", "1", "-r")


@VERSIONS
def test_messages_that_are_repeated_arrive_as_often_and_in_order(line: Line, version: str) -> None:
    with MosquittoSub(line, "lines", "-q", "1", "-V", version) as reader:
        for number in range(5):
            published(line, "-t", "lines", "-m", str(number), "--repeat", "3", "-q", "1", "-V", version)
        assert reader.take(15) == [str(number) for number in range(5) for _ in range(3)]


def test_a_large_message_arrives_whole(line: Line) -> None:
    text = "0123456789" * 10_000
    with Paho(line, "reader") as reader:
        reader.subscribe("large", 1)
        published(line, "-t", "large", "-m", text, "-q", "1")
        assert reader.next().payload == text.encode()
    with MosquittoSub(line, "large", format="%l") as sub:
        published(line, "-t", "large", "-m", text, "-q", "1")
        assert sub.next() == "100000"


@pytest.mark.parametrize("topic_filter", ["orders/#", "$share/group/orders/#"])
def test_a_filter_is_a_user_property_of_subscribe(line: Line, topic_filter: str) -> None:
    where = f'(attributes.region = "us" AND payload.total > 10) OR topic = "{READY}"'
    filtered = ("-V", "mqttv5", "-q", "1", "-D", "subscribe", "user-property", "filter", where)
    with MosquittoSub(line, topic_filter, *filtered) as reader:
        for region, total in (("eu", 20), ("us", 5), ("us", 20)):
            properties = ("-D", "publish", "user-property", "region", region)
            published(line, "-t", "orders/1", "-m", f'{{"total": {total}}}', "-q", "1", "-V", "mqttv5", *properties)
        assert reader.next() == '{"total": 20}'


def test_json_output_reads_back(line: Line) -> None:
    with MosquittoSub(line, "a", format="%J") as reader:
        published(line, "-t", "a", "-m", '{"b": 1}', "-q", "1")
        found = json.loads(reader.next())
        assert (found["topic"], found["payload"]) == ("a", {"b": 1})


def test_a_client_that_does_not_trust_our_authority_leaves_and_the_log_says_why(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    done = mosquitto_pub(Line(broker.tls.port), "--tls-use-os-certs", "-t", "a", "-m", "x")
    assert done.returncode != 0
    eventually(lambda: "the client does not trust our certificate's CA" in caplog.text)
