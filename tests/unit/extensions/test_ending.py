"""Functions of extensions that go on when the broker stops."""

import asyncio
import logging

import pytest

from mqttlite.extensions import ending
from mqttlite.extensions.ending import end


async def test_tasks_are_cancelled_and_awaited(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[int] = []

    async def slow(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    tasks = [asyncio.create_task(slow(number)) for number in range(2)]
    await asyncio.sleep(0)
    await end(tasks, "a function")
    await end([], "a function")
    assert sorted(ended) == [0, 1]
    assert not caplog.records


def test_the_program_ends_though_a_task_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`asyncio.run` cancels and awaits each task that it knows."""
    monkeypatch.setattr(ending, "STOP_S", 0.01)
    cancelled = 0

    async def stubborn() -> None:
        nonlocal cancelled
        while cancelled < 2:  # or a failure would last for ever
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1

    async def stop() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await end([task], "a function")

    with caplog.at_level(logging.ERROR, "mqttlite"):
        asyncio.run(stop())
    assert cancelled == 1
    assert "a function did not end within 0.01 s of its cancellation; the broker stops without it" in caplog.text
