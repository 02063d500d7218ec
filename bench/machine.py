"""What the machine is, what else it was doing, and which processes serve a port: Linux's /proc, and nothing else."""

import os
import platform
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

PROC: Final = Path("/proc")
TICK: Final = os.sysconf("SC_CLK_TCK")
LISTENING: Final = "0A"


class Machine(msgspec.Struct, frozen=True, tag="machine"):
    """Where and when results were measured, and what each broker said it was."""

    measured_at: str
    cpu: str
    cores: int
    kernel: str
    python: str
    uvloop: str
    load_average: float
    brokers: dict[str, str]


def describe(brokers: Mapping[str, str]) -> Machine:
    """This machine, now, with the brokers' versions by name."""
    return Machine(
        measured_at=time.strftime("%Y-%m-%d %H:%M:%S%z"),
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        uvloop=_version_of("uvloop"),
        load_average=round(os.getloadavg()[0], 2),
        brokers=dict(brokers),
    )


def _cpu_model() -> str:
    for line in _lines(PROC / "cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def busy_seconds() -> float:
    """CPU that was not idle, with what the hypervisor stole from us."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, _lines(PROC / "stat")[0].split()[1:])
    return (user + nice + system + irq + softirq + steal) / TICK


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU these processes used since they began; one that has ended counts nothing."""
    total = 0
    for pid in pids:
        if fields := _stat(pid):
            total += int(fields[11]) + int(fields[12])
    return total / TICK


def settle(limit: float, seconds: float) -> None:
    """Wait until no more than so many cores are busy, but no longer than so many seconds."""
    step = 0.15
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(step)
        if (busy_seconds() - before) / step <= limit:
            return


def serving(port: int) -> tuple[int, ...]:
    """The processes that listen on the port, and their descendants."""
    return tuple(sorted(_with_descendants(_owners(_listening_inodes(port)))))


def _listening_inodes(port: int) -> set[str]:
    rows = [line.split() for table in ("tcp", "tcp6") for line in _lines(PROC / "net" / table)[1:]]
    return {row[9] for row in rows if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port}


def _owners(inodes: Collection[str]) -> set[int]:
    sockets = {f"socket:[{inode}]" for inode in inodes}
    return {pid for pid in _pids() if not sockets.isdisjoint(_descriptors(pid))}


def _with_descendants(pids: set[int]) -> set[int]:
    parent_of = {pid: int(fields[1]) for pid in _pids() if (fields := _stat(pid))}
    family, found = set(pids), set(pids)
    while found:
        found = {pid for pid, parent in parent_of.items() if parent in found} - family
        family |= found
    return family


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]


def _descriptors(pid: int) -> set[str]:
    """What a process has open; nothing if it is gone or not ours to look at."""
    found = set()
    with suppress(OSError):
        for descriptor in os.scandir(PROC / str(pid) / "fd"):
            with suppress(OSError):
                found.add(os.readlink(descriptor.path))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name; empty when the process is gone."""
    return "".join(_lines(PROC / str(pid) / "stat")).rpartition(")")[2].split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
