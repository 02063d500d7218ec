"""Decodes payloads as JSON, once for all filters that read one. Invariant: nothing here raises."""

from typing import Final, final

import msgspec

MAX_JSON_BYTES: Final = 65_536
"""A longer payload is not decoded, and so matches no condition. Decoding this many bytes takes a fraction of a
millisecond."""

KEPT_BYTES: Final = 262_144
"""Decoded payloads to cache, by their size in bytes: enough for a batch, because each of many filters goes through the
whole batch. As objects they take a multiple of this."""


@final
class Missing:
    """Stands for a missing value, or for a payload that is not JSON."""

    def __repr__(self) -> str:
        return "missing"


MISSING: Final = Missing()

_decoded: Final[dict[bytes, object]] = {}
_kept_bytes = 0


def decoded(payload: bytes) -> object:
    """The payload's value; `MISSING` if it is not JSON or too long. Read only."""
    value = _decoded.get(payload, _decoded)
    if value is not _decoded:
        return value
    return _decode(payload)


def _decode(payload: bytes) -> object:
    global _kept_bytes
    if len(payload) > MAX_JSON_BYTES:
        return MISSING
    value: object
    try:
        value = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        value = MISSING
    _kept_bytes += len(payload) + 64
    if _kept_bytes > KEPT_BYTES:
        _decoded.clear()
        _kept_bytes = len(payload) + 64
    _decoded[payload] = value
    return value


def at_path(payload: bytes, path: tuple[str | int, ...]) -> object:
    """The value at a path, through objects by name and arrays by index; `MISSING` if there is none."""
    value = decoded(payload)
    for step in path:
        if type(value) is dict and type(step) is str:
            value = value.get(step, MISSING)
        elif type(value) is list and type(step) is int and step < len(value):
            value = value[step]
        else:
            return MISSING
    return value
