"""The options of telemetry: the place of the dataset, how much of it is kept, and which names it contains.

Invariant: constructed options are valid, except for conditions of the machine: files, and the presence of pyarrow.
"""

import math
from typing import Literal

import msgspec

Kind = Literal["client_ids", "usernames", "addresses", "topics"]
"""What can be written as pseudonyms."""


class TelemetryError(ValueError):
    """Telemetry cannot be set up: `option` names the setting at fault, the message what is wrong and what to do."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


class TelemetryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the rows go, how they are made, and how much may wait."""

    directory: str
    """The folder of the dataset."""
    format: Literal["auto", "parquet", "jsonl"] = "auto"
    """The file format. `auto`: Parquet if pyarrow is installed."""
    rotate_bytes: int = 64 * 1024 * 1024
    """A file is complete when it has this many bytes …"""
    rotate_after_s: float = 60.0
    """… or its first row is this old."""
    keep_s: float | None = None
    """How long files are kept. Absent: for ever."""
    keep_bytes: int = 1_073_741_824
    """The most bytes of files to keep, because they share a disk with the store. 0: no limit."""
    max_pending_rows: int = 10_000
    """The most rows that wait to be written, for each table, so that a flood of events does not displace sessions."""
    retry_after_s: float = 1.0
    """How long to wait before a failed write is retried."""
    interval_s: float = 10.0
    """The interval that a row of `traffic`, `activity`, `latency` and `drops` covers."""
    samples_per_s: int = 200
    """About how many messages a second are traced. 0: none."""
    max_topics: int = 1_000
    """The most topics with their own rows. The others are summed up by their first level."""
    pseudonymise: tuple[Kind, ...] = ()
    """Which names are written as pseudonyms."""
    pseudonym_key_file: str | None = None
    """The key for pseudonyms. A missing file is created. Required with `pseudonymise`."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ValueError(f"{name} is {value:g}: {least:g} at least, and finite")
        if not self.directory:
            raise ValueError("directory is empty: it names the folder of the dataset")
        if self.pseudonymise and not self.pseudonym_key_file:
            raise ValueError(
                "pseudonymise needs pseudonym_key_file, where the key is or may be made; who has it can find names out"
            )


_LEAST = {
    "rotate_bytes": 1,
    "rotate_after_s": 0.001,
    "keep_s": 1,
    "keep_bytes": 0,
    "max_pending_rows": 1,
    "retry_after_s": 0.001,
    "interval_s": 0.1,
    "samples_per_s": 0,
    "max_topics": 1,
}
