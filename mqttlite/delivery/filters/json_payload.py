"""Payloads as JSON: decoded once for all filters that look at one. Invariant: nothing here raises."""

from typing import Final, final

import msgspec

MAX_JSON_BYTES: Final = 65_536
"""A longer payload is not looked into, and so matches no condition: to decode as much takes a fraction of a
millisecond."""

KEPT_BYTES: Final = 262_144
"""Decoded payloads that are kept for the next filter, by what they took as bytes: those of a batch, for there may be
many filters, and each goes through the batch. As objects they take some times as much."""


@final
class Missing:
    """What stands for a value that is not there, or for a payload that is no JSON."""

    def __repr__(self) -> str:
        return "missing"


MISSING: Final = Missing()

_decoded: Final[dict[bytes, object]] = {}
_kept_bytes = 0


def decoded(payload: bytes) -> object:
    """The payload's value; `MISSING` where it is no JSON or too long. Look, change nothing."""
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
    """What stands at a path: names lead into objects, numbers into arrays; else `MISSING`."""
    value = decoded(payload)
    for step in path:
        if type(value) is dict and type(step) is str:
            value = value.get(step, MISSING)
        elif type(value) is list and type(step) is int and step < len(value):
            value = value[step]
        else:
            return MISSING
    return value
