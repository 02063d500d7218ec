"""The faults of the model of the engine, and that two runs of it are equal."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from mqttlite.engine.memory import MemoryServers, Outcome
from mqttlite.engine.port import EngineUnavailable, Fenced, Record

ROOM = 1_000_000


def outcomes(*planned: Outcome) -> Iterator[Outcome]:
    yield from planned
    while True:
        yield Outcome.ANSWERED


async def test_an_append_whose_answer_is_lost_took_place() -> None:
    schedule = outcomes(Outcome.ANSWERED, Outcome.ANSWER_LOST)
    engine = MemoryServers(outcome=lambda: next(schedule)).connect()
    await engine.ensure_log("log", ROOM)
    with pytest.raises(EngineUnavailable):
        await engine.append("log", 0, b"a")
    with pytest.raises(Fenced):
        await engine.append("log", 0, b"a")
    assert await engine.read("log", 1, 10) == [Record(1, b"a")]


async def test_a_refusal_whose_answer_is_lost_is_no_answer() -> None:
    schedule = outcomes(Outcome.ANSWERED, Outcome.ANSWER_LOST)
    engine = MemoryServers(outcome=lambda: next(schedule)).connect()
    await engine.ensure_log("log", ROOM)
    with pytest.raises(EngineUnavailable):
        await engine.append("log", 7, b"a")


async def test_an_append_that_is_lost_did_not_take_place() -> None:
    schedule = outcomes(Outcome.ANSWERED, Outcome.REQUEST_LOST)
    engine = MemoryServers(outcome=lambda: next(schedule)).connect()
    await engine.ensure_log("log", ROOM)
    with pytest.raises(EngineUnavailable):
        await engine.append("log", 0, b"a")
    assert await engine.append("log", 0, b"b") == 1


async def test_a_late_append_takes_place_if_its_place_is_still_free() -> None:
    schedule = outcomes(Outcome.ANSWERED, Outcome.LATE)
    servers = MemoryServers(outcome=lambda: next(schedule))
    engine = servers.connect()
    await engine.ensure_log("log", ROOM)
    with pytest.raises(EngineUnavailable):
        await engine.append("log", 0, b"late")
    assert await engine.read("log", 1, 10) == []
    servers.deliver_late()
    assert await engine.read("log", 1, 10) == [Record(1, b"late")]


async def test_a_late_append_is_fenced_if_another_took_its_place() -> None:
    schedule = outcomes(Outcome.ANSWERED, Outcome.LATE)
    servers = MemoryServers(outcome=lambda: next(schedule))
    engine = servers.connect()
    await engine.ensure_log("log", ROOM)
    with pytest.raises(EngineUnavailable):
        await engine.append("log", 0, b"late")
    await engine.append("log", 0, b"heir")
    servers.deliver_late()
    assert await engine.read("log", 1, 10) == [Record(1, b"heir")]


async def test_without_a_majority_each_request_fails_on_a_connection_that_stands() -> None:
    servers = MemoryServers()
    engine = servers.connect()
    await engine.ensure_log("log", ROOM)
    servers.is_available = False
    with pytest.raises(EngineUnavailable):
        await engine.append("log", 0, b"a")
    servers.is_available = True
    assert await engine.append("log", 0, b"a") == 1


async def test_of_two_connections_only_the_one_that_is_cut_off_fails() -> None:
    servers = MemoryServers()
    engine, other = servers.connect(), servers.connect()
    await engine.ensure_log("log", ROOM)
    engine.is_cut_off = True
    with pytest.raises(EngineUnavailable):
        await engine.append("log", 0, b"a")
    assert await other.append("log", 0, b"b") == 1


async def test_a_follower_that_was_cut_off_goes_on_where_it_was() -> None:
    servers = MemoryServers()
    engine, other = servers.connect(), servers.connect()
    await engine.ensure_log("log", ROOM)
    await engine.append("log", 0, b"a")
    follower = other.follow("log", 1)
    assert await anext(follower) == Record(1, b"a")
    other.is_cut_off = True
    waiting = asyncio.ensure_future(anext(follower))
    await engine.append("log", 1, b"b")
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    other.is_cut_off = False
    assert await waiting == Record(2, b"b")


async def test_an_append_is_lost_with_the_connection_that_breaks_on_its_way() -> None:
    servers = MemoryServers(delay=lambda: 0.01)
    engine, other = servers.connect(), servers.connect()
    await engine.ensure_log("log", ROOM)
    appending = asyncio.ensure_future(engine.append("log", 0, b"a"))
    await asyncio.sleep(0)
    engine.is_cut_off = True
    with pytest.raises(EngineUnavailable):
        await appending
    assert await other.read("log", 1, 1) == []


async def test_a_cancelled_append_takes_place_all_the_same() -> None:
    servers = MemoryServers(delay=lambda: 0.01)
    engine = servers.connect()
    await engine.ensure_log("log", ROOM)
    appending = asyncio.ensure_future(engine.append("log", 0, b"a"))
    await asyncio.sleep(0)
    appending.cancel()
    assert await engine.read("log", 1, 10) == [Record(1, b"a")]


async def test_delays_never_change_the_order_of_appends() -> None:
    generator = random.Random(1)
    engine = MemoryServers(delay=lambda: generator.choice([0.0001, 0.003])).connect()
    await engine.ensure_log("log", ROOM)
    assert await asyncio.gather(*(engine.append("log", each, b"") for each in range(30))) == list(range(1, 31))


async def test_two_runs_with_one_seed_are_equal() -> None:
    async def run() -> list[str]:
        generator = random.Random(7)
        servers = MemoryServers(outcome=lambda: generator.choice(list(Outcome)))
        engine = servers.connect()
        trace: list[str] = []
        for step in range(200):
            try:
                await engine.ensure_log("log", ROOM)
                trace.append(f"{await engine.append('log', len(await engine.read('log', 1, 999)), b'%d' % step)}")
            except (EngineUnavailable, Fenced, KeyError) as error:
                trace.append(type(error).__name__)
        return trace

    first = await run()
    assert first == await run()
    assert len(set(first)) > 3
