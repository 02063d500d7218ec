"""Rows are read from the bytes of a page that SQLite cannot read."""

import random
import sqlite3
from pathlib import Path
from typing import Any, SupportsIndex

import pytest

from mqttlite.store.sqlite.pages import Pages

PAGE = 4_096


class Counted(bytes):
    """A page that counts how many of its bytes are looked at."""

    looks = 0

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def table(path: Path) -> bytes:
    """A database with a table of a dozen rows, on its second page."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB, text TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(at, bytes(at * 7), "x" * at) for at in range(1, 13)])
    connection.commit()
    connection.close()
    return path.read_bytes()


def test_rows_are_found_without_the_head_of_their_page(tmp_path: Path) -> None:
    data = table(tmp_path / "database")
    page = bytes(100) + data[PAGE + 100 : 2 * PAGE]
    cells = list(Pages(data, PAGE, {}).loose_cells(page))
    assert {(at, (None, bytes(at * 7), "x" * at)) for at in range(1, 13)} <= {tuple(cell) for cell in cells}


@pytest.mark.long
def test_a_page_of_random_bytes_is_searched_in_few_looks() -> None:
    page = Counted(b"\0" + random.Random(1).randbytes(PAGE - 1))
    assert list(Pages(page, PAGE, {}).loose_cells(page)) == []
    assert page.looks < 100 * PAGE, "each place is not read to the end of the page"
