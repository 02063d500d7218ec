"""Measuring: every case meets all contenders within seconds, in an order that turns with the round.

The machine is shared, so each run also notes how much CPU neither the broker nor the load generator got (`other_cpu`,
in cores: other programs, and what the hypervisor stole); a run with more than `quiet` of that is repeated, up to
`attempts`, and the quietest is kept. Results are yielded one by one: an interrupted measurement loses nothing.
"""

import resource
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bench.brokers import BrokerError, Contender
from bench.cases import Case
from bench.machine import busy_seconds, cpu_seconds, settle

RUN_LIMIT_S: Final = 150.0
"""The longest case, a fan-in sweep with a backlog to clear at each step, needs half of it."""

RESTART_LIMIT_S: Final = 900.0
"""A million messages are stored in some minutes, and then taken in one."""


class Result(msgspec.Struct, frozen=True, tag="result"):
    """One run of one case: the load generator's figures, or why there are none."""

    broker: str
    case: str
    round: int
    measured_at: str
    arguments: str
    figures: dict[str, float]
    drained: str = "all"
    error: str | None = None

    @property
    def other_cpu(self) -> float:
        """Cores that somebody else used meanwhile."""
        return self.figures.get("other_cpu", 0.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure and how patiently."""

    loadgen: Path
    cases: Sequence[Case]
    rounds: int = 3
    quick: bool = False
    extra: tuple[str, ...] = ()
    quiet: float = 0.25
    attempts: int = 2
    wait_s: float = 3.0


def measure(plan: Plan, contenders: Sequence[Contender]) -> Iterator[Result]:
    """Run every case on every contender, round after round; one that failed at a case is spared it afterwards."""
    failed: set[tuple[str, str]] = set()
    for number in range(plan.rounds):
        effects = number % len(contenders)
        for case in plan.cases:
            for contender in (*contenders[effects:], *contenders[:effects]):
                if (contender.name, case.name) in failed or not contender.carries(case):
                    continue
                result = _quietest(plan, case, contender, number)
                if result.error is not None:
                    failed.add((contender.name, case.name))
                yield result


def _quietest(plan: Plan, case: Case, contender: Contender, number: int) -> Result:
    """The first quiet run, or the quietest of so many attempts."""
    kept: Result | None = None
    for _ in range(plan.attempts):
        result = _attempt(plan, case, contender, number)
        if kept is None or (result.error is None and result.other_cpu < kept.other_cpu):
            kept = result
        if kept.error is not None or kept.other_cpu <= plan.quiet:
            break
    contender.hold()
    assert kept is not None
    return kept


def _attempt(plan: Plan, case: Case, contender: Contender, number: int) -> Result:
    arguments = case.load(plan.extra, quick=plan.quick)
    if case.fresh:
        contender.stop()
        contender.forget()
    more: dict[str, float] = {}
    try:
        contender.ready()
        settle(plan.quiet, plan.wait_s)
        limit_s = RUN_LIMIT_S
        if case.before:
            more, since = _restarted(plan, case, contender)
            arguments = (*arguments, *since)
            limit_s = RESTART_LIMIT_S
        command = [str(plan.loadgen), *arguments, *contender.arguments(case)]
        figures, drained, error = _run(command, contender.pids(), limit_s)
        if case.durable and not case.before and error is None:
            contender.stop()
            more = _on_disk(contender, figures)
        figures |= more
    except BrokerError as trouble:
        figures, drained, error = {}, "all", str(trouble)
    if drained != "all" or error is not None:
        contender.stop()  # it may still have work from this run
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return Result(contender.name, case.name, number, now, " ".join(arguments), figures, drained, error)


def _restarted(plan: Plan, case: Case, contender: Contender) -> tuple[dict[str, float], tuple[str, ...]]:
    """Put the load before on it, and start it again: the figures of that, and what the load generator is to know."""
    command = [str(plan.loadgen), *case.load_before(quick=plan.quick), *contender.arguments(case)]
    figures, _, error = _generate(command, RESTART_LIMIT_S)
    if error is not None:
        raise BrokerError(f"before the restart: {error}")
    if figures.get("lost", 0):
        raise BrokerError(f"before the restart: {figures['lost']:.0f} messages were not acknowledged")
    contender.stop()
    more = _on_disk(contender, figures)
    more["filled_per_s"] = figures.get("recv_per_s", figures.get("sessions_per_s", 0.0))
    return more, contender.restart()


def _on_disk(contender: Contender, figures: Mapping[str, float]) -> dict[str, float]:
    """What it keeps on disk for each thing stored, when it is stopped."""
    size = contender.disk_bytes()
    return {} if size is None else {"disk_bytes_per_message": size / max(1.0, figures.get("stored", 0.0))}


def _run(command: Sequence[str], pids: Sequence[int], limit_s: float) -> tuple[dict[str, float], str, str | None]:
    """One run of the load generator: its figures with ours, how it drained, and what went wrong."""
    began, busy, cpu, own = time.monotonic(), busy_seconds(), cpu_seconds(pids), _children_seconds()
    figures, drained, error = _generate(command, limit_s)
    wall = time.monotonic() - began
    other = busy_seconds() - busy - (cpu_seconds(pids) - cpu) - (_children_seconds() - own)
    figures["other_cpu"] = round(max(other, 0) / wall, 3)
    figures["wall_s"] = round(wall, 2)
    return figures, drained, error


def _generate(command: Sequence[str], limit_s: float) -> tuple[dict[str, float], str, str | None]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {}, "limit", f"took longer than {limit_s:.0f} s"
    return read(done.stdout, f"no result, exit {done.returncode}: {done.stderr[-200:].strip()}")


def read(output: str, otherwise: str) -> tuple[dict[str, float], str, str | None]:
    """What the load generator's last line of JSON says: numbers, how it drained, an error; if none, otherwise."""
    try:
        said = msgspec.json.decode(output.strip().rpartition("\n")[2], type=dict[str, float | bool | str])
    except msgspec.DecodeError:
        return {}, "limit", otherwise
    figures = {key: value for key, value in said.items() if not isinstance(value, bool | str)}
    error = said.get("error")
    return figures, str(said.get("drained", "all")), None if error is None else str(error)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
