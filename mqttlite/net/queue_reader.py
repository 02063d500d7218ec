"""Answers the core's questions for pages of long queues and logs: waits until the messages are committed, then reads
the store.

Invariant: a question is answered, with as many retries as needed, unless the broker stops.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from mqttlite.core.message import Delivery
from mqttlite.core.ports import Store
from mqttlite.core.question import Entries, LoadEntries, LoadPage
from mqttlite.net.loop_driver import LoopDriver

READS_AT_ONCE: Final = 2
"""How many reads wait in the store's thread at the same time. It does one after the other, so a second one keeps it
busy while the loop takes the first. More would only wait there: commits and reads take turns."""

RETRY_S: Final = 0.25
"""How long to wait before a failed read is retried."""

_log = logging.getLogger("mqttlite.store")


class QueueReader:
    """`answer` gets the id of a question and its page. The core asks for at most `MAX_PAGES_AT_ONCE` pages at a
    time."""

    def __init__(self, store: Store, loop_driver: LoopDriver, answer: Callable[[int, object], None]) -> None:
        self._store: Final = store
        self._loop_driver: Final = loop_driver
        self._answer: Final = answer
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._turns: Final = asyncio.Semaphore(READS_AT_ONCE)

    def read(self, question: LoadPage | LoadEntries) -> None:
        """Start a task that answers a question."""
        task = asyncio.get_running_loop().create_task(self._read(question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel all open questions."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def page(self, client_id: str, first: int, count: int) -> list[Delivery | None]:
        """Read a page to show it. Raises what the store raises."""
        await self._loop_driver.settled()
        async with self._turns:
            return await self._store.page(client_id, first, count)

    async def entries(self, key: str, first: int, end: int, count: int) -> Entries:
        """Read messages of a log to show them. Raises what the store raises."""
        await self._loop_driver.settled()
        async with self._turns:
            return await self._store.entries(key, first, end, count)

    async def _read(self, question: LoadPage | LoadEntries) -> None:
        attempts = 0
        while True:
            try:
                answer = await self._ask(question)
                break
            except Exception as error:  # whatever a store raises, the messages must not be lost
                attempts += 1
                if attempts & (attempts - 1) == 0:
                    whose = question.key if isinstance(question, LoadEntries) else question.client_id
                    _log.error("what waits for %s cannot be read (attempt %d): %s", whose, attempts, error)
                await asyncio.sleep(RETRY_S)
        self._answer(question.id, answer)

    async def _ask(self, question: LoadPage | LoadEntries) -> object:
        if isinstance(question, LoadEntries):
            return await self.entries(question.key, question.first, question.end, question.count)
        if not question.is_committed:
            await self._loop_driver.settled()
        async with self._turns:
            return await self._store.page(question.client_id, question.first, question.count)
