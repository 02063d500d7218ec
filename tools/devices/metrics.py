"""What a machine measures about itself, as topics and small JSON payloads. psutil reads; nothing here connects.

Rates are differences of counters, so a `Meter` remembers the last reading. Invariant: what this machine does not have
(a fan, a battery, a swap) makes no reading, and never an error.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec
import psutil

from tools.devices.target import topic_level

MAX_PER_KIND: Final = 64
"""Disks, interfaces, sensors or cores of one machine: a container host may have thousands of virtual ones."""

Value: TypeAlias = float | int | str | bool
Values: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Reading:
    """One topic below the device's own, and the values to publish there; each value's name ends in its unit."""

    topic: str
    values: Values

    def payload(self, at: datetime) -> bytes:
        """JSON, with the time of the measurement first."""
        moment = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return msgspec.json.encode({"at": moment, **self.values})


class Meter:
    """Reads a machine. Begins to count when it is made, so that the first `read` has rates."""

    def __init__(self, clock: Callable[[], float], source: Any = psutil) -> None:
        self._clock: Final = clock
        self._source: Final = source
        self._read_at = clock()
        self._counters: dict[str, dict[str, Any]] = {"disk": self._disk_counters(), "network": self._network_counters()}
        source.cpu_percent(percpu=True)  # the first is always zero

    def read(self) -> list[Reading]:
        """Everything, now."""
        now = self._clock()
        passed_s = max(now - self._read_at, 1e-3)
        self._read_at = now
        return [
            *self._cpus(),
            *self._memory(),
            *self._disks(),
            *self._disk_io(passed_s),
            *self._network(passed_s),
            *self._sensors(),
            *self._uptime(),
        ]

    def _cpus(self) -> Iterator[Reading]:
        percents = self._source.cpu_percent(percpu=True)
        for number, percent in enumerate(percents[:MAX_PER_KIND]):
            yield Reading(f"cpu/{number}", {"used_percent": percent})
        average = self._optional("getloadavg")
        if average:
            one, five, fifteen = (round(value, 2) for value in average)
            yield Reading("load", {"load_1m": one, "load_5m": five, "load_15m": fifteen, "cpus_count": len(percents)})

    def _memory(self) -> Iterator[Reading]:
        memory = self._source.virtual_memory()
        yield Reading(
            "memory",
            {
                "total_bytes": memory.total,
                "available_bytes": memory.available,
                "used_bytes": memory.used,
                "used_percent": memory.percent,
            },
        )
        swap = self._optional("swap_memory")
        if swap and swap.total:
            values: Values = {"total_bytes": swap.total, "used_bytes": swap.used, "used_percent": swap.percent}
            yield Reading("swap", values)

    def _disks(self) -> Iterator[Reading]:
        seen: set[str] = set()
        for partition in self._optional("disk_partitions") or ():
            if partition.device in seen or len(seen) >= MAX_PER_KIND:
                continue  # a device mounted twice is one disk
            try:
                usage = self._source.disk_usage(partition.mountpoint)
            except OSError:
                continue  # an empty drive, or a folder that is not ours to look into
            seen.add(partition.device)
            yield Reading(
                f"disk/{_mount_name(partition.mountpoint)}",
                {
                    "total_bytes": usage.total,
                    "used_bytes": usage.used,
                    "free_bytes": usage.free,
                    "used_percent": usage.percent,
                },
            )

    def _disk_io(self, passed_s: float) -> Iterator[Reading]:
        for name, now, before in self._changes("disk", self._disk_counters()):
            yield Reading(
                f"disk_io/{topic_level(name)}",
                {
                    "read_bytes_per_s": _rate(now.read_bytes, before.read_bytes, passed_s),
                    "written_bytes_per_s": _rate(now.write_bytes, before.write_bytes, passed_s),
                    "reads_per_s": _rate(now.read_count, before.read_count, passed_s),
                    "writes_per_s": _rate(now.write_count, before.write_count, passed_s),
                },
            )

    def _network(self, passed_s: float) -> Iterator[Reading]:
        states = self._optional("net_if_stats") or {}
        for name, now, before in self._changes("network", self._network_counters()):
            values: Values = {
                "received_bytes": now.bytes_recv,
                "sent_bytes": now.bytes_sent,
                "received_bytes_per_s": _rate(now.bytes_recv, before.bytes_recv, passed_s),
                "sent_bytes_per_s": _rate(now.bytes_sent, before.bytes_sent, passed_s),
                "errors_count": now.errin + now.errout,
                "drops_count": now.dropin + now.dropout,
            }
            if name in states:
                values["is_up"] = states[name].isup
                if states[name].speed:
                    values["speed_mbit_per_s"] = states[name].speed
            yield Reading(f"network/{topic_level(name)}", values)

    def _sensors(self) -> Iterator[Reading]:
        for kind, sensors, unit in (("temperature", "temperatures", "celsius"), ("fan", "fans", "rpm")):
            found = self._optional(f"sensors_{sensors}") or {}
            every = [(chip, number, sensor) for chip, some in found.items() for number, sensor in enumerate(some)]
            for chip, number, sensor in every[:MAX_PER_KIND]:
                topic = f"{kind}/{topic_level(chip)}/{topic_level(sensor.label or str(number))}"
                yield Reading(topic, {f"current_{unit}": sensor.current})
        battery = self._optional("sensors_battery")
        if battery:
            values: Values = {"charge_percent": round(battery.percent, 1), "is_plugged": bool(battery.power_plugged)}
            if battery.secsleft >= 0:
                values["remaining_s"] = battery.secsleft
            yield Reading("battery", values)

    def _uptime(self) -> Iterator[Reading]:
        booted_at = self._source.boot_time()
        booted = datetime.fromtimestamp(booted_at, UTC)
        uptime_s = round((datetime.now(UTC) - booted).total_seconds(), 1)
        yield Reading("uptime", {"uptime_s": uptime_s, "booted_at": booted.isoformat(timespec="seconds")})

    def _disk_counters(self) -> dict[str, Any]:
        """Of the disks that were ever used."""
        found = self._optional("disk_io_counters", perdisk=True) or {}
        return {name: count for name, count in found.items() if count.read_count or count.write_count}

    def _network_counters(self) -> dict[str, Any]:
        """Of the interfaces that were ever used."""
        found = self._optional("net_io_counters", pernic=True) or {}
        return {name: count for name, count in found.items() if count.bytes_recv or count.bytes_sent}

    def _changes(self, kind: str, now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Name, counters now and counters before; what came since the last reading has nothing to compare with."""
        before, self._counters[kind] = self._counters[kind], now
        common = [name for name in sorted(now) if name in before]
        for name in common[:MAX_PER_KIND]:
            yield name, now[name], before[name]

    def _optional(self, name: str, **arguments: Any) -> Any:
        """What psutil says where it has this at all; None where this system cannot tell."""
        try:
            return getattr(self._source, name)(**arguments)
        except (AttributeError, NotImplementedError, OSError, RuntimeError):
            return None


def _rate(now: int, before: int, passed_s: float) -> float:
    """Per second; a counter that began anew says nothing."""
    return round(max(now - before, 0) / passed_s, 1)


def _mount_name(mountpoint: str) -> str:
    return "root" if mountpoint == "/" else topic_level(mountpoint)
