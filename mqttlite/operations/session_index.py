"""The sorted client identifiers of all sessions, for lists that are read page by page.

It is built on first use, in slices, and then only updated, so that the cost of a page does not depend on its depth.
Invariant: a returned list does not change; its reader skips names of ended sessions.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from typing import Final

from mqttlite.core.session.sessions import Sessions

CHUNK: Final = 5_000
"""Names that are merged at a time: some milliseconds with 100,000 names."""


class SessionIndex:
    """Of one broker's sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions: Final = sessions
        self._names: list[str] = []
        self._begun = 0
        """How many sessions had begun when it was last brought up to date."""
        self._updating: Final = asyncio.Lock()

    async def names(self) -> list[str]:
        """All identifiers, and some of ended sessions. Read only."""
        async with self._updating:
            begun = self._sessions.begun
            if begun != self._begun:
                await self._add(self._sessions.latest(begun - self._begun))
                self._begun = begun
            if len(self._names) > 2 * len(self._sessions) + CHUNK:
                await self._drop_ended()
            return self._names

    async def _add(self, names: list[str]) -> None:
        """Add those that are new; one whose session ended and began again is there already."""
        runs = deque([self._names])
        for start in range(0, len(names), CHUNK):
            chunk = names[start : start + CHUNK]
            runs.append(sorted(name for name in chunk if not self._has(name)) if self._names else sorted(chunk))
            await asyncio.sleep(0)
        while len(runs) > 1:  # two of the shortest at a time
            runs.append(sorted([*runs.popleft(), *runs.popleft()]))
            await asyncio.sleep(0)
        self._names = runs[0]

    async def _drop_ended(self) -> None:
        kept: list[str] = []
        for start in range(0, len(self._names), CHUNK):
            kept += [name for name in self._names[start : start + CHUNK] if self._sessions.get(name) is not None]
            await asyncio.sleep(0)
        self._names = kept

    def _has(self, name: str) -> bool:
        at = bisect_left(self._names, name)
        return at < len(self._names) and self._names[at] == name
