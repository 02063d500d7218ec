"""A census on a core without sockets: everybody is counted once, and as many are named as there is room for."""

from dataclasses import dataclass

import pytest

from mqttlite.core.connection import Connection
from mqttlite.telemetry.counters import Totals
from mqttlite.telemetry.snapshot import NO_VERSION, RANKED, SLICE, Comings, Snapshot
from mqttlite.wire.constants import V311
from tests.support.core_driver import World


@dataclass
class FakeLink:
    connection: Connection
    address: str = "127.0.0.1:1"
    listener: str = "front"
    transport: str = "tcp"
    unsent_bytes: int = 0


def taken(world: World, links: list[FakeLink], former: Snapshot | None = None, ended: Totals | None = None) -> Snapshot:
    snapshot = Snapshot(world.broker, links, ended or Totals(), 1.0, None if former is None else former.moved_bytes)
    while not snapshot.step():
        pass
    return snapshot


def test_of_nobody_there_is_nothing() -> None:
    snapshot = Snapshot(World().broker, [], Totals(), 1.0)
    assert snapshot.step()
    assert snapshot.connections == {}
    assert snapshot.rankings == {"bytes": [], "outbox": [], "queue": [], "drops": []}


@pytest.mark.parametrize("clients", [1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE])
def test_everybody_is_counted_once_however_the_slices_fall(clients: int) -> None:
    world = World()
    links = [FakeLink(world.connect(f"c{number}", 4 if number % 2 else 5).connection) for number in range(clients)]
    links.append(FakeLink(world.open().connection))
    snapshot = taken(world, links)
    assert sum(snapshot.connections.values()) == clients + 1
    assert snapshot.connections["front", "tcp", NO_VERSION] == 1
    assert snapshot.connections.get(("front", "tcp", "3.1.1"), 0) == clients // 2
    assert snapshot.totals.connects == clients
    assert snapshot.totals.bytes_received == sum(link.connection.bytes_received for link in links)


@pytest.mark.parametrize("clients", [RANKED - 1, RANKED, RANKED + 1, 5 * RANKED])
def test_a_ranking_names_the_highest_and_no_more_than_its_limit(clients: int) -> None:
    world = World()
    links = [
        FakeLink(world.connect(f"c{number}").connection, unsent_bytes=number * 7 % clients + 1)
        for number in range(clients)
    ]
    links.append(FakeLink(world.connect("idle").connection))
    snapshot = taken(world, links)
    expected = sorted((link.unsent_bytes for link in links), reverse=True)[: min(clients, RANKED)]
    ranked = snapshot.rankings["outbox"]
    assert [each.value for each in ranked] == expected
    assert all(each.value == each.outbox_bytes for each in ranked)
    assert snapshot.outbox_bytes == sum(link.unsent_bytes for link in links)
    assert "idle" not in [each.client_id for each in ranked]


def test_of_equals_the_first_are_named() -> None:
    world = World()
    links = [FakeLink(world.connect(f"c{number:02}").connection, unsent_bytes=1) for number in range(RANKED + 5)]
    names = [each.client_id for each in taken(world, links).rankings["outbox"]]
    assert names == [f"c{number:02}" for number in range(RANKED)]


def test_greed_is_measured_from_the_census_before() -> None:
    world = World()
    early, late = world.connect("early"), world.connect("late")
    links = [FakeLink(early.connection), FakeLink(late.connection)]
    early.publish("t", "x" * 1_000)
    former = taken(world, links)
    assert former.rankings["bytes"][0].client_id == "early"
    late.publish("t", "x")
    (greedy,) = taken(world, links, former).rankings["bytes"]
    assert (greedy.client_id, greedy.bytes) == ("late", 7)  # one PUBLISH


def test_it_holds_on_to_nobody() -> None:
    """A census may be kept until somebody asks again, which may be never."""
    world = World()
    link = FakeLink(world.connect("c").connection, unsent_bytes=5)
    snapshot = taken(world, [link])
    assert len(snapshot._doors) == len(snapshot._sessions) == len(snapshot._door_of) == len(snapshot._rankings) == 0


def test_comings_know_how_each_connection_ended() -> None:
    world = World()
    comings = Comings()
    client = world.connect("c", V311)
    comings.on_connected(FakeLink(client.connection))
    client.lose()
    comings.on_closed(FakeLink(client.connection))
    nobody = world.open()
    nobody.lose()
    comings.on_closed(FakeLink(nobody.connection))
    assert comings.connected == {("front", "tcp", "3.1.1"): 1}
    assert comings.disconnected == {"connection_lost": 1}
    assert comings.refused == {("front", "connection_lost"): 1}
    assert comings.ended.connects == 1


def test_totals_fall_behind_nothing_that_was_said() -> None:
    former, now = Totals(), Totals()
    former.bytes_sent, now.bytes_sent = 10, 9
    former.sent_qos1, now.sent_qos1 = 1, 2
    former.drops = {"queue_full": 3, "expired": 1}
    now.drops = {"queue_full": 2, "no_subscribers": 4}
    now.keep_up_with(former)
    assert (now.bytes_sent, now.sent_qos1) == (10, 2)
    assert now.drops == {"queue_full": 3, "expired": 1, "no_subscribers": 4}
