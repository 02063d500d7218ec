"""Brokers that die at every system call, and then those that clean up behind them; prints each story that went wrong.

Run as a program, for it forks: `python -m tests.support.crashes FOLDER FORMAT`. A process kills itself with SIGKILL at
its n-th call, a write half-way. Invariant: what is told is found in the files alone.
"""

import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from mqttlite.extensions.dataset import journal, parquet
from mqttlite.extensions.dataset.dataset import Dataset
from mqttlite.extensions.dataset.parts import Disk
from tests.support.dataset import EVENT, opened, options, row
from tests.support.rounds import todays

MOST_CALLS = 1_000
"""More than a broker's life has. A run plays its death at every second of them."""

SESSIONS = 4
ENDED = 2


class DeadlyDisk(Disk):
    """Kills the process at its n-th call."""

    def __init__(self, deadly: int) -> None:
        self._left = deadly

    def _call(self) -> None:
        self._left -= 1
        if self._left == 0:
            die()

    def create(self, path: Path) -> int:
        self._call()
        fd = super().create(path)
        self._call()
        return fd

    def overwrite(self, path: Path) -> int:
        self._call()
        fd = super().overwrite(path)
        self._call()
        return fd

    def write(self, fd: int, data: bytes) -> int:
        if self._left == 1:
            super().write(fd, data[: len(data) // 2])
        self._call()
        return super().write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        self._call()
        super().truncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        self._call()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._call()
        super().unlink(path)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def in_a_process(act: Callable[[], object]) -> bool:
    """Whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def live(folder: Path, kind: str, disk: Disk) -> None:
    """A broker's life: sessions come and go, files are published; some are open when it ends. Fewer files are
    where each takes many calls."""
    few = kind == "parquet"
    dataset = Dataset(options(folder, format=kind, rotate_after_s=60.0 if few else 0.001), "dead", disk=disk)
    for number in range(1, SESSIONS + 1):
        dataset.begin(opened(number))
        if not few:
            dataset.write("events", EVENT)
        if number > SESSIONS - ENDED:
            dataset.write("sessions", row(number - ENDED))
            deadline = time.monotonic() + 60
            while dataset.written_rows["sessions"] < number - ENDED and time.monotonic() < deadline:
                time.sleep(0.001)
    dataset.close(20)


def recover(folder: Path, kind: str, disk: Disk) -> None:
    assert Dataset(options(folder, format=kind), "next", disk=disk).close(20)


def rows_in(folder: Path) -> dict[int, list[str]]:
    """By session, the reasons for which it ended in the complete files."""
    found: dict[int, list[str]] = {}
    for path in folder.glob("table=sessions/**/part-*"):
        rows: list[dict[str, Any]]
        if path.suffix == ".parquet":
            from pyarrow.parquet import ParquetFile

            rows = ParquetFile(path).read().to_pylist()
        else:
            rows = [json.loads(line) for line in path.read_text().splitlines()]
        for each in rows:
            found.setdefault(each["connection_id"], []).append(each["close_reason"])
    return found


def known(folder: Path) -> tuple[set[int], set[int]]:
    """The sessions that a dead broker entered, and those whose rows it wrote."""
    entered: set[int] = set()
    for path in folder.glob(".journal-dead"):
        entered = {number for _, number in journal._entries(path)}
    written = set(rows_in(folder))
    for path in folder.glob("table=sessions/**/.part-*.jsonl.open"):
        lines = path.read_bytes().splitlines(keepends=True)
        written |= {json.loads(line)["connection_id"] for line in lines if line.endswith(b"\n")}
    return entered, written


def told_wrong(folder: Path, entered: set[int], written: set[int]) -> str:
    found = rows_in(folder)
    expected = {
        number: ["client_disconnected" if number in written else "broker_crash"] for number in entered | written
    }
    left = [path.name for path in folder.rglob(".*")]
    if found != expected:
        return f"found {found}, expected {expected}"
    return f"left behind: {left}" if left else ""


def tell(folder: Path, kind: str) -> Iterator[str]:
    """All stories: what went wrong, or nothing."""
    parquet.is_wanted(kind)
    played = todays(range(1, MOST_CALLS), 2)
    first, lived = 0, False
    while not lived:
        first += 1
        crashed = folder / f"{first}"
        crashed.mkdir()
        lived = in_a_process(partial(live, crashed, kind, DeadlyDisk(first)))
        if not lived and first not in played:
            continue
        entered, written = known(crashed)
        second, recovered = 0, False
        while not recovered:
            second += 1
            again = folder / f"{first}-{second}"
            shutil.copytree(crashed, again)
            recovered = in_a_process(partial(recover, again, kind, DeadlyDisk(second)))
            in_a_process(partial(recover, again, kind, Disk()))
            wrong = told_wrong(again, entered, written)
            yield f"died at call {first}, the next at its call {second}: {wrong}" if wrong else ""
            shutil.rmtree(again)


if __name__ == "__main__":
    logging.disable()
    scenarios = list(tell(Path(sys.argv[1]), sys.argv[2]))
    print(f"{len(scenarios)} stories", *filter(None, scenarios), sep="\n")
