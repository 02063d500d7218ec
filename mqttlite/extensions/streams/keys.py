"""The partition of a message by its key, as Kafka's default partitioner chooses it (KIP-480, `murmur2`)."""

from collections.abc import Callable
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key: 32 bits, unsigned (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little")
        k = k * _M & _MASK
        k ^= k >> _R
        k = k * _M & _MASK
        h = h * _M & _MASK ^ k
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def cached_partitions(partitions: int, most: int) -> Callable[[bytes], int]:
    """A function like `partition_of` that remembers the partitions of up to `most` keys."""
    known: dict[bytes, int] = {}

    def of(key: bytes) -> int:
        found = known.get(key)
        if found is None:
            if len(known) >= most:
                known.clear()
            found = known[key] = partition_of(key, partitions)
        return found

    return of
