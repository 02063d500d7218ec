"""Several brokers that are nodes of one: what is published at one reaches the subscribers of all."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mqttlite import Client, Message, build
from mqttlite.cli.main import main
from mqttlite.config.file import parse_config
from mqttlite.extensions.nodes import nodes as nodes_module
from mqttlite.extensions.nodes import telling
from mqttlite.extensions.nodes.blobs import VERSION, Close, Data, Hello, Open, encode
from mqttlite.extensions.nodes.carrier import MAX_BLOB_BYTES
from mqttlite.extensions.nodes.news import NEWS_AT_ONCE
from mqttlite.extensions.nodes.nodes import Nodes
from mqttlite.extensions.nodes.peer import SILENT_S, Peer
from mqttlite.server import Broker
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V311
from mqttlite.wire.encode import encode as encode_packet
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.air import Air
from tests.support.device import until
from tests.support.inside import assembly_of, core_of, loop_driver_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

QUIET_S = 0.2
"""How long nothing may come before a test believes that nothing comes."""


@pytest.fixture
def air(monkeypatch: pytest.MonkeyPatch) -> Air:
    """What carries the blobs of all nodes of a test."""
    air = Air()
    monkeypatch.setattr("mqttlite.extensions.nodes.connect.carrier_of", lambda _options: air.carrier())
    monkeypatch.setattr("mqttlite.extensions.nodes.connect.engine_of", lambda options: air.connecting(options.node))
    return air


class Fleet:
    """The nodes of a test."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def start(self, name: str, data_dir: Path | None = None, **options: Any) -> Broker:
        """A node that has found those that run."""
        return await self._rig.enter(broker_of(name, data_dir, **options))

    async def together(self, *names: str) -> list[Broker]:
        """Nodes that are all connected."""
        brokers = [await self.start(name) for name in names]
        await connected(*brokers)
        return brokers


@pytest.fixture
def fleet(rig: Rig, air: Air) -> Fleet:
    return Fleet(rig)


def broker_of(name: str, data_dir: Path | None = None, keep_s: int = 100, **options: Any) -> Broker:
    nodes = {"servers": ["nats://127.0.0.1:4222"], "node": name, "keep_s": keep_s}
    raw: dict[str, Any] = {"listeners": [{"port": 0}], "nodes": nodes, **options}
    if data_dir is not None:
        raw["data_dir"] = str(data_dir)
    return Broker(parse_config(raw))


def nodes_of(broker: Broker) -> Nodes:
    found = assembly_of(broker).nodes
    assert found is not None
    return found


def peer_of(broker: Broker, name: str) -> Peer:
    """What a node knows of another one."""
    return nodes_of(broker)._peers[name]


async def connected(*brokers: Broker) -> None:
    """Wait until each knows all others."""
    others = len(brokers) - 1
    await until(
        lambda: all(
            [each.state for each in nodes_of(broker).states()].count("connected") == others for broker in brokers
        )
    )


class Reader:
    """What a client gets, in order."""

    def __init__(self, client: Client) -> None:
        self.messages: list[Message] = []
        self._task = asyncio.create_task(self._read(client))

    async def _read(self, client: Client) -> None:
        async for message in client.messages:
            self.messages.append(message)

    @property
    def payloads(self) -> list[str]:
        return [each.payload.decode() for each in self.messages]

    async def gets(self, *payloads: str) -> None:
        """Wait for these, and see that no others come."""
        await until(lambda: len(self.messages) >= len(payloads))
        await asyncio.sleep(QUIET_S)
        assert sorted(self.payloads) == sorted(payloads)


def client_of(broker: Broker, client_id: str = "", **options: Any) -> Client:
    return Client("127.0.0.1", broker.port, client_id=client_id, **options)


def kept_client(broker: Broker, client_id: str) -> Client:
    """One whose session stays."""
    return client_of(broker, client_id, clean_start=False, session_expiry_interval=1_000)


async def retained(broker: Broker) -> dict[str, tuple[str, int]]:
    """The retained messages, with their QoS."""
    store = core_of(broker).router.retained
    search = store.search(b"#")
    return {each.topic.decode(): (each.payload.decode(), each.qos) for each in search.take(len(search))}


# ---------------------------------------------------------------------- messages


async def test_a_message_reaches_the_subscribers_of_all_nodes_once(fleet: Fleet) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    async with client_of(a) as one, client_of(b) as two, client_of(c) as three:
        await one.subscribe("t/#", qos=2)
        await two.subscribe("t/+", qos=2)
        await two.subscribe("t/1", qos=1)
        await three.subscribe("#", qos=2)
        readers = [Reader(each) for each in (one, two, three)]
        wanted: list[str] = []
        for name, client in (("one", one), ("two", two), ("three", three)):
            for qos in (0, 1, 2):
                wanted.append(f"{name} {qos}")
                await client.publish("t/1", wanted[-1], qos=qos, properties=Properties(user_properties=[("k", "v")]))
        for reader in readers:
            await reader.gets(*wanted)
            for message in reader.messages:
                assert message.qos == int(message.payload[-1:])
                assert ("k", "v") in message.properties.user_properties


async def test_each_publishers_messages_stay_in_order(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("#", qos=2)
        reader = Reader(subscriber)
        for qos in (0, 1, 2):
            for number in range(300):
                await publisher.publish(f"t/{qos}", f"{number}", qos=qos)
        await until(lambda: len(reader.messages) == 900)
    for qos in (0, 1, 2):
        numbers = [int(each.payload) for each in reader.messages if each.topic == f"t/{qos}"]
        assert numbers == list(range(300))


async def test_after_suback_a_message_published_at_another_node_arrives(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    air.max_delay_s = 0.02
    async with client_of(a) as publisher, client_of(b) as subscriber:
        reader = Reader(subscriber)
        for number in range(30):
            await subscriber.subscribe(f"t/{number}")
            await publisher.publish(f"t/{number}", f"{number}")
        await reader.gets(*(f"{number}" for number in range(30)))


async def test_a_node_without_a_subscriber_gets_no_byte(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t")
        await publisher.publish("t", "x", qos=1)
        await until(lambda: peer_of(a, "b").sent_bytes > 0)
        await asyncio.sleep(QUIET_S)
        before = peer_of(a, "b").sent_bytes
        for qos in (0, 1, 2):
            await publisher.publish("u", "x" * 1_000, qos=qos)
        await subscriber.unsubscribe("t")
        await until(lambda: peer_of(a, "b").subscriptions == 0)
        await publisher.publish("t", "x" * 1_000, qos=1)
        await asyncio.sleep(QUIET_S)
        assert peer_of(a, "b").sent_bytes == before


async def test_a_message_larger_than_a_blob_arrives(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    payload = bytes(range(256)) * 4_000
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t", qos=1)
        reader = Reader(subscriber)
        await publisher.publish("t", payload, qos=1)
        await until(lambda: len(reader.messages) == 1)
        assert reader.messages[0].payload == payload


async def test_a_message_larger_than_what_may_be_under_way_arrives(fleet: Fleet) -> None:
    a = await fleet.start("a", limits={"max_packet_bytes": 16_000_000})
    b = await fleet.start("b", limits={"max_packet_bytes": 16_000_000})
    await connected(a, b)
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t", qos=1)
        reader = Reader(subscriber)
        await publisher.publish("t", b"x" * 6_000_000, qos=1)
        await publisher.publish("t", b"small", qos=1)
        await until(lambda: [len(each.payload) for each in reader.messages] == [6_000_000, 5])
    assert peer_of(a, "b").connects == 1


async def test_rules_for_topics_are_asked_at_the_node_of_the_publisher_alone(fleet: Fleet, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read #\nuser u\ntopic readwrite #\n")
    options: dict[str, Any] = {"acl_file": str(rules), "allow_anonymous": True}
    a, b = await fleet.start("a", **options), await fleet.start("b", **options)
    await connected(a, b)
    async with client_of(b) as subscriber:
        await subscriber.subscribe("t", qos=1)
        reader = Reader(subscriber)
        await a.publish("t", b"x", qos=1, retain=True)
        await reader.gets("x")
        assert await retained(b) == {"t": ("x", 1)}


async def test_a_session_of_a_client_under_the_name_of_one_for_a_node_ends_at_the_start(
    fleet: Fleet, rig: Rig, tmp_path: Path
) -> None:
    alone = Broker(parse_config({"listeners": [{"port": 0}], "data_dir": str(tmp_path)}))
    async with alone, kept_client(alone, "$node/b") as client:
        await client.subscribe("#", qos=1)
    a, b = await fleet.start("a", tmp_path), await fleet.start("b")
    await connected(a, b)
    assert peer_of(a, "b").subscriptions == 0


async def test_a_node_that_starts_lets_clients_in_when_it_has_met_the_others(fleet: Fleet, air: Air) -> None:
    air.max_delay_s = 0.05
    a = await fleet.start("a")
    async with client_of(a) as subscriber:
        await subscriber.subscribe("t", qos=1)
        reader = Reader(subscriber)
        b = await fleet.start("b")
        async with client_of(b) as publisher:
            await publisher.publish("t", "x", qos=1)
        await reader.gets("x")


async def test_a_node_whose_first_answer_was_lost_says_again_that_it_is_new(fleet: Fleet, air: Air) -> None:
    _a, b = await fleet.together("a", "b")
    peer = peer_of(b, "a")
    await until(lambda: not peer._is_new)
    core_of(b).end_session("$node/a", asyncio.get_running_loop().time())
    assert peer._open(is_answer=True).is_new
    peer.connect(1, 1_000_000).leave()
    assert peer._open(is_answer=True).is_new


async def test_topic_filters_that_change_faster_than_they_are_taken_end_the_connection(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await fleet.together("a", "b")
    peer = peer_of(b, "a")
    monkeypatch.setattr("mqttlite.extensions.nodes.news.NEWS_WAITING_BYTES", 6_000_000)
    peer.tell([(b"%d" % each + b"x" * 60_000, 0) for each in range(60)])
    assert peer.is_connected
    peer.tell([(b"%d" % each + b"y" * 60_000, 0) for each in range(60)])
    assert not peer.is_connected
    await until(lambda: peer.is_connected)
    assert peer_of(a, "b").subscriptions == 0


async def test_of_several_changes_of_a_filter_the_last_holds(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    peer = peer_of(b, "a")
    peer.tell([(b"t", -1), (b"t", 1), (b"u", 1), (b"u", -1)])
    await until(lambda: peer_of(a, "b").subscriptions == 1)
    session = core_of(a).sessions.get("$node/b")
    assert session is not None
    assert list(session.subscriptions) == [b"t"]


async def test_topic_filters_are_told_between_packets_and_not_within_one(fleet: Fleet) -> None:
    a, _b = await fleet.together("a", "b")
    peer = peer_of(a, "b")
    peer._packets = bytes(MAX_BLOB_BYTES + 10)
    peer.tell([(b"t", 0)])
    assert peer._next(0.0).news == [(b"t", 0)]
    peer.tell([(b"u", 0)])
    assert peer._next(0.0).news == []
    assert peer._next(0.0).news == [(b"u", 0)]


async def test_very_many_filters_that_are_gone_are_forgotten(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    peer = peer_of(b, "a")
    filters = [f"{number:02}".encode() + b"x" * 60_000 for number in range(60)]
    peer.tell([(each, 0) for each in filters])
    await until(lambda: peer_of(a, "b").subscriptions == 60)
    peer.end("A test ended it.")
    await until(lambda: peer.is_connected and peer_of(a, "b").subscriptions == 0)
    assert peer.connects == 2


async def test_nodes_that_are_lost_make_room_for_others(
    fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "MAX_NODES", 1)
    a = await fleet.start("a")
    air.send("gone", "a", encode(Hello(VERSION, "gone", 1)))
    await until(lambda: "gone" in nodes_of(a)._peers)
    b = await fleet.start("b")
    await connected(a, b)
    assert list(nodes_of(a)._peers) == ["b"]


async def test_the_largest_message_arrives_though_it_grows_on_the_way(fleet: Fleet) -> None:
    a = await fleet.start("a", limits={"max_packet_bytes": 5_000})
    b = await fleet.start("b", limits={"max_packet_bytes": 5_000})
    await connected(a, b)
    async with client_of(a, version="3.1.1") as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t", qos=1)
        reader = Reader(subscriber)
        payload = "x" * (5_000 - len(encode_packet(Publish(b"t", b"", 1, packet_id=1), V311)) - 1)
        await publisher.publish("t", payload, qos=1, retain=True)
        await reader.gets(payload)
        async with asyncio.timeout(10):
            while not await retained(b):
                await asyncio.sleep(0.01)
    assert peer_of(a, "b").connects == 1


async def test_a_message_too_large_for_another_node_is_dropped_for_it_alone(fleet: Fleet) -> None:
    a = await fleet.start("a")
    b = await fleet.start("b", limits={"max_packet_bytes": 2_000})
    await connected(a, b)
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t", qos=1)
        reader = Reader(subscriber)
        await publisher.publish("t", "x" * 5_000, qos=1)
        await publisher.publish("t", "small", qos=1)
        await reader.gets("small")
        assert peer_of(a, "b").is_connected


# ---------------------------------------------------------------------- nodes that come and go


async def test_messages_wait_for_a_node_that_is_away(fleet: Fleet, air: Air, tmp_path: Path) -> None:
    a = await fleet.start("a")
    async with broker_of("b", tmp_path) as b:
        await connected(a, b)
        async with kept_client(b, "s") as subscriber:
            await subscriber.subscribe("t", qos=2)
    async with client_of(a) as publisher:
        await publisher.publish("t", "0", qos=0)
        await publisher.publish("t", "1", qos=1)
        await publisher.publish("t", "2", qos=2)
    (state,) = nodes_of(a).states()
    assert (state.state, state.reason, state.waiting, state.filters) == ("away", "It was stopped.", 2, 1)
    async with broker_of("b", tmp_path) as b, kept_client(b, "s") as subscriber:
        await Reader(subscriber).gets("1", "2")


async def test_messages_wait_over_a_restart_of_both(air: Air, tmp_path: Path) -> None:
    async with broker_of("a", tmp_path / "a") as a:
        async with broker_of("b", tmp_path / "b") as b:
            await connected(a, b)
            async with kept_client(b, "s") as subscriber:
                await subscriber.subscribe("t", qos=2)
        async with client_of(a) as publisher:
            await publisher.publish("t", "1", qos=1)
            await publisher.publish("t", "2", qos=2)
    async with broker_of("a", tmp_path / "a") as a:
        assert [each.waiting for each in nodes_of(a).states()] == [2]
        async with broker_of("b", tmp_path / "b") as b, kept_client(b, "s") as subscriber:
            await Reader(subscriber).gets("1", "2")


async def test_filters_that_a_node_does_not_subscribe_to_again_are_forgotten(fleet: Fleet, tmp_path: Path) -> None:
    a = await fleet.start("a")
    async with broker_of("b", tmp_path) as b:
        await connected(a, b)
        async with client_of(b) as subscriber:
            await subscriber.subscribe("t")
            nodes_of(b)._carrier._air.cut.add(frozenset("ab"))  # type: ignore[attr-defined]
            await until(lambda: peer_of(a, "b").subscriptions == 1)
    nodes_of(a)._carrier._air.cut.clear()  # type: ignore[attr-defined]
    async with broker_of("b", tmp_path) as b:
        await connected(a, b)
        await until(lambda: peer_of(a, "b").subscriptions == 0)


async def test_messages_for_a_node_that_does_not_come_back_are_dropped_in_the_end(fleet: Fleet, tmp_path: Path) -> None:
    a = await fleet.start("a", keep_s=1)
    async with broker_of("b", tmp_path) as b:
        await connected(a, b)
        async with kept_client(b, "s") as subscriber:
            await subscriber.subscribe("t", qos=1)
    async with client_of(a) as publisher:
        await publisher.publish("t", "1", qos=1)
        assert peer_of(a, "b").waiting == 1
        await until(lambda: peer_of(a, "b").waiting == 0)
        assert peer_of(a, "b").subscriptions == 0


@pytest.mark.parametrize("name", ["a", "c"])
async def test_a_node_that_has_lost_everything_loses_no_new_message(fleet: Fleet, name: str) -> None:
    """Its packet identifiers begin anew, and must not look like repetitions."""
    b = await fleet.start("b")
    async with client_of(b) as subscriber:
        await subscriber.subscribe("#", qos=2)
        reader = Reader(subscriber)
        for life in range(3):
            async with broker_of(name) as other:
                await connected(b, other)
                async with client_of(other) as publisher:
                    for number in range(5):
                        await publisher.publish("t", f"{life} {number}", qos=2)
                    await until(lambda life=life: len(reader.messages) == 5 * life + 5)  # type: ignore[misc]
        await reader.gets(*(f"{life} {number}" for life in range(3) for number in range(5)))


async def test_a_lost_blob_loses_no_message(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t", qos=2)
        reader = Reader(subscriber)
        air.loss = 0.1
        for number in range(60):
            await publisher.publish("t", f"{number}", qos=2)
        air.loss = 0.0
        await reader.gets(*(f"{number}" for number in range(60)))
    assert peer_of(a, "b").connects > 1


async def test_nodes_that_do_not_hear_each_other_go_on_alone_and_together_again(
    fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.extensions.nodes.peer.SILENT_S", 0.4)
    a, b = await fleet.together("a", "b")
    async with client_of(a) as one, client_of(b) as two:
        await one.subscribe("t", qos=1)
        await two.subscribe("t", qos=1)
        here, there = Reader(one), Reader(two)
        air.cut.add(frozenset("ab"))
        await until(lambda: not peer_of(a, "b").is_connected and not peer_of(b, "a").is_connected)
        assert peer_of(a, "b").reason == "It was silent for 0.4 s."
        await one.publish("t", "a", qos=1)
        await two.publish("t", "b", qos=1)
        await until(lambda: (here.payloads, there.payloads) == (["a"], ["b"]))
        air.cut.clear()
        await here.gets("a", "b")
        await there.gets("a", "b")


async def test_a_node_that_has_missed_the_end_of_a_connection_learns_of_it(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    peer_of(b, "a")._leave("A test ended it without a word.")
    await until(lambda: peer_of(a, "b").connects == 2 and peer_of(a, "b").is_connected)
    assert peer_of(a, "b").reason == "It does not know the connection any more."
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t")
        reader = Reader(subscriber)
        await publisher.publish("t", "x")
        await reader.gets("x")


async def test_a_subscription_is_on_the_disk_of_another_node_before_suback(
    fleet: Fleet, air: Air, tmp_path: Path
) -> None:
    b = await fleet.start("b")
    async with broker_of("a", tmp_path) as a:
        await connected(a, b)
        async with client_of(b) as subscriber:
            commits = loop_driver_of(a).commits
            await asyncio.sleep(QUIET_S)
            assert not commits.is_under_way
            commits.is_under_way = True  # as if the disk were slow
            waiting = asyncio.create_task(subscriber.subscribe("t", qos=1))
            await until(lambda: peer_of(a, "b").subscriptions == 1)
            await asyncio.sleep(QUIET_S)
            assert not waiting.done()
            commits.is_under_way = False
            loop_driver_of(a).run()
            await waiting


async def test_nodes_that_have_much_for_each_other_and_tell_filters_wait_for_nothing(
    fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.extensions.nodes.window.UNDER_WAY_BYTES", 50_000)
    a, b = await fleet.together("a", "b")
    async with client_of(a) as at_a, client_of(b) as at_b:
        readers, subscribing = [], []
        for client in (at_a, at_b):
            await client.subscribe("t", qos=1)
            readers.append(Reader(client))
        air.delays = {("a", "b"): 0.05, ("b", "a"): 0.05}
        for number in range(100):
            for client in (at_a, at_b):
                await client.publish("t", f"{number} {'x' * 10_000}", qos=1)
                if number % 10 == 5:
                    subscribing.append(asyncio.create_task(client.subscribe(f"u/{number}")))
        await asyncio.wait_for(asyncio.gather(*subscribing), 10)
        await until(lambda: [len(each.messages) for each in readers] == [200, 200])


async def test_a_subscription_waits_a_second_at_most_for_a_node_that_does_not_answer(
    fleet: Fleet, air: Air, caplog: pytest.LogCaptureFixture
) -> None:
    a, b, _c = await fleet.together("a", "b", "c")
    air.cut.add(frozenset("bc"))
    loop = asyncio.get_running_loop()
    async with client_of(b) as subscriber, client_of(a) as publisher:
        for least_s, most_s in ((0.5, 2.0), (0.0, 0.5)):
            began = loop.time()
            await subscriber.subscribe(f"t/{least_s}", qos=1)
            assert least_s <= loop.time() - began < most_s
        reader = Reader(subscriber)
        await publisher.publish("t/0.0", "x")
        await reader.gets("x")
    said = [each.message for each in caplog.records if "does not answer" in each.message]
    assert said == ["node c does not answer: subscriptions are acknowledged without it"]


async def test_a_node_that_is_slow_holds_up_nobody_and_gets_all_that_is_kept(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.extensions.nodes.peer.UNHANDLED_BYTES", -1)
    a, b = await fleet.together("a", "b")
    peer_of(b, "a")._answers._subacks.clear()
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await asyncio.wait_for(subscriber.subscribe("t", qos=1), 3)
        reader = Reader(subscriber)
        for number in range(100):
            await publisher.publish("t", f"{number} {'x' * 100_000}", qos=1)
        assert peer_of(a, "b")._window.packet_bytes < 5_000_000
        monkeypatch.setattr("mqttlite.extensions.nodes.peer.UNHANDLED_BYTES", 1_000_000)
        await until(lambda: len(reader.messages) == 100)


# ---------------------------------------------------------------------- retained messages


async def test_all_nodes_have_all_retained_messages(fleet: Fleet) -> None:
    a = await fleet.start("a")
    async with client_of(a) as client:
        await client.publish("old", "1", qos=1, retain=True)
        await client.publish("gone", "2", retain=True)
        await client.publish("gone", "", retain=True)
    b = await fleet.start("b")
    await connected(a, b)
    async with client_of(b) as client:
        for qos in (0, 1, 2):
            await client.publish(f"new/{qos}", "3", qos=qos, retain=True)
        await client.publish("old", "4", retain=True)
    wanted = {"old": ("4", 0), **{f"new/{qos}": ("3", qos) for qos in (0, 1, 2)}}

    async def is_so() -> bool:
        return await retained(a) == await retained(b) == wanted

    async with asyncio.timeout(10):
        while not await is_so():
            await asyncio.sleep(0.01)


async def test_a_retained_message_is_delivered_once_at_each_node_and_not_again_when_nodes_meet(
    fleet: Fleet, air: Air
) -> None:
    a, b = await fleet.together("a", "b")
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t", qos=1, retain_as_published=True)
        reader = Reader(subscriber)
        await publisher.publish("t", "x", qos=1, retain=True)
        await reader.gets("x")
        assert reader.messages[0].retain
        peer_of(a, "b").end("for a test")
        await until(lambda: peer_of(a, "b").connects == 2 and peer_of(a, "b").is_connected)
        await reader.gets("x")


async def test_removals_and_changes_while_a_node_is_away_reach_it(air: Air, fleet: Fleet, tmp_path: Path) -> None:
    a = await fleet.start("a")
    async with broker_of("b", tmp_path) as b:
        await connected(a, b)
        async with client_of(a) as client:
            await client.publish("stays", "1", qos=1, retain=True)
            await client.publish("goes", "1", qos=1, retain=True)
            await client.publish("changes", "1", qos=1, retain=True)
            async with asyncio.timeout(10):
                while len(await retained(b)) < 3:
                    await asyncio.sleep(0.01)
    async with client_of(a) as client:
        await client.publish("goes", "", retain=True)
        await client.publish("changes", "2", retain=True)
    async with broker_of("b", tmp_path) as b:
        async with asyncio.timeout(10):
            while await retained(b) != {"stays": ("1", 1), "changes": ("2", 0)}:
                await asyncio.sleep(0.01)
        assert await retained(a) == await retained(b)


async def test_a_copy_that_was_dropped_is_made_up_for(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    core_of(a).router.on_retained = None
    peer_of(a, "b")._lacks_copies = True
    peer_of(a, "b")._copied_at = -1_000.0
    async with client_of(a) as client:
        await client.publish("t", "x", retain=True)
        async with asyncio.timeout(10):
            while not await retained(b):
                await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- limits and mistakes


async def test_with_very_many_filters_everything_is_asked_for(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telling, "MAX_FILTERS", 3)
    a, b = await fleet.together("a", "b")
    async with client_of(b) as subscriber, client_of(a) as publisher:
        for number in range(6):
            await subscriber.subscribe(f"t/{number}", qos=2)
        reader = Reader(subscriber)
        for number in range(6):
            await publisher.publish(f"t/{number}", f"{number}", qos=2)
        await reader.gets(*"012345")
        assert peer_of(a, "b").subscriptions == 4
        late = await fleet.start("c")
        await connected(a, b, late)
        await until(lambda: peer_of(late, "b").subscriptions == 1)
    assert any("nodes send all messages to this one" in each.message for each in caplog.records)


async def test_many_filters_are_told_in_parts(fleet: Fleet) -> None:
    b = await fleet.start("b")
    async with client_of(b) as subscriber:
        filters = [f"{number:05}/{'x' * 100}" for number in range(3_000)]
        for at in range(0, 3_000, 500):
            await asyncio.gather(*(subscriber.subscribe(each) for each in filters[at : at + 500]))
        a = await fleet.start("a")
        await connected(a, b)
        await until(lambda: peer_of(a, "b").subscriptions == 3_000)


async def test_long_filters_that_end_while_nodes_are_apart_fit_into_their_packets(fleet: Fleet, air: Air) -> None:
    limits = {"max_packet_bytes": 65_536}
    a, b = await fleet.start("a", limits=limits), await fleet.start("b", limits=limits)
    await connected(a, b)
    async with client_of(a) as client:
        for number in range(10):
            await client.subscribe(f"{number}/" + "y" * 60_000)
        await until(lambda: peer_of(b, "a").subscriptions == 10)
        air.cut.add(frozenset("ab"))
        await until(lambda: not (peer_of(a, "b").is_connected or peer_of(b, "a").is_connected))
    air.cut.clear()
    await connected(a, b)
    await until(lambda: peer_of(b, "a").subscriptions == 0)
    assert peer_of(b, "a").connects == 2


async def test_a_client_that_leaves_with_many_long_filters_ends_no_connection(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    async with client_of(a) as client:
        for first in range(0, 80, 10):
            await client.subscribe([(f"{number}/" + "y" * 62_000, 0) for number in range(first, first + 10)])
        await until(lambda: peer_of(b, "a").subscriptions == 80)
    await until(lambda: peer_of(b, "a").subscriptions == 0)
    assert (peer_of(a, "b").connects, peer_of(b, "a").connects) == (1, 1)


async def test_few_of_many_filters_are_on_their_way_at_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttlite.extensions.nodes.window.NEWS_UNDER_WAY", 2 * NEWS_AT_ONCE)
    b = await fleet.start("b")
    async with client_of(b) as subscriber:
        for at in range(0, 3_000, 500):
            await asyncio.gather(*(subscriber.subscribe(f"{number:05}") for number in range(at, at + 500)))
        starting = asyncio.create_task(fleet.start("a"))
        most = 0
        while not starting.done() or peer_of(starting.result(), "b").subscriptions < 3_000:
            for peer in nodes_of(b).peers:
                most = max(most, peer.news.sent - peer.news.taken)
            await asyncio.sleep(0)
    assert NEWS_AT_ONCE <= most <= 3 * NEWS_AT_ONCE


async def test_more_nodes_than_may_be_are_left_out(
    fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nodes_module, "MAX_NODES", 1)
    await fleet.together("a", "b")
    for _ in range(2):
        air.send("z", "a", encode(Hello(VERSION, "z", 1)))
    await until(lambda: any("more than 1 other nodes" in each.message for each in caplog.records))
    assert len([each for each in caplog.records if "more than 1 other nodes" in each.message]) == 1


async def test_of_two_nodes_with_one_name_the_later_one_takes_no_part_until_the_other_stops(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await fleet.together("a", "b")
    later = await fleet.start("a")
    await until(lambda: sum("two nodes with the name a" in each.message for each in caplog.records) == 2)
    await connected(a, b)
    await until(lambda: all(each.state == "away" for each in nodes_of(later).states()))
    connects = peer_of(b, "a").connects
    async with client_of(a) as publisher, client_of(b) as subscriber, client_of(later) as apart:
        reader, alone = Reader(subscriber), Reader(apart)
        for each in (subscriber, apart):
            await each.subscribe("t", qos=1)
        await asyncio.sleep(2 * SILENT_S)  # for what would begin again and again
        assert peer_of(b, "a").connects == connects
        await publisher.publish("t", "x", qos=1)
        await reader.gets("x")
        await a.stop()
        await connected(later, b)
        await apart.publish("t", "y", qos=1)
        await reader.gets("x", "y")
        await alone.gets("y")


def machine_of(name: str, data_dir: Path) -> Broker:
    """One of several machines that are the node of this name."""
    nodes = {"servers": ["nats://127.0.0.1:4222"], "node": name}
    cluster = {"servers": ["nats://127.0.0.1:4222"]}
    raw = {"listeners": [{"port": 0}], "nodes": nodes, "cluster": cluster, "data_dir": str(data_dir)}
    return Broker(parse_config(raw), store=MemoryStore())


async def test_of_two_machines_of_a_node_the_one_that_stood_still_takes_no_part(
    fleet: Fleet, rig: Rig, air: Air, tmp_path: Path
) -> None:
    former = await rig.enter(machine_of("a", tmp_path / "1"))
    b = await fleet.start("b")
    await connected(former, b)
    heir = await rig.enter(machine_of("a", tmp_path / "2"))
    await until(lambda: all(each.state == "away" for each in nodes_of(former).states()))
    await connected(heir, b)
    connects = peer_of(b, "a").connects
    run = nodes_of(former)._run
    for node in ("a", "b"):  # what it says before it hears of the heir
        air.send("a", node, encode(Hello(VERSION, "a", run)))
    air.send("a", "b", encode(Open(VERSION, "a", run, 7, False, False, 10, 10_000)))
    async with client_of(heir) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t", qos=1)
        reader = Reader(subscriber)
        await publisher.publish("t", "x", qos=1)
        await reader.gets("x")
        await asyncio.sleep(QUIET_S)
    assert peer_of(b, "a").connects == connects


async def test_nonsense_and_blobs_of_another_version_change_nothing(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    for data in (
        b"",
        b"\x93nonsense",
        encode(Hello(VERSION + 1, "z", 1)),
        encode(Open(VERSION + 1, "z", 1, 1, False, True, 1, 1)),
        encode(Close("b", 1, "no such connection")),
        encode(Data("b", 1, 7, 0, False, [], b"")),
        encode(Hello(VERSION, "no name\r\n", 1)),
    ):
        air.send("z", "a", data)
    await asyncio.sleep(QUIET_S)
    assert [each.state for each in nodes_of(a).states() if each.name == "b"] == ["connected"]
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t")
        reader = Reader(subscriber)
        await publisher.publish("t", "x")
        await reader.gets("x")


async def test_packets_that_are_none_end_the_connection_and_it_comes_back(fleet: Fleet, air: Air) -> None:
    a, _b = await fleet.together("a", "b")
    peer = peer_of(a, "b")
    air.send("b", "a", encode(Data("b", peer._connection, peer._receipt.received + 1, 0, False, [], b"\0\0\0")))
    await until(lambda: peer.connects == 2 and peer.is_connected)
    assert "malformed" in peer.reason.lower() or peer.reason


async def test_a_fault_in_what_hears_another_node_is_logged_and_ends_the_connection_which_comes_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await fleet.together("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(peer_of(a, "b")._heard, "hear", lambda *_: 1 / 0)
        async with client_of(b) as client:
            await client.subscribe("t")
    await until(lambda: peer_of(a, "b").connects >= 2 and peer_of(a, "b").has_met)
    assert [each.exc_info for each in caplog.records if "a fault while node b was heard" in each.message]
    async with client_of(a) as publisher, client_of(b) as subscriber:
        await subscriber.subscribe("t")
        reader = Reader(subscriber)
        await publisher.publish("t", "x")
        await reader.gets("x")


async def test_a_fault_in_what_a_node_does_now_and_then_is_logged_and_it_goes_on(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await fleet.together("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(nodes_of(a)._fences, "tick", lambda: 1 / 0)
        await until(lambda: any("a fault in what this node does" in each.message for each in caplog.records))
    await b.stop()
    await until(lambda: not peer_of(a, "b").is_connected)
    ticked = asyncio.Event()
    monkeypatch.setattr(nodes_of(a)._fences, "tick", ticked.set)
    await asyncio.wait_for(ticked.wait(), 5)


@pytest.mark.parametrize("news", [(b"a/#/b", 0), (b"t", 9), (b"x" * 70_000, 0)])
async def test_topic_filters_that_are_none_end_the_connection(fleet: Fleet, air: Air, news: tuple[bytes, int]) -> None:
    a, _b = await fleet.together("a", "b")
    peer = peer_of(a, "b")
    air.send("b", "a", encode(Data("b", peer._connection, peer._receipt.received + 1, 0, False, [news], b"")))
    await until(lambda: peer.connects == 2 and peer.is_connected)


async def test_a_broker_without_room_for_a_session_says_so(fleet: Fleet, air: Air) -> None:
    a = await fleet.start("a", limits={"max_sessions": 1})
    async with client_of(a, "only"):
        await fleet.start("b")
        await until(lambda: any("no room" in each.reason for each in nodes_of(a).states()))


# ---------------------------------------------------------------------- seen


async def test_nodes_are_listed(fleet: Fleet, air: Air, tmp_path: Path) -> None:
    a = await fleet.start("a", tmp_path, metrics={"port": 0})
    b = await fleet.start("b")
    await connected(a, b)
    async with client_of(b) as subscriber, client_of(a) as publisher:
        await subscriber.subscribe("t", qos=1)
        await publisher.publish("t", "x", qos=1)
        await until(lambda: peer_of(a, "b").waiting == 0 and peer_of(a, "b").sent_bytes > 0)
        await until(lambda: peer_of(a, "b").received_bytes > 0)
        listed = (await run(tmp_path, "ls")).stdout
        state = json.loads((await run(tmp_path, "ls", "--json")).stdout)["items"][0]
        load = f"{state['clients']}\t{state['sessions']}\t{state['received_per_s']}\t{state['sent_per_s']}"
        told = f"{state['sent_bytes']}\t{state['received_bytes']}\t0\t{build.VERSION}"
        assert listed == f"b\tconnected\t{load}\t1\t0\t{told}\t-\n"
        figures = nodes_of(a).figures()
        assert figures["nodes_connected"] == [({"node": "b"}, True)]
        assert figures["nodes_filters"] == [({"node": "b"}, 1)]


async def run(directory: Path, *arguments: str) -> Result:
    words = ("nodes", arguments[0], "--data-dir", str(directory), *arguments[1:])
    return await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)


async def test_a_broker_that_is_no_node_has_none(rig: Rig, tmp_path: Path) -> None:
    await rig.enter(Broker(parse_config({"listeners": [{"port": 0}], "data_dir": str(tmp_path)})))
    assert (await run(tmp_path, "ls")).stdout == ""
