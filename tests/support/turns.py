"""Files of tests that take turns by the date: what runs today, and what tomorrow.

`tools/test` says which day it is (`DAY` in `loops.py`); where nobody says so each file runs. Invariant: four days that
follow each other run everything, and each day runs something of each promise, as is said at each group of `SLOW_TURNS`.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.loops import DAY
from tests.support.parts import COMPILED, OTHERS, TESTS, is_in, takes_turns

SLOW_TURNS: Final[Sequence[Sequence[Sequence[str]]]] = (
    # Reports as a whole, planted troubles that they find, and the watch. Each day computes all reports: of the golden
    # files, by the command, or of a real fleet's dataset.
    (
        ("e2e/test_dataset.py",),
        ("spark/test_cli.py", "spark/test_watched_troubles.py"),
        ("spark/test_golden.py", "spark/test_planted.py"),
        ("spark/test_golden.py", "spark/test_watch.py"),
    ),
    # Reports in detail.
    (
        ("spark/test_backpressure.py", "spark/test_latency.py", "spark/test_nodes.py", "spark/test_page_in_browser.py"),
        ("spark/test_capacity.py", "spark/test_minutes.py", "spark/test_runs.py", "spark/test_stream_report.py"),
    ),
    (
        ("spark/test_read.py", "spark/test_sessions.py", "spark/test_trouble.py", "spark/test_queues.py"),
        ("spark/test_devices.py", "spark/test_topics.py", "spark/test_views.py", "spark/test_streams.py"),
    ),
    # Kills at random moments. Each day kills a broker with clients (`test_kill`).
    (
        (
            *("faults/test_engine_faults.py", "faults/test_queue_kill.py", "faults/test_will_kill.py"),
            "faults/test_stream_torture.py",
        ),
        (
            *("faults/test_nodes_killed.py", "faults/test_documents_killed.py", "faults/test_exactly_once_kill.py"),
            "faults/test_cluster_as_node.py",
        ),
        (
            *("faults/test_cluster_kill.py", "faults/test_bridge_kill.py", "faults/test_queue_torture.py"),
            "faults/test_nodes_torture.py",
        ),
        (
            *("faults/test_bridges_killed.py", "faults/test_stream_kill.py", "faults/test_push_kill.py"),
            "faults/test_idempotent_kill.py",
        ),
    ),
    # Disks that lose their power or fail, under sessions and under queues. Each day cuts the power.
    (
        ("faults/test_power_cuts.py", "faults/test_damage.py"),
        ("faults/test_queue_faults.py", "faults/test_failing_disk.py"),
    ),
    # A row for each session of a broker that dies.
    (("integration/test_telemetry_crash.py",), ("unit/extensions/dataset/test_journal.py",)),
    # The standard beyond one broker. Each day has it over a socket.
    (("conformance/test_over_nodes.py",), ("conformance/test_over_machines.py",)),
    # Requests of strangers: of whoever can connect, and all that the API describes.
    (("fuzz/test_attackers.py",), ("integration/test_gateway_schema.py",)),
    # What readers of the documents do.
    (("documents/test_tutorial.py",), ("documents/test_test_your_code.py",)),
    # Several nodes. Each day has messages, sessions, queues and drains of them.
    (
        ("integration/nodes/test_operated.py",),
        ("integration/nodes/test_shares.py", "integration/nodes/test_places.py"),
    ),
    # Pages in a browser.
    (("e2e/test_dashboard_in_browser.py",), ("e2e/test_event_source_in_browser.py", "e2e/test_web_page.py")),
    # What is built of the project: the documents as a site, and distributions.
    (("documents/test_site.py",), ("packaging/test_distributions.py",)),
    # Programs of others. Each day has `test_matrix`, with each library.
    (
        ("interop/test_asyncapi.py",),
        ("interop/test_google_system.py",),
        ("interop/test_matrix_over_nodes.py",),
    ),
    # Benchmarks and the generators of test data, which no user has. Their quick tests run each day.
    (
        ("unit/bench/test_guard.py", "unit/bench/test_queues.py", "unit/bench/test_entrants.py"),
        ("unit/bench/test_micro_benchmarks.py", "unit/bench/test_streams.py", "unit/bench/test_storm.py"),
        (
            "unit/tools/test_troubles.py",
            "unit/bench/test_pushing.py",
            "unit/bench/test_flood.py",
            "unit/bench/test_bridges.py",
        ),
        ("unit/tools/test_telemetry_gen.py", "unit/bench/test_page.py", "unit/bench/test_logs.py"),
    ),
)
"""Groups of files with slow tests: each day runs one set of each group, one after the other. All take about as long."""


def rests(path: Path, day: str = DAY) -> bool:
    """Whether the slow tests of a file run on other days, and not on that one."""
    if not day:
        return False
    for group in SLOW_TURNS:
        if any(_is_one_of(path, names) for names in group):
            return not _is_one_of(path, group[int(day) % len(group)])
    return False


def runs_today(path: Path, part: str, day: str = DAY) -> bool:
    """Whether a file of a part runs on that day. Of those that take turns half run pure and half compiled, and the next
    day on the other build."""
    if not is_in(path, part):
        return False
    if not day or part not in (OTHERS, COMPILED) or not takes_turns(path):
        return True
    name = path.absolute().relative_to(TESTS).as_posix()
    return ((zlib.crc32(name.encode()) + int(day)) % 2 == 0) == (part == COMPILED)


def _is_one_of(path: Path, names: Sequence[str]) -> bool:
    return any(path.absolute() == TESTS / name for name in names)
