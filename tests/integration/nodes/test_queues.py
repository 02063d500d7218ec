"""Queues and streams of several nodes: each is at one node, and clients of all nodes use it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqttlite.client.errors import PublishRefused, SubscribeRefused
from mqttlite.extensions.queues.errors import QueueExists
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.server import Broker
from mqttlite.wire.properties import Properties
from tests.integration.nodes.test_nodes import (
    Fleet,
    Reader,
    air,
    client_of,
    connected,
    fleet,
    kept_client,
    nodes_of,
)
from tests.support.air import Air
from tests.support.device import PATIENCE_S, until
from tests.support.inside import assembly_of, core_of
from tests.support.rules import OpenRules

__all__ = ("air", "fleet")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]


JOBS: dict[str, Any] = {"queues": [{"name": "jobs", "filters": ["orders/#"]}]}
"""The options of a node with a queue."""


async def with_queue(fleet: Fleet, *names: str) -> list[Broker]:
    """Nodes of which the first one has the queue `jobs`."""
    brokers = [await fleet.start(name, **(JOBS if name == names[0] else {})) for name in names]
    await connected(*brokers)
    return brokers


def queue_names(broker: Broker) -> list[str]:
    queueing = assembly_of(broker).queueing
    assert queueing is not None
    return queueing.queues.names


def depth(broker: Broker, name: str) -> int:
    queueing = assembly_of(broker).queueing
    assert queueing is not None
    return queueing.queues.state(name).depth


async def knows(broker: Broker, name: str, node: str) -> None:
    """Wait until a broker knows that a queue or stream is at another node."""
    await until(lambda: (place := nodes_of(broker).far.places.of(name.encode())) is not None and place.node == node)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_consumer_at_another_node_gets_the_messages_of_a_queue(fleet: Fleet, qos: int) -> None:
    a, b = await with_queue(fleet, "a", "b")
    async with client_of(b) as consumer, client_of(b) as publisher:
        await knows(b, "$queue/jobs", "a")
        await consumer.subscribe("$queue/jobs", qos=1)
        reader = Reader(consumer)
        for number in range(5):
            await publisher.publish("orders/1", str(number), qos=qos)
        await reader.gets("0", "1", "2", "3", "4")
        await until(lambda: depth(a, "jobs") == 0)
    assert queue_names(b) == []


async def test_a_message_published_at_any_node_is_in_the_queue_once(fleet: Fleet) -> None:
    a, b, c = await with_queue(fleet, "a", "b", "c")
    async with client_of(a) as one, client_of(b) as two, client_of(c) as three:
        await knows(b, "$queue/jobs", "a")
        await knows(c, "$queue/jobs", "a")
        await two.subscribe("orders/#", qos=2)
        for client in (one, two, three):
            await client.publish("orders/1", "x", qos=1)
        await until(lambda: depth(a, "jobs") == 3)
        await asyncio.sleep(0.2)
        assert depth(a, "jobs") == 3


async def test_consumers_of_all_nodes_share_a_queue(fleet: Fleet) -> None:
    a, b, c = await with_queue(fleet, "a", "b", "c")
    async with client_of(a) as one, client_of(b) as two, client_of(c) as three, client_of(b) as publisher:
        await one.subscribe("$queue/jobs", qos=1)
        await knows(b, "$queue/jobs", "a")
        await knows(c, "$queue/jobs", "a")
        await two.subscribe("$queue/jobs", qos=1)
        await three.subscribe("$queue/jobs", qos=1)
        readers = [Reader(each) for each in (one, two, three)]
        for number in range(30):
            await publisher.publish("orders/1", str(number), qos=1)
        await until(lambda: sum(len(each.messages) for each in readers) == 30)
        assert sorted(int(each) for reader in readers for each in reader.payloads) == list(range(30))
        assert all(len(reader.messages) >= 5 for reader in readers)
        await until(lambda: depth(a, "jobs") == 0)


async def test_of_queues_with_the_same_name_the_older_one_stays_and_gets_the_messages_of_the_other(
    fleet: Fleet, air: Air
) -> None:
    a = await fleet.start("a", **JOBS)
    air.cut.add(frozenset("ab"))
    b = await fleet.start("b", **JOBS)
    async with client_of(a) as one, client_of(b) as two:
        for number in range(1_200):
            await two.publish("orders/1", str(number), qos=1)
        await one.publish("orders/1", "x", qos=1)
        assert (depth(a, "jobs"), depth(b, "jobs")) == (1, 1_200)
        air.cut.clear()
        await connected(a, b)
        await until(lambda: queue_names(b) == [])
        await until(lambda: depth(a, "jobs") == 1_201)
        await two.publish("orders/1", "y", qos=1)
        await two.subscribe("$queue/jobs", qos=1)
        reader = Reader(two)
        await reader.gets("x", "y", *(str(number) for number in range(1_200)))
        assert [each for each in reader.payloads if each.isdigit()] == [str(number) for number in range(1_200)]


async def test_a_node_that_starts_again_does_not_make_a_queue_that_is_at_a_node_which_is_away(
    fleet: Fleet, tmp_path: Path
) -> None:
    a = await fleet.start("a", tmp_path / "a", **JOBS)
    b = await fleet.start("b", tmp_path / "b", **JOBS)
    await connected(a, b)
    await until(lambda: queue_names(b) == [])
    await a.stop()
    await b.stop()
    b = await fleet.start("b", tmp_path / "b", **JOBS)
    assert queue_names(b) == []
    async with client_of(b) as client:
        await client.subscribe("$queue/jobs", qos=1)
        reader = Reader(client)
        await client.publish("orders/1", "x", qos=1)
        await asyncio.sleep(0.2)
        assert reader.messages == []
        a = await fleet.start("a", tmp_path / "a", **JOBS)
        await reader.gets("x")
        await until(lambda: depth(a, "jobs") == 0)


async def test_a_queue_of_a_lost_node_is_not_waited_for(fleet: Fleet, tmp_path: Path) -> None:
    a = await fleet.start("a", **JOBS)
    b = await fleet.start("b", tmp_path, keep_s=1)
    await connected(a, b)
    await knows(b, "$queue/jobs", "a")
    await a.stop()
    await until(lambda: nodes_of(b).far.places.of(b"$queue/jobs") is None)
    queueing = assembly_of(b).queueing
    assert queueing is not None
    queueing.queues.create(QueueOptions(name="jobs", filters=("orders/#",)))
    assert queue_names(b) == ["jobs"]


async def test_consumers_of_a_queue_that_moves_go_on_at_its_node(fleet: Fleet, air: Air) -> None:
    a = await fleet.start("a", **JOBS)
    air.cut.add(frozenset("ab"))
    b = await fleet.start("b", **JOBS)
    async with client_of(a) as publisher, client_of(b) as consumer:
        await consumer.subscribe("$queue/jobs", qos=1)
        reader = Reader(consumer)
        air.cut.clear()
        await connected(a, b)
        await until(lambda: queue_names(b) == [])
        there = core_of(a).sessions.get("$node/b")
        assert there is not None
        await until(lambda: b"orders/#" not in there.subscriptions)  # before that it could come twice
        await publisher.publish("orders/1", "x", qos=1)
        await reader.gets("x")


async def test_a_message_that_a_consumer_of_another_node_has_not_acknowledged_comes_again(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(a) as publisher:
        async with kept_client(b, "c") as consumer:
            await consumer.subscribe("$queue/jobs", qos=1, manual_ack=True)
            await publisher.publish("orders/1", "x", qos=1)
            message = await anext(aiter(consumer.messages))
            assert message.payload == b"x"
        await until(lambda: depth(a, "jobs") == 1)
        async with kept_client(b, "c") as consumer:
            reader = Reader(consumer)
            await reader.gets("x")
            attempt = dict(reader.messages[0].properties.user_properties)
            assert attempt["delivery-attempt"] == "2"
        await until(lambda: depth(a, "jobs") == 0)


async def test_a_consumer_goes_on_when_the_node_of_the_queue_has_started_again(fleet: Fleet, tmp_path: Path) -> None:
    b = await fleet.start("b")
    a = await fleet.start("a", tmp_path, **JOBS)
    await connected(a, b)
    async with client_of(b) as consumer, client_of(b) as publisher:
        await consumer.subscribe("$queue/jobs", qos=1)
        reader = Reader(consumer)
        await publisher.publish("orders/1", "1", qos=1)
        await reader.gets("1")
        await a.stop()
        await publisher.publish("orders/1", "2", qos=1)  # it waits for the node
        a = await fleet.start("a", tmp_path, **JOBS)
        await connected(a, b)
        await publisher.publish("orders/1", "3", qos=1)
        await reader.gets("1", "2", "3")


async def test_a_consumer_goes_on_when_its_own_node_has_started_again(fleet: Fleet, tmp_path: Path) -> None:
    a = await fleet.start("a", **JOBS)
    b = await fleet.start("b", tmp_path)
    await connected(a, b)
    async with client_of(a) as publisher:
        async with kept_client(b, "c") as consumer:
            await consumer.subscribe("$queue/jobs", qos=1)
        await b.stop()
        await publisher.publish("orders/1", "1", qos=1)
        b = await fleet.start("b", tmp_path)
        await connected(a, b)
        async with kept_client(b, "c") as consumer:
            reader = Reader(consumer)
            await reader.gets("1")


@pytest.mark.parametrize("names_by", ["ack-id", "packet identifier"])
async def test_a_consumer_of_another_node_acknowledges_by_publishing(fleet: Fleet, names_by: str) -> None:
    options = {"queues": [{"name": "jobs", "filters": ["orders/#"], "ack": "explicit"}]}
    a, b = await fleet.start("a", **options), await fleet.start("b")
    await connected(a, b)
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as consumer:
        await consumer.subscribe("$queue/jobs", qos=1)
        reader = Reader(consumer)
        for number in range(3):
            await consumer.publish("orders/1", str(number), qos=1)
        await until(lambda: len(reader.messages) == 3)
        await asyncio.sleep(0.1)
        assert depth(a, "jobs") == 3
        if names_by == "ack-id":
            ids = [dict(each.properties.user_properties)["ack-id"] for each in reader.messages]
        else:
            (client,) = nodes_of(b).far._clients.values()
            ids = [str(each) for each in client._ack_ids]
            assert len(ids) == 3
        await consumer.publish("$queue/jobs/$ack", ids[0], qos=1)
        await until(lambda: depth(a, "jobs") == 2)
        await consumer.publish("$queue/jobs/$ack", "\n".join(ids[1:]), qos=1)
        await until(lambda: depth(a, "jobs") == 0)


async def test_a_consumer_that_has_unsubscribed_still_acknowledges_what_it_has(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as consumer, client_of(a) as publisher:
        await consumer.subscribe("$queue/jobs", qos=1, manual_ack=True)
        await publisher.publish("orders/1", "x", qos=1)
        message = await anext(aiter(consumer.messages))
        await consumer.unsubscribe("$queue/jobs")
        await asyncio.sleep(0.4)
        assert depth(a, "jobs") == 1
        message.ack()
        await until(lambda: depth(a, "jobs") == 0)
        await until(lambda: client_sessions(a) == [])


async def test_a_refusal_by_publishing_comes_before_the_acknowledgement(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as consumer:
        await consumer.subscribe("$queue/jobs", qos=1, manual_ack=True)
        await consumer.publish("orders/1", "x", qos=1)
        messages = aiter(consumer.messages)
        message = await anext(messages)
        ack_id = dict(message.properties.user_properties)["ack-id"]
        await consumer.publish("$queue/jobs/$nack", ack_id, qos=0)
        message.ack()
        async with asyncio.timeout(PATIENCE_S):
            message = await anext(messages)
        assert dict(message.properties.user_properties)["delivery-attempt"] == "2"
        message.ack()
        await until(lambda: depth(a, "jobs") == 0)


async def test_acknowledgements_with_a_message_for_a_stream_of_another_node_are_refused(fleet: Fleet) -> None:
    _a, b = await with_stream(fleet, "a", "b")
    async with client_of(b) as client:
        properties = Properties(user_properties=[("acks", "log:g:0:1")])
        with pytest.raises(PublishRefused, match="publish that at node a"):
            await client.publish("$stream/log", "x", qos=1, properties=properties)


async def test_a_command_is_answered_by_the_node_of_the_queue(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as client:
        await client.subscribe("answers")
        reader = Reader(client)
        await client.publish("orders/1", "x", qos=1)
        await until(lambda: depth(a, "jobs") == 1)
        await client.publish("$queue/jobs/$purge", "", qos=1, properties=Properties(response_topic="answers"))
        await until(lambda: len(reader.messages) == 1)
        assert depth(a, "jobs") == 0


async def test_a_queue_cannot_be_made_at_two_nodes(fleet: Fleet) -> None:
    _a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    queueing = assembly_of(b).queueing
    assert queueing is not None
    with pytest.raises(QueueExists, match="at node a"):
        queueing.queues.create(QueueOptions(name="jobs", filters=("x",)))


async def test_a_consumer_follows_a_queue_that_is_deleted_and_made_at_its_own_node(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as consumer:
        await consumer.subscribe("$queue/jobs", qos=1)
        reader = Reader(consumer)
        of_a, of_b = assembly_of(a).queueing, assembly_of(b).queueing
        assert of_a is not None
        assert of_b is not None
        of_a.queues.delete("jobs")
        await until(lambda: nodes_of(b).far.places.of(b"$queue/jobs") is None)
        of_b.queues.create(QueueOptions(name="jobs", filters=("orders/#",)))
        await consumer.publish("orders/1", "x", qos=1)
        await reader.gets("x")
        await until(lambda: client_sessions(a) == [])


def client_sessions(broker: Broker) -> list[str]:
    """The sessions of clients of other nodes."""
    return [each.client_id for each in core_of(broker).sessions.values() if each.client_id.count("/") > 1]


async def test_the_session_at_the_node_of_a_queue_ends_with_that_of_its_client(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b, "c") as consumer:
        await consumer.subscribe("$queue/jobs", qos=1)
        assert client_sessions(a) == ["$node/b/c"]
    await until(lambda: client_sessions(a) == [])
    assert nodes_of(b).far._clients == {}


# ---------------------------------------------------------------------- streams

STREAM: dict[str, Any] = {"streams": [{"name": "log", "filters": ["t/#"], "partitions": 4}]}


async def with_stream(fleet: Fleet, *names: str) -> list[Broker]:
    """Nodes of which the first one has the stream `log`."""
    brokers = [await fleet.start(name, **(STREAM if name == names[0] else {})) for name in names]
    await connected(*brokers)
    for each in brokers[1:]:
        await knows(each, "$stream/log", names[0])
    return brokers


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_reader_at_another_node_gets_a_stream_from_its_beginning_and_goes_on(fleet: Fleet, qos: int) -> None:
    _a, b = await with_stream(fleet, "a", "b")
    async with client_of(b) as client:
        for number in range(300):
            await client.publish("t/1", str(number), qos=1)
        await client.publish("$stream/log", "direct", qos=1)
        await client.subscribe("$stream/log@earliest", qos=qos)
        reader = Reader(client)
        await client.publish("t/1", "live", qos=1)
        await reader.gets(*(str(number) for number in range(300)), "direct", "live")
        in_order = [each.payload.decode() for each in reader.messages if each.topic == "t/1"]
        assert in_order == [*(str(number) for number in range(300)), "live"]


async def test_a_reader_gets_what_is_published_after_its_suback(fleet: Fleet, air: Air) -> None:
    a, b = await with_stream(fleet, "a", "b")
    air.max_delay_s = 0.02
    async with client_of(a) as publisher:
        for number in range(10):
            async with client_of(b) as client:
                await client.subscribe("$stream/log", qos=1)
                reader = Reader(client)
                await publisher.publish("t/1", str(number), qos=1)
                await reader.gets(str(number))


async def test_the_members_of_a_group_at_several_nodes_share_a_stream(fleet: Fleet) -> None:
    a, b, c = await with_stream(fleet, "a", "b", "c")
    async with client_of(a) as one, client_of(b) as two, client_of(c) as three, client_of(c) as publisher:
        readers = [Reader(each) for each in (one, two, three)]
        for each in (one, two, three):
            await each.subscribe("$share/g/$stream/log@earliest", qos=1)
        for number in range(200):
            await publisher.publish(f"t/{number}", str(number), qos=1)
        await until(lambda: sum(len(each.messages) for each in readers) >= 200)
        await asyncio.sleep(0.2)
        assert sorted(int(each) for reader in readers for each in reader.payloads) == list(range(200))
        assert all(reader.messages for reader in readers)


async def test_a_kept_reader_goes_on_where_it_was(fleet: Fleet) -> None:
    a, b = await with_stream(fleet, "a", "b")
    async with client_of(a) as publisher:
        async with kept_client(b, "c") as client:
            await client.subscribe("$stream/log", qos=1)
            reader = Reader(client)
            await publisher.publish("t/1", "1", qos=1)
            await reader.gets("1")
        await publisher.publish("t/1", "2", qos=1)
        async with kept_client(b, "c") as client:
            reader = Reader(client)
            await reader.gets("2")


async def test_an_empty_stream_of_the_same_name_gives_way(fleet: Fleet) -> None:
    a, b = await fleet.start("a", **STREAM), await fleet.start("b", **STREAM)
    await connected(a, b)
    await knows(b, "$stream/log", "a")
    streams = assembly_of(b).streams
    assert streams is not None
    assert streams.names == []


async def test_a_stream_with_messages_stays_beside_an_older_one(
    fleet: Fleet, air: Air, caplog: pytest.LogCaptureFixture
) -> None:
    a = await fleet.start("a", **STREAM)
    air.cut.add(frozenset("ab"))
    b = await fleet.start("b", **STREAM)
    async with client_of(b) as client:
        await client.publish("t/1", "x", qos=1)
        air.cut.clear()
        await connected(a, b)
        await until(lambda: "$stream/log cannot move" in caplog.text)
        await client.subscribe("$stream/log@earliest", qos=1)
        await Reader(client).gets("x")


# ---------------------------------------------------------------------- what is refused, and by whom


@pytest.mark.parametrize(
    ("topic_filter", "why"),
    [
        ("$queue/jobs/other/#", "bound to orders/#"),
        ("$stream/log@9:0", "partitions 0 to 3"),
    ],
)
async def test_a_client_is_told_what_the_node_of_a_queue_or_stream_refuses(
    fleet: Fleet, topic_filter: str, why: str
) -> None:
    a, b = await fleet.start("a", **JOBS, **STREAM), await fleet.start("b")
    await connected(a, b)
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as client:
        with pytest.raises(SubscribeRefused, match=why):
            await client.subscribe([("t", 1), (topic_filter, 1)])
        session = core_of(b).sessions.get(client.client_id)
        assert session is not None
        assert list(session.subscriptions) == [b"t"]
    async with client_of(b, version="3.1.1") as client:
        with pytest.raises(SubscribeRefused):
            await client.subscribe(topic_filter, qos=1)


async def test_a_reader_with_a_filter_keeps_it_when_its_node_has_started_again(fleet: Fleet, tmp_path: Path) -> None:
    a = await fleet.start("a", **STREAM)
    b = await fleet.start("b", tmp_path)
    await connected(a, b)
    await knows(b, "$stream/log", "a")
    async with client_of(a) as publisher:
        async with kept_client(b, "c") as client:
            await client.subscribe("$stream/log", qos=1, where="payload > 5")
            await publisher.publish("t/1", "7", qos=1)
            await Reader(client).gets("7")
        await b.stop()
        b = await fleet.start("b", tmp_path)
        await connected(a, b)
        async with kept_client(b, "c") as client:
            reader = Reader(client)
            for payload in ("3", "8"):
                await publisher.publish("t/1", payload, qos=1)
            await reader.gets("8")


async def test_a_slow_consumer_at_another_node_holds_no_more_than_its_window(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b, receive_maximum=3) as slow, client_of(b) as other, client_of(a) as publisher:
        await slow.subscribe("$queue/jobs", qos=1, manual_ack=True)
        for number in range(20):
            await publisher.publish("orders/1", str(number), qos=1)
        await asyncio.sleep(0.2)
        queueing = assembly_of(a).queueing
        assert queueing is not None
        assert queueing.queues.state("jobs").leased == 3
        await other.subscribe("$queue/jobs", qos=1)
        reader = Reader(other)
        await until(lambda: len(reader.messages) == 17)


async def test_a_large_message_and_a_long_queue_reach_a_consumer_at_another_node(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as consumer, client_of(a) as publisher:
        await publisher.publish("orders/large", b"x" * 500_000, qos=1)
        for number in range(2_000):
            await publisher.publish("orders/1", str(number), qos=0)
        await consumer.subscribe("$queue/jobs", qos=1)
        reader = Reader(consumer)
        await until(lambda: len(reader.messages) == 2_001)
        assert len(reader.messages[0].payload) == 500_000
        assert reader.payloads[1:] == [str(number) for number in range(2_000)]
        await until(lambda: depth(a, "jobs") == 0)


# ---------------------------------------------------------------------- rules and mount points


class Refuses(OpenRules):
    """Rules that forbid to subscribe to one thing."""

    def __init__(self, forbidden: bytes) -> None:
        self._forbidden = forbidden

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return topic_filter != self._forbidden


async def test_a_consumer_gets_nothing_more_when_the_rules_take_its_right(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as consumer, client_of(a) as publisher:
        await consumer.subscribe("$queue/jobs", qos=1)
        reader = Reader(consumer)
        await publisher.publish("orders/1", "1", qos=1)
        await reader.gets("1")
        core_of(b).authorize(Refuses(b"$queue/jobs"))
        nodes_of(b).far.check()
        await until(lambda: client_sessions(a) == [])
        await publisher.publish("orders/1", "2", qos=1)
        await reader.gets("1")
        assert depth(a, "jobs") == 1
        core_of(b).authorize(Refuses(b"nothing"))
        nodes_of(b).far.check()
        await reader.gets("1", "2")
