"""What a disk may have after the power failed, by the log of what was done to it.

What was synced is there. Of the writes to a file since its last sync, any may be missing, and one may be torn between
sectors; new, renamed and deleted names are there in their order up to any one (a file system with a journal keeps that
order). What a failed sync should have written is missing unless it is written again. Invariant: a state is a function
of the log and the seed.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.faults.disk import Op

SECTOR: Final = 512

Files = dict[str, bytes]


class _File:
    """One file, whatever its name."""

    def __init__(self) -> None:
        self.synced = b""
        self.pending: list[Op] = []

    def sync(self) -> None:
        self.synced = _applied(self.synced, self.pending)
        self.pending = []


class PowerCuts:
    """`after` says what there may be after one operation more."""

    def __init__(self, rng: random.Random, files: Files | None = None) -> None:
        self._rng: Final = rng
        self._names: dict[str, _File] = {}
        for name, data in (files or {}).items():
            file = self._names[name] = _File()
            file.synced = data
        self._synced_names = dict(self._names)
        self._pending_names: list[dict[str, _File]] = []

    def after(self, op: Op, choices: int) -> Iterator[Files]:
        """Some states, at most so many: all kept, all lost, and others at random. Each file's content is apart."""
        self._do(op)
        if op.kind == "mark":
            return
        for choice in range(choices):
            names = (self._synced_names, *self._pending_names)
            shown = names[-1] if choice == 0 else names[0] if choice == 1 else self._rng.choice(names)
            yield {name: self._content(file, choice) for name, file in shown.items() if not name.endswith("-shm")}

    def _do(self, op: Op) -> None:
        names = dict(self._names)
        if op.kind == "create":
            names[op.name] = _File()
        elif op.kind == "delete":
            names.pop(op.name, None)
        elif op.kind == "rename":
            names[op.target] = names.pop(op.name)
        elif op.kind == "sync_folder":
            self._synced_names, self._pending_names = names, []
        elif op.kind == "sync":
            names[op.name].sync()
        elif op.kind == "forget":
            names[op.name].pending = []
        elif op.kind in ("write", "truncate"):
            names[op.name].pending.append(op)
        if op.kind in ("create", "delete", "rename"):
            self._names = names
            self._pending_names.append(names)

    def _content(self, file: _File, choice: int) -> bytes:
        rng, pending = self._rng, file.pending
        if not pending or choice == 1:
            return file.synced
        if choice == 0:
            return _applied(file.synced, pending)
        if choice == 2:
            return _applied(file.synced, [*pending[:-1], *self._torn(pending[-1])])
        if choice == 3:
            return _applied(file.synced, pending[: rng.randrange(len(pending))])
        kept = [op for op in pending if rng.random() < 0.7]
        if choice % 2 and kept:
            at = rng.randrange(len(kept))
            kept[at : at + 1] = self._torn(kept[at])
        return _applied(file.synced, kept)

    def _torn(self, op: Op) -> list[Op]:
        """A part of a write."""
        if op.kind != "write" or len(op.data) < 2:
            return []
        first = SECTOR - op.at % SECTOR
        ends = [0, *range(first, len(op.data), SECTOR), len(op.data)]
        start, end = sorted(self._rng.sample(ends, 2)) if len(ends) > 2 else (0, 0)
        if self._rng.random() < 0.5:
            start = 0
        return [op._replace(at=op.at + start, data=op.data[start:end])]


def _applied(data: bytes, ops: list[Op]) -> bytes:
    if not ops:
        return data
    content = bytearray(data)
    for op in ops:
        if op.kind == "truncate":
            del content[op.at :]
            content += bytes(op.at - len(content))
        elif op.data:
            content += bytes(max(0, op.at - len(content)))
            content[op.at : op.at + len(op.data)] = op.data
    return bytes(content)


def put(folder: Path, files: Files) -> None:
    """Make a folder that has these files."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
