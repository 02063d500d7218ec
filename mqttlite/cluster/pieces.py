"""What came of a stream and is not yet whole: kept in the pieces in which it came, so that much costs little more."""

from typing import Final


class Pieces:
    """Bytes of a message whose length is not known, or is and not reached."""

    def __init__(self) -> None:
        self._pieces: Final[list[bytes]] = []
        self._bytes = 0
        self._wanted = 0

    def add(self, data: bytes) -> bytes:
        """All there is, where that is as much as was wanted; else nothing yet."""
        if not self._pieces:
            return data
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes < self._wanted:
            return b""
        whole = b"".join(self._pieces)
        self._pieces.clear()
        return whole

    def keep(self, rest: bytes, wanted: int) -> None:
        """Keep what is left; with less than `wanted` bytes in all there is no use to come again."""
        if rest:
            self._pieces.append(rest)
            self._bytes = len(rest)
            self._wanted = wanted
