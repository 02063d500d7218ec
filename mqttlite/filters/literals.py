"""The values of numbers and of quoted strings, with Google's escape sequences."""

import re
from typing import Final

_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xX]([0-9A-Fa-f]{2})|([0-3][0-7]{2})|(.))", re.DOTALL
)

_SHORT: Final = {
    **dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)),
    **{each: each for each in "\\\"'`?/"},
}

_MAX_CODE_POINT: Final = 0x10FFFF


class BadEscape(ValueError):
    """`at` is its offset in the quoted string."""

    def __init__(self, at: int, sequence: str) -> None:
        super().__init__(sequence)
        self.at: Final = at


_INTEGER: Final = re.compile("-?[0-9]+")


def number(text: str) -> int | float:
    """The value of a JSON number."""
    return int(text) if _INTEGER.fullmatch(text) else float(text)


def unquoted(quoted: str) -> str:
    """The text of a string with its quotes. Raises `BadEscape`."""
    if "\\" not in quoted:
        return quoted[1:-1]
    return _ESCAPE.sub(_character, quoted[:-1])[1:]


def _character(found: re.Match[str]) -> str:
    short, long, byte, octal, other = found.groups()
    digits = short or long or byte
    if digits or octal:
        number = int(digits, 16) if digits else int(octal, 8)
        if number > _MAX_CODE_POINT or 0xD800 <= number <= 0xDFFF:
            raise BadEscape(found.start(), found.group())
        return chr(number)
    if other not in _SHORT:
        raise BadEscape(found.start(), found.group())
    return _SHORT[other]
