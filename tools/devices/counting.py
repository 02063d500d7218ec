"""What a fleet's clients have seen of their own traffic, to compare with what a broker says of it.

Invariant: bytes are those of MQTT packets as they were handed to, or came from, the network; what TLS adds is not
counted, and what was under way when a connection broke is.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_TRACED: Final = re.compile(r"(sending|received) (\w+) \((\d+) bytes\)")


@dataclass(slots=True)
class Count:
    """Sessions that were begun, and messages (PUBLISH packets) and bytes in both directions."""

    sessions: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    def trace(self, line: str) -> None:
        """Count a packet of which a `Client` tells: all of its bytes when it is sent, those of its body when it came.

        Raises `ValueError` for a line that tells of none.
        """
        told = _TRACED.fullmatch(line)
        if told is None:
            raise ValueError(f"{line!r} tells of no packet")
        direction, kind, size = told[1], told[2], int(told[3])
        if direction == "sending":
            self.bytes_sent += size
            self.messages_sent += kind == "PUBLISH"
        else:
            self.bytes_received += 1 + length_of_length(size) + size
            self.messages_received += kind == "PUBLISH"


def total(counts: Iterable[Count]) -> Count:
    """All of them together."""
    found = Count()
    for count in counts:
        found.sessions += count.sessions
        found.messages_sent += count.messages_sent
        found.messages_received += count.messages_received
        found.bytes_sent += count.bytes_sent
        found.bytes_received += count.bytes_received
    return found


def length_of_length(size: int) -> int:
    """Bytes of a packet's Remaining Length."""
    return 1 if size < 128 else 2 if size < 16_384 else 3 if size < 2_097_152 else 4
