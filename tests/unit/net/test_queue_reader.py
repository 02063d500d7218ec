"""Reads of the store leave room for commits, and all come to their end."""

import asyncio

from mqttlite.core.broker import Broker
from mqttlite.core.limits import Limits
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries, LoadEntries, LoadPage
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.net.queue_reader import READS_AT_ONCE, QueueReader
from mqttlite.store.memory import MemoryStore


class WaitingStore(MemoryStore):
    """Its reads are done when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[asyncio.Future[Entries] | asyncio.Future[list[Delivery | None]]] = []

    def entries(self, key: str, first: int, end: int, count: int) -> "asyncio.Future[Entries]":
        read: asyncio.Future[Entries] = asyncio.get_running_loop().create_future()
        self.reads.append(read)
        return read

    def page(self, key: str, first: int, count: int) -> "asyncio.Future[list[Delivery | None]]":
        read: asyncio.Future[list[Delivery | None]] = asyncio.get_running_loop().create_future()
        self.reads.append(read)
        return read


async def test_few_reads_wait_in_the_store_so_that_a_commit_comes_soon() -> None:
    store, answered = WaitingStore(), list[int]()
    driver = LoopDriver(
        Broker(Limits()),
        store,
        on_connected=lambda _: None,
        on_closed=lambda _: None,
        on_question=lambda *_: None,
        on_memory_short=lambda *_: None,
    )
    reader = QueueReader(store, driver, lambda number, _: answered.append(number))
    questions = [LoadPage("c", 0, 1), LoadPage("d", 0, 1, True), LoadEntries("e", 0, 1, 1), LoadEntries("f", 0, 1, 1)]
    for number, question in enumerate(questions):
        question.id = number
        reader.read(question)
    shown = [asyncio.ensure_future(reader.page("g", 0, 1)), asyncio.ensure_future(reader.entries("h", 0, 1, 1))]
    done = 0
    while done < len(questions) + len(shown):
        await _iterate()
        waiting = [each for each in store.reads if not each.done()]
        assert len(waiting) == min(READS_AT_ONCE, len(questions) + len(shown) - done)
        waiting[0].set_result(None)  # type: ignore[arg-type]
        done += 1
    await asyncio.wait(shown)
    assert sorted(answered) == [0, 1, 2, 3]
    await reader.stop()
    await driver.stop()


async def _iterate() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
