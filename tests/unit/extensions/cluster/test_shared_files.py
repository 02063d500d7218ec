"""The files beside the database: what one machine has changed, the next one has."""

import asyncio
from pathlib import Path

import pytest

from mqttlite.engine.memory import MemoryServers
from mqttlite.engine.port import EngineUnavailable, NoSuchFile
from mqttlite.extensions.cluster import shared_files
from mqttlite.extensions.cluster.shared_files import SharedFiles


class Machine:
    def __init__(self, servers: MemoryServers, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.engine = servers.connect()
        self.files = SharedFiles(self.engine, folder)
        self.has_crashed = False

    def crash(self, _key: str, _value: bytes | None, _revision: int) -> int:
        self.has_crashed = True
        raise EngineUnavailable("the machine crashes")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def read(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.glob("*.json")}

    async def put(self) -> None:
        """Look for changed files, until all that may be shared were looked at, or one could not be put."""
        shared = [path for path in self.folder.glob("*.json") if " " not in path.name]
        wanted = {path.stem: (path.stat().st_mtime_ns, path.stat().st_size) for path in shared}
        keeps = asyncio.create_task(self.files.keep_put())
        async with asyncio.timeout(60):
            while self.files._looked_at != wanted and not self.has_crashed:
                await asyncio.sleep(0.01)
        keeps.cancel()


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Machine, Machine]:
    servers = MemoryServers()
    return Machine(servers, tmp_path / "a"), Machine(servers, tmp_path / "b")


async def test_a_changed_file_is_fetched_and_the_rest_stays(machines: tuple[Machine, Machine]) -> None:
    a, b = machines
    a.write("users.json", "one")
    a.write("private.txt", "not shared")
    await a.put()
    b.write("users.json", "of an earlier time")
    b.write("other.json", "only here")
    await b.files.fetch()
    assert b.read() == {"users.json": "one", "other.json": "only here"}
    assert not list(b.folder.glob("*.fetched"))


async def test_a_file_that_changed_here_since_is_not_replaced(machines: tuple[Machine, Machine]) -> None:
    a, b = machines
    a.write("users.json", "one")
    await a.put()
    a.write("users.json", "changed when nobody looked")
    again = SharedFiles(a.engine, a.folder)
    await again.fetch()
    assert a.read() == {"users.json": "changed when nobody looked"}
    a.files = again
    await a.put()
    await b.files.fetch()
    assert b.read() == {"users.json": "changed when nobody looked"}


async def test_another_machines_change_replaces_what_was_given_before(machines: tuple[Machine, Machine]) -> None:
    a, b = machines
    a.write("users.json", "one")
    await a.put()
    await b.files.fetch()
    b.write("users.json", "two")
    await b.put()
    await a.files.fetch()
    assert a.read() == {"users.json": "two"}


async def test_a_crash_before_a_new_file_is_named_leaves_the_one_before(machines: tuple[Machine, Machine]) -> None:
    a, b = machines
    a.write("users.json", "one")
    await a.put()
    a.write("users.json", "two")
    change, a.engine._servers.change = a.engine._servers.change, a.crash  # type: ignore[method-assign]
    await a.put()
    await b.files.fetch()
    assert b.read() == {"users.json": "one"}
    a.engine._servers.change = change  # type: ignore[method-assign]
    a.files, a.has_crashed = SharedFiles(a.engine, a.folder), False
    await a.put()
    await b.files.fetch()
    assert b.read() == {"users.json": "two"}
    assert len(a.engine._servers.files) == 1, "the one before is removed"


async def test_an_engine_that_is_silent_is_asked_again(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_files, "PUT_S", 0.01)
    a, b = machines
    a.engine.is_cut_off = True
    a.write("users.json", "one")
    keeps = asyncio.create_task(a.files.keep_put())
    await asyncio.sleep(0.1)
    assert caplog.text.count("changed files cannot be given to the other machines") == 1
    with pytest.raises(EngineUnavailable):
        await a.files.fetch()
    a.engine.is_cut_off = False
    await asyncio.sleep(0.1)
    keeps.cancel()
    await b.files.fetch()
    assert b.read() == {"users.json": "one"}


async def test_a_name_that_no_broker_gives_is_not_shared_and_the_others_are(
    machines: tuple[Machine, Machine], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "PUT_S", 0.01)
    a, b = machines
    a.write("Copy of topics.json", "one")
    a.write("users.json", "one")
    await a.put()
    await b.files.fetch()
    assert b.read() == {"users.json": "one"}
    assert caplog.text.count("'Copy of topics.json' is not shared") == 1


@pytest.mark.parametrize("name", ["../users", "a/b", "a=b"])
async def test_a_key_names_no_path(
    machines: tuple[Machine, Machine], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    a, b = machines
    servers = a.engine._servers
    digest = "0" * 64
    servers.files[f"beside-{digest}"] = b"evil"
    servers.change(f"file.{name}", digest.encode(), 0)
    servers.change("file.users", b"../evil", 0)
    before = sorted(b.folder.parent.rglob("*"))
    await b.files.fetch()
    assert sorted(b.folder.parent.rglob("*")) == before
    assert "is not shared" in caplog.text


async def test_a_file_that_the_engine_lost_is_given_up_after_some_tries(
    machines: tuple[Machine, Machine], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = machines
    a.write("users.json", "one")
    a.write("topics.json", "one")
    await a.put()
    for name in list(a.engine._servers.files):
        if a.engine._servers.files[name] == b"one":
            a.engine._servers.files.pop(name)
            break
    b.write("users.json", "mine")
    b.write("topics.json", "mine")
    for _ in range(shared_files.TRIES - 1):
        with pytest.raises(NoSuchFile):
            await b.files.fetch()
    await b.files.fetch()
    assert sorted(b.read().values()) == ["mine", "one"], "the other file is fetched"
    assert "json was changed on another machine, and is not here" in caplog.text


async def test_values_changed_on_two_machines_are_kept_side_by_side(
    machines: tuple[Machine, Machine], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = machines
    a.write("users.json", "one")
    await a.put()
    await b.files.fetch()
    assert not (b.folder / "users.json.replaced").exists()
    a.write("users.json", "changed there")
    await a.put()
    b.write("users.json", "changed here")
    await b.files.fetch()
    assert b.read() == {"users.json": "changed there"}
    assert (b.folder / "users.json.replaced").read_text() == "changed here"
    assert "what was here is in users.json.replaced" in caplog.text
    a.write("users.json", "changed there again")
    await a.put()
    await b.files.fetch()
    assert (b.folder / "users.json.replaced").read_text() == "changed here", "what did not change here is not kept"
