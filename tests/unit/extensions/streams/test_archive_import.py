"""The import of an archive into a stream, beside a stream that only remembers what it got."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from mqttlite.core.message import Message
from mqttlite.extensions.streams import archive_import
from mqttlite.extensions.streams.archive_files import encoded
from mqttlite.extensions.streams.archive_import import ArchiveImport, Counts, ImportStopped, Progress, RequestRefused
from mqttlite.extensions.streams.archive_names import FOLDER, file_name, find
from mqttlite.extensions.streams.archive_rows import in_order
from mqttlite.wire.properties import Properties


class FakeStream:
    """Appends each `dedup_id` once."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.requests: list[int] = []
        self.refuses = ""
        """The text that it does not take as payload."""

    def send(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        self.requests.append(len(messages))
        answer = {"appended": 0, "known": 0, "refused": "", "end": 0}
        ids = {each["dedup_id"] for each in self.messages}
        for each in messages:
            if self.refuses and base64.b64decode(each["payload"]) == self.refuses.encode():
                answer["refused"] = "there is no room"
                break
            if each["dedup_id"] in ids:
                answer["known"] += 1
            else:
                answer["appended"] += 1
                self.messages.append(each)
        return {**answer, "end": len(self.messages)}

    @property
    def payloads(self) -> list[str]:
        return [base64.b64decode(each["payload"]).decode() for each in self.messages]


class World:
    """The archive of a stream `s`, and one to import it into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream = FakeStream()
        self.told: list[tuple[int, dict[str, int]]] = []
        """After each request: how many messages were appended, and the positions in the file."""

    def write(self, partition: int, first: int, *payloads: str, hour: int = 0, topic: str = "a/b") -> Path:
        """A file of an archive, as its writer makes it."""
        at = self.folder / FOLDER / "stream=s" / "date=2026-11-21" / f"hour={hour:02}"
        at.mkdir(parents=True, exist_ok=True)
        messages = []
        for number, payload in enumerate(payloads):
            message = Message(topic.encode(), payload.encode(), 1, properties=Properties(user_properties=[("k", "v")]))
            message.number = hour * 3_600_000_000 + first + number + 1
            messages.append((first + number, message))
        path = at / file_name(partition, first, first + len(payloads) - 1)
        path.write_bytes(encoded(partition, messages))
        return path

    def run(self, into: str = "s") -> Counts:
        progress = Progress.load(self.folder / "progress", "s", into)
        work = ArchiveImport(progress, self.stream.send, self.tell)
        work.run(find(self.folder, "s"))
        return work.counts

    def tell(self, counts: Counts) -> None:
        self.told.append((counts.appended, self.positions()))

    def positions(self) -> dict[str, int]:
        positions: dict[str, int] = json.loads((self.folder / "progress").read_bytes())["positions"]
        return positions


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_messages_come_by_hours_and_those_of_a_partition_by_offsets(world: World) -> None:
    world.write(1, 0, "1:0", "1:1")
    world.write(0, 0, "0:0", "0:1")
    world.write(1, 2, "1:2", hour=3)
    world.write(1, 3, "1:3", hour=2)  # the clock went back
    world.write(0, 2, "0:2", hour=4)
    counts = world.run()
    assert world.stream.payloads == ["0:0", "0:1", "1:0", "1:1", "1:2", "1:3", "0:2"]
    assert (counts.appended, counts.known, counts.missing) == (7, 0, 0)
    assert [each.last for each in in_order(find(world.folder)) if each.partition == 1] == [1, 2, 3]
    first = world.stream.messages[0]
    assert (first["topic"], first["partition"], first["user_properties"]) == ("a/b", 0, [("k", "v")])
    assert first["dedup_id"] == "import/s/0:0/1"
    assert world.positions() == {"0": 3, "1": 4}


def test_a_second_run_sends_nothing_and_then_only_what_is_new(world: World) -> None:
    world.write(0, 0, "a", "b")
    world.run()
    world.stream.requests.clear()
    assert world.run() == Counts()
    assert world.stream.requests == []
    world.write(0, 2, "c", hour=1)
    assert world.run() == Counts(appended=1)
    assert world.stream.requests == [1]


def test_without_its_progress_nothing_is_appended_twice(world: World) -> None:
    world.write(0, 0, "a", "b")
    world.run()
    (world.folder / "progress").unlink()
    assert world.run() == Counts(known=2)
    assert world.stream.payloads == ["a", "b"]


def test_requests_have_a_number_and_a_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_import, "MAX_APPENDED", 3)
    world.write(0, 0, *"ab")
    world.write(0, 2, *"cdefgh")
    world.run()
    assert world.stream.requests == [3, 3, 2]
    assert world.told == [(3, {"0": 3}), (6, {"0": 6}), (8, {"0": 8})]
    monkeypatch.setattr(archive_import, "MAX_REQUEST_BYTES", 1_000)
    world.write(0, 8, "x", "y" * 1_000, "z", hour=1)
    world.run()
    assert world.stream.requests[3:] == [1, 1, 1]
    assert "".join(world.stream.payloads) == f"abcdefghx{'y' * 1_000}z"


@pytest.mark.parametrize("cut", [0, 4, 200, -1])
def test_a_broken_file_is_named_and_nothing_is_lost(world: World, cut: int) -> None:
    world.write(0, 0, "a")
    broken = world.write(0, 1, "b", "c", hour=1)
    world.write(0, 3, "d", hour=2)
    content = broken.read_bytes()
    broken.write_bytes(content[:cut])
    with pytest.raises(ImportStopped, match="cannot be read") as raised:
        world.run()
    assert str(broken) in str(raised.value)
    assert world.stream.payloads == ["a"]
    assert world.positions() == {"0": 1}
    broken.write_bytes(content)
    assert world.run() == Counts(appended=3)
    assert world.stream.payloads == ["a", "b", "c", "d"]


def test_a_file_that_is_not_what_its_name_says_is_named(world: World) -> None:
    path = world.write(0, 0, "a", "b")
    other = path.rename(path.with_name(file_name(1, 0, 1)))
    with pytest.raises(ImportStopped, match=r"partition 0, offset 0 is not what its name says"):
        world.run()
    other.rename(path.with_name(file_name(0, 0, 0)))
    with pytest.raises(ImportStopped, match=r"partition 0, offset 1 is not what its name says"):
        world.run()
    assert world.stream.payloads == ["a"]


def test_a_file_without_its_columns_is_named(world: World) -> None:
    import pyarrow
    import pyarrow.parquet

    path = world.write(0, 0, "a")
    table = pyarrow.parquet.ParquetFile(path).read()
    pyarrow.parquet.write_table(table.drop_columns(["payload"]), path)
    with pytest.raises(ImportStopped, match="it has no column payload"):
        world.run()
    at = table.schema.get_field_index("topic")
    pyarrow.parquet.write_table(table.set_column(at, "topic", pyarrow.array([None], pyarrow.string())), path)
    with pytest.raises(ImportStopped, match="the column topic of a row is null"):
        world.run()


def test_a_refused_message_is_named_and_the_next_run_begins_with_it(world: World) -> None:
    path = world.write(2, 5, "a", "b", "c")
    world.stream.refuses = "b"
    with pytest.raises(ImportStopped) as raised:
        world.run()
    assert str(raised.value) == (
        f"offset 6 of partition 2, in {path}, is refused: there is no room. What comes before is imported"
    )
    assert world.positions() == {"2": 6}
    world.stream.refuses = ""
    assert world.run() == Counts(appended=2)
    assert world.stream.payloads == ["a", "b", "c"]


def test_a_request_that_is_refused_is_named(world: World) -> None:
    path = world.write(0, 0, "a")

    def refuse(_messages: list[dict[str, Any]]) -> dict[str, Any]:
        raise RequestRefused("It is too large.")

    work = ArchiveImport(Progress(world.folder / "progress", "s", "s"), refuse, print)
    with pytest.raises(ImportStopped, match=r"from offset 0 of partition 0 on, in .* cannot be sent: It is too large"):
        work.run(find(world.folder))
    assert path.exists()
    assert not (world.folder / "progress").exists()


def test_offsets_that_no_file_has_are_counted(world: World) -> None:
    world.write(0, 7, "a")  # what retention removed before it was archived
    world.write(0, 11, "b")
    assert world.run() == Counts(appended=2, missing=3)


def test_messages_published_to_a_stream_itself_go_to_the_other_one(world: World) -> None:
    world.write(0, 0, "a", topic="$stream/s")
    world.write(0, 1, "b", topic="$stream/other")
    world.run("copy")
    assert [each["topic"] for each in world.stream.messages] == ["$stream/copy", "$stream/other"]


def test_a_wrong_file_of_progress_is_named(world: World) -> None:
    (world.folder / "progress").write_text("[]")
    with pytest.raises(ImportStopped, match="progress does not say how far an import is"):
        world.run()
    Progress(world.folder / "progress", "s", "other").save()
    with pytest.raises(ImportStopped, match="is about the import of s into other"):
        world.run()
    with pytest.raises(ImportStopped, match=r"cannot be written: .*; name another file with --progress"):
        Progress(world.folder / "none" / "progress", "s", "s").save()
