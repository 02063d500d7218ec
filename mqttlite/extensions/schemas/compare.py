"""Compares a schema with the versions before it, in a process of its own.

Whether one JSON Schema allows all that another does can take exponential time, and the library holds the interpreter
meanwhile. Invariant: a comparison ends within `TIMEOUT_S` and `MEMORY_BYTES`, and the broker goes on beside it.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.extensions.schemas.parsed import SchemaError
from mqttlite.extensions.schemas.parsing import parse
from mqttlite.extensions.schemas.registry import Compatibility, Schema

TIMEOUT_S: Final = 10.0
"""Ordinary schemas take milliseconds, and the process half a second."""

MEMORY_BYTES: Final = 1_073_741_824
"""Of the process, where the system can limit it."""

TOO_HARD: Final = (
    f"they could not be compared within {TIMEOUT_S:g} s: make the schema simpler, or set the level to NONE for a while"
)


class Comparison(msgspec.Struct, frozen=True):
    """A schema, the versions before it, the latest first, and how it must go with them."""

    schema: Schema
    level: Compatibility
    versions: list[tuple[int, Schema]]


def incompatibilities(comparison: Comparison) -> list[str]:
    """Why the schema may not follow; empty if it may. It may take very long: `compare` asks a process."""
    found: list[str] = []
    schema = parse(comparison.schema.type, comparison.schema.text)
    for number, version in comparison.versions:
        try:
            other = parse(version.type, version.text)
        except SchemaError as error:
            found.append(f"version {number} cannot be used: {error}")
            continue
        if not comparison.level.startswith("FORWARD"):
            reason = schema.unreadable(other)
            if reason:
                found.append(f"not backward compatible with version {number}: {reason}")
        if not comparison.level.startswith("BACKWARD"):
            reason = other.unreadable(schema)
            if reason:
                found.append(f"not forward compatible with version {number}: {reason}")
    return found


def compare(comparison: Comparison, timeout_s: float = TIMEOUT_S) -> list[str]:
    """The same, in a process, within a time. Call it in a thread."""
    above = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (above, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=msgspec.json.encode(comparison),
            capture_output=True,
            timeout=timeout_s,
            check=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        return msgspec.json.decode(done.stdout, type=list[str])
    except (subprocess.SubprocessError, msgspec.DecodeError, OSError):
        return [TOO_HARD]


def main() -> None:
    """Read a comparison from standard input, and print what is incompatible."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    comparison = msgspec.json.decode(sys.stdin.buffer.read(), type=Comparison)
    sys.stdout.buffer.write(msgspec.json.encode(incompatibilities(comparison)))


if __name__ == "__main__":
    main()
