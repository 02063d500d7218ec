"""A database whose journal was being taken into it when its disk became full."""

import shutil
from pathlib import Path

from mqttlite.core.changes import Enqueue, SaveSession
from mqttlite.core.message import Delivery, Message
from mqttlite.store.sqlite import header
from mqttlite.store.sqlite.files import DATABASE
from mqttlite.store.sqlite.rescue import look
from mqttlite.store.sqlite.store import SqliteStore

COMMITS = 20
JOURNAL = DATABASE + "-wal"


async def torn(folder: Path) -> Path:
    """One whose header counts pages that are not there yet, and whose journal ends in a frame that is not whole."""
    store = SqliteStore(folder / "used")
    await store.commit([SaveSession("s", 0xFFFF_FFFF, 0.0)])
    for number in range(COMMITS - 1):
        await store.commit([Enqueue("s", number, Delivery(Message(b"t", b"x" * 3_000, 1), 1, False))])
    path = folder / DATABASE
    for name in (DATABASE, JOURNAL):
        shutil.copy(folder / "used" / name, folder / name)
    store.close()
    database = path.read_bytes()
    size = header.page_size(database)
    counted = header.mended(database[: header.HEADER_BYTES], size, len(database) // size + 100)
    path.write_bytes(counted + database[header.HEADER_BYTES :])
    journal = path.with_name(JOURNAL)
    frames = journal.read_bytes()
    last = frames[-size - 24 :]
    journal.write_bytes(frames + last[:4] + bytes(4) + last[8:16] + bytes(8) + last[24:])
    return path


async def test_a_journal_makes_up_for_a_malformed_database(tmp_path: Path) -> None:
    path = await torn(tmp_path)
    assert look(path, COMMITS) == "", "nothing acknowledged is missing"
    assert "damaged" in look(path, COMMITS + 1)
    store = SqliteStore(tmp_path, is_picture=True)
    found = [each for changes in store.load() for each in changes if getattr(each, "count", 0) == COMMITS - 1]
    store.close()
    assert len(found) == 1
