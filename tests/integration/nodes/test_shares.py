"""Shared subscriptions with members at several nodes: each message reaches one member, wherever it is."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from mqttlite import Client
from mqttlite.config.file import parse_config
from mqttlite.core.share_interest import connected_of
from mqttlite.extensions.nodes import telling
from mqttlite.extensions.nodes.blobs import Data, decode
from mqttlite.extensions.nodes.news import NEWS_AT_ONCE
from mqttlite.server import Broker
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.integration.nodes.test_nodes import (
    Fleet,
    Reader,
    air,
    broker_of,
    client_of,
    connected,
    fleet,
    kept_client,
    peer_of,
)
from tests.support.air import Air
from tests.support.device import until
from tests.support.inside import core_of

__all__ = ("air", "fleet")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

SHARE = "$share/workers/jobs/#"


def in_order(*readers: Reader) -> list[str]:
    """What all have, sorted by number."""
    return sorted((payload for reader in readers for payload in reader.payloads), key=int)


async def all_of(count: int, *readers: Reader) -> None:
    """Wait for as many messages, and see that each is there once."""
    await until(lambda: sum(len(each.messages) for each in readers) >= count)
    await asyncio.sleep(0.2)
    assert in_order(*readers) == [str(each) for each in range(count)]


async def publish(client: Client, count: int, qos: int = 2, start: int = 0) -> None:
    for number in range(start, start + count):
        await client.publish(f"jobs/{number % 3}", str(number), qos=qos)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_reaches_one_member_at_any_node_by_their_number(fleet: Fleet, qos: int) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    async with client_of(a) as one, client_of(b) as two, client_of(b) as three, client_of(c) as publisher:
        members = [one, two, three]
        readers = [Reader(each) for each in members]
        for member in members:
            await member.subscribe(SHARE, qos=2)
        await publish(publisher, 12, qos)
        await all_of(12, *readers)
        assert [len(each.messages) for each in readers] == [4, 4, 4]
        await publish(one, 12, qos, start=12)
        await all_of(24, *readers)
        assert [len(each.messages) for each in readers] == [8, 8, 8]


async def test_subscribers_of_their_own_get_each_message_once_beside_the_members(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    async with client_of(a) as member, client_of(b) as other, client_of(b) as plain, client_of(a) as publisher:
        readers, alone = [Reader(member), Reader(other)], Reader(plain)
        await member.subscribe(SHARE, qos=2)
        await other.subscribe([(SHARE, 2), ("$share/second/jobs/#", 2)])
        await plain.subscribe("jobs/+", qos=2)
        await publish(publisher, 6)
        await alone.gets(*"012345")
        await until(lambda: sum(len(each.messages) for each in readers) >= 12)
        await asyncio.sleep(0.2)
        assert Counter(in_order(*readers)) == dict.fromkeys("012345", 2)


async def test_after_suback_a_message_published_at_another_node_reaches_the_member(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    air.max_delay_s = 0.05
    async with client_of(a) as member, client_of(b) as publisher:
        reader = Reader(member)
        for number in range(5):
            await member.subscribe(SHARE, qos=1)
            await publisher.publish("jobs/1", str(number), qos=1)
            await until(lambda number=number: len(reader.messages) == number + 1)  # type: ignore[misc]
            await member.unsubscribe(SHARE)


async def test_a_node_whose_member_has_left_passes_the_message_on(fleet: Fleet, air: Air) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    async with client_of(a) as publisher, client_of(b, "leaving") as leaving, client_of(c) as staying:
        reader = Reader(staying)
        await leaving.subscribe(SHARE, qos=2)
        await staying.subscribe(SHARE, qos=2)
        air.max_delay_s = 0.3
        sending = asyncio.create_task(publish(publisher, 10))
        core_of(b).unsubscribe("leaving", SHARE.encode(), asyncio.get_running_loop().time())
        await sending
        await all_of(10, reader)


async def test_members_that_are_connected_come_before_kept_sessions_of_other_nodes(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    async with kept_client(b, "kept") as away:
        await away.subscribe(SHARE, qos=1)
    async with client_of(a) as member, client_of(a) as publisher:
        reader = Reader(member)
        await member.subscribe(SHARE, qos=1)
        await publish(publisher, 6)
        await all_of(6, reader)
    async with client_of(a) as publisher:
        await publisher.publish("jobs/1", "6", qos=1)
    async with kept_client(b, "kept") as away:
        await Reader(away).gets("6")


async def test_messages_that_a_member_has_not_acknowledged_at_its_end_go_to_one_at_another_node(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    async with client_of(b) as publisher:
        async with kept_client(a, "ending") as ending:
            await ending.subscribe(SHARE, qos=1)
        await publish(publisher, 3, qos=1)
        await until(lambda: core_of(a).sessions.get("ending").queued == 3)  # type: ignore[union-attr]
        async with client_of(b) as member:
            reader = Reader(member)
            await member.subscribe(SHARE, qos=1)
            core_of(a).end_session("ending", asyncio.get_running_loop().time())
            await all_of(3, reader)


async def test_a_restart_of_both_nodes_loses_and_doubles_nothing(air: Air, tmp_path: Path) -> None:
    async with broker_of("a", tmp_path / "a") as a, broker_of("b", tmp_path / "b") as b:
        await connected(a, b)
        async with kept_client(b, "m") as member:
            await member.subscribe(SHARE, qos=2)
        air.cut.add(frozenset("ab"))
        peer_of(a, "b").end("The test cuts it off.")
        async with client_of(a) as publisher:
            await publish(publisher, 5)
        air.cut.clear()
    async with broker_of("a", tmp_path / "a") as a, broker_of("b", tmp_path / "b") as b:
        await connected(a, b)
        async with kept_client(b, "m") as member:
            await Reader(member).gets(*"01234")


async def test_while_nodes_are_cut_off_each_serves_its_own_members(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    async with client_of(a) as member, client_of(b) as other, client_of(a) as publisher:
        readers = [Reader(member), Reader(other)]
        await member.subscribe(SHARE, qos=2)
        await other.subscribe(SHARE, qos=2)
        air.cut.add(frozenset("ab"))
        peer_of(a, "b").end("The test cuts it off.")
        await publish(publisher, 4)
        await all_of(4, readers[0])
        air.cut.clear()
        await connected(a, b)
        await publish(publisher, 4, start=4)
        await all_of(8, *readers)
        assert len(readers[1].messages) == 2


@pytest.mark.parametrize("policy", ["hash_topic", "hash_key"])
async def test_messages_with_one_key_reach_one_member_from_any_node(fleet: Fleet, rig: Rig, policy: str) -> None:
    brokers = [await fleet.start(name, share_policies={"*": policy}) for name in "abc"]
    await connected(*brokers)
    clients = [await rig.enter(client_of(each)) for each in brokers for _ in range(2)]
    readers = [Reader(each) for each in clients]
    for client in clients:
        await client.subscribe(SHARE, qos=1)
    for client in clients:
        for key in range(20):
            topic = f"jobs/{key}" if policy == "hash_topic" else "jobs/x"
            properties = Properties(user_properties=[("ordering-key", str(key))])
            await client.publish(topic, str(key), qos=1, properties=properties)
    await until(lambda: sum(len(each.messages) for each in readers) == 120)
    holders = [set(reader.payloads) for reader in readers]
    assert sum(len(each) for each in holders) == 20
    assert sum(len(each) > 0 for each in holders) > 3


async def test_members_of_the_publishers_node_may_come_first(fleet: Fleet) -> None:
    brokers = [await fleet.start(name, share_policies={"workers": "prefer_local"}) for name in "ab"]
    await connected(*brokers)
    async with client_of(brokers[0]) as member, client_of(brokers[1]) as other, client_of(brokers[1]) as publisher:
        readers = [Reader(member), Reader(other)]
        await member.subscribe(SHARE, qos=1)
        await other.subscribe(SHARE, qos=1)
        await publish(publisher, 6)
        await all_of(6, readers[1])
        await other.unsubscribe(SHARE)
        await publish(publisher, 2, start=6)
        await all_of(8, *readers)


async def test_with_very_many_filters_shares_are_told_all_the_same(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "MAX_FILTERS", 3)
    a, b = await fleet.together("a", "b")
    async with client_of(a) as member, client_of(b) as publisher:
        reader = Reader(member)
        await member.subscribe([(f"x/{each}", 0) for each in range(5)])
        await member.subscribe(SHARE, qos=1)
        await publish(publisher, 3)
        await all_of(3, reader)
        await member.unsubscribe(SHARE)
        code = await publisher.publish("jobs/1", "x", qos=1)
        assert code is not None
    c = await fleet.start("c")
    await connected(a, b, c)


async def test_messages_that_fall_due_while_a_node_is_down_reach_a_member_at_another_one(
    air: Air, tmp_path: Path
) -> None:
    async with broker_of("b", tmp_path / "b") as b, client_of(b) as member:
        async with broker_of("a", tmp_path / "a") as a:
            await connected(a, b)
            reader = Reader(member)
            await member.subscribe(SHARE, qos=1)
            async with client_of(a) as publisher:
                for number in range(3):
                    await publisher.publish("$delayed/1/jobs/1", str(number), qos=1)
        await asyncio.sleep(1.5)
        async with broker_of("a", tmp_path / "a") as a:
            await connected(a, b)
            await all_of(3, reader)


async def test_a_broker_that_is_no_node_any_more_gives_messages_to_its_own_members(
    air: Air, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_of("a", tmp_path / "a") as a, broker_of("b", tmp_path / "b") as b:
        await connected(a, b)
        async with kept_client(b, "there") as member:
            await member.subscribe(SHARE, qos=1)
        air.cut.add(frozenset("ab"))
        peer_of(a, "b").end("The test cuts it off.")
        async with client_of(a) as publisher:
            await publish(publisher, 3, qos=1)
        async with kept_client(a, "here") as member:
            await member.subscribe(SHARE, qos=1)
    async with Broker(parse_config({"listeners": [{"port": 0}], "data_dir": str(tmp_path / "a")})) as a:
        async with kept_client(a, "here") as member, client_of(a) as publisher:
            reader = Reader(member)
            await publish(publisher, 3, qos=1, start=3)
            await all_of(6, reader)
        assert "this broker is no node any more: what waited for b goes to members" in caplog.text


async def test_very_many_shares_of_a_client_are_told_in_many_parts(fleet: Fleet, air: Air) -> None:
    a, b = [await fleet.start(name, limits={"max_shared_subscriptions": 1_000}) for name in "ab"]
    await connected(a, b)
    async with client_of(a) as member, client_of(b) as publisher:
        air.blobs.clear()
        reader = Reader(member)
        await member.subscribe([(f"$share/g/jobs/{each}", 1) for each in range(500)])
        for number in range(3):
            await publisher.publish(f"jobs/{number * 249}", str(number), qos=1)
        await all_of(3, reader)
        told = [decode(blob) for sender, _, blob in air.blobs if sender == "a"]
        counts = [len(each.news) for each in told if isinstance(each, Data) and each.news]
        assert sum(counts) == 500
        assert max(counts) <= NEWS_AT_ONCE


async def test_a_client_that_is_back_soon_is_no_news_of_each_of_its_shares(
    fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "CONNECTED_S", 2.0)
    a, b = await fleet.together("a", "b")
    async with kept_client(a, "m") as member:
        await member.subscribe([(f"$share/g/jobs/{each}", 1) for each in range(50)])
    await asyncio.sleep(2.5)
    air.blobs.clear()
    for _ in range(5):
        async with kept_client(a, "m") as member:
            await asyncio.sleep(0.01)
    async with kept_client(a, "m") as member:
        await until(lambda: _connected_at(b, "$node/a", "$share/g/jobs/49") == 1)
        told = [decode(blob) for sender, _, blob in air.blobs if sender == "a"]
        assert sum(len(each.news) for each in told if isinstance(each, Data)) <= 150


def _connected_at(broker: Broker, node: str, share: str) -> int:
    """How many members of a share are connected at another node, for all that a broker knows."""
    session = core_of(broker).sessions.get(node)
    assert session is not None
    return connected_of(session.subscriptions[share.encode()].identifier)
