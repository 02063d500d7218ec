"""What a machine says about itself, from a machine that we made up, and from this one."""

import json
from collections import namedtuple
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

from tools.devices.metrics import MAX_PER_KIND, Meter, Reading
from tools.devices.target import topic_level

Battery = namedtuple("Battery", "percent secsleft power_plugged")


def disk(read: int, write: int) -> SimpleNamespace:
    return SimpleNamespace(read_bytes=read, write_bytes=write, read_count=read // 10, write_count=write // 10)


def interface(received: int, sent: int) -> SimpleNamespace:
    return SimpleNamespace(bytes_recv=received, bytes_sent=sent, errin=1, errout=2, dropin=3, dropout=4)


class Machine:
    """The part of psutil that is asked, with answers that a test may change."""

    def __init__(self) -> None:
        self.disks: dict[str, Any] = {"sda": disk(100, 100), "never-used": disk(0, 0)}
        self.interfaces: dict[str, Any] = {"eth0": interface(1000, 500), "never-used": interface(0, 0)}
        self.partitions = [("/dev/sda1", "/"), ("/dev/sda1", "/again"), ("/dev/cd", "/empty"), ("/dev/sdb", "/a/b c")]

    def cpu_percent(self, percpu: bool) -> list[float]:
        assert percpu
        return [12.5, 50.0]

    def getloadavg(self) -> tuple[float, float, float]:
        return (0.123, 1.0, 2.0)

    def virtual_memory(self) -> SimpleNamespace:
        return SimpleNamespace(total=100, available=60, used=40, percent=40.0)

    def swap_memory(self) -> SimpleNamespace:
        return SimpleNamespace(total=0, used=0, percent=0.0)

    def disk_partitions(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(device=device, mountpoint=mount) for device, mount in self.partitions]

    def disk_usage(self, mountpoint: str) -> SimpleNamespace:
        if mountpoint == "/empty":
            raise PermissionError("no medium")
        return SimpleNamespace(total=10, used=5, free=5, percent=50.0)

    def disk_io_counters(self, perdisk: bool) -> dict[str, Any]:
        return self.disks

    def net_io_counters(self, pernic: bool) -> dict[str, Any]:
        return self.interfaces

    def net_if_stats(self) -> dict[str, Any]:
        return {"eth0": SimpleNamespace(isup=True, speed=1000)}

    def sensors_temperatures(self) -> dict[str, Any]:
        return {
            "core temp": [SimpleNamespace(label="Package id 0", current=45.0), SimpleNamespace(label="", current=1.0)]
        }

    def sensors_battery(self) -> Battery:
        return Battery(80.04, 3600, None)

    def boot_time(self) -> float:
        return 0.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_reading_is_json_with_its_time_first() -> None:
    at = datetime(2026, 11, 21, 13, 0, 0, 123456, timezone(timedelta(hours=1)))
    payload = Reading("cpu/0", {"used_percent": 12.5}).payload(at)
    assert payload == b'{"at":"2026-11-21T12:00:00.123Z","used_percent":12.5}'


def test_every_part_of_a_machine_has_its_topic() -> None:
    readings = {reading.topic: reading.values for reading in Meter(Clock(), Machine()).read()}
    assert list(readings) == [
        "cpu/0",
        "cpu/1",
        "load",
        "memory",
        "disk/root",
        "disk/a-b-c",
        "disk_io/sda",
        "network/eth0",
        "temperature/core-temp/Package-id-0",
        "temperature/core-temp/1",
        "battery",
        "uptime",
    ]
    assert readings["cpu/0"] == {"used_percent": 12.5}
    assert readings["load"] == {"load_1m": 0.12, "load_5m": 1.0, "load_15m": 2.0, "cpus_count": 2}
    assert readings["battery"] == {"charge_percent": 80.0, "is_plugged": False, "remaining_s": 3600}
    assert readings["temperature/core-temp/1"] == {"current_celsius": 1.0}
    assert readings["uptime"]["booted_at"] == "1970-01-01T00:00:00+00:00"


def test_rates_are_the_growth_of_the_counters_over_the_time_between() -> None:
    machine, clock = Machine(), Clock()
    meter = Meter(clock, machine)
    clock.now = 2.0
    machine.disks = {"sda": disk(300, 1100), "new": disk(50, 50)}
    machine.interfaces = {"eth0": interface(1500, 400)}
    readings = {reading.topic: reading.values for reading in meter.read()}
    assert readings["disk_io/sda"] == {
        "read_bytes_per_s": 100.0,
        "written_bytes_per_s": 500.0,
        "reads_per_s": 10.0,
        "writes_per_s": 50.0,
    }
    assert "disk_io/new" not in readings
    assert readings["network/eth0"]["received_bytes_per_s"] == 250.0
    assert readings["network/eth0"]["sent_bytes_per_s"] == 0.0, "a counter that began anew"
    assert (readings["network/eth0"]["errors_count"], readings["network/eth0"]["speed_mbit_per_s"]) == (3, 1000)
    clock.now = 3.0
    assert "disk_io/new" in {reading.topic for reading in meter.read()}


def test_a_machine_that_can_tell_little_tells_that() -> None:
    whole = Machine()
    names = ("cpu_percent", "virtual_memory", "boot_time")
    bare = SimpleNamespace(**{name: getattr(whole, name) for name in names})
    assert [reading.topic for reading in Meter(Clock(), bare).read()] == ["cpu/0", "cpu/1", "memory", "uptime"]


def test_a_container_host_publishes_no_more_interfaces_than_the_limit() -> None:
    machine = Machine()
    machine.interfaces = {f"veth{number}": interface(1, 1) for number in range(MAX_PER_KIND + 1)}
    topics = [reading.topic for reading in Meter(Clock(), machine).read()]
    assert sum(topic.startswith("network/") for topic in topics) == MAX_PER_KIND


def test_this_machine_can_be_read() -> None:
    for reading in Meter(Clock()).read():
        assert json.loads(reading.payload(datetime.now(UTC)))
        assert not set(reading.topic) & set("+# ")


def test_a_name_becomes_one_level_of_a_topic() -> None:
    names = ["host-1.example", "a/b", "+", "a b", "Büro", "", "/", "x\0y"]
    wanted = ["host-1.example", "a-b", "unnamed", "a-b", "Büro", "unnamed", "unnamed", "x-y"]
    assert [topic_level(name) for name in names] == wanted
