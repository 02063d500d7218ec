"""How much memory this process may use: the machine's, or less if a container or a process limit restricts it."""

import contextlib
import os
from pathlib import Path
from typing import Final

UNKNOWN: Final = 4 * 1_024**3
"""Assumed if the system does not say."""

_GROUPS: Final = Path("/proc/self/cgroup")
_GROUP_ROOT: Final = Path("/sys/fs/cgroup")


def usable_memory() -> int:
    """In bytes: the least of the machine's memory, the limits of control groups (versions 1 and 2), `RLIMIT_AS` and
    `RLIMIT_DATA`."""
    return min([physical_memory(), *group_limits(), *process_limits()])


def physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no `sysconf`
        return UNKNOWN


def group_limits(groups: Path = _GROUPS, root: Path = _GROUP_ROOT) -> list[int]:
    """The limits of the process's control group and of all its parents."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            if controllers == "":
                base, name = root, "memory.max"
            elif "memory" in controllers.split(","):
                base, name = root / "memory", "memory.limit_in_bytes"
            else:
                continue
            folder = base / path.lstrip("/")
            for each in (folder, *folder.parents):
                if each == base.parent:
                    break
                with contextlib.suppress(OSError, ValueError):  # "max", or no such file in a container
                    found.append(int((each / name).read_text()))
    return found


def process_limits() -> list[int]:
    try:
        import resource
    except ImportError:  # Windows
        return []
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return [limit for limit in limits if limit != resource.RLIM_INFINITY]
