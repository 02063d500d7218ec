"""What each adapter of the engine keeps: the model in memory, and three real servers."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from mqttlite.engine.memory import MemoryServers
from mqttlite.engine.nats import connection
from mqttlite.engine.nats.engine import NatsEngine
from mqttlite.engine.nats.streams import StreamInfo, info_of
from mqttlite.engine.port import (
    MAX_BLOB_BYTES,
    MAX_READ_BYTES,
    Bounds,
    Engine,
    EngineUnavailable,
    EngineUnfit,
    Entry,
    Fenced,
    FileDamaged,
    LogFull,
    NoSuchFile,
    Record,
    RevisionConflict,
)
from tests.support.nats_clusters import delete_key, forget_cluster, open_engine, options_of, streams_of
from tests.support.nats_servers import NatsServers

MAX_LOG_BYTES = 64 * 1024 * 1024
WAIT_S = 30.0


async def appended(engine: Engine, log: str, expected: int, blob: bytes) -> int:
    """Append, also while the servers of a busy machine elect who leads the log."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await engine.append(log, expected, blob)
            except EngineUnavailable:
                await asyncio.sleep(0.2)
            with suppress(EngineUnavailable):
                if (await engine.bounds(log)).last > expected:
                    return expected + 1


class Connect(Protocol):
    """Makes connections to one engine."""

    async def __call__(self) -> Engine: ...

    async def delete(self, key: str, revision: int) -> None:
        """Delete a key with this revision, as an operator does."""
        ...


@pytest.fixture(scope="module")
def nats_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    servers = NatsServers(tmp_path_factory.mktemp("nats"))
    try:
        servers.wait_ready()
        yield servers
    finally:
        servers.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three servers that begin together on a slow disk may need longer for an answer than one waits for in use."""
    monkeypatch.setattr(connection, "ANSWER_TIMEOUT_S", 8.0)


class MemoryConnect:
    """To the model."""

    def __init__(self) -> None:
        self._servers = MemoryServers()
        self._made: list[Engine] = []

    async def __call__(self) -> Engine:
        engine = self._servers.connect()
        self._made.append(engine)
        return engine

    async def delete(self, key: str, revision: int) -> None:
        self._servers.change(key, None, revision)
        self._servers.wake()

    async def close(self) -> None:
        for engine in self._made:
            await engine.close()


class NatsConnect:
    """To a cluster of its own on the servers of all tests."""

    def __init__(self, servers: NatsServers) -> None:
        self._options = options_of(servers)
        self._made: list[Engine] = []

    async def __call__(self) -> Engine:
        engine = await open_engine(self._options)
        self._made.append(engine)
        return engine

    async def delete(self, key: str, revision: int) -> None:
        await delete_key(self._options, key, revision)

    async def close(self) -> None:
        for engine in self._made:
            await engine.close()
        await forget_cluster(self._options)


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.slow)])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Make connections to one engine that is empty."""
    is_memory = request.param == "memory"
    made = MemoryConnect() if is_memory else NatsConnect(request.getfixturevalue("nats_servers"))
    yield made
    await made.close()


@pytest.fixture
async def engine(connect: Connect) -> Engine:
    engine = await connect()
    await engine.ensure_log("log", MAX_LOG_BYTES)
    return engine


async def some(iterator: AsyncIterator[Record], number: int) -> list[Record]:
    async with asyncio.timeout(WAIT_S):
        return [await anext(iterator) for _ in range(number)]


async def test_a_new_log_is_empty(engine: Engine) -> None:
    assert await engine.bounds("log") == Bounds(1, 0, 0, MAX_LOG_BYTES)
    assert await engine.read("log", 1, 10) == []


async def test_an_append_returns_the_next_sequence(engine: Engine) -> None:
    assert [await appended(engine, "log", expected, b"%d" % expected) for expected in range(3)] == [1, 2, 3]
    assert await engine.read("log", 1, 10) == [Record(1, b"0"), Record(2, b"1"), Record(3, b"2")]
    assert await engine.read("log", 2, 1) == [Record(2, b"1")]
    bounds = await engine.bounds("log")
    assert (bounds.first, bounds.last, bounds.max_bytes) == (1, 3, MAX_LOG_BYTES)
    assert bounds.size_bytes >= 3


async def test_an_append_with_another_last_sequence_is_fenced(engine: Engine) -> None:
    await appended(engine, "log", 0, b"first")
    for expected in (0, 2):
        with pytest.raises(Fenced) as fenced:
            await engine.append("log", expected, b"never")
        assert fenced.value.last == 1
    assert await engine.read("log", 1, 10) == [Record(1, b"first")]


async def test_appends_under_way_at_once_keep_their_order(engine: Engine) -> None:
    blobs = [b"%d" % each * 1000 for each in range(200)]
    async with asyncio.timeout(WAIT_S):
        sequences = await asyncio.gather(*(engine.append("log", each, blob) for each, blob in enumerate(blobs)))
    assert sequences == list(range(1, 201))
    assert [record.blob for record in await engine.read("log", 1, 200)] == blobs


async def test_after_an_append_that_is_fenced_the_later_ones_under_way_are_fenced(engine: Engine) -> None:
    await appended(engine, "log", 0, b"of another owner")
    outcomes = await asyncio.gather(
        *(engine.append("log", expected, b"never") for expected in (0, 2, 3)), return_exceptions=True
    )
    assert [type(each) for each in outcomes] == [Fenced, Fenced, Fenced]
    assert (await engine.bounds("log")).last == 1


async def test_of_two_owners_one_is_fenced(connect: Connect, engine: Engine) -> None:
    other = await connect()
    await other.ensure_log("log", MAX_LOG_BYTES)
    outcomes = await asyncio.gather(
        engine.append("log", 0, b"one"), other.append("log", 0, b"other"), return_exceptions=True
    )
    assert sorted(str(type(each).__name__) for each in outcomes) == ["Fenced", "int"]


async def test_the_largest_blob_is_taken_and_a_larger_one_refused(engine: Engine) -> None:
    largest = bytes(MAX_BLOB_BYTES)
    assert await appended(engine, "log", 0, largest) == 1
    with pytest.raises(ValueError, match="too many for one record"):
        await engine.append("log", 1, largest + b"x")
    assert await engine.read("log", 1, 1) == [Record(1, largest)]


async def test_a_read_returns_no_more_than_its_limit(engine: Engine) -> None:
    number = MAX_READ_BYTES // MAX_BLOB_BYTES + 3
    for expected in range(number):
        await appended(engine, "log", expected, bytes(MAX_BLOB_BYTES))
    found: list[int] = []
    while len(found) < number:
        page = await engine.read("log", len(found) + 1, 1000)
        assert 1 <= len(page) <= MAX_READ_BYTES // MAX_BLOB_BYTES + 1
        found += [record.sequence for record in page]
    assert found == list(range(1, number + 1))


async def test_a_read_by_another_connection_sees_what_was_appended(connect: Connect, engine: Engine) -> None:
    for expected in range(20):
        await appended(engine, "log", expected, b"%d" % expected)
    heir = await connect()
    await heir.ensure_log("log", MAX_LOG_BYTES)
    await heir.append("log", (await heir.bounds("log")).last, b"heir")
    assert [record.sequence for record in await heir.read("log", 1, 100)] == list(range(1, 22))


async def test_trimmed_records_are_gone_and_the_sequence_goes_on(engine: Engine) -> None:
    for expected in range(5):
        await appended(engine, "log", expected, b"%d" % expected)
    await engine.trim("log", 4)
    assert await engine.read("log", 1, 10) == [Record(4, b"3"), Record(5, b"4")]
    await engine.trim("log", 2)
    await engine.trim("log", 6)
    bounds = await engine.bounds("log")
    assert (bounds.first, bounds.last, bounds.size_bytes) == (6, 5, 0)
    assert await engine.read("log", 1, 10) == []
    assert await appended(engine, "log", 5, b"next") == 6
    assert await engine.read("log", 1, 10) == [Record(6, b"next")]


async def test_a_full_log_refuses_appends_until_it_is_trimmed(engine: Engine) -> None:
    await engine.ensure_log("log", 2 * MAX_BLOB_BYTES + 10_000)
    for expected in range(2):
        await appended(engine, "log", expected, bytes(MAX_BLOB_BYTES))
    with pytest.raises(LogFull, match="trim it"):
        await engine.append("log", 2, bytes(MAX_BLOB_BYTES))
    assert (await engine.bounds("log")).last == 2
    await engine.trim("log", 2)
    assert await appended(engine, "log", 2, bytes(MAX_BLOB_BYTES)) == 3


async def test_after_an_append_that_had_no_room_no_later_one_under_way_takes_place(engine: Engine) -> None:
    await engine.ensure_log("log", 2 * MAX_BLOB_BYTES)
    blobs = [bytes([each]) * (MAX_BLOB_BYTES // 2 if each < 6 else 10) for each in range(9)]
    outcomes = await asyncio.gather(
        *(engine.append("log", expected, blob) for expected, blob in enumerate(blobs)), return_exceptions=True
    )
    kept = [each for each in outcomes if isinstance(each, int)]
    assert outcomes[: len(kept)] == kept == list(range(1, len(kept) + 1))
    assert 3 <= len(kept) <= 4
    assert isinstance(outcomes[len(kept)], LogFull)
    assert {type(each) for each in outcomes[len(kept) + 1 :]} <= {LogFull, Fenced}
    assert [record.blob for record in await engine.read("log", 1, 100)] == blobs[: len(kept)]


async def test_logs_are_apart(engine: Engine) -> None:
    await engine.ensure_log("other", MAX_LOG_BYTES)
    await appended(engine, "log", 0, b"log")
    await appended(engine, "other", 0, b"other")
    assert await engine.read("other", 1, 10) == [Record(1, b"other")]


async def test_a_follower_gets_what_was_and_what_comes(engine: Engine) -> None:
    for expected in range(3):
        await appended(engine, "log", expected, b"%d" % expected)
    follower = engine.follow("log", 2)
    assert await some(follower, 2) == [Record(2, b"1"), Record(3, b"2")]
    waiting = asyncio.create_task(some(follower, 1))
    await asyncio.sleep(0)
    await appended(engine, "log", 3, b"3")
    assert await waiting == [Record(4, b"3")]
    await follower.aclose()


async def test_a_follower_begins_at_the_first_record_that_is_kept(engine: Engine) -> None:
    for expected in range(5):
        await appended(engine, "log", expected, b"%d" % expected)
    for before in range(2, 5):
        await engine.trim("log", before)
        kept = [Record(each + 1, b"%d" % each) for each in range(before - 1, 5)]
        assert await some(engine.follow("log", 1), len(kept)) == kept


async def test_a_follower_gets_thousands_in_order(engine: Engine) -> None:
    follower = engine.follow("log", 1)
    reading = asyncio.create_task(some(follower, 3000))
    for start in range(0, 3000, 100):
        await asyncio.gather(*(engine.append("log", each, b"%d" % each) for each in range(start, start + 100)))
    assert await reading == [Record(each + 1, b"%d" % each) for each in range(3000)]


async def test_a_key_is_changed_by_compare_and_set(engine: Engine) -> None:
    assert await engine.get("lease") is None
    first = await engine.put("lease", b"a", 0)
    assert await engine.get("lease") == Entry("lease", b"a", first)
    for revision in (0, first + 1):
        with pytest.raises(RevisionConflict):
            await engine.put("lease", b"never", revision)
    second = await engine.put("lease", b"b", first)
    assert second > first
    with pytest.raises(RevisionConflict):
        await engine.put("lease", b"never", first)
    assert await engine.get("lease") == Entry("lease", b"b", second)


async def test_a_deleted_key_can_be_made_again(connect: Connect, engine: Engine) -> None:
    first = await engine.put("lease", b"a", 0)
    await connect.delete("lease", first)
    assert await engine.get("lease") is None
    with pytest.raises(RevisionConflict):
        await engine.put("lease", b"never", first)
    assert await engine.put("lease", b"b", 0) > first


async def test_of_two_that_set_a_key_at_once_one_is_refused(connect: Connect, engine: Engine) -> None:
    other = await connect()
    outcomes = await asyncio.gather(engine.put("lease", b"a", 0), other.put("lease", b"b", 0), return_exceptions=True)
    assert sorted(str(type(each).__name__) for each in outcomes) == ["RevisionConflict", "int"]


async def test_a_watch_tells_of_what_is_and_of_changes(connect: Connect, engine: Engine) -> None:
    first = await engine.put("nodes.a", b"1", 0)
    gone = await engine.put("nodes.gone", b"1", 0)
    await connect.delete("nodes.gone", gone)
    await engine.put("other", b"1", 0)
    watch = (await connect()).watch("nodes.")
    async with asyncio.timeout(WAIT_S):
        assert await anext(watch) == Entry("nodes.a", b"1", first)
        second = await engine.put("nodes.b", b"2", 0)
        await engine.put("other.b", b"2", 0)
        assert await anext(watch) == Entry("nodes.b", b"2", second)
        await connect.delete("nodes.a", first)
        entry = await anext(watch)
        assert (entry.key, entry.value) == ("nodes.a", None)
        assert entry.revision > second
    await watch.aclose()


@pytest.mark.parametrize("key", ["", ".", "a..b", "a b", "a*", ">", "a.", "ä"])
async def test_a_key_with_other_characters_is_refused(engine: Engine, key: str) -> None:
    for request in (engine.put(key, b"", 0), engine.get(key)):
        with pytest.raises(ValueError, match="is no key"):
            await request


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", ">", "../a", "a" * 101])
async def test_a_log_or_file_with_other_characters_is_refused(engine: Engine, name: str, tmp_path: Path) -> None:
    for request in (engine.ensure_log(name, 1), engine.put_file(name, tmp_path), engine.get_file(name, tmp_path)):
        with pytest.raises(ValueError, match="is no name"):
            await request


async def test_a_file_comes_back_whole(connect: Connect, engine: Engine, tmp_path: Path) -> None:
    content = b"".join(b"%08d" % each for each in range(600_000))
    (tmp_path / "sent").write_bytes(content)
    await engine.put_file("snapshot-1", tmp_path / "sent")
    await (await connect()).get_file("snapshot-1", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["got", "sent"]


@pytest.mark.slow
@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_transfer_that_ended_goes_on_where_it_was(
    nats_servers: NatsServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    from mqttlite.engine.nats import files

    options = options_of(nats_servers)
    content = os.urandom(4 * files.CHUNK_BYTES + 1)
    (tmp_path / "sent").write_bytes(content)
    came: list[int] = []
    add = files.Part.add

    def counted(part: files.Part, chunk: bytes, sequence: int) -> None:
        if len(came) == 3:
            raise OSError("the disk fails")
        came.append(len(chunk))
        add(part, chunk, sequence)

    engine = await NatsEngine.open_bucket(options, 1)
    try:
        await engine.put_file("snapshot", tmp_path / "sent")
        monkeypatch.setattr(files.Part, "add", counted)
        with pytest.raises(OSError, match="fails"):
            await engine.get_file("snapshot", tmp_path / "got")
        assert sorted(os.listdir(tmp_path)) == ["got.part", "got.part.note", "sent"]
        if is_damaged:
            part = tmp_path / "got.part"
            part.write_bytes(bytes(100) + part.read_bytes()[100:])
        came.clear()
        came += [0, 0, 0, 0]  # more than three
        await engine.get_file("snapshot", tmp_path / "got")
    finally:
        await engine.close()
        await forget_cluster(options)
    assert (tmp_path / "got").read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["got", "sent"]
    assert len(came) - 4 == (2 + 5 if is_damaged else 2), "a damaged one comes again as a whole"


@pytest.mark.parametrize("fault", ["none", "gone", "lags"])
async def test_a_fetch_that_stalls_keeps_what_came_unless_chunks_are_gone(
    nats_servers: NatsServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    from mqttlite.engine.nats import files

    options = options_of(nats_servers)
    content = os.urandom(4 * files.CHUNK_BYTES)
    (tmp_path / "sent").write_bytes(content)
    messages, close = files.Tail.messages, files.Part.close
    threads: list[threading.Thread] = []

    def closed(part: files.Part) -> None:
        threads.append(threading.current_thread())
        close(part)

    async def stalled(tail: files.Tail) -> AsyncGenerator[object, None]:
        came = 0
        async with aclosing(messages(tail)) as found:
            async for message in found:
                yield message
                came += not isinstance(message, files.Waiting)
                if came == 2:
                    await asyncio.Event().wait()

    async def lagging(*asked: Any) -> StreamInfo:
        """A new leader that has not applied all it has."""
        found = await info_of(*asked)
        found.state.last_seq -= 1
        found.state.subjects = {}
        return found

    is_gone = fault == "gone"
    engine = await NatsEngine.open_bucket(options, 1)
    try:
        await engine.put_file("snapshot", tmp_path / "sent")
        if is_gone:
            connection, stream = engine._connection, engine._files._stream
            await connection.ask_api(f"STREAM.MSG.DELETE.{stream}", {"seq": 4}, msgspec.Raw)
        with monkeypatch.context() as patch:
            patch.setattr(files, "PATIENCE_S", 1.0)
            patch.setattr(files.Tail, "messages", stalled)
            patch.setattr(files.Part, "close", closed)
            if fault == "lags":
                patch.setattr(files, "info_of", lagging)
            with pytest.raises(FileDamaged if is_gone else EngineUnavailable):
                await engine.get_file("snapshot", tmp_path / "got")
        assert sorted(os.listdir(tmp_path)) == (["sent"] if is_gone else ["got.part", "got.part.note", "sent"])
        assert threading.current_thread() not in threads
        if not is_gone:
            await engine.get_file("snapshot", tmp_path / "got")
            assert (tmp_path / "got").read_bytes() == content
    finally:
        await engine.close()
        await forget_cluster(options)


async def test_an_empty_file_comes_back(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "sent").write_bytes(b"")
    await engine.put_file("empty", tmp_path / "sent")
    await engine.get_file("empty", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b""


async def test_a_file_replaces_an_older_one_at_both_ends(engine: Engine, tmp_path: Path) -> None:
    for content in (b"old" * 100_000, b"new"):
        (tmp_path / "sent").write_bytes(content)
        await engine.put_file("snapshot", tmp_path / "sent")
        await engine.get_file("snapshot", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == content


async def test_a_missing_or_deleted_file_is_no_file_and_leaves_none(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile):
        await engine.get_file("snapshot", tmp_path / "got")
    (tmp_path / "sent").write_bytes(b"some")
    await engine.put_file("snapshot", tmp_path / "sent")
    await engine.delete_file("snapshot")
    await engine.delete_file("snapshot")
    with pytest.raises(NoSuchFile):
        await engine.get_file("snapshot", tmp_path / "got")
    assert sorted(os.listdir(tmp_path)) == ["sent"]


async def test_after_close_requests_fail_and_iterators_end(engine: Engine) -> None:
    follower = engine.follow("log", 1)
    waiting = asyncio.create_task(anext(follower, None))
    await asyncio.sleep(0)
    await engine.close()
    async with asyncio.timeout(WAIT_S):
        assert await waiting is None
        with pytest.raises(EngineUnavailable):
            await engine.append("log", 0, b"")


async def test_a_log_is_used_as_it_is(connect: Connect) -> None:
    first, second = await connect(), await connect()
    with pytest.raises(EngineUnfit, match=r"there is no cluster named|the engine has no log 'log'"):
        await second.use_log("log")
    await first.ensure_log("log", MAX_LOG_BYTES)
    await first.append("log", 0, b"a")
    await second.use_log("log")
    bounds = await second.bounds("log")
    assert (bounds.last, bounds.max_bytes) == (1, MAX_LOG_BYTES)


@pytest.mark.slow
async def test_a_look_at_a_cluster_creates_nothing(nats_servers: NatsServers) -> None:
    options = options_of(nats_servers)
    await (await open_engine(options)).close()
    await forget_cluster(options)
    engine = await NatsEngine.open(options, creates=False)
    try:
        with pytest.raises(EngineUnfit, match=f"there is no cluster named '{options.cluster}' on this engine"):
            await engine.use_log("log")
    finally:
        await engine.close()
    assert await streams_of(options) == []


@pytest.mark.slow
async def test_keys_and_files_of_nodes_are_made_again_when_the_servers_have_lost_them(
    nats_servers: NatsServers, tmp_path: Path
) -> None:
    options = options_of(nats_servers)
    (tmp_path / "sent").write_bytes(b"content")
    engine = await NatsEngine.open_bucket(options, 1)
    try:
        revision = await engine.put("key", b"value", 0)
        await engine.put_file("file", tmp_path / "sent")
        await forget_cluster(options)
        assert await engine.get("key") is None
        assert await engine.put("key", b"value", 0) <= revision
        with pytest.raises(NoSuchFile):
            await engine.get_file("file", tmp_path / "got")
        await forget_cluster(options)
        await engine.put_file("file", tmp_path / "sent")
        await engine.get_file("file", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == b"content"
    finally:
        await engine.close()
        await forget_cluster(options)


@pytest.mark.slow
async def test_keys_of_a_cluster_are_not_made_again_when_the_servers_have_lost_them(nats_servers: NatsServers) -> None:
    options = options_of(nats_servers)
    engine = await open_engine(options)
    try:
        await engine.put("key", b"value", 0)
        await forget_cluster(options)
        with pytest.raises(EngineUnavailable, match="it has no stream KV_"):
            await engine.get("key")
        assert await streams_of(options) == []
    finally:
        await engine.close()
