"""Who is measured when, which of several attempts is kept, and what the load generator's output means."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from bench import measure
from bench.brokers import BrokerError
from bench.cases import CASES, Case
from bench.measure import Plan, read


class Recorded:
    """A contender that writes down what it is asked to do."""

    def __init__(self, name: str, diary: list[str], *, starts: bool = True) -> None:
        self.name = name
        self._diary = diary
        self._starts = starts

    def arguments(self, case: Case) -> tuple[str, ...]:
        return ()

    def pids(self) -> tuple[int, ...]:
        return ()

    def carries(self, case: Case) -> bool:
        return self.name != "raw" or case.raw

    def ready(self) -> None:
        self._diary.append(f"{self.name} ready")
        if not self._starts:
            raise BrokerError(f"{self.name} does not start")

    def hold(self) -> None:
        self._diary.append(f"{self.name} held")

    def stop(self) -> None:
        self._diary.append(f"{self.name} stopped")

    def forget(self) -> None:
        self._diary.append(f"{self.name} forgot")

    def disk_bytes(self) -> int | None:
        return 900

    def restart(self) -> tuple[str, ...]:
        self._diary.append(f"{self.name} started again")
        return ("--since", "5")


@pytest.fixture
def diary() -> list[str]:
    return []


def loadgen(folder: Path, output: str) -> Path:
    """A load generator that says the same at every run."""
    script = folder / "loadgen"
    script.write_text(f"#!/bin/sh\necho '{output}'\n")
    script.chmod(0o755)
    return script


def plan(generator: Path, *names: str, rounds: int = 1, attempts: int = 1, quiet: float = 1e9) -> Plan:
    cases = [CASES[name] for name in names]
    return Plan(generator, cases, rounds=rounds, attempts=attempts, quiet=quiet, wait_s=0)


def order(results: Iterable[measure.Result]) -> list[tuple[int, str, str]]:
    return [(result.round, result.case, result.broker) for result in results]


def test_each_case_meets_all_contenders_in_an_order_that_turns(tmp_path: Path, diary: list[str]) -> None:
    both = [Recorded("a", diary), Recorded("b", diary)]
    generator = loadgen(tmp_path, '{"p50_us": 1}')
    found = list(measure.measure(plan(generator, "pingpong", "fanin-500-2k", rounds=2), both))
    assert order(found) == [
        (0, "pingpong", "a"),
        (0, "pingpong", "b"),
        (0, "fanin-500-2k", "a"),
        (0, "fanin-500-2k", "b"),
        (1, "pingpong", "b"),
        (1, "pingpong", "a"),
        (1, "fanin-500-2k", "b"),
        (1, "fanin-500-2k", "a"),
    ]
    assert diary == [f"{name} {what}" for name in "ababbaba" for what in ("ready", "held")]


def test_tcp_without_a_broker_is_spared_what_it_cannot_carry(tmp_path: Path, diary: list[str]) -> None:
    generator = loadgen(tmp_path, '{"p50_us": 1}')
    found = measure.measure(plan(generator, "wild-100k", "pingpong"), [Recorded("raw", diary)])
    assert order(found) == [(0, "pingpong", "raw")]


def test_a_memory_case_gets_a_broker_without_a_past(tmp_path: Path, diary: list[str]) -> None:
    list(measure.measure(plan(loadgen(tmp_path, '{"failed": 0}'), "connect-5000"), [Recorded("a", diary)]))
    assert diary == ["a stopped", "a forgot", "a ready", "a held"]


def test_rows_on_disk_are_counted_when_the_broker_has_stopped(tmp_path: Path, diary: list[str]) -> None:
    generator = loadgen(tmp_path, '{"recv_per_s": 7, "stored": 3}')
    (result,) = measure.measure(plan(generator, "durable-1x1"), [Recorded("a", diary)])
    assert result.figures["disk_bytes_per_message"] == 300
    assert diary == ["a stopped", "a forgot", "a ready", "a stopped", "a held"]


def test_a_restart_follows_the_load_before_and_is_told_when_it_began(tmp_path: Path, diary: list[str]) -> None:
    generator = loadgen(tmp_path, '{"recv_per_s": 7, "stored": 3, "restart_ms": 1}')
    (result,) = measure.measure(plan(generator, "restart-1M"), [Recorded("a", diary)])
    assert result.arguments == "--mode restart --count 1000000 --since 5"
    assert (result.figures["filled_per_s"], result.figures["disk_bytes_per_message"]) == (7, 300)
    assert diary == ["a stopped", "a forgot", "a ready", "a stopped", "a started again", "a held"]


@pytest.mark.parametrize(
    ("output", "why"), [('{"error": "refused"}', "refused"), ('{"lost": 2}', "2 messages were not acknowledged")]
)
def test_a_load_before_that_fails_fails_the_case(tmp_path: Path, diary: list[str], output: str, why: str) -> None:
    (result,) = measure.measure(plan(loadgen(tmp_path, output), "restart-1M"), [Recorded("a", diary)])
    assert result.error == f"before the restart: {why}"


def test_a_broker_with_work_left_is_stopped(tmp_path: Path, diary: list[str]) -> None:
    generator = loadgen(tmp_path, '{"drained": "limit", "recv_per_s": 1}')
    (result,) = measure.measure(plan(generator, "fanout-100"), [Recorded("a", diary)])
    assert result.drained == "limit"
    assert diary == ["a ready", "a stopped", "a held"]


def test_a_broker_that_fails_at_a_case_skips_it_in_later_rounds(tmp_path: Path, diary: list[str]) -> None:
    contenders = [Recorded("broken", diary, starts=False), Recorded("fine", diary)]
    generator = loadgen(tmp_path, '{"p50_us": 1}')
    found = list(measure.measure(plan(generator, "pingpong", rounds=2), contenders))
    assert order(found) == [(0, "pingpong", "broken"), (0, "pingpong", "fine"), (1, "pingpong", "fine")]
    assert found[0].error == "broken does not start"


def test_a_noisy_run_is_repeated_and_the_quietest_kept(
    tmp_path: Path, diary: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = iter([0.9, 0.4, 0.6])
    monkeypatch.setattr(measure, "_run", lambda *_: ({"other_cpu": next(noise)}, "all", None))
    (result,) = measure.measure(plan(tmp_path, "pingpong", attempts=3, quiet=0.25), [Recorded("a", diary)])
    assert result.other_cpu == 0.4


def test_a_quiet_run_is_not_repeated(tmp_path: Path, diary: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    noise = iter([0.9, 0.2])
    monkeypatch.setattr(measure, "_run", lambda *_: ({"other_cpu": next(noise)}, "all", None))
    (result,) = measure.measure(plan(tmp_path, "pingpong", attempts=3, quiet=0.25), [Recorded("a", diary)])
    assert result.other_cpu == 0.2


def test_figures_are_the_numbers_of_the_last_line() -> None:
    output = 'noise\n{"mode": "stream", "v5": false, "drained": "idle", "lost": 3, "p50_us": 1.5}\n'
    assert read(output, "nothing") == ({"lost": 3, "p50_us": 1.5}, "idle", None)


def test_an_error_in_the_output_is_the_error() -> None:
    assert read('{"mode": "stream", "error": "connect: refused"}\n', "nothing") == ({}, "all", "connect: refused")


@pytest.mark.parametrize("output", ["", "\n", "Segmentation fault\n", '{"p50_us": 1', "[1]"])
def test_output_that_is_no_result_is_an_error(output: str) -> None:
    assert read(output, "no result, exit 1") == ({}, "limit", "no result, exit 1")
