"""A node that drains: its clients and their sessions go to other nodes, and nothing that was acknowledged is lost."""

import asyncio
from pathlib import Path

import pytest

from mqttlite import Client
from mqttlite.assembly import assembly
from mqttlite.client.errors import ConnectRefused
from mqttlite.core.route.subscription import Subscription
from mqttlite.extensions.nodes import draining
from mqttlite.extensions.nodes.blobs import Adopted, Filters, Yours
from mqttlite.extensions.nodes.draining import COMING, DrainState
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession, waiting_in
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connack
from tests.integration.conftest import Rig
from tests.integration.nodes.test_nodes import Fleet, air, client_of, connected, fleet, kept_client, nodes_of, peer_of
from tests.integration.nodes.test_sessions import holders
from tests.support.air import Air
from tests.support.device import until
from tests.support.inside import core_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

__all__ = ["air", "fleet"]


def state_of(broker: Broker) -> DrainState:
    return nodes_of(broker).drain.state()


async def drained(broker: Broker) -> None:
    """Drain a node, and wait until it can be stopped."""
    nodes_of(broker).drain.begin()
    await until(lambda: state_of(broker).step == "drained")


async def test_the_kept_sessions_of_a_node_go_on_at_others(fleet: Fleet, rig: Rig) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    for number in range(10):
        device = await rig.device(a.port, f"us-{number}", V5, clean_start=False, expiry=1_000)
        await device.subscribe(f"t/{number}/#", 2)
        await device.disconnect()
    async with client_of(b) as publisher:
        for number in range(10):
            for count in range(50):
                await publisher.publish(f"t/{number}/{count}", f"{count}", qos=1)
        await drained(a)
        assert (state_of(a).sessions, state_of(a).moved, state_of(a).left) == (0, 10, [])
        for number in range(10):
            assert holders(f"us-{number}", a) == []
            assert len(holders(f"us-{number}", b, c)) == 1
            await publisher.publish(f"t/{number}/x", "later", qos=2)
    assert {name for number in range(10) for name in holders(f"us-{number}", b, c)} == {"b", "c"}
    await a.stop()
    for number in range(10):
        device = await rig.dial(b.port, V5)
        device.hello(f"us-{number}", clean_start=False, expiry=1_000)
        assert (await device.expect(Connack)).session_present
        found = [(await device.message())[1] for _ in range(51)]
        assert found == [*(str(count).encode() for count in range(50)), b"later"]
        await device.disconnect()


async def test_clients_publish_on_while_their_node_drains_and_nothing_is_lost(fleet: Fleet, air: Air) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    air.max_delay_s = 0.003
    got: dict[int, list[int]] = {number: [] for number in range(6)}
    sent = [0] * 6
    is_over = asyncio.Event()
    for number in range(6):  # all sessions begin at a
        async with kept_client(a, f"us-{number}") as client:
            await client.subscribe(f"t/{number}", qos=1)

    async def receive(number: int) -> None:
        ports = [each.port for each in ((a, b, c) if number % 2 else (b, c, a))]
        hosts = [f"127.0.0.1:{port}" for port in ports]
        kept = {"clean_start": False, "session_expiry_interval": 1_000, "min_reconnect_delay": 0.05}
        async with Client(hosts, client_id=f"us-{number}", **kept) as client:  # type: ignore[arg-type]
            async for message in client.messages:
                got[number].append(int(message.payload))

    async def publish(number: int) -> None:
        async with client_of(b if number % 2 else c) as client:
            while not is_over.is_set():
                await client.publish(f"t/{number}", str(sent[number]), qos=1)
                sent[number] += 1
                await asyncio.sleep(0.005)

    receivers = [asyncio.create_task(receive(number)) for number in range(6)]
    publishers = [asyncio.create_task(publish(number)) for number in range(6)]
    await until(lambda: all(len(each) > 20 for each in got.values()))
    await drained(a)
    await a.stop()
    stopped_at = list(sent)
    await until(lambda: all(now > then + 20 for now, then in zip(sent, stopped_at, strict=True)))
    is_over.set()
    await asyncio.gather(*publishers)
    await until(lambda: all(set(got[number]) >= set(range(sent[number])) for number in range(6)))
    for task in receivers:
        task.cancel()
    await asyncio.gather(*receivers, return_exceptions=True)


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_that_comes_to_a_node_that_drains_is_passed_on(fleet: Fleet, rig: Rig, version: int) -> None:
    a, b = await fleet.together("a", "b")
    nodes_of(a).drain.begin()
    kept = {"clean_start": False, "expiry": 1_000 if version == V5 else None}
    device = await rig.device(a.port, "us", version, **kept)
    unnamed = await rig.device(a.port, "", version)
    await device.subscribe("t", 1)
    await unnamed.subscribe("t", 1)
    assert holders("us", a, b) == ["b"]
    assert state_of(a).clients == 0
    async with client_of(b) as publisher:
        await publisher.publish("t", "x", qos=1)
    assert [(await each.message())[1] for each in (device, unnamed)] == [b"x", b"x"]


async def test_a_client_whose_session_is_moving_waits_and_finds_it_whole(fleet: Fleet, rig: Rig) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    device = await rig.device(a.port, "us", V5, clean_start=False, expiry=1_000)
    await device.subscribe("t", 1)
    await device.disconnect()
    async with client_of(b) as publisher:
        for number in range(200):
            await publisher.publish("t", str(number), qos=1)
    nodes_of(a).drain.begin()
    for broker in (a, c, b):
        again = await rig.dial(broker.port, V5)
        again.hello("us", clean_start=False, expiry=1_000)
        assert (await again.expect(Connack)).session_present
        await again.disconnect()
    again = await rig.dial(c.port, V5)
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present
    found = {(await again.message())[1] for _ in range(200)}
    assert len(found) == 200
    assert holders("us", a) == []
    assert len(holders("us", b, c)) == 1


async def test_connected_clients_are_sent_away_and_told_where_to_go(fleet: Fleet, rig: Rig) -> None:
    a = await fleet.start("a")
    b = await rig.enter(_with_address("b"))
    await connected(a, b)
    device = await rig.device(a.port, "us", V5)
    await asyncio.sleep(1.1)  # until b has said where it is
    nodes_of(a).drain.begin()
    assert await device.goodbye() == 0x9C
    await until(lambda: state_of(a).step == "drained")


def _with_address(name: str) -> Broker:
    from mqttlite.config.file import parse_config

    nodes = {"servers": ["nats://127.0.0.1:4222"], "node": name, "address": "b.example:1883"}
    return Broker(parse_config({"listeners": [{"port": 0}], "nodes": nodes}))


async def test_a_drain_is_undone(fleet: Fleet, rig: Rig) -> None:
    a, b = await fleet.together("a", "b")
    await drained(a)
    assert nodes_of(a).drain.not_ready
    nodes_of(a).drain.end()
    assert (state_of(a).step, nodes_of(a).drain.not_ready) == ("", "")
    await rig.device(a.port, "us", V5, clean_start=False, expiry=1_000)
    await rig.device(a.port, "", V5)
    assert holders("us", a, b) == ["a"]


async def test_a_node_that_drains_gets_no_sessions_of_another_one(fleet: Fleet, rig: Rig) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    for number in range(4):
        device = await rig.device(a.port, f"us-{number}", V5, clean_start=False, expiry=1_000)
        await device.disconnect()
    nodes_of(b).drain.begin()
    await until(lambda: [each.drain for each in nodes_of(a).states()] == ["drained", ""])
    await drained(a)
    assert [holders(f"us-{number}", a, b, c) for number in range(4)] == [["c"]] * 4
    nodes_of(c).drain.begin()
    device = await rig.device(c.port, "new", V5, clean_start=False, expiry=1_000)  # nobody else takes it
    assert holders("new", a, b, c) == ["c"]
    assert state_of(c).waits_for == "No other node takes sessions."
    assert state_of(c).step == "draining"
    await device.ping()


async def test_a_session_that_cannot_move_stays_and_is_named(fleet: Fleet, rig: Rig) -> None:
    queues, streams = [{"name": "jobs", "filters": ["j/#"]}], [{"name": "log", "filters": ["l/#"]}]
    a = await fleet.start("a", queues=queues, streams=streams)
    b = await fleet.start("b")
    await connected(a, b)
    reader = await rig.device(a.port, "reader", V5, clean_start=False, expiry=1_000)
    await reader.subscribe("$stream/log", 1)
    await reader.disconnect()
    worker = await rig.device(a.port, "worker", V5, clean_start=False, expiry=1_000)
    await worker.subscribe("$queue/jobs", 1)
    await worker.disconnect()
    await drained(a)
    state = state_of(a)
    assert [(each.sessions, each.reason) for each in state.left] == [(1, draining.STREAM)]
    assert state.stays == ["$queue/jobs", "$stream/log"]
    assert holders("worker", a, b) == ["b"]
    worker = await rig.device(b.port, "worker", V5, clean_start=False, expiry=1_000)
    async with client_of(b) as publisher:
        await publisher.publish("j/1", "x", qos=1)
    assert (await worker.message())[1] == b"x"


async def test_subscriptions_move_with_all_that_they_ask_for(fleet: Fleet, rig: Rig) -> None:
    a, b = await fleet.together("a", "b")
    async with kept_client(a, "us") as client:
        await client.subscribe("t/#", qos=2, no_local=True, retain_as_published=True)
        await client.subscribe("v/#", qos=1, where="payload.x > 3")
        await client.subscribe("$share/g/s/#", qos=1)
    before = core_of(a).sessions.get("us")
    assert before is not None
    wanted = [_told(each) for each in before.subscriptions.values()]
    await drained(a)
    after = core_of(b).sessions.get("us")
    assert after is not None
    assert [_told(each) for each in after.subscriptions.values()] == wanted
    assert not after.identity.is_trusted
    assert after.expiry_interval == 1_000


def _told(each: Subscription) -> tuple[object, ...]:
    where = "" if each.message_filter is None else each.message_filter.expression
    return each.topic_filter, each.qos, each.no_local, each.retain_as_published, each.identifier, where


async def test_a_session_that_moved_outlives_both_nodes(fleet: Fleet, rig: Rig, tmp_path: Path) -> None:
    a = await fleet.start("a", tmp_path / "a")
    b = await fleet.start("b", tmp_path / "b")
    await connected(a, b)
    device = await rig.device(a.port, "us", V5, clean_start=False, expiry=0xFFFFFFFF)
    await device.subscribe("t", 1)
    await device.disconnect()
    async with client_of(b) as publisher:
        await publisher.publish("t", "x", qos=1)
    await drained(a)
    await a.stop()
    await b.stop()
    b = await fleet.start("b", tmp_path / "b")
    again = await rig.dial(b.port, V5)
    again.hello("us", clean_start=False, expiry=0xFFFFFFFF)
    assert (await again.expect(Connack)).session_present
    assert (await again.message())[1] == b"x"


async def test_a_move_that_is_cut_off_leaves_the_session_where_it_was(fleet: Fleet, rig: Rig, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    device = await rig.device(a.port, "us", V5, clean_start=False, expiry=1_000)
    await device.subscribe("t", 1)
    await device.disconnect()
    async with client_of(a) as publisher:
        for number in range(300):
            await publisher.publish("t", str(number), qos=1)
    air.max_delay_s = 0.02
    nodes_of(a).drain.begin()
    await until(lambda: core_of(b).sessions.get("us") is not None)
    air.without.add("b")
    await until(lambda: nodes_of(a).states()[0].state != "connected")
    assert state_of(a).waits_for.startswith("Node b is away")
    assert holders("us", a) == ["a"]
    nodes_of(a).drain.end()
    air.without.clear()
    air.max_delay_s = 0.0
    await connected(a, b)
    again = await rig.dial(b.port, V5)
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present
    found = set()
    while len(found) < 300:
        found.add((await again.message())[1])
    async with client_of(b) as publisher:
        await publisher.publish("t", "live", qos=1)
    while (await again.message())[1] != b"live":
        pass


async def test_a_message_from_before_the_move_that_comes_late_is_not_lost(fleet: Fleet, rig: Rig, air: Air) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    device = await rig.device(a.port, "us", V5, clean_start=False, expiry=1_000)
    await device.subscribe("t", 1)
    await device.disconnect()
    nodes_of(c).drain.begin()
    await until(lambda: [each.drain for each in nodes_of(a).states()] == ["", "drained"])
    air.delays["c", "a"] = 0.3
    await c.publish("t", "x", qos=1)
    await drained(a)
    again = await rig.dial(b.port, V5)
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present
    assert (await again.message())[1] == b"x"


async def test_a_client_finds_its_session_at_each_moment_of_the_move(fleet: Fleet, rig: Rig, air: Air) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    device = await rig.device(a.port, "us", V5, clean_start=False, expiry=1_000)
    await device.subscribe("t", 1)
    await device.disconnect()
    await a.publish("t", "x", qos=1)
    air.delays["b", "a"] = air.delays["c", "a"] = 0.2
    nodes_of(a).drain.begin()
    await until(lambda: holders("us", b, c) != [])
    again = await rig.dial((c if holders("us", b) else b).port, V5)
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present
    assert (await again.message())[1] == b"x"
    assert holders("us", a) == []


async def test_a_node_that_starts_again_amid_a_move_keeps_the_session_and_what_went_comes_back(
    fleet: Fleet, rig: Rig, air: Air, tmp_path: Path
) -> None:
    a, b = await fleet.start("a", tmp_path), await fleet.start("b")
    await connected(a, b)
    device = await rig.device(a.port, "us", V5, clean_start=False, expiry=1_000)
    await device.subscribe("t", 1)
    await device.disconnect()
    for number in range(100):
        await a.publish("t", str(number), qos=1)
    air.delays["b", "a"] = 0.1
    nodes_of(a).drain.begin()
    await until(lambda: waiting_in(core_of(b), "us") > 0)
    await a.stop()
    air.delays.clear()
    a = await fleet.start("a", tmp_path)
    await connected(a, b)
    await until(lambda: holders("us", a, b) == ["a"])
    again = await rig.dial(b.port, V5)
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present
    found = set()
    while len(found) < 100:
        found.add((await again.message())[1])
    await b.publish("t", "live", qos=1)
    while (await again.message())[1] != b"live":
        pass


async def _half_way(fleet: Fleet, rig: Rig, air: Air) -> tuple[Broker, Broker, Broker]:
    """`a` is drained, and the session of `us` moves from `b` to `c`, which subscribes and waits for `a`."""
    a, b, c = await fleet.together("a", "b", "c")
    device = await rig.device(b.port, "us", V5, clean_start=False, expiry=1_000)
    await device.subscribe("t", 1)
    await device.disconnect()
    await drained(a)
    await until(lambda: [each.drain for each in nodes_of(b).states()] == ["drained", ""])
    air.delays["c", "a"] = air.delays["a", "c"] = 0.5
    nodes_of(b).drain.begin()

    def subscribes() -> bool:
        session = core_of(c).sessions.get("us")
        return session is not None and session.identity.is_trusted and len(session.subscriptions) > 0

    await until(subscribes)
    return a, b, c


async def test_a_move_undone_while_the_other_node_subscribes_leaves_nothing_there(
    fleet: Fleet, rig: Rig, air: Air
) -> None:
    _a, b, c = await _half_way(fleet, rig, air)
    nodes_of(b).drain.end()
    air.delays.clear()
    await until(lambda: core_of(c).sessions.get("us") is None)
    nodes_of(c).drain.begin()
    await until(lambda: state_of(c).step == "drained")
    again = await rig.dial(b.port, V5)
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present
    await c.publish("t", "x", qos=1)
    assert (await again.message())[1] == b"x"


async def test_a_session_is_not_moved_on_before_it_has_come(fleet: Fleet, rig: Rig, air: Air) -> None:
    a, b, c = await _half_way(fleet, rig, air)
    nodes_of(a).drain.end()
    nodes_of(c).drain.begin()
    air.delays["a", "b"] = 2.5  # so that the fence is on its way for some time
    for _look in range(100):
        await asyncio.sleep(0.02)
        if nodes_of(c).locating.adopting.has("us"):
            assert state_of(c).step == "draining"
            assert [(each.sessions, each.reason) for each in state_of(c).left] == [(1, COMING)]
            assert not nodes_of(c).drain.moves("us")
    air.delays.clear()
    await until(lambda: holders("us", a, b, c) == ["a"])
    await until(lambda: state_of(c).step == state_of(b).step == "drained")
    again = await rig.dial(b.port, V5)
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present
    await b.publish("t", "x", qos=1)
    assert (await again.message())[1] == b"x"


async def test_answers_to_an_earlier_move_change_nothing(fleet: Fleet, rig: Rig, air: Air) -> None:
    _a, b, c = await _half_way(fleet, rig, air)
    of_b, of_c = nodes_of(b), nodes_of(c)
    of_c.locating.on_note(of_c._peers["b"], Yours("us", 1, 1))
    of_c.locating.on_note(of_c._peers["b"], Filters("us", [], is_last=True, attempt=1))  # refused, to that one
    of_b.locating.on_note(of_b._peers["c"], Adopted("us", True, "", 1))
    of_b.locating.on_note(of_b._peers["c"], Adopted("us", False, "not there", 1))
    assert of_b.drain.moves("us")
    await asyncio.sleep(0.1)
    assert of_b.drain.moves("us")
    assert of_c.locating.adopting.has("us")
    air.delays.clear()
    await until(lambda: state_of(b).step == "drained")
    assert state_of(b).left == []
    assert holders("us", b, c) == ["c"]


async def test_a_session_that_is_refused_stays_and_is_tried_again(fleet: Fleet, rig: Rig) -> None:
    a, b = await fleet.together("a", "b")
    for broker in (b, a):  # as if both had begun one
        local = LocalSession(core_of(broker), nodes_of(broker)._driver, lambda: None, "test", "local", "test")
        local.connect(LocalClient(client_id="us", session_expiry_s=1_000, clean_start=False), 1)
        local.link.leave()
    nodes_of(a).drain.begin()
    reason = "could not be moved: the client has a session there"
    await until(lambda: [each.reason for each in state_of(a).left] == [reason])
    for _look in range(25):
        await asyncio.sleep(0.1)
        assert [each.reason for each in state_of(a).left] == [reason]
        assert state_of(a).step == "draining"
    assert holders("us", a, b) == ["a", "b"]  # neither was told that its own is the older one
    core_of(b).end_session("us", nodes_of(b)._driver.time())
    await until(lambda: state_of(a).step == "drained")
    assert state_of(a).left == []
    assert holders("us", a, b) == ["b"]


async def test_a_session_that_has_just_moved_is_not_older_than_itself(fleet: Fleet, rig: Rig) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    device = await rig.device(a.port, "us", V5, clean_start=False, expiry=1_000)
    await device.subscribe("t", 1)
    await device.disconnect()
    nodes_of(c).drain.begin()
    await until(lambda: [each.drain for each in nodes_of(a).states()] == ["", "drained"])
    await drained(a)
    await until(lambda: not nodes_of(b).locating.adopting.has("us"))
    nodes_of(c).drain.end()
    session = core_of(b).sessions.get("us")
    assert session is not None
    session.connected_at -= 0.00001  # as the clocks of two nodes may differ, and times are rounded
    again = await rig.dial(c.port, V5)  # a and b both say that b has it
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present
    await c.publish("t", "x", qos=1)
    assert (await again.message())[1] == b"x"


async def test_a_client_that_has_no_room_is_told_where_the_node_with_the_fewest_clients_is(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "_LOAD_AGE_S", 0.0)
    limits = {"max_sessions": 4}
    brokers = {}
    for name in "abcd":
        nodes = {"servers": ["nats://127.0.0.1:4222"], "node": name, "address": "" if name == "d" else f"{name}:1883"}
        brokers[name] = await fleet.start(name, limits=limits if name == "a" else {}, nodes=nodes)
    await connected(*brokers.values())
    a = brokers["a"]  # three sessions are those of the other nodes
    async with client_of(a, "one"), client_of(brokers["b"], "two"):
        await until(lambda: peer_of(a, "b").load.clients > peer_of(a, "c").load.clients > 0)
        with pytest.raises(ConnectRefused) as refused:
            await client_of(a, "three").__aenter__()
        assert (refused.value.reason_code, refused.value.properties.server_reference) == (0x9C, "c:1883")
