"""Queues and streams of one name that several nodes have made, nodes that are lost, and what is left of clients."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqttlite import Client
from mqttlite.client.errors import SubscribeRefused
from mqttlite.extensions.nodes import far_clients
from mqttlite.extensions.nodes.blobs import Notes, Reached, decode
from mqttlite.extensions.nodes.places import GONE
from mqttlite.extensions.queues import service
from mqttlite.extensions.queues.service import Queues
from mqttlite.server import Broker
from tests.integration.nodes.test_nodes import Fleet, Reader, air, broker_of, client_of, connected, fleet, nodes_of
from tests.integration.nodes.test_queues import (
    JOBS,
    STREAM,
    client_sessions,
    depth,
    knows,
    queue_names,
    with_queue,
    with_stream,
)
from tests.support.air import Air
from tests.support.device import until
from tests.support.inside import assembly_of, core_of
from tests.support.rules import OpenRules

__all__ = ("air", "fleet")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

BY_SUBSCRIBING: dict[str, Any] = {"delivery": {"create_by_subscribing": True}}


def queues_of(broker: Broker) -> Queues:
    queueing = assembly_of(broker).queueing
    assert queueing is not None
    return queueing.queues


async def sees(broker: Broker, name: str) -> None:
    """Wait until a node is connected to another one."""
    await until(lambda: any(each.name == name and each.state == "connected" for each in nodes_of(broker).states()))


async def publish(client: Client, count: int, start: int = 0) -> None:
    await asyncio.gather(*(client.publish("orders/1", str(number), qos=1) for number in range(start, start + count)))


async def test_messages_for_a_queue_that_has_moved_meanwhile_follow_it(fleet: Fleet, air: Air) -> None:
    air.cut.update({frozenset("bc"), frozenset("ac")})
    c = await fleet.start("c", **JOBS)
    a = await fleet.start("a", **JOBS)
    b = await fleet.start("b")
    await sees(b, "a")
    await knows(b, "$queue/jobs", "a")
    air.cut.add(frozenset("ab"))
    await until(lambda: all(each.state != "connected" for each in nodes_of(b).states()))
    async with client_of(b) as publisher:
        await publish(publisher, 100)
        air.cut.discard(frozenset("ac"))
        await until(lambda: queue_names(a) == [])
        air.cut.clear()
        await connected(a, b, c)
        await until(lambda: depth(c, "jobs") == 100)


async def test_the_messages_of_three_queues_of_one_name_come_together_at_the_oldest(
    fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOVED_AT_ONCE", 100)
    air.cut.update({frozenset("ab"), frozenset("bc"), frozenset("ac")})
    c, a, b = [await fleet.start(name, **JOBS) for name in "cab"]
    async with client_of(a) as one, client_of(b) as two:
        await publish(two, 2_000)
        await publish(one, 100, start=2_000)
        air.cut.discard(frozenset("ab"))
        await until(lambda: depth(a, "jobs") > 200)
        air.cut.clear()
        await until(lambda: depth(c, "jobs") == 2_100)
    assert (queue_names(a), queue_names(b)) == ([], [])


async def test_a_node_with_much_waiting_for_the_node_of_a_queue_does_not_make_it_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    a = await fleet.start("a", tmp_path / "a", **JOBS)
    b = await fleet.start("b", tmp_path / "b", **JOBS)
    await until(lambda: queue_names(b) == [])
    await a.stop()
    async with client_of(b) as publisher:
        await publish(publisher, 1_100)
    await b.stop()
    b = await fleet.start("b", tmp_path / "b", **JOBS)
    assert queue_names(b) == []
    a = await fleet.start("a", tmp_path / "a", **JOBS)
    await until(lambda: depth(a, "jobs") == 1_100)


async def test_a_queue_that_waits_for_room_to_move_spends_no_attempts(fleet: Fleet, air: Air) -> None:
    limits = {"limits": {"max_queued_messages": 100, "max_inflight": 20}}
    a = await fleet.start("a", **JOBS, **limits)
    air.cut.add(frozenset("ab"))
    b = await fleet.start("b", **JOBS, **limits)
    async with client_of(b) as publisher:
        await publish(publisher, 100)
        await publish(publisher, 400, start=100)
        air.cut.clear()
        await knows(b, "$queue/jobs", "a")
        air.cut.add(frozenset("ab"))
        await asyncio.sleep(1)
        air.cut.clear()
        await until(lambda: queue_names(b) == [])
        await until(lambda: depth(a, "jobs") == 500)


async def test_a_queue_that_has_not_moved_whole_stays_when_the_other_node_is_lost(fleet: Fleet, air: Air) -> None:
    a = await fleet.start("a", **JOBS)
    air.cut.add(frozenset("ab"))
    b = await fleet.start("b", keep_s=1, **JOBS)
    async with client_of(b) as client:
        await client.publish("orders/1", "dead", qos=1)
        kept = queues_of(b)._kept["jobs"].queue
        (entry,) = kept.pull("us", 1)
        kept.contents.give_up(entry, "nacked", "")
        air.cut.clear()
        await knows(b, "$queue/jobs", "a")
        await a.stop()
        await until(lambda: nodes_of(b).far.places.of(b"$queue/jobs") is None)
        await client.publish("orders/1", "x", qos=1)
        await client.subscribe("$queue/jobs", qos=1)
        await Reader(client).gets("x")
        assert queues_of(b).state("jobs").dead_letters == 1


async def test_the_readers_of_an_empty_stream_that_gives_way_go_on_at_the_other_node(fleet: Fleet, air: Air) -> None:
    a = await fleet.start("a", **STREAM)
    air.cut.add(frozenset("ab"))
    b = await fleet.start("b", **STREAM)
    async with client_of(a) as one, client_of(b) as two:
        readers = [Reader(each) for each in (one, two)]
        for each in (one, two):
            await each.subscribe("$share/g/$stream/log", qos=1)
        air.cut.clear()
        await knows(b, "$stream/log", "a")
        await until(lambda: client_sessions(a) != [] and not nodes_of(b).far.awaited(two.client_id))
        for number in range(40):
            await one.publish(f"t/{number}", str(number), qos=1)
        await until(lambda: sum(len(each.messages) for each in readers) == 40)
        await asyncio.sleep(0.2)
        assert sorted(int(each) for reader in readers for each in reader.payloads) == list(range(40))


async def test_a_client_is_told_that_the_node_of_a_queue_has_no_room_for_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await fleet.start("a", **JOBS, limits={"max_sessions": 2})
    b = await fleet.start("b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as consumer, client_of(a):
        with pytest.raises(SubscribeRefused, match=r"quota exceeded.*node a: there are 2 sessions"):
            await consumer.subscribe("$queue/jobs", qos=1)


async def test_a_session_ends_at_the_node_of_a_queue_that_did_not_hear_of_its_end(fleet: Fleet, air: Air) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b, "c", clean_start=False, session_expiry_interval=0xFFFFFFFF) as client:
        await client.subscribe("$queue/jobs", qos=1)
        air.cut.add(frozenset("ab"))
        await until(lambda: nodes_of(b).states()[0].state == "away")
    core_of(b).end_session("c", asyncio.get_running_loop().time())
    assert client_sessions(a) == ["$node/b/c"]
    (session,) = [each for each in core_of(a).sessions.values() if each.client_id == "$node/b/c"]
    assert session.expiry_interval == 100, "keep_s is the most"
    air.cut.clear()
    await connected(a, b)
    await until(lambda: client_sessions(a) == [])


async def test_many_long_filters_of_one_client_are_told_in_parts(
    fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_clients, "BLOB_BYTES", 500)
    _a, b = await with_stream(fleet, "a", "b")
    options: dict[str, Any] = {"clean_start": False, "session_expiry_interval": 100}
    async with client_of(b, "c", **options) as client:
        for number in range(10):
            await client.subscribe(f"$stream/log/t/{number}/{'x' * 50}", qos=1)
    async with client_of(b, "c", **options) as client:
        reader = Reader(client)
        await client.publish(f"t/7/{'x' * 50}", "7", qos=1)
        await reader.gets("7")
    blobs = [decode(each) for sender, _to, each in air.blobs if sender == "a"]
    told = [note for blob in blobs if isinstance(blob, Notes) for note in blob.notes if isinstance(note, Reached)]
    assert max(len(each.filters) for each in told) < 5
    assert sum(len(each.filters) for each in told) == 10


async def test_a_queue_that_is_deleted_is_not_made_again_by_its_consumers(fleet: Fleet) -> None:
    a, b = [await fleet.start(name, **BY_SUBSCRIBING) for name in "ab"]
    await connected(a, b)
    async with client_of(a) as one, client_of(b) as two:
        await one.subscribe("$queue/made/orders/#", qos=1)
        await knows(b, "$queue/made", "a")
        await two.subscribe("$queue/made/orders/#", qos=1)
        queues_of(a).delete("made")
        await until(lambda: nodes_of(b).far.places.of(b"$queue/made") is None)
        await asyncio.sleep(0.5)
        assert (queue_names(a), queue_names(b)) == ([], [])


async def test_a_client_of_another_node_makes_nothing_at_this_one(fleet: Fleet) -> None:
    a, b = await fleet.start("a", **BY_SUBSCRIBING), await fleet.start("b")
    await connected(a, b)
    async with client_of(a) as maker, client_of(b, "c") as consumer:
        await maker.subscribe("$queue/jobs/orders/#", qos=1)
        await knows(b, "$queue/jobs", "a")
        await consumer.subscribe("$queue/jobs", qos=1)
        (session,) = [each for each in core_of(a).sessions.values() if each.client_id == "$node/b/c"]
        (queues,) = [each for each in core_of(a).served if each.syntax.first_level == b"$queue"]
        parse = core_of(a).namespaces.parse_filter
        assert queues.admit(session, parse(b"$queue/jobs"), "", ()) == ""
        assert "not at this node" in queues.admit(session, parse(b"$queue/other/secret/#"), "", ())
    assert queue_names(a) == ["jobs"]


class NoSecrets(OpenRules):
    def is_readable(self, topic: bytes) -> bool:
        return not topic.startswith(b"secret")

    def may_receive(self, role: int, topic: bytes) -> bool:
        return not topic.startswith(b"secret")


async def test_a_client_leaves_a_queue_that_was_made_by_subscribing_and_has_what_it_may_not_receive(
    fleet: Fleet,
) -> None:
    a = await fleet.start("a", queues=[{"name": "given", "filters": ["secret/#"]}], **BY_SUBSCRIBING)
    b = await fleet.start("b")
    await connected(a, b)
    async with client_of(a) as maker, client_of(b) as consumer:
        await maker.subscribe("$queue/mine/+/mine", qos=1)
        await knows(b, "$queue/mine", "a")
        await maker.unsubscribe("$queue/mine/+/mine")
        for each in (a, b):
            core_of(each).authorize(NoSecrets())
        await consumer.subscribe([("$queue/given", 1), ("$queue/mine", 1)])
        reader = Reader(consumer)
        await maker.publish("secret/given", "1", qos=1)
        await maker.publish("open/mine", "2", qos=1)
        await reader.gets("1", "2")
        queues_of(a).delete("given")
        await maker.publish("secret/mine", "3", qos=1)
        await until(lambda: client_sessions(a) == [])
        await maker.publish("open/mine", "4", qos=1)
        await reader.gets("1", "2")
        assert depth(a, "mine") == 2


async def test_a_message_that_no_queue_takes_goes_to_no_node(fleet: Fleet) -> None:
    a, b = await with_queue(fleet, "a", "b")
    await knows(b, "$queue/jobs", "a")
    async with client_of(b) as client:
        assert (await client.publish("$queue/jobs", "x", qos=1)).reason_code == 0x10
        await asyncio.sleep(0.2)
    assert depth(a, "jobs") == 0


async def test_a_node_does_not_know_what_others_have_of_a_feature_that_it_lacks(fleet: Fleet) -> None:
    (a,) = await fleet.together("a")
    places = nodes_of(a).far.places
    assert list(places.on_told("b", {b"$other/x": 2}, False).values()) == [GONE]
    assert places.of(b"$other/x") is None


async def test_a_node_starts_that_two_others_have_told_of_the_queue_that_it_had(
    fleet: Fleet, air: Air, tmp_path: Path
) -> None:
    air.cut |= {frozenset("ab"), frozenset("ac"), frozenset("bc")}
    await fleet.start("a", **JOBS)
    await fleet.start("b", **JOBS)
    c = broker_of("c", tmp_path, **JOBS)
    async with c:
        air.cut.remove(frozenset("bc"))
        await until(lambda: queue_names(c) == [])
        air.cut.remove(frozenset("ac"))
        await knows(c, "$queue/jobs", "a")
    async with broker_of("c", tmp_path, **JOBS) as again:
        await knows(again, "$queue/jobs", "a")
        assert queue_names(again) == []
