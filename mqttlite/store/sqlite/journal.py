"""Reads a journal (WAL) without SQLite, which stops at the first bad frame and hides all frames behind it.

Each frame stores the running checksum up to its own end, and the next frame continues from there. So each frame can be
checked with the stored checksum of the frame before it, and a bad frame hides only itself. If only the head of a frame
is bad, its page number is computed: the checksum also runs backwards. Invariant: nothing is opened or written here.
"""

import mmap
import struct
import sys
from typing import Final, NamedTuple

MAGIC: Final = 0x377F_0682
"""The lowest bit is set if the checksums are of big-endian numbers."""

FORMAT: Final = 3_007_000

HEADER: Final = struct.Struct(">8I")
"""Magic, format, page size, number of checkpoints, two salts, two checksums."""

FRAME: Final = struct.Struct(">6I")
"""Page, pages of the database (0 within a commit), two salts, two checksums. The page image follows."""

_SUMMED: Final = 8
"""How many bytes of a frame's head are in its checksum, before its page image."""

_MASK: Final = 0xFFFF_FFFF

_LITTLE, _BIG = "<", ">"

_NATIVE: Final = _LITTLE if sys.byteorder == "little" else _BIG

Data = bytes | mmap.mmap


class Frame(NamedTuple):
    """A page image in a journal."""

    page: int
    """0 if the number is lost."""
    size: int
    """The pages of the database after the commit that this frame ends; 0 within a commit."""
    at: int
    """Where the image begins in the journal."""
    is_good: bool


class Journal(NamedTuple):
    """What a journal holds of the commits since it began anew."""

    page_size: int
    has_header: bool
    frames: list[Frame]
    """All frames, bad ones too."""
    read: int
    """How many frames SQLite reads: up to the last commit before the first bad one."""

    @property
    def hidden_commits(self) -> int:
        """How many commits end behind the frames that SQLite reads."""
        return sum(1 for frame in self.frames[self.read :] if frame.size)

    @property
    def bad(self) -> int:
        """How many frames are bad, and not replaced by a later image of the same page."""
        good_later: set[int] = set()
        count = 0
        for frame in reversed(self.frames):
            if frame.is_good:
                good_later.add(frame.page)
            elif frame.page not in good_later:
                count += 1
        return count


def scan(data: Data, page_size: int, pages: int) -> Journal:
    """Find the frames of a journal. `page_size` counts if its header is damaged; `pages` is the length of the
    database."""
    header = HEADER.unpack_from(data) if len(data) >= HEADER.size else (0,) * 8
    order = _BIG if header[0] & 1 else _LITTLE
    has_header = header[0] & ~1 == MAGIC and header[1] == FORMAT
    if has_header and _checksum(data[: HEADER.size - 8], (0, 0), order) == header[6:]:
        return _Scan(data, header[2], pages, order).run(header[4:6], header[6:])
    scan = _Scan(data, page_size, pages, _NATIVE)
    return scan.run(scan.common_salts(), None)


class _Scan:
    def __init__(self, data: Data, page_size: int, pages: int, order: str) -> None:
        self._data: Final = data
        self._page_size: Final = page_size
        self._order: Final = order
        self._count: Final = max(0, len(data) - HEADER.size) // (FRAME.size + page_size)
        self._most: Final = pages + self._count
        """No page has a higher number."""

    def run(self, salts: tuple[int, ...], header_sum: tuple[int, ...] | None) -> Journal:
        """Read all frames with these salts, and those between them."""
        frames: list[Frame] = []
        starts = [] if header_sum is None else [header_sum]
        """The checksum before this frame: as it is stored, then as it was computed."""
        read, is_read = 0, header_sum is not None
        is_behind_gap = header_sum is None
        end = self._end(salts)
        for number in range(min(end + 1, self._count)):
            at = self._at(number)
            numbers, stored = FRAME.unpack_from(self._data, at)[:2], FRAME.unpack_from(self._data, at)[4:]
            has_salts = self._salts(number) == salts
            body = self._data[at : at + _SUMMED] + self._data[at + FRAME.size : at + FRAME.size + self._page_size]
            sums = [_checksum(body, start, self._order) for start in starts]
            is_good = stored in sums and (has_salts or not is_behind_gap)  # two older frames fit each other, too
            if number == end and not is_good:
                break  # it is older
            is_read = is_read and has_salts and sums[0] == stored
            if is_good and sums[0] != stored:  # of the frame before, only the checksum is damaged
                before = self._at(number - 1)
                page, size = FRAME.unpack_from(self._data, before)[:2]
                frames[-1] = Frame(page, size, before + FRAME.size, True)
            elif not is_good and has_salts and self._are_possible(numbers):
                is_good = is_behind_gap
            elif not is_good:
                mended = self._mended(body[_SUMMED:], starts, stored) if has_salts else None
                numbers, is_good = mended or (0, 0), mended is not None
            frames.append(Frame(numbers[0], numbers[1], at + FRAME.size, is_good))
            if is_read and numbers[1]:
                read = len(frames)
            is_behind_gap = not is_good and not has_salts
            starts = [stored] if is_good else [stored, *sums[:1]]
        return Journal(self._page_size, header_sum is not None, frames, read)

    def common_salts(self) -> tuple[int, ...]:
        """The salts of the first frame that the next one shares."""
        for number in range(self._count - 1):
            if self._salts(number) == self._salts(number + 1) != (0, 0):
                return self._salts(number)
        return self._salts(0) if self._count else (0, 0)

    def _end(self, salts: tuple[int, ...]) -> int:
        """The number of frames up to the last one with these salts. All others are older."""
        if salts == (0, 0):
            return 0
        return next((number for number in range(self._count, 0, -1) if self._salts(number - 1) == salts), 0)

    def _at(self, number: int) -> int:
        return HEADER.size + number * (FRAME.size + self._page_size)

    def _salts(self, number: int) -> tuple[int, ...]:
        return FRAME.unpack_from(self._data, self._at(number))[2:4]

    def _are_possible(self, numbers: tuple[int, ...]) -> bool:
        page, size = numbers
        return 0 < page <= self._most and size <= self._most

    def _mended(self, image: bytes, starts: list[tuple[int, ...]], stored: tuple[int, ...]) -> tuple[int, ...] | None:
        """The numbers of a frame if only they are damaged. Not for possible numbers: a flipped bit of the image often
        leads to others that are possible, too."""
        first, second = _before(image, stored, self._order)
        for start in starts:
            words = (first - start[0] - start[1]) & _MASK, (second - start[1] - first) & _MASK
            numbers = struct.unpack(">2I", struct.pack(f"{self._order}2I", *words))
            if self._are_possible(numbers):
                return numbers
        return None


def _words(data: bytes, order: str) -> tuple[int, ...]:
    return struct.unpack(f"{order}{len(data) // 4}I", data)


def _checksum(data: bytes, start: tuple[int, ...], order: str) -> tuple[int, int]:
    first, second = start
    words = iter(_words(data, order))
    for one, two in zip(words, words, strict=True):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second


def _before(data: bytes, end: tuple[int, ...], order: str) -> tuple[int, int]:
    """The checksum before these bytes, if this is the one after them."""
    first, second = end
    words = _words(data, order)
    for at in range(len(words) - 2, -1, -2):
        second = (second - words[at + 1] - first) & _MASK
        first = (first - words[at] - second) & _MASK
    return first, second
