"""Folders in memory, where a sync costs nothing: what is synced is known by the log of the test's disk."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disk import Disk

_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mqttlite-", dir=_MEMORY if _MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk that is below each store in the folder `data`."""
    made = Disk(folder / "data")
    made.install(monkeypatch)
    return made
