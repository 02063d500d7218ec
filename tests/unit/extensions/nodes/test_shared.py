"""Documents that all nodes have: files of several nodes over the model of the engine."""

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from mqttlite.engine.memory import MemoryEngine, MemoryServers, Outcome
from mqttlite.engine.port import EngineUnavailable, EngineUnfit
from mqttlite.extensions.nodes import bucket as bucket_module
from mqttlite.extensions.nodes import refused
from mqttlite.extensions.nodes import shared as shared_module
from mqttlite.extensions.nodes.bucket import FILES, KEYS, Bucket
from mqttlite.extensions.nodes.known_file import KNOWN_FILE
from mqttlite.extensions.nodes.shared import SharedDocuments
from mqttlite.files.atomic_file import save
from mqttlite.files.shared_document import ChangedElsewhere, NotAgreed, SharedDocument
from tests.support.device import until


@pytest.fixture(autouse=True)
def shorter_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "LOOK_S", 0.02)
    monkeypatch.setattr(shared_module, "START_S", 10.0)
    monkeypatch.setattr(shared_module, "CHECK_S", 60.0)
    monkeypatch.setattr(shared_module, "OPEN_AGAIN_S", 0.02)


class Node:
    """A node with the document `colours`, which is a file of lines; a line `bad` cannot be used."""

    def __init__(self, name: str, servers: MemoryServers, folder: Path, *, merges: bool = False) -> None:
        self.name = name
        self.servers = servers
        self.folder = folder / name
        self.folder.mkdir(exist_ok=True)
        self.path = self.folder / "colours"
        self.used: list[str] = []
        self.fails = False
        self.document = SharedDocument(
            *("colours", self.check, self.replace),
            path=self.path,
            lock=asyncio.Lock(),
            reload=self.reload,
            merge=(lambda mine, theirs: (theirs or b"") + mine) if merges else None,
        )
        self.engine: MemoryEngine | None = None
        self.unfit = ""
        self.shared = SharedDocuments(name, [self.document], self.connect, str(self.folder))

    async def connect(self) -> MemoryEngine:
        if self.unfit:
            raise EngineUnfit(self.unfit)
        self.engine = self.servers.connect()
        await self.engine.entries("")
        return self.engine

    def check(self, content: bytes) -> None:
        if b"bad" in content:
            raise ValueError("it has a bad line")

    async def replace(self, content: bytes) -> None:
        if self.fails:
            raise OSError(28, "No space left on device", str(self.path))
        save(self.path, content)
        self.used.append(content.decode())

    async def reload(self, content: bytes) -> None:
        self.used.append(content.decode())

    async def change(self, content: str) -> None:
        """As an owner changes its document."""
        async with self.document.lock:
            await self.document.agree(content.encode())
            save(self.path, content.encode())

    @property
    def text(self) -> str:
        return self.path.read_text() if self.path.exists() else ""

    def figure(self, name: str) -> int:
        values = dict(self.shared.figures())[f"nodes_shared_{name}"]
        assert isinstance(values, list)
        return int(values[0][1])

    async def has(self, text: str) -> None:
        """Wait until this is in the file, may be changed, and is known to be of this revision: nothing more is asked
        of the engine then."""
        await until(lambda: self.text == text and self.figure("current") == 1 and self._is_known())

    def _is_known(self) -> bool:
        known = json.loads((self.folder / KNOWN_FILE).read_bytes()) if (self.folder / KNOWN_FILE).exists() else {}
        return bool(known.get("colours", {}).get("number") == self.figure("revision"))


class World:
    def __init__(self, folder: Path) -> None:
        self.servers = MemoryServers()
        self.folder = folder
        self.nodes: list[Node] = []

    def node(self, name: str, *, merges: bool = False) -> Node:
        node = Node(name, self.servers, self.folder, merges=merges)
        self.nodes.append(node)
        return node

    async def start(self, name: str, text: str = "", *, merges: bool = False) -> Node:
        """A node, with this in its file if anything is given."""
        node = self.node(name, merges=merges)
        if text:
            node.path.write_text(text)
        await node.shared.start()
        return node

    async def stop(self) -> None:
        for node in self.nodes:
            await node.shared.stop()

    def broken(self, value: bytes) -> None:
        """Somebody writes into the bucket by hand."""
        key = KEYS + "colours"
        present = self.servers.keys.get(key)
        self.servers.change(key, value, 0 if present is None else present.revision)
        self.servers.wake()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.servers.is_available = True
    await world.stop()


async def test_a_broker_alone_agrees_to_everything(tmp_path: Path) -> None:
    node = Node("alone", MemoryServers(), tmp_path)
    node.document.agreeing = None
    await node.change("red")
    assert node.text == "red"


async def test_the_first_node_gives_its_file_to_the_others(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    a = await world.start("a", "red")
    b = await world.start("b")
    assert (b.text, b.used, a.used) == ("red", ["red"], [])
    assert "colours was changed at node a, and is the same here now" in caplog.text


async def test_a_change_is_at_all_nodes(world: World) -> None:
    a, b, c = [await world.start(name) for name in "abc"]
    await a.change("red")
    await b.has("red")
    await c.has("red")
    await b.change("blue")
    await a.has("blue")
    await c.has("blue")
    assert a.figure("revision") == b.figure("revision") == c.figure("revision") == 2


async def test_of_two_changes_at_once_one_is_made_and_the_other_is_told(world: World) -> None:
    a, b = [await world.start(name) for name in "ab"]
    await a.change("red")
    await b.has("red")
    results = await asyncio.gather(a.change("blue"), b.change("green"), return_exceptions=True)
    assert [type(each) for each in results].count(ChangedElsewhere) == 1
    refused = next(each for each in results if each is not None)
    assert "another node has changed colours at the same time, so this change is not made" in str(refused)
    wanted = "green" if isinstance(results[0], ChangedElsewhere) else "blue"
    await a.has(wanted)
    await b.has(wanted)
    await (a if wanted == "green" else b).change("white")  # it tries again on what is there now
    await a.has("white")
    await b.has("white")


async def test_a_node_that_was_away_has_the_changes_when_it_is_back(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    assert b.engine is not None
    b.engine.is_cut_off = True
    await a.change("blue")
    await asyncio.sleep(0.1)
    assert b.text == "red"
    b.engine.is_cut_off = False
    await b.has("blue")


async def test_a_node_that_was_stopped_has_the_changes_when_it_starts(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.shared.stop()
    await a.change("blue")
    again = await world.start("b")
    assert again.text == "blue"
    assert not (again.folder / "colours.refused").exists()


async def test_a_change_before_a_crash_is_no_edit_when_others_have_gone_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await a.has("red")
    async with a.document.lock:
        await a.document.agree(b"blue")
        save(a.path, b"blue")
        await a.shared.stop()  # before it has looked at its file
    await b.has("blue")
    await b.change("green")
    a = await world.start("a")
    assert (a.text, (a.folder / "colours.refused").exists()) == ("green", False)
    assert "refused" not in caplog.text


async def test_all_nodes_may_start_again_at_once(world: World) -> None:
    for node in [await world.start(name) for name in "ab"]:
        await node.change("red") if node.name == "a" else await node.has("red")
        await node.shared.stop()
    a, b = [await world.start(name) for name in "ab"]
    await b.change("blue")
    await a.has("blue")


async def test_no_change_is_made_while_nats_is_away(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    world.servers.is_available = False
    with pytest.raises(NotAgreed, match="the other nodes cannot have the change of colours, so it is not made here"):
        await a.change("blue")
    assert a.text == "red"
    world.servers.is_available = True
    await a.has("red")
    await a.change("green")
    await b.has("green")


async def test_it_is_told_that_nats_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "CHECK_S", 0.1)
    a = await world.start("a", "red")
    await a.has("red")
    world.servers.is_available = False
    await until(lambda: a.figure("current") == 0)
    await until(lambda: "the model of the engine gave no answer" in a.shared.states()[0].reason)
    world.servers.is_available = True
    await a.has("red")
    assert a.shared.states()[0].reason == ""


async def test_a_revision_that_was_not_heard_of_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "CHECK_S", 0.1)
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.has("red")
    monkeypatch.setattr(world.servers, "wake", lambda: None)  # nobody is told
    await a.change("blue")
    await b.has("blue")


async def test_a_node_that_starts_while_nats_is_away_has_what_it_had_and_refuses_changes(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await world.start("a", "red")
    await a.shared.stop()
    monkeypatch.setattr(shared_module, "START_S", 0.1)
    world.servers.is_available = False
    a = await world.start("a")
    assert "colours: as at the end of the last run, and cannot be changed, until NATS answers" in caplog.text
    with pytest.raises(NotAgreed, match="it is not made: the model of the engine gave no answer"):
        await a.change("blue")
    assert a.text == "red"
    world.servers.is_available = True
    await a.has("red")
    await a.change("blue")


async def test_servers_that_do_not_fit_are_named_once_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_module, "START_S", 0.1)
    a = world.node("a")
    a.path.write_text("red")
    a.unfit = "JetStream is not on"
    await a.shared.start()
    await asyncio.sleep(0.1)
    assert caplog.text.count("what all nodes have (colours) is not reached: JetStream is not on") == 1
    with pytest.raises(NotAgreed, match="JetStream is not on"):
        await a.change("blue")
    a.unfit = ""
    await a.has("red")


async def offered(node: Node, other: Node, content: bytes, outcome: Outcome) -> None:
    """A change whose second request, which stores it, has this outcome. Meanwhile nobody else asks the engine, for
    both locks are held."""
    async with other.document.lock, node.document.lock:
        outcomes = iter([Outcome.ANSWERED, outcome])
        node.servers.outcome = lambda: next(outcomes, Outcome.ANSWERED)
        await node.document.agree(content)
        save(node.path, content)


async def test_a_change_whose_answer_was_lost_is_made(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await offered(a, b, b"blue", Outcome.ANSWER_LOST)
    await b.has("blue")
    await a.has("blue")


async def test_a_change_that_arrives_late_is_made_at_all_nodes(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    with pytest.raises(NotAgreed, match="look before you try again"):
        await offered(a, b, b"blue", Outcome.LATE)
    assert a.text == "red"
    world.servers.deliver_late()
    await a.has("blue")
    await b.has("blue")


async def test_a_file_that_is_edited_here_is_at_all_nodes(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    a.path.write_text("blue, by hand")
    await b.has("blue, by hand")
    await until(lambda: a.used == ["blue, by hand"])


async def test_lines_that_a_program_adds_one_after_the_other_are_all_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.has("red")
    monkeypatch.setattr(world.servers, "delay", lambda: 0.02)  # so that lines are added while others are on their way
    for number in range(20):
        save(a.path, a.path.read_bytes() + f" {number}".encode())
        await asyncio.sleep(0.09 + number % 4 * 0.02)
    monkeypatch.setattr(world.servers, "delay", lambda: 0.0)
    wanted = " ".join(["red", *map(str, range(20))])
    await b.has(wanted)
    assert a.text == wanted
    assert not (a.folder / "colours.refused").exists()


async def test_a_line_that_is_added_while_the_change_of_another_node_comes_is_kept_beside(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.has("red")
    check = b.check

    def write_meanwhile(content: bytes) -> None:
        if content == b"blue":
            monkeypatch.undo()
            b.path.write_text("green")
        check(content)

    monkeypatch.setattr(b.document, "check", write_meanwhile)
    monkeypatch.setattr(shared_module, "LOOK_S", 0.02)
    await a.change("blue")
    await b.has("blue")
    assert (b.folder / "colours.refused").read_text() == "green"


async def test_a_file_that_is_written_in_place_is_given_away_when_it_is_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await a.has("red")
    a.path.write_text("")
    await asyncio.sleep(0.3)
    a.path.write_text("blue")
    await b.has("blue")
    assert b.used == ["blue"]
    monkeypatch.setattr(shared_module, "EMPTY_S", 0.1)
    a.path.write_text("")  # and it stays empty
    await until(lambda: b.used == ["blue", ""])


async def test_each_edit_that_is_refused_is_kept(world: World, caplog: pytest.LogCaptureFixture) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    for number in (1, 2):
        await b.shared.stop()
        await a.change(f"blue {number}")
        b = await world.start("b", f"green {number}")
        assert b.text == f"blue {number}"
    assert (b.folder / "colours.refused").read_text() == "green 1"
    assert (b.folder / "colours.refused-2").read_text() == "green 2"
    assert "What was here is in colours.refused-2: make its changes again." in caplog.text
    assert [(each.refused_edits, each.kept) for each in b.shared.states()] == [(1, "colours.refused-2")]


def test_content_that_is_nested_too_deeply_for_its_owner_is_wrong_content() -> None:
    def check(_: bytes) -> None:
        raise RecursionError

    async def replace(_: bytes) -> None:
        raise AssertionError

    document = SharedDocument("colours", check, replace, path=None, lock=asyncio.Lock())
    with pytest.raises(ValueError, match="it is nested too deeply"):
        document.check(b"red")


def test_the_newest_refused_edits_are_kept_each_once(tmp_path: Path) -> None:
    path = tmp_path / "users"
    for number in range(refused.MAX_REFUSED + 2):
        name = refused.keep(path, b"%d" % number)
        os.utime(tmp_path / name, (number, number))
    assert refused.keep(path, b"7") == "users.refused-8"
    kept = {each.name: int(each.read_bytes()) for each in tmp_path.iterdir()}
    assert sorted(kept.values()) == list(range(2, refused.MAX_REFUSED + 2))
    assert (kept["users.refused"], kept["users.refused-2"], kept["users.refused-3"]) == (20, 21, 2)


async def test_an_edit_of_an_old_revision_is_refused_and_kept_beside(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.shared.stop()
    await a.change("blue")
    b = await world.start("b", "green")
    assert b.text == "blue"
    assert (b.folder / "colours.refused").read_text() == "green"
    assert "colours was changed here, but not from revision 2, which node a has made and all nodes have" in caplog.text
    assert "What was here is in colours.refused: make its changes again." in caplog.text
    assert b.figure("refused") == 1
    assert a.text == "blue"


async def test_an_edit_while_the_node_was_stopped_is_given_to_the_others(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.shared.stop()
    b = await world.start("b", "green")
    await a.has("green")


async def test_a_file_that_a_first_start_has_made_gives_way_without_a_word(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start("a", "red")
    b = world.node("b")
    b.path.write_text("made by chance")
    b.document.gives_way = True
    await b.shared.start()
    assert b.text == "red"
    assert not (b.folder / "colours.refused").exists()
    assert "refused" not in caplog.text


async def test_changes_that_may_be_merged_are_merged(world: World) -> None:
    a, b = [await world.start(name, "red", merges=True) for name in "ab"]
    await b.shared.stop()
    await a.change("red, blue")
    b = await world.start("b", "; red, green", merges=True)
    await a.has("red, blue; red, green")
    assert b.text == "red, blue; red, green"


@pytest.mark.parametrize("value", [b"by hand", b"", bytes(100)])
async def test_a_document_that_no_node_has_stored_replaces_nothing_and_is_not_replaced(
    world: World, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    a = await world.start("a", "red")
    world.broken(value)
    await until(lambda: "colours in NATS cannot be used" in caplog.text)
    assert "its revision 2 was stored by no node" in caplog.text
    assert "'nats kv del' with the key shared.colours" in caplog.text
    with pytest.raises(NotAgreed, match="cannot be changed: its revision 2 was stored by no node"):
        await a.change("blue")
    a.path.write_text("green")  # nor does an edited file replace it
    await asyncio.sleep(0.1)
    assert world.servers.keys[KEYS + "colours"].value == value
    assert (a.figure("current"), a.figure("revision")) == (0, 1)
    world.servers.change(KEYS + "colours", None, 2)  # as the log says
    world.servers.wake()
    b = await world.start("b")
    await b.has("green")
    await a.change("blue")
    await b.has("blue")


async def test_content_that_a_node_cannot_use_stays_away_from_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.has("red")
    await a.change("bad")  # which a node of another version may do
    await until(lambda: "colours in NATS cannot be used" in caplog.text and "it has a bad line" in caplog.text)
    assert (b.text, b.used) == ("red", [])
    await a.change("blue")
    await b.has("blue")


async def test_a_bad_file_is_not_given_to_others_until_it_is_right(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    a.path.write_text("bad")
    await until(lambda: "colours is not given to the other nodes: it has a bad line" in caplog.text)
    with pytest.raises(NotAgreed, match="it has a bad line"):
        await a.change("white")
    assert b.text == "red"
    a.path.write_text("blue")
    await b.has("blue")
    await a.change("green")
    await b.has("green")


async def test_a_defect_of_a_document_is_logged_and_refuses_its_changes(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a = world.node("a")
    a.path.write_text("red")
    b = await world.start("b", "red")
    await b.change("blue")

    async def replace(content: bytes) -> None:
        raise KeyError("x")

    a.replace = replace  # type: ignore[method-assign]
    a.document = SharedDocument("colours", a.check, replace, path=a.path, lock=asyncio.Lock())
    a.shared = SharedDocuments("a", [a.document], a.connect, str(a.folder))
    a.document.gives_way = True
    await a.shared.start()
    assert "colours cannot be compared with that of other nodes" in caplog.text
    with pytest.raises(NotAgreed, match="colours failed here, as the log says"):
        await a.change("green")


async def test_a_full_disk_is_named_and_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    b.fails = True
    await a.change("blue")
    await until(lambda: "colours cannot be made what other nodes have" in caplog.text)
    assert (b.text, b.figure("current")) == ("red", 0)
    b.fails = False
    await b.has("blue")


async def test_a_change_that_its_owner_could_not_write_is_undone_at_all_nodes(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    with suppress(OSError):
        async with a.document.lock:
            await a.document.agree(b"blue")
            raise OSError(28, "No space left on device")
    await until(lambda: a.figure("revision") == b.figure("revision") == 3)
    await b.has("red")
    await a.has("red")


async def test_a_large_document_is_a_file_of_the_engine_and_the_older_one_goes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "MAX_INLINE_BYTES", 10)
    a, b = [await world.start(name) for name in "ab"]
    assert not world.servers.files
    await a.change("x" * 11)
    await b.has("x" * 11)
    (first,) = world.servers.files
    assert first.startswith(FILES)
    await b.change("y" * 12)
    await a.has("y" * 12)
    assert list(world.servers.files) != [first]
    assert len(world.servers.files) == 1
    await a.change("small")
    await b.has("small")
    assert not world.servers.files


@pytest.mark.parametrize("more", [0, 1])
async def test_a_document_has_a_largest_size(world: World, monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    monkeypatch.setattr(shared_module, "MAX_DOCUMENT_BYTES", 20)
    a = await world.start("a", "red")
    if more:
        with pytest.raises(NotAgreed, match="colours would have 21 bytes: nodes share 20 at most"):
            await a.change("x" * 21)
        a.path.write_text("x" * 21)
        await until(lambda: a.figure("current") == 0)
    else:
        await a.change("x" * 20)
        await a.has("x" * 20)


async def test_the_memory_of_files_survives_only_whole(world: World, caplog: pytest.LogCaptureFixture) -> None:
    a = await world.start("a", "red")
    await until(lambda: (a.folder / KNOWN_FILE).exists())
    await a.shared.stop()
    (a.folder / KNOWN_FILE).write_text("{")
    b = await world.start("b")
    await b.change("blue")
    a = await world.start("a")
    assert f"{KNOWN_FILE} cannot be used" in caplog.text
    assert (a.folder / "colours.refused").read_text() == "red"
    assert a.text == "blue"


# ---------------------------------------------------------------------- NATS that was restored or lost


def lose_bucket(world: World) -> None:
    """The bucket is made again: it is empty, and its revisions begin with 1."""
    world.servers.keys.clear()
    world.servers._revision = 0
    world.servers.wake()


async def test_an_older_state_of_nats_takes_the_place_of_nothing(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_module, "CHECK_S", 0.1)
    a, b = [await world.start(name, "red") for name in "ab"]
    older = dict(world.servers.keys)
    await a.change("blue")
    await b.has("blue")
    world.servers.keys.update(older)
    world.servers._revision = 1
    await until(lambda: "what is here is given to all nodes again" in caplog.text)
    await until(lambda: a.figure("revision") == b.figure("revision") == 3)
    assert (a.text, b.text) == ("blue", "blue")
    assert "red" in [each.read_text() for each in world.folder.glob("*/colours.refused")]
    await b.change("green")
    await a.has("green")


async def test_a_node_that_knows_more_wins_over_one_that_starts_first_with_a_new_bucket(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.has("red")
    await b.shared.stop()
    for content in ("blue", "green"):
        await a.change(content)
        await a.has(content)
    await a.shared.stop()
    lose_bucket(world)
    b = await world.start("b")
    assert b.text == "red"
    a = await world.start("a")
    assert a.text == "green"
    await b.has("green")


async def test_content_that_was_made_with_a_new_bucket_is_kept_when_a_node_knows_more(world: World) -> None:
    a = await world.start("a", "red")
    for content in ("blue", "green"):
        await a.change(content)
        await a.has(content)
    await a.shared.stop()
    lose_bucket(world)
    c = await world.start("c", "white")
    await c.has("white")
    a = await world.start("a")
    await c.has("green")
    assert (c.folder / "colours.refused").read_text() == "white"
    assert (a.folder / "colours.refused").read_text() == "white"


async def test_defaults_of_a_new_node_do_not_win_with_a_new_bucket(world: World) -> None:
    a = await world.start("a", "red")
    await a.has("red")
    await a.shared.stop()
    lose_bucket(world)
    c = world.node("c")
    c.path.write_text("made by chance")
    c.document.gives_way = True
    await c.shared.start()
    assert c.figure("revision") == 0
    a = await world.start("a")
    assert a.text == "red"
    await c.has("red")
    assert not list(world.folder.glob("*/colours.refused"))


async def test_an_equal_revision_of_another_bucket_is_another_document(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = await world.start("b", "red")
    await b.has("red")
    assert b.engine is not None
    b.engine.is_cut_off = True
    lose_bucket(world)
    a = await world.start("a", "white")
    await a.has("white")
    assert world.servers.keys[KEYS + "colours"].revision == 1
    monkeypatch.setattr(shared_module, "CHECK_S", 0.1)
    b.engine.is_cut_off = False
    with suppress(NotAgreed):
        await b.change("green")
    await b.has("white")
    assert a.text == "white"
    assert (b.folder / "colours.refused").read_text() == "red"


async def test_a_broken_document_that_is_removed_lets_changes_be_made_again(world: World) -> None:
    a = await world.start("a")
    world.broken(b"by hand")
    await until(lambda: a.figure("current") == 0 and "cannot be used" in a.shared.states()[0].reason)
    world.servers.change(KEYS + "colours", None, 1)
    world.servers.wake()
    await until(lambda: a.figure("current") == 1)
    await a.change("blue")
    assert a.shared.states()[0].reason == ""


async def test_a_change_that_was_refused_and_is_then_written_into_the_file_is_given_to_all(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await a.has("red")
    assert a.engine is not None
    with pytest.raises(NotAgreed):
        await offered(a, b, b"blue", Outcome.REQUEST_LOST)
    await a.has("red")
    await a.shared.stop()
    a = await world.start("a", "blue")
    assert a.text == "blue"
    await b.has("blue")


async def test_of_another_file_nothing_is_known(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.has("red")
    other = b.path.with_name("other")
    other.write_text("green")
    b.path = b.document.path = other
    await b.has("red")
    assert b.path.with_name("other.refused").read_text() == "green"
    assert a.text == "red"


async def test_a_document_of_a_newer_version_advises_to_upgrade_and_not_to_remove_it(world: World) -> None:
    a = await world.start("a", "red")
    world.broken(msgspec.msgpack.encode([2, "b", {"something": "new"}]))
    await until(lambda: "Upgrade this node" in a.shared.states()[0].reason)
    with pytest.raises(NotAgreed) as error:
        await a.change("blue")
    assert "node b has stored it in version 2, and this node knows 1" in str(error.value)
    assert "Remove" not in str(error.value)
    assert a.text == "red"


async def test_a_lost_file_of_a_large_document_is_named_with_advice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "MAX_INLINE_BYTES", 10)
    a = await world.start("a", "x" * 11)
    await a.has("x" * 11)
    world.servers.files.clear()
    b = await world.start("b", "red")
    assert "its content is lost: the engine has no file" in b.shared.states()[0].reason
    assert "'nats kv del'" in b.shared.states()[0].reason
    assert b.text == "red"


async def test_a_large_change_that_comes_second_leaves_no_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "MAX_INLINE_BYTES", 10)
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.has("red")
    await asyncio.gather(a.change("x" * 11), b.change("y" * 11), return_exceptions=True)
    await until(lambda: a.text == b.text != "red")
    assert len(world.servers.files) == 1


async def test_a_document_without_a_file_for_a_while_has_what_was_changed_meanwhile(world: World) -> None:
    a, b = [await world.start(name, "red") for name in "ab"]
    await b.has("red")
    b.document.path, b.document.is_used = None, False  # as a reload of the configuration does
    await asyncio.sleep(0.1)
    await a.change("blue")
    await asyncio.sleep(0.1)
    assert (b.text, b.shared.states()) == ("red", [])
    b.document.path, b.document.is_used = b.path, True
    await b.has("blue")
    assert a.text == "blue"
    assert not (b.folder / "colours.refused").exists()


async def test_a_fetch_of_a_document_that_breaks_off_leaves_nothing_and_nobody_else_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []

    async def break_off(engine: MemoryEngine, name: str, path: Path) -> None:
        modes.append(path.parent.stat().st_mode & 0o777)
        for kept in (f"{path.name}.part", f"{path.name}.part.note"):
            path.with_name(kept).write_bytes(b"user:hash")
        raise EngineUnavailable("broken off")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bucket = Bucket(MemoryEngine(MemoryServers()), "a")
    found = await bucket.put("users", bytes(bucket_module.MAX_INLINE_BYTES + 1), "epoch", 1, 0)
    monkeypatch.setattr(MemoryEngine, "get_file", break_off)
    with pytest.raises(EngineUnavailable):
        await bucket.content(found)
    assert modes == [0o700]
    assert os.listdir(tmp_path) == []
