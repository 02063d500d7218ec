"""The dataset's files: folders, names, and both formats.

Invariant: a file has its final name only when it is complete.
"""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tools.telemetry import schema


class Files:
    """A directory that is written to, and how many rows it got."""

    def __init__(self, directory: Path, form: str) -> None:
        self.directory = directory
        self.rows: Counter[str] = Counter()
        self._form = form
        self._numbers: Counter[tuple[str, str]] = Counter()

    def write(self, name: str, broker_id: str, table: pa.Table) -> None:
        """One file; none for a table without rows. Raises OSError."""
        if not table.num_rows:
            return
        self.rows[name] += table.num_rows
        self._numbers[name, broker_id] += 1
        first = table.column(schema.TIME_COLUMNS.get(name, "interval_start"))[0].as_py()
        folder = self.directory / f"table={name}" / f"date={first:%Y-%m-%d}" / f"hour={first:%H}"
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"part-{broker_id}-{self._numbers[name, broker_id]:06d}"
        growing = folder / f".{stem}.{self._form}"
        if self._form == "parquet":
            pq.write_table(table, growing, compression="zstd", store_schema=False)
        else:
            _write_lines(table, growing)
        growing.rename(folder / f"{stem}.{self._form}")


def _write_lines(table: pa.Table, path: Path) -> None:
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for batch in table.to_batches(max_chunksize=10_000):
            rows: list[dict[str, Any]] = batch.to_pylist()
            for row in rows:
                for name in maps:
                    row[name] = dict(row[name])
            file.write(encoder.encode_lines(rows))


def iso(us: int) -> str:
    """ISO 8601, UTC, as in the dataset."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
