"""A queue on a disk that fails or loses power: what was acknowledged is there, once, and what a consumer acknowledged
does not come again.

The changes are those of a real queue: publish, deliver, acknowledge, refuse, deadlines, dead letters, purge, delete.
"""

import random
from pathlib import Path

import pytest

from mqttlite.store.sqlite import store as sqlite_store
from tests.faults.disk import FAULTS, FULL, Disk, Fault
from tests.faults.queue_work import ATTEMPTS, QueueWork
from tests.faults.test_failing_disk import fail_each_call
from tests.faults.test_power_cuts import Cuts, run
from tests.faults.workload import histories
from tests.support.rounds import todays


@pytest.fixture(autouse=True)
def _many_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_BYTES", 60_000)


@pytest.mark.slow
def test_a_broker_that_starts_again_after_any_commit_has_each_message_once() -> None:
    dead = 0
    for seed in range(3):
        work = QueueWork(seed, 150)
        assert work.acknowledged
        for number, before, after in work.restarts():
            assert after.keys() == before.keys(), f"seed {seed}, commit {number}"
            for payload, attempts in after.items():
                dead += attempts == "dead"
                # What had its last attempt is given up; else no attempt is forgotten, and none is made up.
                assert attempts == before[payload] or (attempts, before[payload]) == ("dead", ATTEMPTS)
            assert not [payload for payload, at in work.acknowledged.items() if at <= number and payload in after]
    assert dead


@pytest.mark.slow
@pytest.mark.parametrize("seed", todays(range(4)))
async def test_no_power_cut_loses_or_doubles_a_message_of_a_queue(disk: Disk, folder: Path, seed: int) -> None:
    rng, work = random.Random(seed), QueueWork(seed, 24)
    await run(disk, work.commits, rng)
    cuts = Cuts(folder, await histories(work.commits), rng)
    await cuts.check(disk.log, choices=6, skip=0.7)
    assert cuts.checked > 150, f"only {cuts.checked} states"


@pytest.mark.slow
async def test_a_full_disk_loses_and_doubles_nothing_of_a_queue(folder: Path) -> None:
    assert await fail_each_call(folder, FULL, 3, QueueWork(2, 12).commits, first=3, step=29) > 60


@pytest.mark.slow
@pytest.mark.parametrize("fault", todays(FAULTS), ids=lambda fault: fault.name)
async def test_whichever_call_fails_nothing_of_a_queue_is_lost(folder: Path, fault: Fault) -> None:
    assert await fail_each_call(folder, fault, 2, QueueWork(3, 12).commits, step=3) > 60
