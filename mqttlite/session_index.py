"""The client identifiers of all sessions in their order, for lists that are read page by page.

It is made when it is first asked for, in slices, and then only brought up to date, so that a page costs what is on it,
at any depth. Invariant: a list that was handed out does not change; names in it whose sessions have ended are skipped
by its reader.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from typing import Final

from mqttlite.core.sessions import Sessions

CHUNK: Final = 5_000
"""Names that are sorted in at a time: some milliseconds where there are 100,000."""


class SessionIndex:
    """Of one broker's sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions: Final = sessions
        self._names: list[str] = []
        self._begun = 0
        """How many sessions had begun when it was last brought up to date."""
        self._updating: Final = asyncio.Lock()

    async def names(self) -> list[str]:
        """All identifiers, and some of sessions that have ended. Change nothing in it."""
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
