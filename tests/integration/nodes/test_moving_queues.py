"""Queues that go from one node to another, one by one or to spread all of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqttlite import Client
from mqttlite.extensions.nodes import balance as balance_module
from mqttlite.extensions.nodes.options import NodesOptions
from mqttlite.extensions.queues.managed import QueueState
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.gateway.caller import Role
from mqttlite.server import Broker
from mqttlite.wire.properties import Properties
from tests.integration.nodes.test_nodes import Fleet, Reader, air, broker_of, client_of, connected, fleet, nodes_of
from tests.integration.nodes.test_operated import Three, three
from tests.integration.nodes.test_queues import depth, knows, queue_names
from tests.support.air import Air
from tests.support.device import until
from tests.support.gateway import nobody_without_credentials, running_gateway
from tests.support.inside import assembly_of

__all__ = ("air", "fleet", "three")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]


def queues_of(broker: Broker) -> Any:
    queueing = assembly_of(broker).queueing
    assert queueing is not None
    return queueing.queues


def state(broker: Broker, name: str) -> QueueState:
    found: QueueState = queues_of(broker).state(name)
    return found


async def move(three: Three, name: str, to: str) -> httpx.Response:
    return await three.admin.post(f"/api/v1/queues/{name}/move", json={"to": to})


async def gone(broker: Broker, name: str) -> None:
    """Wait until a queue has left a node."""
    await until(lambda: name not in queue_names(broker))


async def test_a_queue_moves_with_its_messages_options_and_consumers(three: Three) -> None:
    queues_of(three.b).create(QueueOptions(name="more", filters=("more/#",), ack_deadline_s=77.0, max_attempts=3))
    await knows(three.a, "$queue/more", "b")
    async with client_of(three.b) as publisher, client_of(three.c) as consumer:
        for number in range(20):
            await publisher.publish("more/1", str(number), qos=1)
        await until(lambda: depth(three.b, "more") == 20)
        answer = await move(three, "more", "c")
        assert answer.json() == {"name": "more", "to": "c", "messages": 20, "node": "b"}
        await gone(three.b, "more")
        await until(lambda: depth(three.c, "more") == 20)
        options = queues_of(three.c).options("more")
        assert (options.ack_deadline_s, options.max_attempts, options.filters) == (77.0, 3, ("more/#",))
        await knows(three.a, "$queue/more", "c")
        reader = Reader(consumer)
        await consumer.subscribe("$queue/more", qos=1)
        await publisher.publish("more/2", "20", qos=1)
        await reader.gets(*map(str, range(21)))
        await until(lambda: depth(three.c, "more") == 0)


async def test_a_consumer_goes_on_while_its_queue_moves_back_and_forth(three: Three) -> None:
    async with client_of(three.c) as publisher, client_of(three.b) as consumer:
        await knows(three.a, "$queue/jobs", "b")
        reader = Reader(consumer)
        await consumer.subscribe("$queue/jobs", qos=1)
        number = 0
        for to, origin in (("c", three.b), ("a", three.c), ("b", three.gateway.broker)):
            for _each in range(10):
                await publisher.publish("jobs/1", str(number), qos=1)
                number += 1
            assert (await move(three, "jobs", to)).status_code == 200
            await gone(origin, "jobs")
            await until(lambda: {int(each) for each in reader.payloads} == set(range(number)))  # noqa: B023
    assert queue_names(three.b) == ["jobs"]


async def test_a_paused_queue_is_paused_where_it_goes(three: Three) -> None:
    queues_of(three.b).pause("jobs", True)
    assert (await move(three, "jobs", "c")).status_code == 200
    await gone(three.b, "jobs")
    assert state(three.c, "jobs").paused


async def test_a_queue_that_would_lose_something_stays(three: Three) -> None:
    queues = queues_of(three.b)
    await knows(three.a, "$queue/jobs", "b")

    async def refused(name: str, said: str) -> None:
        answer = await move(three, name, "c")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert said in answer.json()["detail"]
        assert name in queue_names(three.b)
        assert name not in queue_names(three.c)

    async with client_of(three.b) as client:
        queues.create(QueueOptions(name="kept", filters=("kept/#",), retain_acked=True, expiry_s=1_000))
        reader = Reader(client)
        await client.subscribe("$queue/kept", qos=1)
        await client.publish("kept/1", "one", qos=1)
        await reader.gets("one")
        await until(lambda: depth(three.b, "kept") == 0)
        await refused("kept", "it keeps acknowledged messages")
        queues.snapshots.create("now", "jobs")
        await refused("jobs", "it has snapshots, which stay: delete them first")
        queues.snapshots.delete("now")
        queues.create(QueueOptions(name="once", filters=("once/#",)))
        await client.publish("once/1", "x", qos=1, properties=Properties(user_properties=[("dedup-id", "7")]))
        await refused("once", "it knows the dedup-ids of messages")
        queues.create(QueueOptions(name="dead", filters=("dead/#",), max_attempts=1))
        await client.publish("dead/1", "x", qos=1)
        (pulled,) = queues.pull("dead", 1)
        queues.nack("dead", [pulled.ack_id])
        await until(lambda: len(queues.dead_letters("dead")) == 1)
        await refused("dead", "it has dead letters, which stay: replay or drop them first")
        queues.drop_dead_letter("dead", next(iter(queues.dead_letters("dead").letters(0))).number)
        assert (await move(three, "dead", "c")).status_code == 200
        await gone(three.b, "dead")


async def test_a_move_that_makes_no_sense_is_refused(three: Three) -> None:
    for name, to, status, said in (
        ("jobs", "b", 409, "the queue jobs is at node b"),
        ("jobs", "d", 404, "there is no node 'd'"),
        ("nothing", "b", 404, "there is no queue 'nothing'"),
    ):
        answer = await move(three, name, to)
        assert (answer.status_code, answer.json()["detail"][: len(said)]) == (status, said)
    assert (await three.operator.post("/api/v1/queues/jobs/move", json={"to": "c"})).status_code == 403
    queues_of(three.c).create(QueueOptions(name="here", filters=("x",)))
    c = queues_of(three.c)
    await knows(three.b, "$queue/here", "c")
    c._delivery = c._delivery.__class__(max_queues=1)
    answer = await move(three, "jobs", "c")
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "there are 1 queues, which is the limit (delivery.max_queues)",
    )
    assert queue_names(three.b) == ["jobs"]


async def test_a_broker_alone_moves_and_spreads_nothing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, **nobody_without_credentials(tmp_path)) as gateway:
        gateway.broker.queues.create(QueueOptions(name="jobs", filters=("jobs",)))
        admin = gateway.client(Role.ADMIN)
        for path in ("/api/v1/queues/jobs/move", "/api/v1/nodes/balance"):
            answer = await admin.post(path, json={"to": "b"})
            assert (answer.status_code, answer.json()["detail"].split(":")[0]) == (409, "this broker is alone")


async def test_an_arrival_is_refused_if_its_name_or_its_definition_is_wrong(three: Three) -> None:
    for body, status, said in (
        (b"{", 400, "the body is no JSON"),
        (b'{"origin": "admin"}', 422, "the body is not the definition of a queue"),
        (b'{"origin": "admin", "options": {"name": "x", "filters": ["x"]}}', 422, "the name in the body is 'x'"),
        (b'{"origin": "admin", "options": {"name": "y", "filters": ["x"]}, "made_us": -1}', 422, "the body is not"),
        (b'{"origin": "admin", "options": {"name": "y"}, "made_us": 1e30}', 422, "the body is not"),
    ):
        answer = await three.admin.put("/api/v1/queues/y/arrival", content=body)
        assert (answer.status_code, answer.json()["detail"].startswith(said)) == (status, True), answer.text
    body = b'{"origin": "admin", "options": {"name": "x", "filters": ["x"]}, "made_us": 5}'
    assert (await three.admin.put("/api/v1/queues/x/arrival", content=body)).status_code == 200
    answer = await three.admin.put("/api/v1/queues/x/arrival", content=body)
    assert (answer.status_code, answer.json()["detail"]) == (409, "there is a queue x already")


# ---------------------------------------------------------------------- spread them


@pytest.fixture
async def many(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Three]:
    """Three nodes of which the first has a hundred queues of their common configuration."""
    queues = [{"name": f"q{number:02}", "filters": [f"t/{number}"]} for number in range(100)]
    options = NodesOptions(servers=("nats://127.0.0.1:4222",), node="a")
    made = tuple(QueueOptions(name=each["name"], filters=tuple(each["filters"])) for each in queues)
    async with running_gateway(tmp_path, nodes=options, queues=made, **nobody_without_credentials(tmp_path)) as gateway:
        b, c = await fleet.start("b", queues=queues), await fleet.start("c", queues=queues)
        await connected(gateway.broker, b, c)
        for broker in (b, c):
            await until(lambda broker=broker: queue_names(broker) == [])  # type: ignore[misc]
        yield Three(gateway, b, c)


def counts(many: Three) -> list[int]:
    return sorted(len(queue_names(each)) for each in (many.a, many.b, many.c))


async def test_a_hundred_queues_are_spread_over_three_nodes_and_serve_their_clients(many: Three) -> None:
    planned = await many.run("nodes", "balance", "--dry-run", "--json")
    assert counts(many) == [0, 0, 100]
    result = await many.run("nodes", "balance")
    assert result.exit_code == 0, result.output
    await until(lambda: counts(many) == [33, 33, 34])
    assert len(result.stdout.splitlines()) == planned.stdout.count('"origin"') == 66
    assert "Now the nodes have: " in result.stderr
    again = await many.run("nodes", "balance")
    assert again.stdout == ""
    async with client_of(many.c) as publisher, client_of(many.b) as consumer:
        reader = Reader(consumer)
        await consumer.subscribe([(f"$queue/q{number:02}", 1) for number in range(100)])
        for number in range(100):
            await publisher.publish(f"t/{number}", str(number), qos=1)
        await reader.gets(*map(str, range(100)))


async def test_queues_leave_a_node_that_drains_and_go_nowhere_if_all_do(many: Three) -> None:
    assert (await many.run("nodes", "drain", "--wait", "0")).exit_code == 0
    result = await many.run("nodes", "balance")
    assert result.exit_code == 0, result.output
    await until(lambda: [len(queue_names(each)) for each in (many.a, many.b, many.c)] == [0, 50, 50])
    for node in ("b", "c"):
        await many.run("nodes", "drain", node, "--wait", "0")
    await until(lambda: all(each.drain for each in nodes_of(many.a).states()))
    result = await many.run("nodes", "balance")
    assert "All nodes drain: take one into service first" in result.stderr
    assert result.exit_code == 4


async def test_a_queue_that_cannot_move_is_named_and_others_move_in_its_place(
    many: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance_module, "MOVES_AT_ONCE", 20)
    queues_of(many.a).snapshots.create("now", "q99")
    result = await many.run("nodes", "balance")
    assert "Queue q99 stays at node a: the queue q99 cannot move: it has snapshots" in result.stderr
    await until(lambda: counts(many) == [33, 33, 34])
    assert "q99" in queue_names(many.a)


async def test_nothing_is_spread_while_a_node_does_not_answer(many: Three) -> None:
    assembly = assembly_of(many.c)
    assert assembly.nodes is not None
    await assembly.nodes.calls.stop()
    result = await many.run("nodes", "balance")
    assert result.exit_code == 1
    assert "Nothing was moved: node c " in result.stderr
    assert counts(many) == [0, 0, 100]


async def test_a_node_spreads_no_queues_for_another_one(many: Three) -> None:
    answer = await many.admin.post("/api/v1/nodes/balance", params={"node": "b"})
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "no node spreads queues for another one: ask that node itself",
    )


@pytest.mark.parametrize("qos", [1, 2])
async def test_no_message_is_lost_while_a_queue_moves_and_clients_of_all_nodes_use_it(
    three: Three, air: Air, qos: int
) -> None:
    air.max_delay_s = 0.02
    brokers = {"a": three.a, "b": three.b, "c": three.c}
    published: list[str] = []
    is_over = False

    async def publish(client: Client, name: str) -> None:
        number = 0
        while not is_over:
            await client.publish(f"jobs/{number % 3}", f"{name}{number}", qos=qos)
            published.append(f"{name}{number}")
            number += 1

    async with (
        client_of(three.b) as one,
        client_of(three.c) as two,
        client_of(three.b) as three_,
        client_of(three.c) as four,
    ):
        readers = [Reader(each) for each in (three_, four)]
        for each in (three_, four):
            await each.subscribe("$queue/jobs", qos=1)
        publishing = [asyncio.create_task(publish(each, name)) for each, name in ((one, "p"), (two, "q"))]
        at = "b"
        for to in ("c", "a", "b", "c", "b"):
            await asyncio.sleep(0.2)
            answer = await move(three, "jobs", to)
            assert answer.status_code == 200, answer.text
            await gone(brokers[at], "jobs")
            at = to
        is_over = True
        await asyncio.gather(*publishing)
        await until(lambda: set(published) <= {payload for reader in readers for payload in reader.payloads})
        assert len(published) > 50


async def test_a_paused_queue_moves_without_a_delivery_and_stays_paused_if_it_comes_back(
    three: Three, air: Air
) -> None:
    queues = queues_of(three.b)
    queues.create(QueueOptions(name="slow", filters=("slow/#",), idle_expiry_s=60.0))
    queues.pause("slow", True)
    async with client_of(three.b) as publisher, client_of(three.b) as consumer:
        reader = Reader(consumer)
        await consumer.subscribe("$queue/slow", qos=1)
        for number in range(5):
            await publisher.publish("slow/1", str(number), qos=1)
        queues.leave("slow")
        kept = queues._kept["slow"]
        assert queues.pull("slow", 5) == []
        assert kept.idle is not None
        assert queues._has_consumer(kept)
        queues.stay("slow")
        assert state(three.b, "slow").paused
        await asyncio.sleep(0.1)
        assert reader.messages == []
        queues.pause("slow", False)
        await reader.gets(*"01234")


async def test_a_queue_that_is_more_than_half_full_stays(three: Three) -> None:
    queues_of(three.b).create(QueueOptions(name="full", filters=("full/#",), max_messages=4))
    async with client_of(three.b) as publisher:
        for number in range(3):
            await publisher.publish("full/1", str(number), qos=1)
    answer = await move(three, "full", "c")
    assert (answer.status_code, "it is more than half full" in answer.json()["detail"]) == (409, True)


async def test_of_two_moves_at_once_the_second_is_refused(three: Three) -> None:
    answers = await asyncio.gather(move(three, "jobs", "c"), move(three, "jobs", "a"))
    assert sorted(each.status_code for each in answers) == [200, 409]
    queues_of(three.c).departures.add("jobs")
    queues_of(three.a).departures.add("jobs")  # as a request at another door does, which has an application of its own
    (done,) = [each.json()["to"] for each in answers if each.status_code == 200]
    await gone(three.b, "jobs")
    assert "jobs" in queue_names({"a": three.a, "c": three.c}[done])
    answer = await move(three, "jobs", "b")
    assert (answer.status_code, "another request moves it just now" in answer.json()["detail"]) == (409, True)


# ---------------------------------------------------------------------- streams


async def test_a_stream_stays_when_queues_are_spread_and_its_node_drains_and_its_readers_go_on_when_it_is_back(
    fleet: Fleet, tmp_path: Path
) -> None:
    options = NodesOptions(servers=("nats://127.0.0.1:4222",), node="a")
    log: dict[str, Any] = {"streams": [{"name": "log", "filters": ["log/#"]}]}
    async with running_gateway(tmp_path, nodes=options, **nobody_without_credentials(tmp_path)) as gateway:
        c = await fleet.start("c")
        async with client_of(c) as publisher, client_of(c) as reading:
            reader = Reader(reading)
            async with broker_of("b", tmp_path / "b", **log) as b:
                await connected(gateway.broker, b, c)
                nodes = Three(gateway, b, c)
                await knows(c, "$stream/log", "b")
                await reading.subscribe("$stream/log", qos=1)
                await publisher.publish("log/1", "before", qos=1)
                await reader.gets("before")
                assert (await nodes.run("nodes", "balance")).stdout == ""
                said = await nodes.run("nodes", "drain", "b")
                assert "$stream/log stay: nobody gets their messages while this node is stopped." in said.stdout
            await publisher.publish("log/1", "meanwhile", qos=1)
            refused = await nodes.admin.post("/api/v1/streams", json={"name": "log", "filters": ["log/#"]})
            assert (refused.status_code, refused.json()["detail"]) == (409, "there is a stream log already, at node b")
            async with broker_of("b", tmp_path / "b", **log):
                await reader.gets("before", "meanwhile")


async def test_a_stream_is_brought_to_another_node_by_a_second_one(three: Three) -> None:
    async with client_of(three.b) as client:
        reader = Reader(client)
        await client.publish("s/1", "first", qos=1)
        assert (await three.run("stream", "create", "s-2", "s/#", "--node", "b")).exit_code == 0
        await knows(three.c, "$stream/s-2", "b")
        await client.publish("s/1", "second", qos=1)
        await client.subscribe("$stream/s@earliest", qos=1)
        await reader.gets("first", "second")
        assert (await three.run("stream", "rm", "s", "--yes")).exit_code == 0
        await client.subscribe("$stream/s-2@earliest", qos=1)
        await reader.gets("first", "second", "second")
        await client.publish("s/1", "third", qos=1)
        await reader.gets("first", "second", "second", "third")
        assert (await three.run("stream", "ls")).stdout.split("\t")[0] == "s-2"
