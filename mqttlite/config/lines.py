"""Finds the line of an option in a TOML file.

The parser of the standard library keeps no positions, so this module reads headers and keys at the beginning of lines.
Invariant: the found line contains the option, or the section or inline table that contains it.
"""

import re
from typing import Final

_KEYS: Final = r"""(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*"""
_HEADER: Final = re.compile(rf"\s*(\[\[?)\s*({_KEYS})\s*\]")
_OPTION: Final = re.compile(rf"\s*({_KEYS})\s*=")
_KEY: Final = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


class Lines:
    """The lines of a file by the path of the option, for example `listeners[1].tls`."""

    def __init__(self, text: str) -> None:
        self._numbers: Final[dict[str, int]] = {}
        self._entries: Final[dict[str, int]] = {}
        """The number of the latest entry of each array of sections."""
        section = ""
        for number, line in enumerate(text.splitlines(), 1):
            header = _HEADER.match(line)
            option = _OPTION.match(line)
            if header is not None:
                section = self._path("", header[2], is_entry=header[1] == "[[")
                self._numbers.setdefault(section, number)
                self._numbers.setdefault(section.removesuffix("[0]"), number)
            elif option is not None:
                self._numbers.setdefault(self._path(section, option[1]), number)

    def find(self, path: str) -> int | None:
        """The line of an option, or of the closest enclosing section; None if there is none."""
        while path:
            if path in self._numbers:
                return self._numbers[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None

    def _path(self, section: str, keys: str, *, is_entry: bool = False) -> str:
        path = section
        names = [key.strip("\"'") for key in _KEY.findall(keys)]
        for at, name in enumerate(names, 1):
            path = f"{path}.{name}" if path else name
            if is_entry and at == len(names):
                self._entries[path] = self._entries.get(path, -1) + 1
            if path in self._entries:
                path = f"{path}[{self._entries[path]}]"
        return path
