"""Snapshots of a core without sockets: each client is counted once, and the rankings keep to their limit."""

import asyncio
import weakref

import pytest

from mqttlite.telemetry.counters import NO_VERSION, ConnectionCounters, Totals
from mqttlite.telemetry.snapshot import INTERVAL_S, RANKED, SLICE, Snapshot, Snapshots
from mqttlite.wire.constants import V311
from tests.support.core_driver import Client, World
from tests.unit.telemetry.watched import Link


def link(client: Client, unsent_bytes: int = 0) -> Link:
    return Link(client.connection, listener="front", unsent_bytes=unsent_bytes)


class Taken:
    """Snapshots of a world's links, at a time that is a number."""

    def __init__(self, world: World, links: list[Link]) -> None:
        self.now = 1_000.0
        self.counters = ConnectionCounters(world.broker)
        self.snapshots = Snapshots(world.broker, lambda: links, self.counters, lambda: self.now)

    def take(self, after_s: float = 10.0) -> Snapshot:
        self.now += after_s
        collection = self.snapshots.begin()
        while not collection.step():
            pass
        return self.snapshots.finish(collection)


def taken(world: World, links: list[Link]) -> Snapshot:
    return Taken(world, links).take()


def test_without_clients_there_is_nothing() -> None:
    snapshot = taken(World(), [])
    assert snapshot.connections == {}
    assert snapshot.rankings == {"bytes": [], "outbox": [], "queue": [], "inflight": [], "drops": []}
    assert (snapshot.interval_s, set(snapshot.growth.values())) == (10.0, {0})


def test_the_client_with_the_most_unacknowledged_messages_is_named() -> None:
    world = World()
    readers = [world.connect(name, auto_ack=False, expiry=100) for name in ("few", "away", "most")]
    for number, reader in enumerate(readers, 1):
        reader.subscribe("t", qos=1)
        for _ in range(number):
            world.publish("t", qos=1)
    readers[0].subscribe("other")
    readers[1].lose()
    snapshot = taken(world, [link(each) for each in (readers[0], readers[2])])
    assert [(each.client_id, each.inflight, each.peer) for each in snapshot.rankings["inflight"]] == [
        ("few", 6, "192.0.2.7:1234"),
        ("most", 3, "192.0.2.7:1234"),
    ]
    assert snapshot.inflight == 9


@pytest.mark.parametrize("clients", [1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE])
def test_each_client_is_counted_once_however_the_slices_fall(clients: int) -> None:
    world = World()
    links = [link(world.connect(f"c{number}", 4 if number % 2 else 5)) for number in range(clients)]
    links.append(link(world.open()))
    snapshot = taken(world, links)
    assert sum(snapshot.connections.values()) == clients + 1
    assert snapshot.connections["front", "tcp", NO_VERSION] == 1
    assert snapshot.connections.get(("front", "tcp", "3.1.1"), 0) == clients // 2
    assert snapshot.totals.connects == clients
    assert snapshot.totals.bytes_received == sum(each.connection.bytes_received for each in links)


@pytest.mark.parametrize("clients", [RANKED - 1, RANKED, RANKED + 1, 5 * RANKED])
def test_a_ranking_names_the_highest_and_no_more_than_its_limit(clients: int) -> None:
    world = World()
    links = [link(world.connect(f"c{number}"), unsent_bytes=number * 7 % clients + 1) for number in range(clients)]
    links.append(link(world.connect("idle")))
    snapshot = taken(world, links)
    expected = sorted((each.unsent_bytes for each in links), reverse=True)[: min(clients, RANKED)]
    ranked = snapshot.rankings["outbox"]
    assert [each.value for each in ranked] == expected
    assert all(each.value == each.outbox_bytes for each in ranked)
    assert snapshot.outbox_bytes == sum(each.unsent_bytes for each in links)
    assert "idle" not in [each.client_id for each in ranked]


def test_of_equals_the_first_are_named() -> None:
    world = World()
    links = [link(world.connect(f"c{number:02}"), unsent_bytes=1) for number in range(RANKED + 5)]
    names = [each.client_id for each in taken(world, links).rankings["outbox"]]
    assert names == [f"c{number:02}" for number in range(RANKED)]


def test_growth_is_measured_from_the_snapshot_before() -> None:
    world = World()
    early, late = world.connect("early"), world.connect("late")
    taking = Taken(world, [link(early), link(late)])
    early.publish("t", "x" * 1_000)
    assert taking.take().rankings["bytes"][0].client_id == "early"
    late.publish("t", "x")
    snapshot = taking.take(INTERVAL_S)
    (first,) = snapshot.rankings["bytes"]
    assert (first.client_id, first.bytes) == ("late", 7)  # one PUBLISH
    assert (snapshot.interval_s, snapshot.growth["messages_received"]) == (INTERVAL_S, 1)


def test_a_snapshot_soon_after_another_measures_growth_from_the_same_one() -> None:
    world = World()
    client = world.connect("c")
    taking = Taken(world, [link(client)])
    taking.take()
    client.publish("t", "x")
    assert taking.take(INTERVAL_S / 2).growth["messages_received"] == 1
    client.publish("t", "x")
    snapshot = taking.take(INTERVAL_S / 4)
    assert (snapshot.interval_s, snapshot.growth["messages_received"]) == (0.75 * INTERVAL_S + 10, 2)


def test_a_snapshot_keeps_no_client_alive() -> None:
    world = World()
    links = [link(world.connect("c"), unsent_bytes=5)]
    there = weakref.ref(links[0])
    taking = Taken(world, links)
    taking.take()
    links.clear()
    assert there() is None


def test_the_counters_tell_how_each_connection_ended() -> None:
    world = World()
    counters = ConnectionCounters(world.broker)
    client = world.connect("c", V311)
    counters.on_connected(link(client))
    client.lose()
    counters.on_closed(link(client))
    stranger = world.open()
    stranger.lose()
    counters.on_refused(link(stranger))
    assert counters.connected == {("front", "tcp", "3.1.1"): 1}
    assert counters.disconnected == {"connection_lost": 1}
    assert counters.refused == {("front", "connection_lost"): 1}
    assert (counters.ended.connects, counters.most_online) == (1, 1)


def test_a_total_never_falls() -> None:
    earlier, now = Totals(), Totals()
    earlier.bytes_sent, now.bytes_sent = 10, 9
    earlier.sent_qos1, now.sent_qos1 = 1, 2
    earlier.drops = {"queue_full": 3, "expired": 1}
    now.drops = {"queue_full": 2, "no_subscribers": 4}
    now.raise_to(earlier)
    assert (now.bytes_sent, now.sent_qos1) == (10, 2)
    assert now.drops == {"queue_full": 3, "expired": 1, "no_subscribers": 4}


@pytest.mark.long
@pytest.mark.asyncio
async def test_callers_at_once_get_the_same_snapshot_and_so_do_those_soon_after() -> None:
    world = World()
    taking = Taken(world, [link(world.connect(str(number))) for number in range(3 * SLICE)])
    first, second = await asyncio.gather(taking.snapshots.take(), taking.snapshots.take())
    assert first is second
    taking.now += 0.4
    assert await taking.snapshots.take(0.5) is first
    assert await taking.snapshots.take() is not first


@pytest.mark.long
@pytest.mark.asyncio
async def test_a_caller_that_is_cancelled_leaves_the_snapshot_to_the_others() -> None:
    world = World()
    taking = Taken(world, [link(world.connect(str(number))) for number in range(3 * SLICE)])
    one, other = (asyncio.create_task(taking.snapshots.take()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    assert (await other).online == 3 * SLICE


@pytest.mark.long
@pytest.mark.asyncio
async def test_a_stop_ends_the_snapshot_that_is_under_way() -> None:
    world = World()
    taking = Taken(world, [link(world.connect(str(number))) for number in range(3 * SLICE)])
    asking = asyncio.create_task(taking.snapshots.take())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await taking.snapshots.stop()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await taking.snapshots.stop()
