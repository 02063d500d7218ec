"""How many processors there are for whom, and when one is idle."""

import os
from pathlib import Path

import pytest

from mqttlite.cluster import processors as module
from mqttlite.cluster.processors import idle_processor, processors


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the files of a machine with eight processors, all of them ours, and two busy."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    monkeypatch.setattr(module, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(module, "OWN_CGROUPS", tmp_path / "self")
    monkeypatch.setattr(module, "LOAD", tmp_path / "loadavg")
    (tmp_path / "cgroup" / "a" / "b").mkdir(parents=True)
    (tmp_path / "self").write_text("9:name=systemd:/x\n3:cpuset,memory:/a\n0::/a/b\n")
    (tmp_path / "loadavg").write_text("0.10 0.20 0.30 2/345 6789\n")
    return tmp_path


def test_without_quotas_and_affinity_all_are_ours(machine: Path) -> None:
    assert processors() == 8


@pytest.mark.usefixtures("machine")
def test_an_affinity_leaves_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 5}, raising=False)
    assert processors() == 2


@pytest.mark.parametrize("folder", ["", "a", "a/b"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [("max 100000", 8), ("250000 100000", 2), ("300000 100000\n", 3), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_a_quota_counts_for_its_whole_processors(machine: Path, folder: str, text: str, expected: int) -> None:
    (machine / "cgroup" / folder / "cpu.max").write_text(text)
    assert processors() == expected


def test_of_several_quotas_the_smallest_counts_and_none_above_the_top(machine: Path) -> None:
    (machine / "cpu.max").write_text("100000 100000")
    (machine / "cgroup" / "cpu.max").write_text("500000 100000")
    (machine / "cgroup" / "a" / "cpu.max").write_text("300000 100000")
    (machine / "cgroup" / "a" / "b" / "cpu.max").write_text("400000 100000")
    assert processors() == 3


@pytest.mark.parametrize("text", ["", "100000", "x y", "1 0x", "1 0", "-1 100000"])
def test_what_is_no_quota_is_none(machine: Path, text: str) -> None:
    (machine / "cgroup" / "a" / "cpu.max").write_text(text)
    assert processors() == 8


@pytest.mark.parametrize("folder", ["", "c", "c/d"])
@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("250000", 2), ("50000", 1)])
def test_version_1_has_them_elsewhere(machine: Path, folder: str, quota: str, expected: int) -> None:
    (machine / "self").write_text("9:name=systemd:/x\n4:cpu,cpuacct:/c/d\n0::/\n")
    (machine / "cgroup" / "cpu" / "c" / "d").mkdir(parents=True)
    (machine / "cgroup" / "cpu" / folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (machine / "cgroup" / "cpu" / folder / "cpu.cfs_period_us").write_text("100000\n")
    assert processors() == expected


def test_a_group_of_any_name_and_none_at_all(machine: Path) -> None:
    (machine / "cgroup" / "cpu.max").write_text("300000 100000")
    (machine / "self").write_bytes(b"no line of these\n0::/../caf\xe9:x\n")
    assert processors() == 3  # of the top
    (machine / "self").unlink()
    assert processors() == 8


# ---------------------------------------------------------------------- idle


def test_what_cannot_be_told_any_more_is_not_idle_where_only_that_tells(machine: Path) -> None:
    several, one = idle_processor(8), idle_processor(1)
    assert several is not None
    assert one is not None
    (machine / "loadavg").unlink()
    assert several() is None
    assert one()


def test_others_in_the_same_affinity_are_seen(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 5}, raising=False)
    assert idle_processor(2) is None
    is_idle = idle_processor(1)
    assert is_idle is not None
    assert is_idle()
    (machine / "loadavg").write_text("0.10 0.20 0.30 3/345 6789\n")
    assert not is_idle()


@pytest.mark.parametrize(("running", "expected"), [(1, True), (7, True), (8, True), (9, False), (100, False)])
@pytest.mark.parametrize("workers", [1, 7, 8, 20])
def test_of_a_whole_machine_its_load_says_it(machine: Path, workers: int, running: int, expected: bool) -> None:
    is_idle = idle_processor(workers)
    assert is_idle is not None
    (machine / "loadavg").write_text(f"0.10 0.20 0.30 {running}/345 6789\n")
    assert is_idle() is expected


@pytest.mark.parametrize(("workers", "expected"), [(1, True), (2, True), (3, False), (8, False)])
def test_of_a_part_one_must_be_left_over(machine: Path, workers: int, expected: bool) -> None:
    (machine / "cgroup" / "cpu.max").write_text("300000 100000")
    is_idle = idle_processor(workers)
    assert (is_idle is not None) is expected
    if is_idle is not None:
        (machine / "loadavg").write_text("0.10 0.20 0.30 8/345 6789\n")
        assert is_idle()
        (machine / "loadavg").write_text("0.10 0.20 0.30 9/345 6789\n")
        assert not is_idle()


@pytest.mark.parametrize("text", [None, "", "0.1 0.2 0.3 x/y 5", "0.1 0.2 0.3"])
@pytest.mark.parametrize(("workers", "expected"), [(1, True), (7, True), (8, False)])
def test_where_no_load_is_known_too(machine: Path, text: str | None, workers: int, expected: bool) -> None:
    if text is None:
        (machine / "loadavg").unlink()
    else:
        (machine / "loadavg").write_text(text)
    is_idle = idle_processor(workers)
    assert (is_idle is not None) is expected
    assert is_idle is None or is_idle()


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("count", [1, None])
def test_a_single_processor_is_never_kept_busy(monkeypatch: pytest.MonkeyPatch, count: int | None) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0}, raising=False)
    assert idle_processor(1) is None
