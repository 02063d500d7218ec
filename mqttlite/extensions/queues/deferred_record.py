"""The store record of deferred messages: a block of sequences by ordering key.

Not compiled, because it uses msgspec. Invariant: `decoded` reverses `encoded`.
"""

import msgspec


class _Saved(msgspec.Struct, frozen=True):
    keys: dict[str, list[int]]
    size_bytes: int


def encoded(keys: dict[str, list[int]], size_bytes: int) -> bytes:
    """A block as the data of a record."""
    return msgspec.json.encode(_Saved(keys, size_bytes))


def decoded(data: bytes) -> tuple[dict[str, list[int]], int]:
    """The opposite."""
    saved = msgspec.json.decode(data, type=_Saved)
    return saved.keys, saved.size_bytes
