"""Stores that do not behave: one that commits when the test says so, and fails when it says so."""

import asyncio

from mqttlite.core.changes import Change, Enqueue, LatestNumber, Stored
from mqttlite.core.log_changes import Append, StoredLog
from mqttlite.core.ports import Store
from mqttlite.store.memory import MemoryStore


def loaded(store: Store) -> list[Change]:
    """All that a store kept, but for the highest number of a message."""
    return [change for batch in store.load() for change in batch if not isinstance(change, LatestNumber)]


async def everything(store: Store) -> list[Change]:
    """All that a store kept, with what is read by pages."""
    changes: list[Change] = []
    for change in loaded(store):
        if not isinstance(change, Stored | StoredLog):
            changes.append(change)
            continue
        key = change.client_id if isinstance(change, Stored) else change.key
        first, end = change.first, change.first + change.count
        while first < end:
            page = await store.page(key, first, end - first)
            for sequence, delivery in enumerate(page, first):
                assert delivery is not None
                made = Enqueue if isinstance(change, Stored) else Append
                changes.append(made(key, sequence, delivery))
            first += len(page)
    return changes


class SlowStore(MemoryStore):
    """Each commit waits for `finish` or `fail`. `attempts` is every list of changes that was ever to be committed."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[list[Change]] = []
        self._under_way: asyncio.Future[None] | None = None
        self.patient = True

    @property
    def busy(self) -> bool:
        return self._under_way is not None

    def commit(self, changes: list[Change]) -> asyncio.Future[None] | None:  # type: ignore[override]
        assert self._under_way is None, "a second commit began before the first ended"
        self.attempts.append(list(changes))
        if not self.patient:
            super().commit(changes)
            return None
        self._under_way = asyncio.get_running_loop().create_future()
        return self._under_way

    def finish(self) -> None:
        under_way, self._under_way = self._under_way, None
        assert under_way is not None
        super().commit(self.attempts[-1])
        if not under_way.cancelled():
            under_way.set_result(None)

    def fail(self, error: Exception) -> None:
        under_way, self._under_way = self._under_way, None
        assert under_way is not None
        under_way.set_exception(error)

    def hurry(self) -> None:
        """From now on every commit is done at once."""
        self.patient = False
        if self._under_way is not None:
            self.finish()
