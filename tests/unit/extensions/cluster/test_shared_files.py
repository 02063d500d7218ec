"""The files beside the database: what one machine has changed, the next one has."""

import asyncio
from pathlib import Path

import pytest

from mqttlite.extensions.cluster import shared_files
from mqttlite.extensions.cluster.engine.memory import MemoryServers
from mqttlite.extensions.cluster.engine.port import EngineUnavailable
from mqttlite.extensions.cluster.shared_files import SharedFiles


class Machine:
    def __init__(self, servers: MemoryServers, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.engine = servers.connect()
        self.files = SharedFiles(self.engine, folder)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def read(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.glob("*.json")}

    async def put(self) -> None:
        """Look for changed files once."""
        keeps = asyncio.create_task(self.files.keep_put())
        await asyncio.sleep(0.1)
        keeps.cancel()


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Machine, Machine]:
    servers = MemoryServers()
    return Machine(servers, tmp_path / "a"), Machine(servers, tmp_path / "b")


async def test_what_was_changed_is_fetched_and_the_rest_stays(machines: tuple[Machine, Machine]) -> None:
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
    change, a.engine._servers.change = a.engine._servers.change, crash  # type: ignore[method-assign]
    await a.put()
    await b.files.fetch()
    assert b.read() == {"users.json": "one"}
    a.engine._servers.change = change  # type: ignore[method-assign]
    a.files = SharedFiles(a.engine, a.folder)
    await a.put()
    await b.files.fetch()
    assert b.read() == {"users.json": "two"}
    assert len(a.engine._servers.files) == 1, "the one before is removed"


def crash(_key: str, _value: bytes | None, _revision: int) -> int:
    raise EngineUnavailable("the machine crashes", is_connected=False)


async def test_an_engine_that_is_silent_is_asked_again(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_files, "PUT_S", 0.01)
    a, b = machines
    a.engine.is_cut_off = True
    a.write("users.json", "one")
    keeps = asyncio.create_task(a.files.keep_put())
    await asyncio.sleep(0.1)
    assert "could not be given to the other machines" in caplog.text
    with pytest.raises(EngineUnavailable):
        await a.files.fetch()
    a.engine.is_cut_off = False
    await asyncio.sleep(0.1)
    keeps.cancel()
    await b.files.fetch()
    assert b.read() == {"users.json": "one"}
