"""How many processors this process may use, and whether one of them is idle."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

CGROUP: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
LOAD: Final = Path("/proc/loadavg")


def processors() -> int:
    """Those of the machine that the affinity of this process and the quota of its control group allow; at least 1.

    A quota such as that of `docker run --cpus 2.5` counts for its whole processors.
    """
    return max(1, min([_affinity(), *_quotas()]))


def idle_processor(workers: int) -> Callable[[], bool | None] | None:
    """A question whether a processor would be idle if one of so many workers went to sleep; None if it is never known.

    Its answer is None where it is not known this time, for example for want of a file descriptor.

    Linux says how many threads run or could, on the whole machine. Of a part of it, or elsewhere, is known only how
    many processors there are: there one must be left when all workers are busy.
    """
    allowed = processors()
    usable = _affinity()
    leaves_one = allowed > workers
    is_whole = allowed == (os.cpu_count() or 1) > 1
    if not leaves_one and not (is_whole and _runnable()):
        return None

    def has_idle_processor() -> bool | None:
        runnable = _runnable()
        return runnable <= usable if runnable or leaves_one else None

    return has_idle_processor


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def _quotas() -> Iterator[int]:
    """Whole processors by the quotas of this process's control group and of those above it, in version 2 and in 1."""
    try:
        lines = OWN_CGROUPS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for _number, controllers, own in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if not controllers:
            yield from _quotas_from(CGROUP, own, "cpu.max")
        elif "cpu" in controllers.split(","):
            yield from _quotas_from(CGROUP / "cpu", own, "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _quotas_from(top: Path, own: str, *files: str) -> Iterator[int]:
    """Those of a control group and of the ones above it, of which these files hold a quota and its period in µs."""
    group = top / own.lstrip("/")
    for folder in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError, ArithmeticError):  # none here, or no quota: `max`, or -1
            quota, period = " ".join((folder / file).read_text() for file in files).split()
            if int(quota) > 0:
                yield int(quota) // int(period)
        if folder == top:
            break
