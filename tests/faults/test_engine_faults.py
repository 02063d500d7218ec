"""Servers of the engine are killed and stopped while a log is written, read and followed.

What is acknowledged is there afterwards, once and in order; a record without an answer is there once or not at all; an
owner that another has replaced appends nothing any more.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from itertools import count, product
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import msgspec
import pytest

from mqttlite.engine.nats.connection import NatsConnection, connect
from mqttlite.engine.nats.engine import NatsEngine
from mqttlite.engine.nats.servers import NatsLogin, NatsOptions
from mqttlite.engine.nats.streams import info_of
from mqttlite.engine.nats.tail import PATIENCE_S
from mqttlite.engine.port import Engine, EngineUnavailable, Fenced, Record
from tests.support.nats_clusters import open_engine, options_of
from tests.support.nats_servers import NatsServers
from tests.support.rounds import todays

pytestmark = pytest.mark.slow

Opened: TypeAlias = Callable[..., Awaitable[NatsEngine]]

WINDOW = 8
LONGEST_PAUSE_S = 60.0
"""Without durable acknowledgements after the death of a leader: 4 to 9 s on an idle machine, and once more than 30 s on
a busy one, for servers that campaign at the same time try again."""

ROOM = 512 * 1024 * 1024


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[NatsServers]:
    servers = NatsServers(tmp_path)
    try:
        servers.wait_ready()
        yield servers
    finally:
        servers.close()


@pytest.fixture
async def opened(servers: NatsServers) -> AsyncIterator[Opened]:
    """Open engines that are closed after the test, also when it fails."""
    made: list[NatsEngine] = []

    async def opened(options: NatsOptions, first: int = 0) -> NatsEngine:
        made.append(await open_engine(options, first))
        return made[-1]

    yield opened
    for engine in made:
        await engine.close()


class _Leader(msgspec.Struct):
    leader: str = ""


class _Led(msgspec.Struct):
    cluster: _Leader


async def leader_of(options: NatsOptions, log: str) -> int:
    """The place of the server that leads a log."""
    connection = await connect(options, NatsLogin())
    try:
        found = await connection.ask_api(f"STREAM.INFO.{options.cluster}-log-{log}", {}, _Led)
    finally:
        await connection.close()
    return int(found.cluster.leader.removeprefix("n"))


async def settle(engine: Engine, log: str, expected: int, blob: bytes) -> int:
    """Append until it is known whether the record is there. Raises `Fenced` if another owner took its place."""
    async with asyncio.timeout(LONGEST_PAUSE_S):
        while True:
            try:
                return await engine.append(log, expected, blob)
            except EngineUnavailable:
                await asyncio.sleep(0.05)
            except Fenced:
                try:
                    found = await engine.read(log, expected + 1, 1)
                except EngineUnavailable:
                    continue
                if not found or found[0].sequence > expected + 1:
                    continue  # the record before ours is not yet there
                if found[0].blob == blob:
                    return found[0].sequence
                raise


async def take_over(engine: Engine, record: bytes) -> int:
    """Append a first record at the end of a log that another owner still writes to."""
    last = (await engine.bounds("log")).last
    while True:
        try:
            return await settle(engine, "log", last, record)
        except Fenced as fenced:
            last = fenced.last


async def write(engine: Engine, log: str, number: int, acknowledged: list[Record]) -> None:
    """Append records, several at once; those that fail are settled in order."""
    for start in range(0, number, WINDOW):
        blobs = [b"%d" % each + b"x" * 200 for each in range(start, start + WINDOW)]
        outcomes = await asyncio.gather(
            *(engine.append(log, start + each, blob) for each, blob in enumerate(blobs)), return_exceptions=True
        )
        for expected, (blob, outcome) in enumerate(zip(blobs, outcomes, strict=True), start):
            if not isinstance(outcome, int):
                assert isinstance(outcome, EngineUnavailable | Fenced)
                outcome = await settle(engine, log, expected, blob)
            assert outcome == expected + 1
            acknowledged.append(Record(outcome, blob))


async def read_all(engine: Engine, log: str) -> list[Record]:
    found: list[Record] = []
    async with asyncio.timeout(LONGEST_PAUSE_S):
        while True:
            try:
                page = await engine.read(log, len(found) + 1, 1000)
            except EngineUnavailable:
                continue
            if not page:
                return found
            found += page


async def follow(engine: Engine, log: str, followed: list[Record]) -> None:
    async with aclosing(engine.follow(log, 1)) as records:
        async for record in records:
            followed.append(record)


@pytest.mark.parametrize(
    ("fault", "is_connected_to_it"), todays(list(product(["killed", "stopped for 3 s"], [True, False])))
)
async def test_appends_outlive_the_leader(
    servers: NatsServers, opened: Opened, fault: str, is_connected_to_it: bool
) -> None:
    options = options_of(servers)
    engine = await opened(options)
    await engine.ensure_log("log", ROOM)
    leader = await leader_of(options, "log")
    await engine.close()
    engine = await opened(options, leader if is_connected_to_it else (leader + 1) % 3)
    other = await opened(options, (leader + 2) % 3)
    for each in (engine, other):
        await each.ensure_log("log", ROOM)
    acknowledged: list[Record] = []
    followed: list[Record] = []
    writing = asyncio.create_task(write(engine, "log", 4000, acknowledged))
    following = asyncio.create_task(follow(other, "log", followed))
    while len(acknowledged) < 500:
        await asyncio.sleep(0.01)
    if fault == "killed":
        servers.kill(leader)
        await asyncio.sleep(3)
        before_it_is_back = len(acknowledged)
        servers.start(leader)
    else:
        servers.pause(leader)
        await asyncio.sleep(3)
        before_it_is_back = len(acknowledged)
        servers.resume(leader)
    assert before_it_is_back < 4000
    await writing
    assert await read_all(other, "log") == acknowledged
    async with asyncio.timeout(LONGEST_PAUSE_S):
        while len(followed) < 4000:
            await asyncio.sleep(0.05)
    assert followed == acknowledged
    following.cancel()
    await other.close()


async def test_without_a_majority_nothing_is_acknowledged_and_afterwards_it_goes_on(
    servers: NatsServers, opened: Opened
) -> None:
    engine = await opened(options_of(servers))
    await engine.ensure_log("log", ROOM)
    assert await engine.append("log", 0, b"before") == 1
    servers.kill(1)
    servers.kill(2)
    with pytest.raises(EngineUnavailable):
        await engine.append("log", 1, b"during")
    servers.start(1)
    assert await settle(engine, "log", 1, b"during") == 2
    assert await read_all(engine, "log") == [Record(1, b"before"), Record(2, b"during")]


@pytest.mark.parametrize("lost", todays(range(3)))
async def test_an_heir_starts_although_a_server_is_lost(
    servers: NatsServers, opened: Opened, lost: int, tmp_path: Path
) -> None:
    options = options_of(servers)
    engine = await opened(options)
    await engine.ensure_log("log", ROOM)
    await engine.append("log", 0, b"first")
    revision = await engine.put("lease", b"a", 0)
    (tmp_path / "sent").write_bytes(b"content")
    await engine.put_file("snapshot", tmp_path / "sent")
    servers.kill(lost)
    await engine.close()
    heir = await opened(options)
    async with asyncio.timeout(LONGEST_PAUSE_S):
        while True:
            try:
                await heir.ensure_log("log", ROOM)
                await heir.ensure_log("log", 2 * ROOM)
                entry = await heir.get("lease")
                break
            except EngineUnavailable:
                await asyncio.sleep(0.1)
    assert entry is not None
    assert entry.revision == revision
    assert await settle(heir, "log", 1, b"heir") == 2
    assert await read_all(heir, "log") == [Record(1, b"first"), Record(2, b"heir")]
    await heir.get_file("snapshot", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"content"
    assert (await heir.bounds("log")).max_bytes == 2 * ROOM
    await away(heir, f"n{lost}")
    servers.start(lost)
    await away(heir)


async def test_a_follower_reads_on_while_no_server_may_make_it_a_consumer(
    servers: NatsServers, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_consume = asyncio.Event()
    ask_api = NatsConnection.ask_api

    async def ask(self: NatsConnection, verb: str, request: object, answer: type[Any]) -> Any:
        if verb.startswith("CONSUMER.CREATE"):  # an election may be over before the first read, or long after it
            await may_consume.wait()
        return await ask_api(self, verb, request, answer)

    monkeypatch.setattr(NatsConnection, "ask_api", ask)
    options = options_of(servers)
    owner = await opened(options)
    await owner.ensure_log("log", ROOM)
    await owner.append("log", 0, b"first")
    leader = await meta_leader(servers)
    follower = await opened(options, (leader + 1) % 3)
    await follower.ensure_log("log", ROOM)
    while len(await follower.read("log", 1, 1)) < 1:
        await asyncio.sleep(0.05)
    servers.kill(leader)
    records = follower.follow("log", 1)
    async with asyncio.timeout(LONGEST_PAUSE_S):
        assert await anext(records) == Record(1, b"first")
    may_consume.set()
    assert await settle(owner, "log", 1, b"second") == 2
    async with asyncio.timeout(LONGEST_PAUSE_S):
        assert await anext(records) == Record(2, b"second")
        assert await settle(owner, "log", 2, b"third") == 3
        assert await anext(records) == Record(3, b"third")
    await records.aclose()


async def test_records_that_were_read_without_a_consumer_do_not_come_again_by_one(
    servers: NatsServers, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await opened(options_of(servers))
    await engine.ensure_log("log", ROOM)
    await engine.append("log", 0, b"first")
    ask_api = NatsConnection.ask_api

    async def ask_late(self: NatsConnection, verb: str, request: object, answer: type[Any]) -> Any:
        found = await ask_api(self, verb, request, answer)
        if verb.startswith("CONSUMER.CREATE"):
            await asyncio.sleep(3 * PATIENCE_S)
        return found

    monkeypatch.setattr(NatsConnection, "ask_api", ask_late)
    records = engine.follow("log", 1)
    async with asyncio.timeout(LONGEST_PAUSE_S):
        assert await anext(records) == Record(1, b"first")
        await engine.append("log", 1, b"second")
        assert await anext(records) == Record(2, b"second")
        await asyncio.sleep(4 * PATIENCE_S)
        await engine.append("log", 2, b"third")
        assert await anext(records) == Record(3, b"third")
    await records.aclose()


async def meta_leader(servers: NatsServers) -> int:
    """The server that leads all others, and makes consumers."""
    answer = await asyncio.to_thread(httpx.get, f"http://127.0.0.1:{servers.monitoring[0]}/jsz")
    name: str = answer.json()["meta_cluster"]["leader"]
    return int(name.removeprefix("n"))


async def test_another_server_leads_than_the_one_beside_the_machine(servers: NatsServers, opened: Opened) -> None:
    options = options_of(servers)
    engine = await opened(options)
    await engine.ensure_log("log", ROOM)
    await engine.append("log", 0, b"first")
    connection = await connect(options, NatsLogin())
    streams = (f"{options.cluster}-log-log", f"KV_{options.cluster}")
    try:
        for place, url in enumerate(servers.urls):
            async with asyncio.timeout(LONGEST_PAUSE_S):
                while f"n{place}" in [(await info_of(connection, each)).cluster.leader for each in streams]:
                    with contextlib.suppress(EngineUnavailable):
                        await engine.lead_elsewhere("log", url)
                    await asyncio.sleep(0.2)
    finally:
        await connection.close()
    assert await settle(engine, "log", 1, b"second") == 2


async def away(engine: NatsEngine, *names: str) -> None:
    """Wait until these servers, and no others, are said to lack a log."""
    async with asyncio.timeout(LONGEST_PAUSE_S):
        while (await engine.bounds("log")).away != names:
            await asyncio.sleep(0.2)


async def test_an_owner_that_was_replaced_appends_nothing_more(servers: NatsServers, opened: Opened) -> None:
    """Three owners take the log from each other for 15 s, while its leader is killed and comes back."""
    options = options_of(servers)
    engines = [await opened(options, place) for place in range(3)]
    for engine in engines:
        await engine.ensure_log("log", ROOM)
    acknowledged: set[bytes] = set()
    takeovers = 0
    loop = asyncio.get_running_loop()
    end = loop.time() + 15

    async def own(place: int, engine: NatsEngine, generator: random.Random) -> None:
        nonlocal takeovers
        while loop.time() < end:
            await asyncio.sleep(generator.random() / 2)
            try:
                last = await take_over(engine, b"own %d %d" % (place, generator.getrandbits(40)))
                takeovers += 1
                epoch = last
                for number in count(1):
                    record = b"write %d %d" % (epoch, number)
                    last = await settle(engine, "log", last, record)
                    acknowledged.add(record)
                    if loop.time() > end:
                        return
                    await asyncio.sleep(0.002)
            except (Fenced, EngineUnavailable):
                continue

    async def break_the_leader() -> None:
        await asyncio.sleep(4)
        leader = await leader_of(options, "log")
        servers.kill(leader)
        await asyncio.sleep(4)
        servers.start(leader)

    owning = (own(place, engine, random.Random(place)) for place, engine in enumerate(engines))
    await asyncio.gather(*owning, break_the_leader())
    records = [record.blob.split() for record in await read_all(engines[0], "log")]
    owner = 0
    stale = 0
    for sequence, (kind, *words) in enumerate(records, 1):
        if kind == b"own":
            owner = sequence
        else:
            stale += int(words[0]) != owner
    written = [b" ".join(words) for words in records if words[0] == b"write"]
    assert stale == 0
    assert len(set(written)) == len(written)
    assert acknowledged - set(written) == set()
    assert takeovers > 15
    assert len(acknowledged) > 100


async def test_a_file_is_stored_and_fetched_although_a_server_is_killed(
    servers: NatsServers, opened: Opened, tmp_path: Path
) -> None:
    engine = await opened(options_of(servers))
    content = random.Random(1).randbytes(48 * 1024 * 1024)
    (tmp_path / "sent").write_bytes(content)
    storing = asyncio.create_task(engine.put_file("snapshot", tmp_path / "sent"))
    await asyncio.sleep(0.3)
    assert not storing.done()
    servers.kill(0)
    await storing
    fetching = asyncio.create_task(engine.get_file("snapshot", tmp_path / "got"))
    await asyncio.sleep(0.05)
    servers.start(0)
    servers.kill(1)
    async with asyncio.timeout(3 * LONGEST_PAUSE_S):
        while True:
            try:
                await fetching
                break
            except EngineUnavailable:  # the election took long: it goes on where it was
                fetching = asyncio.create_task(engine.get_file("snapshot", tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == content


async def test_a_copy_that_lags_is_not_believed(servers: NatsServers, opened: Opened) -> None:
    options = options_of(servers)
    engine = await opened(options)
    await engine.ensure_log("log", ROOM)
    leader = await leader_of(options, "log")
    await engine.close()
    engine = await opened(options, leader)
    await engine.ensure_log("log", ROOM)
    servers.pause((leader + 1) % 3)
    acknowledged: list[Record] = []
    await write(engine, "log", 4000, acknowledged)
    servers.resume((leader + 1) % 3)
    for number in range(60):
        assert await engine.read("log", 4000, 1) == acknowledged[-1:]
        if number % 6 == 0:
            assert await engine.read("log", 1, 5000) == acknowledged
