"""Who waits for a thread, and in which order."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from mqttlite.security.addresses import LOCAL, network_of
from mqttlite.security.authenticator import TooBusy
from mqttlite.security.fair_queue import FairQueue

ATTACKER, GOOD, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class Threads:
    """A queue with one thread that is busy until it is told, and the order in which the others have their turns."""

    def __init__(self, places: int) -> None:
        self.queue = FairQueue(1, places, "test")
        self.order: list[str] = []
        self._free = threading.Event()
        self._first: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> "Threads":
        begun = threading.Event()

        def first() -> bool:
            begun.set()
            return self._free.wait(10)

        self._first = asyncio.create_task(self.queue.run(OTHER, first))
        await asyncio.to_thread(begun.wait, 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._free.set()

    def add(self, address: str, name: str = "") -> "asyncio.Task[None]":
        return asyncio.create_task(self.queue.run(address, self._note(name or address)))

    def _note(self, name: str) -> Callable[[], None]:
        return lambda: self.order.append(name)

    def free(self) -> None:
        self._free.set()


async def begun() -> None:
    await asyncio.sleep(0)


async def test_addresses_take_turns() -> None:
    async with Threads(100) as threads:
        waiting = [threads.add(ATTACKER, f"attack {n}") for n in range(20)]
        await begun()
        waiting += [threads.add(GOOD, "good 0"), threads.add(GOOD, "good 1")]
        await begun()
        threads.free()
        await asyncio.gather(*waiting)
    assert threads.order[:5] == ["attack 0", "good 0", "attack 1", "good 1", "attack 2"]
    assert len(threads.order) == 22


@pytest.mark.parametrize("places", [2, 10, 500])
async def test_one_address_takes_half_of_the_places_and_the_next_a_part_of_the_rest(places: int) -> None:
    async with Threads(places) as threads:
        flood = [threads.add(ATTACKER) for _ in range(places)]
        await begun()
        busy = [each for each in flood if each.done()]
        assert len(busy) == places // 2
        for each in busy:
            with pytest.raises(TooBusy, match=f"{places // 2} clients wait"):
                await each
        good = threads.add(GOOD)
        await begun()
        assert not good.done(), "there is room for it"
        threads.free()
        await good
        await asyncio.gather(*flood, return_exceptions=True)


async def test_no_more_wait_than_there_are_places() -> None:
    async with Threads(3) as threads:
        waiting = [threads.add(f"10.0.0.{n}") for n in range(4)]
        await begun()
        assert [each.done() for each in waiting] == [False, False, False, True]
        with pytest.raises(TooBusy):
            await waiting.pop()
        threads.free()
        await asyncio.gather(*waiting)


async def test_an_exception_frees_its_thread() -> None:
    queue = FairQueue(1, 1, "test")

    def fail() -> None:
        raise LookupError

    for _ in range(3):
        with pytest.raises(LookupError):
            await queue.run(GOOD, fail)


@pytest.mark.parametrize("when", ["before its turn", "at its turn"])
async def test_a_client_that_leaves_gives_its_place_and_turn_to_the_next(when: str) -> None:
    async with Threads(4) as threads:
        left, stays = threads.add(ATTACKER, "left"), threads.add(GOOD, "stays")
        await begun()
        if when == "before its turn":
            left.cancel()
            await asyncio.wait([left])
            threads.free()
        else:
            threads.free()
            assert threads._first is not None
            threads._first.add_done_callback(lambda _: left.cancel())
            await asyncio.wait([left])
        await stays
        await threads.queue.run(GOOD, lambda: None)
    assert "stays" in threads.order


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.7:40000", "192.0.2.7"),
        ("[2001:db8:1:2:3:4:5:6]:40000", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:ffff::1]:1", "2001:db8:1:2::/64"),
        ("[::ffff:192.0.2.7]:40000", "192.0.2.7"),
        ("[fe80::1%eth0]:40000", "fe80::/64"),
        ("unix", LOCAL),
        ("/run/app.sock", LOCAL),
        ("?", LOCAL),
    ],
)
def test_an_address_stands_for_its_network(peer: str, network: str) -> None:
    assert network_of(peer) == network
