"""How many processors this process may use, and whether one of them is idle."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

CGROUP: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")
LOAD: Final = Path("/proc/loadavg")


def processors() -> int:
    """Those of the machine that the affinity of this process and the quota of its control group allow; at least 1.

    A quota such as that of `docker run --cpus 2.5` counts for its whole processors.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([count, *_quotas()]))


def idle_processor(workers: int) -> Callable[[], bool] | None:
    """A question whether a processor would be idle if one of so many workers went to sleep; None if it is never known.

    Linux says how many threads run or could, on the whole machine. Of a part of it, or elsewhere, is known only how
    many processors there are: there one must be left when all workers are busy.
    """
    allowed, present = processors(), os.cpu_count() or 1
    leaves_one = allowed > workers
    is_whole = allowed == present > 1
    if not leaves_one and not (is_whole and _runnable()):
        return None
    return lambda: _runnable() <= present


def _runnable() -> int:
    """How many threads of the machine run or wait for a processor, this one among them; 0 if nothing says so."""
    try:
        file = os.open(LOAD, os.O_RDONLY)
        try:
            return int(os.read(file, 100).split()[3].partition(b"/")[0])
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return 0


def _quotas() -> list[int]:
    """Whole processors by `cpu.max` of this process's control group (version 2) and of those above it."""
    quotas: list[int] = []
    with contextlib.suppress(OSError):
        lines = OWN_CGROUP.read_text().splitlines()
        own = next((line[3:] for line in lines if line.startswith("0::")), "")
        group = CGROUP / own.lstrip("/")
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # none at the top, `max` where there is no quota
                quota, period = (folder / "cpu.max").read_text().split()
                quotas.append(int(quota) // int(period))
            if folder == CGROUP:
                break
    return quotas
