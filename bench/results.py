"""Results on disk: JSON Lines, first the machine, then each run as soon as it has ended, then how costs grow."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from bench.growth import Growth
from bench.machine import Machine
from bench.measure import Result

FOLDER: Final = Path(__file__).resolve().parent / "results"


class ResultsError(Exception):
    """A file of results cannot be read; the message says where."""


def new_file(group: str) -> Path:
    """Where results go unless told otherwise: one file for each measurement, so that two never mix."""
    return FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{group}.jsonl"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a file holds."""

    machines: list[Machine] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)


def append(path: Path, record: Machine | Result | Growth) -> None:
    """Add a line, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as out:
        out.write(msgspec.json.encode(record) + b"\n")


def load(path: Path) -> Kept:
    """Everything a file holds."""
    kept = Kept()
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        try:
            record = msgspec.json.decode(line, type=Machine | Result | Growth)
        except msgspec.DecodeError as error:
            raise ResultsError(f"{path}, line {number}: {error}") from error
        if isinstance(record, Machine):
            kept.machines.append(record)
        elif isinstance(record, Result):
            kept.results.append(record)
        else:
            kept.growths.append(record)
    return kept


def load_all(paths: Sequence[Path]) -> Kept:
    """Several files side by side: a broker's name gets its file's, as in `mqttlite@before`."""
    kept = Kept()
    for path in paths:
        one = load(path)
        kept.machines.extend(one.machines)
        kept.growths.extend(one.growths)
        for result in one.results:
            named = f"{result.broker}@{path.stem}" if len(paths) > 1 else result.broker
            kept.results.append(msgspec.structs.replace(result, broker=named))
    return kept
