"""The lease as one machine has it."""

import asyncio

import pytest

from mqttlite.engine.memory import MemoryEngine, MemoryServers
from mqttlite.extensions.cluster import keys, lease
from mqttlite.extensions.cluster.machines import Machines
from mqttlite.extensions.cluster.turn import Turn


class Lease:
    """The machine a, and an engine without other machines."""

    def __init__(self) -> None:
        self.servers = MemoryServers()
        self.engine: MemoryEngine = self.servers.connect()
        self.seen = lease.LeaseView("a", 0.0)
        self.machines = Machines(self.engine, "a", "run", ())
        self.turn = Turn(self.engine, "a", "run", (), self.seen, self.machines)

    def holder(self) -> lease.Holder | None:
        value = self.servers.keys[keys.LEASE].value
        return None if value is None else lease.decode(value)


@pytest.fixture
async def held() -> Lease:
    """One that was taken."""
    held = Lease()
    await held.engine.ensure_log(keys.LOG, 1 << 20)
    assert await held.turn.take()
    return held


async def test_a_lease_is_given_back_though_a_renewal_was_under_way(held: Lease) -> None:
    holder = held.holder()
    assert holder is not None
    held.servers.change(keys.LEASE, lease.encode(holder), held.servers.keys[keys.LEASE].revision)
    held.turn.successor = "b"
    await held.turn.give_back()
    assert held.holder() == lease.Holder("", "run", 1, successor="b")
    assert not held.turn.is_held


async def test_a_lease_of_another_machine_is_not_given_back(held: Lease) -> None:
    taken = lease.Holder("b", "other", 2)
    held.servers.change(keys.LEASE, lease.encode(taken), held.servers.keys[keys.LEASE].revision)
    await held.turn.give_back()
    assert held.holder() == taken


async def test_a_lease_that_is_lost_is_not_given_back(held: Lease) -> None:
    held.turn.lose("a test says so")
    assert held.turn.over.is_set()
    await held.turn.give_back()
    holder = held.holder()
    assert holder is not None
    assert holder.node == "a"


async def test_a_hand_over_without_another_machine_is_refused_with_a_sentence(held: Lease) -> None:
    asked = await keys.ask_to_hand_over(held.engine, 1, "c")
    request = lease.HandOver(1, "c")
    assert held.turn.is_asked(request)
    await held.turn.hand_over(request, asked)
    assert await keys.refusal_of(held.engine, asked) == "c does not follow the log"
    assert not held.turn.is_asked(lease.HandOver(1, "c", "no")), "an answer is no request"
    assert not held.turn.is_asked(lease.HandOver(2, "c"))
    assert not held.turn.over.is_set()


async def test_a_hand_over_while_the_engine_is_silent_is_logged(held: Lease, caplog: pytest.LogCaptureFixture) -> None:
    asked = await keys.ask_to_hand_over(held.engine, 1, "")
    held.servers.is_available = False
    async with asyncio.timeout(5):
        await held.turn.hand_over(lease.HandOver(1, ""), asked)
    assert "a hand-over was asked for, and the engine does not answer" in caplog.text
    held.servers.is_available = True
    assert await keys.refusal_of(held.engine, asked) == ""
