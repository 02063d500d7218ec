"""Commits that end in unusual ways: nobody waits for one for ever."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change, EndSession
from mqttlite.core.effects import AwaitsCommit
from mqttlite.core.limits import Limits
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.net.commits import CHANGE_BYTES, Commits
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.store.memory import MemoryStore

CHANGE: Change = EndSession("c")


class FakeStore(MemoryStore):
    """Commits as a test says."""

    def __init__(self, attempt: Callable[[], "asyncio.Future[None]"]) -> None:
        super().__init__()
        self._attempt = attempt

    def commit(self, changes: list[Change]) -> "asyncio.Future[None]":  # type: ignore[override]
        return self._attempt()


def driver_of(attempt: Callable[[], "asyncio.Future[None]"]) -> LoopDriver:
    """One that has something to commit."""
    broker = Broker(Limits())
    broker.effects.changes.append(CHANGE)
    return LoopDriver(
        broker,
        FakeStore(attempt),
        on_connected=lambda _: None,
        on_closed=lambda _: None,
        on_question=lambda *_: None,
        on_memory_short=lambda *_: None,
    )


def begun(attempt: Callable[[], "asyncio.Future[None]"]) -> Commits:
    """One commit under way."""
    commits = driver_of(attempt).commits
    commits.go_on(0)
    return commits


async def until_cancelled(outcome: Exception | None) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        if outcome is not None:
            raise outcome from None


@pytest.mark.parametrize(("outcome", "is_lost"), [(OSError("disk"), True), (TimeoutError(), True), (None, False)])
async def test_a_stop_does_not_wait_for_a_commit_that_is_given_up_in_another_way(
    outcome: Exception | None, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    commits = begun(lambda: asyncio.ensure_future(until_cancelled(outcome)))
    settled = asyncio.ensure_future(commits.settled())
    await asyncio.sleep(0)
    await asyncio.wait_for(commits.stop(), 5)
    await asyncio.wait_for(settled, 5)
    assert ("1 changes were not committed" in caplog.text) == is_lost


async def test_a_commit_that_is_done_when_the_broker_stops_is_not_reported_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    commits = begun(lambda: under_way)
    under_way.set_result(None)
    with caplog.at_level(logging.ERROR):
        await asyncio.wait_for(commits.stop(), 5)
    assert caplog.text == ""


async def test_changes_behind_a_stalled_commit_are_charged_to_the_memory_until_it_ends() -> None:
    under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    driver = driver_of(lambda: under_way)
    effects, commits = driver.broker.effects, driver.commits
    commits.stall_changes = 2
    driver.run()
    used = []
    for _ in range(4):
        effects.record(CHANGE)
        effects.changed_bytes += 1000
        driver.run()
        used.append(effects.memory.used)
    assert used == [0, 0, 3 * (CHANGE_BYTES + 1000), 4 * (CHANGE_BYTES + 1000)]
    under_way.set_result(None)
    await asyncio.sleep(0)
    assert (driver.is_stalled, effects.memory.used) == (False, 0)


async def test_a_probe_commits_what_was_recorded_before_it() -> None:
    driver = driver_of(lambda: asyncio.get_running_loop().create_future())
    driver.broker.effects.record(CHANGE)
    driver.commits.probe()
    assert (driver.broker.effects.changes, driver.commits.uncommitted) == ([], [])


async def test_a_listener_that_raises_holds_no_other_up() -> None:
    under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    driver = driver_of(lambda: under_way)
    effects, commits = driver.broker.effects, driver.commits
    effects.awaiting.append(AwaitsCommit())  # whose method raises
    commits.go_on(0)
    commits.late.append(Outbox(1, effects, Limits()))
    raised: list[type[BaseException]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: raised.append(type(context["exception"])))
    settled = asyncio.ensure_future(commits.settled())
    await asyncio.sleep(0)
    under_way.set_result(None)
    await asyncio.wait_for(settled, 5)
    assert raised == [NotImplementedError]
    assert commits.late == [], "the driver was told"
