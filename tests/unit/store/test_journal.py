"""The frames of a journal: each damage of one hides only that one, and SQLite agrees about where it stops."""

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest

from mqttlite.store.sqlite.journal import FRAME, HEADER, Frame, Journal, scan

PAGE = 4_096
STRIDE = FRAME.size + PAGE
PAGES = 100


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A database of thirty rows, and a journal with twelve more in as many commits; older frames are behind them."""
    path = tmp_path_factory.mktemp("journal") / "db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for sql in ("page_size = 4096", "journal_mode = WAL", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {sql}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
        for number in range(30):
            connection.execute("INSERT INTO t VALUES (?, ?)", (number, random.Random(number).randbytes(5_000)))
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        for number in range(30, 42):
            connection.execute("INSERT INTO t VALUES (?, ?)", (number, random.Random(number).randbytes(5_000)))
        return path.read_bytes(), path.with_name("db-wal").read_bytes()


@pytest.fixture(scope="module")
def journal(both: tuple[bytes, bytes]) -> bytes:
    return both[1]


def damaged(journal: bytes, frame: int, at: int, mask: int = 0x01) -> Journal:
    data = bytearray(journal)
    data[HEADER.size + frame * STRIDE + at] ^= mask
    return scan(bytes(data), PAGE, PAGES)


def numbers(frames: list[Frame]) -> list[tuple[int, int]]:
    return [(frame.page, frame.size) for frame in frames]


def bad(journal: Journal) -> list[int]:
    return [at for at, frame in enumerate(journal.frames) if not frame.is_good]


def test_all_frames_since_the_journal_began_anew_are_read(journal: bytes) -> None:
    found = scan(journal, PAGE, PAGES)
    assert found.has_header
    assert found.page_size == PAGE
    assert found.read == len(found.frames)
    assert len(found.frames) < (len(journal) - HEADER.size) // STRIDE, "older frames follow"
    assert sum(1 for frame in found.frames if frame.size) == 12
    assert (bad(found), found.bad, found.hidden_commits) == ([], 0, 0)


@pytest.mark.long
def test_a_damaged_image_makes_only_its_own_frame_bad(journal: bytes) -> None:
    whole = scan(journal, PAGE, PAGES)
    for number in range(len(whole.frames)):
        found = damaged(journal, number, FRAME.size + 100 + number)
        assert bad(found) == [number]
        assert numbers(found.frames) == numbers(whole.frames)
        assert found.read <= number
        assert found.read == 0 or found.frames[found.read - 1].size


@pytest.mark.parametrize("at", range(FRAME.size))
def test_a_damaged_head_of_a_frame_costs_nothing(journal: bytes, at: int) -> None:
    """Its checksum is that from which the next frame goes on, and its page number follows from the checksums."""
    whole = scan(journal, PAGE, PAGES)
    for number in (0, 7, len(whole.frames) - 2):
        found = damaged(journal, number, at, 0xFF)
        assert numbers(found.frames) == numbers(whole.frames), number
        assert bad(found) == [], number
        assert found.read <= number


def test_the_checksum_of_the_last_frame_has_no_next_one_to_confirm_it(journal: bytes) -> None:
    last = len(scan(journal, PAGE, PAGES).frames) - 1
    assert bad(damaged(journal, last, 20)) == [last]


@pytest.mark.long
def test_possible_page_numbers_of_a_bad_frame_are_kept(journal: bytes) -> None:
    """The checksum of an image with a flipped bit 31 of a word is that of another page number, too."""
    whole = scan(journal, PAGE, PAGES)
    for word in range(40):
        found = damaged(journal, 5, FRAME.size + word * 4 + 3, 0x80)
        assert numbers(found.frames) == numbers(whole.frames)
        assert bad(found) == [5]


@pytest.mark.parametrize("at", range(HEADER.size))
def test_a_damaged_header_of_the_journal_hides_nothing(journal: bytes, at: int) -> None:
    data = bytearray(journal)
    data[at] ^= 0x10
    found = scan(bytes(data), PAGE, PAGES)
    assert not found.has_header
    assert numbers(found.frames) == numbers(scan(journal, PAGE, PAGES).frames)
    assert (found.read, found.hidden_commits, found.bad) == (0, 12, 0)


def test_a_frame_that_is_overwritten_hides_itself_and_the_next_head(journal: bytes) -> None:
    """The head of the next one is lost with it, and so is its page number; the one behind it is believed."""
    data = bytearray(journal)
    data[HEADER.size + 4 * STRIDE + 500 : HEADER.size + 5 * STRIDE + 500] = random.Random(1).randbytes(STRIDE)
    found = scan(bytes(data), PAGE, PAGES)
    assert bad(found) == [4, 5]
    assert found.frames[5].page == 0
    assert found.bad == 2 - (found.frames[4].page in {frame.page for frame in found.frames[6:]})


def test_a_later_image_of_a_page_makes_up_for_a_bad_one(journal: bytes) -> None:
    whole = scan(journal, PAGE, PAGES)
    pages = [frame.page for frame in whole.frames]
    again = next(at for at, page in enumerate(pages) if page in pages[at + 1 :])
    once = next(at for at, page in enumerate(pages) if page not in pages[at + 1 :])
    assert damaged(journal, again, 2_000).bad == 0
    assert damaged(journal, once, 2_000).bad == 1


@pytest.mark.parametrize("data", [b"", b"x", bytes(32), bytes(32 + 3 * STRIDE), b"\xff" * (32 + 3 * STRIDE)])
def test_a_file_that_is_no_journal_has_no_commits(data: bytes) -> None:
    found = scan(data, PAGE, PAGES)
    assert (found.read, found.hidden_commits) == (0, 0)


@pytest.mark.long
def test_a_journal_that_was_cut_off_has_the_frames_in_front_of_the_cut(journal: bytes) -> None:
    whole = scan(journal, PAGE, PAGES)
    for count in range(len(whole.frames)):
        found = scan(journal[: HEADER.size + count * STRIDE + 3_000], PAGE, PAGES)
        assert found.frames == whole.frames[:count]


@pytest.mark.long
def test_sqlite_reads_as_many_commits_as_are_said_to_be_read(both: tuple[bytes, bytes], tmp_path: Path) -> None:
    database, journal = both
    rng = random.Random(4)
    used = len(scan(journal, PAGE, PAGES).frames) * STRIDE
    for number in range(30):
        data = bytearray(journal)
        data[rng.randrange(used)] ^= 1 << rng.randrange(8)
        found = scan(bytes(data), PAGE, PAGES)
        path = tmp_path / f"{number}"
        path.write_bytes(database)
        path.with_name(f"{number}-wal").write_bytes(data)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            (rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
        assert rows == 30 + sum(1 for frame in found.frames[: found.read] if frame.size)
