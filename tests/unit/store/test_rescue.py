"""A journal is damaged after `kill -9`: what is readable is back, and the log names what is missing."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.core.changes import Change, Enqueue, SaveSession, Settled
from mqttlite.core.message import Delivery, Message
from mqttlite.store.sqlite import files
from mqttlite.store.sqlite.journal import FRAME, HEADER, scan
from mqttlite.store.sqlite.mark import SUFFIX, UNKNOWN, CommitMark
from mqttlite.store.sqlite.store import SqliteStore
from tests.support.stores import loaded

STRIDE = FRAME.size + 4_096
COMMITS = 40
EACH = 5
"""Messages of a commit."""

Damage = Callable[[bytearray], None]


def message(sequence: int) -> Enqueue:
    payload = b"%d " % sequence * 200
    return Enqueue("a", sequence, Delivery(Message(b"t", payload, 1), 1, False))


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """The directory of a broker that was killed: all of its commits are in the journal."""
    store = SqliteStore(tmp_path / "running")
    await store.commit([SaveSession("a", 60, 0.0)])
    for number in range(COMMITS):
        await store.commit([message(number * EACH + at) for at in range(EACH)])
    copy = tmp_path / "killed"
    copy.mkdir(mode=0o700)
    for suffix in ("", "-wal", SUFFIX):
        name = files.DATABASE + suffix
        (copy / name).write_bytes((tmp_path / "running" / name).read_bytes())
    store.close()
    return copy


def journal_of(directory: Path) -> Path:
    return directory / f"{files.DATABASE}-wal"


def aside(directory: Path, suffix: str = "") -> list[Path]:
    """The damaged files that are kept."""
    return list(directory.glob(f"{files.DATABASE}.damaged-*{suffix}"))


def damage(directory: Path, how: Damage) -> None:
    data = bytearray(journal_of(directory).read_bytes())
    how(data)
    journal_of(directory).write_bytes(data)


async def found(directory: Path) -> set[int]:
    """The sequences of the messages that are read."""
    store = SqliteStore(directory)
    try:
        loaded(store)
        page = await store.page("a", 0, COMMITS * EACH)
        return {sequence for sequence, delivery in enumerate(page) if delivery is not None}
    finally:
        store.close()


ALL = set(range(COMMITS * EACH))


@pytest.mark.long
async def test_a_clean_journal_is_only_looked_at(killed: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await found(killed) == ALL
    assert aside(killed) == []
    assert caplog.text == ""


@pytest.mark.long
@pytest.mark.parametrize("frame", [0, 7, 40])
async def test_a_flipped_bit_costs_at_most_the_record_that_it_is_in(
    killed: Path, frame: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = journal_of(killed).read_bytes()

    def flip(data: bytearray) -> None:
        data[HEADER.size + frame * STRIDE + FRAME.size + 3_000] ^= 4

    damage(killed, flip)
    damaged = journal_of(killed).read_bytes()
    assert len(ALL - await found(killed)) <= 1
    assert "1 of " in caplog.text
    assert "frames of its journal are damaged" in caplog.text
    (kept,) = aside(killed, "-wal")
    assert kept.read_bytes() == damaged != whole


@pytest.mark.long
async def test_a_bad_frame_with_a_later_image_costs_nothing(killed: Path, caplog: pytest.LogCaptureFixture) -> None:
    frames = scan(journal_of(killed).read_bytes(), 4_096, 1_000).frames
    pages = [frame.page for frame in frames]
    again = next(at for at, page in enumerate(pages) if page in pages[at + 1 :])

    def scramble(data: bytearray) -> None:
        data[frames[again].at : frames[again].at + 4_096] = bytes(4_096)

    damage(killed, scramble)
    assert await found(killed) == ALL
    assert "each page is whole" in caplog.text
    assert "lost" not in caplog.text


@pytest.mark.long
async def test_a_damaged_head_of_the_journal_costs_nothing(killed: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage(killed, lambda data: data.__setitem__(slice(0, 32), bytes(32)))
    assert await found(killed) == ALL
    assert "its journal's head is damaged" in caplog.text
    assert "lost" not in caplog.text


@pytest.mark.long
async def test_a_journal_without_a_mark_beside_it_is_repaired_too(killed: Path) -> None:
    (killed / (files.DATABASE + SUFFIX)).unlink()
    damage(killed, lambda data: data.__setitem__(slice(0, 32), bytes(32)))
    assert await found(killed) == ALL


@pytest.mark.parametrize(
    "how",
    [
        lambda data: data.clear(),
        lambda data: data.__setitem__(slice(0, len(data)), bytes(len(data))),
        lambda data: data.__delitem__(slice(HEADER.size + FRAME.size, None)),
    ],
    ids=["deleted", "zeroed", "cut off"],
)
async def test_acknowledged_commits_without_a_trace_are_named_once(
    killed: Path, how: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    damage(killed, how)
    await found(killed)
    assert f"lost: acknowledged commits 1 to {COMMITS + 1}, of which nothing is left" in caplog.text
    caplog.clear()
    await found(killed)
    assert caplog.text == ""


@pytest.mark.long
async def test_the_readable_part_of_a_commit_that_was_cut_off_is_read(
    killed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frames = scan(journal_of(killed).read_bytes(), 4_096, 1_000).frames
    commits = [at for at, frame in enumerate(frames) if frame.size]

    def cut(data: bytearray) -> None:
        del data[frames[commits[-1]].at - FRAME.size :]

    damage(killed, cut)
    before = set(range((COMMITS - 1) * EACH))
    assert before <= await found(killed)
    assert "its journal is cut off within a commit that was acknowledged" in caplog.text
    assert f"lost: parts of the commits from number {COMMITS + 1} on to {COMMITS + 1}" in caplog.text


@pytest.mark.long
async def test_a_commit_that_was_never_acknowledged_is_no_loss(killed: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A power cut may leave any part of the last commit."""
    frames = scan(journal_of(killed).read_bytes(), 4_096, 1_000).frames

    def tear(data: bytearray) -> None:
        data[frames[-2].at + 7] ^= 1

    mark = CommitMark(killed / files.DATABASE)
    mark.write(COMMITS)
    mark.close()
    damage(killed, tear)
    assert await found(killed) == set(range((COMMITS - 1) * EACH))
    assert caplog.text == ""
    assert aside(killed) == []


async def test_a_missing_database_is_reported_with_its_contents(killed: Path, caplog: pytest.LogCaptureFixture) -> None:
    (killed / files.DATABASE).unlink()
    assert await found(killed) == set()
    assert f"is missing; lost: acknowledged commits 1 to {COMMITS + 1}" in caplog.text


@pytest.mark.long
async def test_settled_messages_do_not_come_back_with_a_repair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    store = SqliteStore(tmp_path / "running")
    await store.commit([SaveSession("a", 60, 0.0), *map(message, range(20))])
    settled: list[Change] = [Settled("a", sequence) for sequence in range(10)]
    for change in settled:
        await store.commit([change])
    data = {suffix: (tmp_path / "running" / (files.DATABASE + suffix)).read_bytes() for suffix in ("", "-wal", SUFFIX)}
    store.close()
    journal = scan(data["-wal"], 4_096, 1_000)
    for number, frame in enumerate(journal.frames):
        directory = tmp_path / f"{number}"
        directory.mkdir(mode=0o700)
        damaged = bytearray(data["-wal"])
        damaged[frame.at + 4_000] ^= 1
        for suffix, content in {**data, "-wal": bytes(damaged)}.items():
            (directory / (files.DATABASE + suffix)).write_bytes(content)
        store = SqliteStore(directory)
        (waiting,) = [change for change in loaded(store) if not isinstance(change, SaveSession)]
        assert (waiting.first, waiting.count) == (10, 10), number  # type: ignore[union-attr]
        store.close()


def test_a_mark_is_the_last_number_that_was_written(tmp_path: Path) -> None:
    mark = CommitMark(tmp_path / "db")
    assert mark.read() == UNKNOWN
    for number in (0, 7, 1 << 60, 8):
        mark.write(number)
        assert CommitMark(tmp_path / "db").read() == number
    mark.close()


@pytest.mark.parametrize("content", [b"", b"7", b"x", b"\xff\xff", b"0000000000000000007 00000000\n"])
def test_a_damaged_mark_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"db{SUFFIX}").write_bytes(content)
    assert CommitMark(tmp_path / "db").read() == UNKNOWN


def test_a_mark_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / f"db{SUFFIX}").mkdir()
    CommitMark(tmp_path / "db").write(7)
    assert CommitMark(tmp_path / "db").read() == UNKNOWN
