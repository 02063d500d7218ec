"""Converts a complete file of JSON lines to Parquet, with exactly the columns of the reference.

pyarrow does the work, mostly without the interpreter lock, so the loop continues. Invariant: a conversion holds at most
`BLOCKS` blocks in memory, and works in steps, between which its thread may do other work.
"""

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from mqttlite.extensions.dataset.options import TelemetryError
from mqttlite.extensions.dataset.tables import columns_of

BLOCK_BYTES: Final = 1024 * 1024
"""Of lines, read in one step: about 10 ms of work."""

BLOCKS: Final = 16
"""The blocks in one row group: large enough for compression, and for queries to skip."""

MAX_LINE_BYTES: Final = 16 * BLOCK_BYTES
"""A row has a topic of 64 KiB at most, and some names; what is longer is not ours."""

_EMPTY_MAP: Final = re.compile(rb'"(drops|numbers)":\{\}')
_MAP: Final = re.compile(rb'"(drops|numbers)":\{([^{}]*)\}')
_ENTRY: Final = re.compile(rb'("[^"]*"):(-?\d+)')


class NotConvertible(Exception):
    """The lines are not rows of the table."""


def is_wanted(option: str) -> bool:
    """Whether files are to be Parquet. Loads pyarrow, which takes a while: call it before the broker has clients.

    Raises `TelemetryError` where Parquet is asked for and cannot be had.
    """
    if option == "jsonl" or (option == "auto" and importlib.util.find_spec("pyarrow") is None):
        return False
    try:
        for module in ("pyarrow.json", "pyarrow.parquet"):
            importlib.import_module(module)
    except ImportError as error:
        hint = "pip install 'mqttlite[telemetry]', or format = \"jsonl\""
        raise TelemetryError("format", f"Parquet needs pyarrow, which cannot be loaded ({error}): {hint}") from None
    return True


def convert(table: str, source: Path, write: Callable[[bytes], int]) -> Iterator[None]:
    """Write the rows of a file of JSON lines as Parquet, in steps.

    Raises `NotConvertible` for lines that are no rows of the table, and what `write` raises.
    """
    import pyarrow
    import pyarrow.json
    import pyarrow.parquet

    read_schema, schema = _schemas(table)
    sink = _Sink(write)
    try:
        with (
            open(source, "rb") as lines,
            pyarrow.BufferedOutputStream(pyarrow.PythonFile(sink, "w"), BLOCK_BYTES) as stream,
            pyarrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer,
        ):
            group: list[Any] = []
            for block in _blocks(lines.read):
                text = _with_lists(block)
                rows = pyarrow.json.read_json(
                    pyarrow.BufferReader(text),
                    read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                    parse_options=pyarrow.json.ParseOptions(
                        explicit_schema=read_schema, unexpected_field_behavior="error"
                    ),
                )
                group.append(pyarrow.Table.from_arrays([_as_map(column) for column in rows.columns], schema=schema))
                if len(group) == BLOCKS:
                    writer.write_table(pyarrow.concat_tables(group))
                    group.clear()
                yield
            if group:
                writer.write_table(pyarrow.concat_tables(group))
    except pyarrow.ArrowException as error:
        raise NotConvertible(str(error)) from None


class _Sink:
    """As much of a file as pyarrow needs."""

    closed = False

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self._write: Final = write
        self._at = 0

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest:
            written = self._write(bytes(rest))
            rest = rest[written:]
            self._at += written
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _blocks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Whole lines, about a block of them at a time."""
    rest = b""
    while chunk := read(BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest += chunk
            if len(rest) > MAX_LINE_BYTES:
                raise NotConvertible(f"a line of more than {MAX_LINE_BYTES} bytes")


def _with_lists(block: bytes) -> bytes:
    """The same, with maps as lists of their entries: pyarrow reads no others. A quote inside of a text is written
    with a backslash, so that nothing but a column looks like one."""
    return _MAP.sub(_as_list, _EMPTY_MAP.sub(rb'"\1":[]', block))


def _as_list(found: re.Match[bytes]) -> bytes:
    return b'"%s":[%s]' % (found[1], _ENTRY.sub(rb'{"key":\1,"value":\2}', found[2]))


@cache
def _schemas(table: str) -> tuple[Any, Any]:
    """How the lines are read, and how the file is written."""
    import pyarrow

    key = pyarrow.field("key", pyarrow.string(), nullable=False)
    value = pyarrow.field("value", pyarrow.int64(), nullable=False)
    types = {
        "string": pyarrow.string(),
        "int": pyarrow.int32(),
        "long": pyarrow.int64(),
        "double": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "list<int>": pyarrow.list_(pyarrow.field("element", pyarrow.int32(), nullable=False)),
        "list<long>": pyarrow.list_(pyarrow.field("element", pyarrow.int64(), nullable=False)),
        "map<string,long>": pyarrow.list_(pyarrow.struct([key, value])),
    }
    columns = columns_of(table)
    read = [pyarrow.field(column.name, types[column.kind], column.optional) for column in columns]
    types["map<string,long>"] = pyarrow.map_(pyarrow.string(), value)
    written = [pyarrow.field(column.name, types[column.kind], column.optional) for column in columns]
    return pyarrow.schema(read), pyarrow.schema(written)


def _as_map(column: Any) -> Any:
    """A list of entries is a map, byte for byte; other columns are left as they are."""
    import pyarrow

    kind = column.type
    if not pyarrow.types.is_list(kind) or not pyarrow.types.is_struct(kind.value_type):
        return column
    (lists,) = column.chunks
    entries = lists.values
    return pyarrow.MapArray.from_arrays(lists.offsets, entries.field("key"), entries.field("value"))
