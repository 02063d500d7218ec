"""Results on disk: JSON Lines, first the machine, then each run as soon as it has ended."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.machine import Machine
from bench.measure import Result

FOLDER: Final = Path(__file__).resolve().parent / "results"


class ResultsError(Exception):
    """A file of results cannot be read; the message says where."""


def new_file(group: str) -> Path:
    """Where results go unless told otherwise: one file for each measurement, so that two never mix."""
    return FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{group}.jsonl"


def append(path: Path, record: Machine | Result) -> None:
    """Add a line, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as out:
        out.write(msgspec.json.encode(record) + b"\n")


def load(path: Path) -> tuple[list[Machine], list[Result]]:
    """Everything a file holds."""
    machines: list[Machine] = []
    results: list[Result] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        try:
            record = msgspec.json.decode(line, type=Machine | Result)
        except msgspec.DecodeError as error:
            raise ResultsError(f"{path}, line {number}: {error}") from error
        if isinstance(record, Machine):
            machines.append(record)
        else:
            results.append(record)
    return machines, results


def load_all(paths: Sequence[Path]) -> tuple[list[Machine], list[Result]]:
    """Several files side by side: a broker's name gets its file's, as in `mqttlite@before`."""
    machines: list[Machine] = []
    results: list[Result] = []
    for path in paths:
        measured_on, found = load(path)
        machines += measured_on
        if len(paths) > 1:
            found = [msgspec.structs.replace(result, broker=f"{result.broker}@{path.stem}") for result in found]
        results += found
    return machines, results
