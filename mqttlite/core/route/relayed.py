"""What becomes of a message that a relay brings: it was published at another broker.

By its `target`, the subscription identifiers in its packet, it is for the sessions that subscribe to its topic (none),
only a copy of a retained message (`RETAINED_COPY`), or for one member of a shared subscription: then the first one is
the `number_of` its name, and those behind it are of brokers that had the message and no member for it. Or it is for a
sink that both brokers know by its `numbers_of`.

Invariant: a retained message is kept by a copy alone, so that each broker has all of them, whoever subscribes there.
"""

from hashlib import blake2b
from typing import Final

RETAINED_COPY: Final = 1

NO_TARGET: Final[tuple[int, ...]] = ()

_FIRST: Final = 2
_NUMBERS: Final = (1 << 28) - 1 - _FIRST
"""A subscription identifier has 28 bits."""


def numbers_of(name: bytes) -> tuple[int, ...]:
    """The numbers of a sink: so many bits that no two names share them."""
    return number_of(name), number_of(name + b"\0")


def number_of(name: bytes) -> int:
    """The number of a shared subscription or a broker: the same at each broker, also after a restart."""
    return _FIRST + int.from_bytes(blake2b(name, digest_size=8).digest()) % _NUMBERS
