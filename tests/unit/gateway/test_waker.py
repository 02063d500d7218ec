"""The small event: who waits goes on when it is set, or at once."""

import asyncio

from mqttlite.gateway.waker import Waker


async def test_a_waiter_goes_on_when_the_event_is_set() -> None:
    waker = Waker()
    waiting = asyncio.create_task(waker.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    waker.set()
    waker.set()
    await waiting
    assert waker.is_set()
    await waker.wait()
    waker.clear()
    assert not waker.is_set()


async def test_a_cancelled_waiter_waits_no_longer() -> None:
    waker = Waker()
    waiting = asyncio.create_task(waker.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    waker.set()
    await waker.wait()
