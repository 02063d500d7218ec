"""The pages that extensions add to the dashboard.

Invariant: a page that is here stays until the broker stops.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

MAX_PAGES: Final = 20
"""Of all extensions together. Each has a line in the menu, which is above every page of the dashboard."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")

Show = Callable[[], str]
"""Returns the content of a page as HTML."""


class ExtensionPages:
    """`by_name` has title and function of each page."""

    def __init__(self) -> None:
        self._by_name: Final[dict[str, tuple[str, Show]]] = {}
        self.by_name: Final[Mapping[str, tuple[str, Show]]] = self._by_name

    def add(self, name: str, title: str, show: Show) -> None:
        """Raises `ValueError` for a name that cannot be used."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name of a page has 1 to 40 of a-z, 0-9 and -, not {name!r}")
        if name in self._by_name:
            raise ValueError(f"there is a page {name} already")
        if len(self._by_name) >= MAX_PAGES:
            raise ValueError(f"extensions have {MAX_PAGES} pages already, which is the most")
        self._by_name[name] = title, show
