"""Results on disk can be read again, also side by side, and damage is located."""

from pathlib import Path

import pytest

from bench import results
from bench.growth import Growth
from bench.machine import describe
from bench.measure import Result


def one(broker: str) -> Result:
    return Result(broker, "pingpong", 0, "2025-01-01 00:00:00", "--mode pingpong", {"p50_us": 12.5}, "all", None)


def test_written_values_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kept.jsonl"
    machine = describe({"mqttlite": "0.1"})
    results.append(path, machine)
    results.append(path, one("mqttlite"))
    growth = Growth("match", "subscriptions", [10, 100], [1.0, 1.1])
    results.append(path, growth)
    assert results.load(path) == results.Kept([machine], [one("mqttlite")], [growth])


def test_one_file_keeps_its_names_and_several_get_their_files_added(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    results.append(before, one("mqttlite"))
    results.append(after, one("mqttlite"))
    assert [result.broker for result in results.load_all([before]).results] == ["mqttlite"]
    found = results.load_all([before, after]).results
    assert [result.broker for result in found] == ["mqttlite@before", "mqttlite@after"]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    results.append(path, one("mqttlite"))
    with path.open("a") as out:
        out.write('{"type": "result", "brok')
    with pytest.raises(results.ResultsError, match=r"kept\.jsonl, line 2: "):
        results.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(results.ResultsError, match=r"absent\.jsonl: No such file"):
        results.load(tmp_path / "absent.jsonl")
