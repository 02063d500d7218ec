"""A whole dataset, hour by hour: the only place where the parts meet.

Invariant: memory does not grow with the number of messages, only with that of sessions and topics.
"""

import bisect
import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tools.telemetry import intervals, rows, traced
from tools.telemetry.events import events
from tools.telemetry.files import Files, iso
from tools.telemetry.fleet import CLASSES, DAY, HOUR, SECOND, Fleet, Rng, make_fleet
from tools.telemetry.intervals import Backlogs, Stretch
from tools.telemetry.lives import Run, Sessions, make_runs, make_sessions, when_storms_end
from tools.telemetry.messages import published
from tools.telemetry.queues import Played, QueueTrouble, plan_queues, play
from tools.telemetry.troubles import Trouble, counts_of, plan, truth

TRUTH: Final = "truth.json"

_QUEUES: Final = 1
"""With the seed, that of what happens in queues."""


@dataclass(frozen=True)
class Order:
    """What is wanted."""

    devices: int
    days: float
    seed: int
    interval_s: int
    """Of the tables that add up; an hour must be a multiple of it."""
    form: str
    troubles: str


def generate(order: Order, directory: Path, progress: Callable[[float], None]) -> Counter[str]:
    """Write the dataset and the truth about it; how many rows each table got. Raises ValueError, OSError."""
    rng = np.random.default_rng(order.seed)
    span = int(order.days * DAY)
    fleet = make_fleet(rng, order.devices)
    runs = make_runs(rng, span)
    counts = counts_of(order.troubles, order.devices)
    troubles = plan(rng, fleet, counts, span, [(run.start, run.stop) for run in runs])
    sessions = make_sessions(rng, fleet, runs, troubles, span)
    ends = when_storms_end(sessions, troubles)
    troubles = [
        dataclasses.replace(each, end=ends[each.start]) if each.kind == "storm" else each for each in troubles
    ]  # fmt: skip
    files = Files(directory, order.form)
    of_queues = np.random.default_rng([order.seed, _QUEUES])
    queue_troubles = plan_queues(of_queues, counts, span)
    queues = play(of_queues, queue_troubles, span)
    _play(rng, fleet, sessions, runs, troubles, queues, order, span, files, progress)
    _write_truth(directory, order, fleet, runs, troubles, queue_troubles, span)
    return files.rows


def _play(
    rng: Rng, fleet: Fleet, sessions: Sessions, runs: list[Run], troubles: list[Trouble], queues: Played, order: Order,
    span: int, files: Files, progress: Callable[[float], None],
) -> None:  # fmt: skip
    clock = rows.Clock.jumping(troubles)
    totals = rows.Totals.of(len(sessions.client), intervals.COLUMNS)
    backlogs = Backlogs()
    slow = [each for each in troubles if each.kind == "slow"]
    slow_minutes = [each for each in troubles if each.kind == "slow_minute"]
    share = traced.one_in(_expected_messages(fleet, span), span)
    for run, stretch in _stretches(runs, order.interval_s * SECOND):
        messages = published(rng, fleet, sessions, troubles, stretch.start, stretch.end)
        counted = intervals.count(rng, fleet, sessions, messages, stretch, slow, backlogs)
        totals.add(counted)
        sampled = traced.follow(rng, fleet, sessions, messages, share, slow, slow_minutes)
        histograms = traced.histograms(messages, sampled, stretch)
        ended = _to_write(sessions, runs, run, stretch)
        tables = {
            "traffic": rows.traffic_rows(run, clock, fleet, stretch, *intervals.traffic(fleet, messages, counted)),
            "activity": rows.activity_rows(run, clock, fleet, sessions, counted),
            "drops": rows.drop_rows(run, clock, fleet, counted),
            "latency": rows.latency_rows(run, clock, fleet, stretch, histograms),
            "samples": rows.sample_rows(run, clock, fleet, sessions, messages, sampled, share),
            "attempts": rows.queue_rows("attempts", run, clock, _within(queues.attempts, "ended_at", stretch)),
            "dead_letters": rows.queue_rows("dead_letters", run, clock, _within(queues.dead_letters, "at", stretch)),
            "events": rows.event_rows(run, clock, events(rng, fleet, sessions, run, counted, troubles)),
        }
        for name, table in tables.items():
            files.write(name, run.broker_id, table)
        for dead, which in ended:
            files.write("sessions", run.broker_id, rows.session_rows(dead, clock, fleet, sessions, totals, which))
        progress(stretch.end / span)


def _within(found: list[dict[str, Any]], time: str, stretch: Stretch) -> list[dict[str, Any]]:
    """The rows of a stretch; what ends while no broker runs has none."""
    first = bisect.bisect_left(found, stretch.start, key=lambda row: row[time])
    return found[first : bisect.bisect_left(found, stretch.end, key=lambda row: row[time])]


def _stretches(runs: list[Run], interval: int) -> Iterator[tuple[Run, Stretch]]:
    """The hours of each run; its last ends after what happens as it stops."""
    for run in runs:
        start = run.start
        while start <= run.stop and not (run.last and start == run.stop):
            end = (start // HOUR + 1) * HOUR
            if end > run.stop:
                end = run.stop + (0 if run.last else 1)
            yield run, Stretch(start, end, interval)
            start = end


def _to_write(sessions: Sessions, runs: list[Run], run: Run, stretch: Stretch) -> list[tuple[Run, Any]]:
    """Sessions whose rows are written in a stretch, with the run that they are of."""
    now = (sessions.end >= stretch.start) & (sessions.end < stretch.end) & (sessions.run == runs.index(run))
    before = runs.index(run) - 1
    written = [(run, np.flatnonzero(now & ~_crashed(sessions, run)))]
    if stretch.start == run.start and before >= 0 and runs[before].crashed:
        left = (sessions.run == before) & _crashed(sessions, runs[before])
        written.append((runs[before], np.flatnonzero(left)))
    return written


def _crashed(sessions: Sessions, run: Run) -> Any:
    """Those that were open when the run died."""
    return (sessions.end == run.stop) if run.crashed else np.zeros(len(sessions.end), bool)


def _expected_messages(fleet: Fleet, span: int) -> int:
    shifts = np.array([0.6 if each.shift else 1.0 for each in CLASSES])[fleet.kinds[: fleet.devices]]
    return int(np.sum(shifts * span / SECOND / fleet.intervals_s[: fleet.devices]))


def _write_truth(
    directory: Path, order: Order, fleet: Fleet, runs: list[Run], troubles: list[Trouble],
    of_queues: list[QueueTrouble], span: int,
) -> None:  # fmt: skip
    clock = rows.Clock.jumping(troubles)

    def wall(at: int) -> str:
        return iso(int(clock.wall(np.array([at]))[0]))

    document = {
        "order": dataclasses.asdict(order),
        "start": wall(0),
        "end": wall(span),
        "clients": len(fleet.client_ids),
        "restarts": [
            {"stopped": wall(run.stop), "started": wall(following.start), "crashed": run.crashed}
            for run, following in itertools.pairwise(runs)
        ],
        "troubles": [*truth(troubles, fleet, wall), *(each.truth(wall) for each in of_queues)],
    }
    (directory / TRUTH).write_text(json.dumps(document, indent=2) + "\n")
