"""What workers tell each other over their sockets: in order, noted by all, and held up where one is slow."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mqttlite.cluster import fabric as module
from mqttlite.cluster.envelope import envelope
from mqttlite.cluster.fabric import MAX_POSTPONED, Fabric
from mqttlite.cluster.membership import memberships
from mqttlite.core.broker import Broker
from mqttlite.core.connection import Connection, Peer, Postponed
from mqttlite.core.forwards import Batch, Forward, Interest, Outcome
from mqttlite.core.limits import Limits
from mqttlite.core.message import Message
from mqttlite.core.session import Session
from mqttlite.wire.blocks import Ids
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish
from tests.support.device import until


class Worker:
    def __init__(self, place: "module.Membership") -> None:
        self.core = Broker(Limits(), f"auto{place.index}-", {}, place.index, place.count)
        self.changes = 0
        self.has_room = True
        self.status: list[tuple[int, bytes]] = []
        self.lost: list[int] = []
        self.fabric = Fabric(
            place,
            self.core,
            has_room=lambda: self.has_room,
            on_change=self._on_change,
            on_status=lambda worker, status: self.status.append((worker, status)),
            on_lost=self.lost.append,
        )

    def _on_change(self) -> None:
        self.changes += 1

    def hears_of(self, topic: bytes) -> bool:
        return self.core.has_subscribers(topic)


class Team:
    def __init__(self, count: int) -> None:
        self.places = memberships(count)
        self.workers = [Worker(place) for place in self.places]

    async def start(self, *which: int) -> None:
        for at in which or range(len(self.workers)):
            await self.workers[at].fabric.start()

    def __getitem__(self, at: int) -> Worker:
        return self.workers[at]


@pytest.fixture
async def team() -> AsyncIterator[Team]:
    team = Team(3)
    yield team
    for worker in team.workers:
        worker.fabric.stop()
    for _ in range(5):
        await asyncio.sleep(0)
    for place in team.places:
        place.close()


def interest(topic: bytes = b"t", members: int = 1) -> Interest:
    return Interest(topic, members, members)


def forward(worker: int, payload: bytes = b"x", tag: int = 0) -> Forward:
    return Forward(worker, tag, Message(b"t", payload), True, True, 1.0, [])


async def test_what_is_told_is_noted_by_all_before_it_is_done(team: Team) -> None:
    await team.start(0, 1)
    done = team[0].fabric.tell([interest(b"a"), interest(b"b")])
    await until(lambda: team[1].hears_of(b"b"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not done.done(), "the third has not noted it"
    await team.start(2)
    async with asyncio.timeout(5):
        await done
    assert team[2].hears_of(b"a")
    await team[0].fabric.tell([interest(b"a", 0)])
    assert not team[1].hears_of(b"a")
    assert not team[2].hears_of(b"a")


async def test_what_is_told_is_done_when_who_has_not_noted_it_is_gone(team: Team) -> None:
    await team.start(0, 1)
    done = team[0].fabric.tell([interest()])
    for sock in team.places[2].fabric.values():
        sock.close()
    async with asyncio.timeout(5):
        await done
    await until(lambda: team[0].lost == [2])
    await team[0].fabric.tell([interest(b"u")])
    assert team[1].hears_of(b"u")


async def test_alone_everything_is_told_at_once(team: Team) -> None:
    await team.start()
    for at in (1, 2):
        team[at].fabric.stop()
    await until(lambda: not team[0].fabric._peers)
    assert team[0].fabric.tell([interest()]).done()
    assert team[0].lost == [], "they said goodbye"


async def test_who_waited_may_have_given_up(team: Team) -> None:
    await team.start()
    team[0].fabric.tell([interest()]).cancel()
    await team[0].fabric.tell([interest(b"u")])
    assert team[1].hears_of(b"t")


async def test_one_that_breaks_off_is_lost_and_nothing_more_is_sent_there(team: Team) -> None:
    await team.start()
    team[2].fabric._peers[0]._transport.abort()
    await until(lambda: team[0].lost == [2] and team[2].lost == [0])
    outgoing = [forward(2), Outcome(2, 1, 0, 0, 0, 0, []), forward(1)]
    team[0].fabric.send(outgoing)
    team[0].fabric.send([Batch([1, 2], 1, 1, V5, 8, 9, encode(Publish(b"t", b"x", 1, packet_id=1), V5), 0.0)])
    team[0].fabric.send_status(2, b"{}")
    await until(lambda: team[1].core.publisher.retained == 1)
    assert team[1].lost == []


async def test_a_status_says_whose_it_is(team: Team) -> None:
    await team.start()
    team[1].fabric.send_status(0, b"one")
    team[2].fabric.send_status(0, b"")
    await until(lambda: len(team[0].status) == 2)
    assert sorted(team[0].status) == [(1, b"one"), (2, b"")]
    assert team[1].status == []


async def test_all_are_ready_when_the_last_is(team: Team) -> None:
    await team.start()
    waits = [asyncio.create_task(team[at].fabric.all_ready()) for at in (0, 1)]
    done, _ = await asyncio.wait(waits, timeout=0.05)
    assert not done
    async with asyncio.timeout(5):
        await team[2].fabric.all_ready()
        await asyncio.gather(*waits)


@pytest.mark.parametrize("says_goodbye", [True, False])
async def test_nobody_waits_for_one_that_leaves_before_it_is_ready(team: Team, says_goodbye: bool) -> None:
    await team.start()
    waits = [asyncio.create_task(team[at].fabric.all_ready()) for at in (0, 1)]
    await asyncio.sleep(0)
    if says_goodbye:
        team[2].fabric.stop()
    else:
        for peer in team[2].fabric._peers.values():
            peer._transport.abort()
    async with asyncio.timeout(5):
        await asyncio.gather(*waits)
    await until(lambda: 2 not in team[0].fabric._peers)
    assert team[0].lost == ([] if says_goodbye else [2])


async def test_what_one_says_before_it_leaves_is_heard_though_it_can_be_told_nothing_more(team: Team) -> None:
    await team.start(0)
    theirs = team.places[1].fabric[0]
    theirs.send(envelope(module.STATUS, b"last words") + envelope(module.BYE))
    theirs.close()
    team[0].fabric.send_status(1, b"too late")
    await until(lambda: 1 not in team[0].fabric._peers)
    assert team[0].status == [(1, b"last words")]
    assert team[0].lost == []


async def test_last_words_that_cannot_be_read_end_there(team: Team, caplog: pytest.LogCaptureFixture) -> None:
    await team.start(0)
    theirs = team.places[1].fabric[0]
    theirs.send(envelope(99) + bytes(2 * module.READ_BYTES))
    theirs.close()
    team[0].fabric.send_status(1, b"too late")
    await until(lambda: team[0].lost == [1])
    assert caplog.messages == ["what worker 1 sent cannot be read"]


async def test_one_that_does_not_read_jams_until_it_does(team: Team) -> None:
    await team.start(0, 1)
    sent = 0
    while not team[0].fabric.is_jammed:
        team[0].fabric.send([forward(2, bytes(100_000))])
        sent += 1
        await asyncio.sleep(0)
        assert sent < 100
    assert sent > 10, "some may wait"
    team[0].fabric.send([forward(1)])
    await until(lambda: team[1].core.publisher.retained == 1)
    assert team[0].fabric.is_jammed
    before = team[0].changes
    await team.start(2)
    await until(lambda: not team[0].fabric.is_jammed)
    assert team[0].changes > before, "who waits is told"
    await until(lambda: team[2].core.publisher.retained == 1)


async def test_many_outcomes_that_are_waited_for_jam_too(team: Team) -> None:
    await team.start()
    workers = team[0].core._workers
    assert workers is not None
    turn = team[0].core.turn
    connection = Connection(1, Peer(), turn, Limits(), 1.0)
    waits = Postponed(connection, Session("x", 0, turn, Limits()), None, 1, Ids(1), 0)
    for tag in range(MAX_POSTPONED):
        workers.postponed[tag] = waits
    assert not team[0].fabric.is_jammed
    workers.postponed[MAX_POSTPONED] = waits
    assert team[0].fabric.is_jammed
    workers.postponed.clear()


@pytest.mark.parametrize("data", [envelope(99), envelope(1, b"short")])
async def test_what_cannot_be_read_ends_it(team: Team, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    await team.start()
    team[1].fabric._peers[0].write([data])
    await until(lambda: team[0].lost == [1] and team[1].lost == [0])
    assert "what worker 1 sent cannot be read" in caplog.text
    assert team[0].fabric._peers.keys() == {2}


async def test_everything_of_a_pass_arrives_in_order(team: Team) -> None:
    await team.start()
    for number in range(300):
        size = 50_000 if number % 7 == 0 else 5
        team[0].fabric.send([forward(1, b"%d " % number + bytes(size)), forward(2)])
    await until(lambda: team[1].changes > 0)

    def last() -> bytes:
        kept = list(team[1].core.publisher._retained.values())
        return kept[0].payload.split()[0] if kept else b""

    await until(lambda: last() == b"299")
