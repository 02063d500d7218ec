"""The first hundred bytes of a database: most of them are the same in all of ours, so damage there can be mended.

SQLite refuses a file for some of these bytes, takes it for read-only for others, and reads texts wrongly for others.
"""

import struct
from typing import Final

HEADER_BYTES: Final = 100

PAGE_SIZE: Final = 4_096
"""SQLite's default."""

_MAGIC: Final = b"SQLite format 3\0"
_SHAPE: Final = b"\0\x40\x20\x20"  # no reserved bytes, and how a page is divided
_WAL: Final = b"\2\2"
_NO_WAL: Final = b"\1\1"
_FORMAT: Final = struct.pack(">I", 4)
_UTF_8: Final = struct.pack(">I", 1)

_FIXED: Final = ((0, _MAGIC), (20, _SHAPE), (44, _FORMAT), (56, _UTF_8))
"""What our databases have in these places."""


def page_size(header: bytes) -> int:
    """The size of pages, or the usual one if the header does not have a valid one."""
    size = int.from_bytes(header[16:18], "big")
    return size if size >= 512 and size & (size - 1) == 0 else PAGE_SIZE


def is_damaged(header: bytes) -> bool:
    """Whether a file begins as SQLite's files do, but has bytes that none of ours has."""
    if len(header) < HEADER_BYTES or not header.startswith(_MAGIC):
        return False  # SQLite says so
    is_fixed = all(header[at : at + len(data)] == data for at, data in _FIXED)
    is_valid = page_size(header).to_bytes(2, "big") == header[16:18] and header[18:20] in (_WAL, _NO_WAL)
    return not is_fixed or not is_valid


def mended(header: bytes, size: int, pages: int) -> bytes:
    """The header with everything that is known from elsewhere: the size of a page, and how many there are."""
    whole = bytearray(header.ljust(HEADER_BYTES, b"\0"))
    for at, data in (*_FIXED, (16, size.to_bytes(2, "big")), (18, _WAL), (28, pages.to_bytes(4, "big"))):
        whole[at : at + len(data)] = data
    whole[92:96] = whole[24:28]  # else SQLite does not believe the number of pages
    return bytes(whole)
