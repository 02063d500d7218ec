"""Checks Avro's binary encoding against a schema without building values.

fastavro does not report where an error is, accepts negative positions in enums and unions, and crashes the process on
very deep recursive values. Invariant: the cost of a payload is bounded by `MAX_VALUES`, and every byte of it belongs to
a value.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, final

from mqttlite.extensions.schemas.parsed import place, printable

MAX_VALUES: Final = 32_768
"""The most values in a payload. Reading one takes about a microsecond."""

MAX_DEPTH: Final = 64
"""The deepest nesting of records, arrays and maps."""

_INT: Final = 31
_LONG: Final = 63


class _Fault(Exception):
    """The violated rule. `path` leads to it, last step first."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule: Final = rule
        self.path: Final[list[str | int]] = []


@final
class _Reader:
    """A payload with the current read position."""

    __slots__ = ("at", "data", "depth", "values")

    def __init__(self, data: bytes) -> None:
        self.data: Final = data
        self.at = 0
        self.values = 0
        self.depth = 0

    def whole(self, bits: int) -> int:
        """Read a variable-length zig-zag number, the encoding of all lengths."""
        data, at = self.data, self.at
        number = shift = 0
        while True:
            if at >= len(data):
                raise _Fault("the payload ends in a number")
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _LONG:
                raise _Fault("a number has more than 10 bytes")
        self.at = at
        value = (number >> 1) ^ -(number & 1)
        if not -(1 << bits) <= value < 1 << bits:
            raise _Fault(f"{value} does not fit into {bits + 1} bits")
        return value

    def skip(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise _Fault(f"{count} bytes are to follow, and there are {len(self.data) - self.at}")
        found = self.data[self.at : end]
        self.at = end
        return found

    def text(self) -> str:
        """A string."""
        try:
            return self.skip(self.whole(_LONG)).decode()
        except UnicodeDecodeError:
            raise _Fault("a string is not UTF-8") from None

    def count(self, values: int) -> None:
        """Count values against the limit."""
        self.values += values
        if self.values > MAX_VALUES:
            raise _Fault(f"there are more than {MAX_VALUES} values")

    def enter(self) -> None:
        """A nested value begins."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Fault(f"more than {MAX_DEPTH} values are inside each other")


_Check = Callable[[_Reader], None]


@final
class AvroPayload:
    """`tree` is a schema parsed by fastavro, `named` are its named types."""

    def __init__(self, tree: Any, named: Mapping[str, Any]) -> None:
        self._named: Final = named
        self._checks: Final[dict[str, _Check]] = {}
        self._check: Final = self._of(tree)

    def fault(self, payload: bytes) -> str:
        """Implements `ParsedSchema.fault`."""
        reader = _Reader(payload)
        try:
            self._check(reader)
        except _Fault as fault:
            return printable(f"{place(fault.path[::-1])}: {fault.rule}")
        left = len(payload) - reader.at
        return f"$: {left} bytes are left behind the value" if left else ""

    def _of(self, tree: Any) -> _Check:
        """The function that checks values of a type."""
        if isinstance(tree, list):
            return _union([self._of(each) for each in tree])
        if isinstance(tree, str):
            return _PRIMITIVES[tree] if tree in _PRIMITIVES else self._by_name(tree)
        kind = tree["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._by_name(tree["name"])
        if kind == "array":
            return _array(self._of(tree["items"]))
        if kind == "map":
            return _map(self._of(tree["values"]))
        return self._of(kind)

    def _by_name(self, name: str) -> _Check:
        """The function that checks values of a named type, which may be recursive."""
        check = self._checks.get(name)
        if check is not None:
            return check
        self._checks[name] = lambda reader: self._checks[name](reader)  # until the type is known
        tree = self._named[name]
        if tree["type"] == "enum":
            check = _enum(tree["symbols"])
        elif tree["type"] == "fixed":
            size = tree["size"]
            check = lambda reader: _fixed(reader, size)  # noqa: E731
        else:
            check = _record([(field["name"], self._of(field["type"])) for field in tree["fields"]])
        self._checks[name] = check
        return check


def _null(reader: _Reader) -> None:
    pass


def _boolean(reader: _Reader) -> None:
    byte = reader.skip(1)[0]
    if byte > 1:
        raise _Fault(f"the byte 0x{byte:02x} is no boolean")


def _int(reader: _Reader) -> None:
    reader.whole(_INT)


def _long(reader: _Reader) -> None:
    reader.whole(_LONG)


def _float(reader: _Reader) -> None:
    reader.skip(4)


def _double(reader: _Reader) -> None:
    reader.skip(8)


def _bytes(reader: _Reader) -> None:
    reader.skip(reader.whole(_LONG))


def _string(reader: _Reader) -> None:
    reader.text()


def _fixed(reader: _Reader, size: int) -> None:
    reader.skip(size)


_PRIMITIVES: Final[Mapping[str, _Check]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _enum(symbols: list[str]) -> _Check:
    def check(reader: _Reader) -> None:
        position = reader.whole(_INT)
        if not 0 <= position < len(symbols):
            raise _Fault(f"there is no symbol {position} of {len(symbols)}")

    return check


def _union(branches: list[_Check]) -> _Check:
    def check(reader: _Reader) -> None:
        position = reader.whole(_LONG)
        if not 0 <= position < len(branches):
            raise _Fault(f"there is no type {position} of the {len(branches)} in the union")
        branches[position](reader)

    return check


def _record(fields: list[tuple[str, _Check]]) -> _Check:
    def check(reader: _Reader) -> None:
        reader.enter()
        reader.count(len(fields))
        for name, each in fields:
            try:
                each(reader)
            except _Fault as fault:
                fault.path.append(name)
                raise
        reader.depth -= 1

    return check


def _array(item: _Check) -> _Check:
    def check(reader: _Reader) -> None:
        number = 0
        for count in _blocks(reader):
            for _ in range(count):
                try:
                    item(reader)
                except _Fault as fault:
                    fault.path.append(number)
                    raise
                number += 1

    return check


def _map(value: _Check) -> _Check:
    def check(reader: _Reader) -> None:
        for count in _blocks(reader):
            for _ in range(count):
                key = reader.text()
                try:
                    value(reader)
                except _Fault as fault:
                    fault.path.append(key)
                    raise

    return check


def _blocks(reader: _Reader) -> Iterator[int]:
    """The number of items in each block of an array or a map; a negative one has the length in bytes behind it."""
    reader.enter()
    while count := reader.whole(_LONG):
        if count < 0:
            count = -count
            if reader.whole(_LONG) < 0:
                raise _Fault("a block has a negative length")
        reader.count(count)
        yield count
    reader.depth -= 1
