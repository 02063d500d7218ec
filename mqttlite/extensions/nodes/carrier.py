"""The port by which nodes reach each other: blobs from one to all, and to one.

Invariant: what one node sends comes in the order in which it was sent, once, or not at all.
"""

from collections.abc import Callable
from typing import Final, Protocol

MAX_BLOB_BYTES: Final = 524_288
"""About how large a blob may be. NATS takes a megabyte."""


class CarrierLost(Exception):
    """A blob could not be sent, because there is no connection. Others may have been lost, too."""


class Carrier(Protocol):
    """One connection to whatever carries blobs. It is made again by itself, for ever."""

    async def open(self, node: str, on_blob: Callable[[bytes], None]) -> None:
        """Begin: `on_blob` gets what is sent to all and to this node. Returns when the connection was tried once."""
        ...

    async def send(self, node: str, blob: bytes) -> None:
        """Send a blob to one node. Raises `CarrierLost`."""
        ...

    async def send_all(self, blob: bytes) -> None:
        """Send a blob to all nodes, this one included. Raises `CarrierLost`."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...
