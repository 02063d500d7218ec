"""Where the time goes: perf looks at the compiled broker while the load generator keeps it busy."""

import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import build, entrants, flame, native, report, stacks
from bench.brokers import Broker, BrokerError
from bench.cases import Case

FOLDER: Final = native.ROOT / "docs" / "explanation" / "performance"
USUAL: Final = ("stream-q0-256B-x50", "stream-q1-16B-x50", "fanout-1000", "fanin-500-20k")
LOAD_S: Final = 6.0
LOOK_S: Final = 3.5
BEFORE_S: Final = 1.5
"""So that connections and subscriptions are made."""
SAMPLES_PER_S: Final = 499
TOP: Final = 3
OURS: Final = "mqttlite itself"
BELONGS: Final[Mapping[str, Callable[[str], bool]]] = {
    "kernel: read": lambda name: name == "kernel: read",
    "kernel: write": lambda name: name == "kernel: write",
    "kernel: epoll": lambda name: name == "kernel: epoll",
    "kernel: memory": lambda name: name == "kernel: memory",
    "kernel: other": lambda name: name.startswith("kernel: "),
    "uvloop": lambda name: name == "uvloop",
    "memory copied": lambda name: name == "memory copied",
    OURS: lambda name: "." in name,
    "Python and its allocator": lambda name: True,
}
"""Where a share belongs: the first that says so."""
PLACES: Final = list(BELONGS)


def run(cases: Sequence[Case], source: Path, folder: Path | None) -> str:
    """The shares of each case with the broker in `source`, as Markdown; flame graphs go into the folder."""
    found = {case: _look(case, source) for case in cases}
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for case, seen in found.items():
            (folder / f"{case.name}.svg").write_text(flame.svg(seen, case.title), encoding="utf-8")
    return table(found)


def table(found: Mapping[Case, Counter[stacks.Stack]]) -> str:
    """A row for each place, a column for each case."""
    groups = {case: _grouped(stacks.shares(seen)) for case, seen in found.items()}
    places = sorted({place for shares in groups.values() for place in shares}, key=PLACES.index)
    rows = [[place, *(f"{100 * shares.get(place, 0):.0f} %" for shares in groups.values())] for place in places]
    most = ["of mqttlite most in", *(_most(stacks.shares(seen)) for seen in found.values())]
    return report.markdown(["", *(f"{case.table}: {case.title}" for case in found)], [*rows, most])


def _grouped(shares: Sequence[tuple[str, float]]) -> dict[str, float]:
    grouped: dict[str, float] = {}
    for name, share in shares:
        place = next(place for place, belongs in BELONGS.items() if belongs(name))
        grouped[place] = grouped.get(place, 0.0) + share
    return grouped


def _most(shares: Sequence[tuple[str, float]]) -> str:
    ours = [(name, share) for name, share in shares if BELONGS[OURS](name)]
    return ", ".join(f"`{name}` {100 * share:.0f} %" for name, share in ours[:TOP])


def _look(case: Case, source: Path) -> Counter[stacks.Stack]:
    if shutil.which("perf") is None:
        raise BrokerError("perf is not installed (Debian: apt-get install linux-perf)")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        broker = Broker(entrants.serving("mqttlite", home, {"PYTHONPATH": str(source)}), home)
        broker.ready()
        try:
            load = [str(build.loadgen()), *case.load(("--secs", f"{LOAD_S:g}"), quick=False), *broker.arguments(case)]
            with subprocess.Popen(load, stdout=subprocess.DEVNULL) as generator:
                time.sleep(BEFORE_S)
                script = _perf(broker.pids()[0], home / "perf.data")
                generator.wait()
        finally:
            broker.stop()
    return stacks.read(script)


def _perf(pid: int, data: Path) -> str:
    """What perf saw of a process."""
    look = ["-F", str(SAMPLES_PER_S), "--call-graph", "dwarf,16384", "-p", str(pid), "-o", str(data)]
    subprocess.run(
        ["perf", "record", "-q", "-e", "cpu-clock", *look, "--", "sleep", f"{LOOK_S:g}"], check=True, timeout=60
    )
    show = ["perf", "script", "-i", str(data), "-F", "comm,ip,sym,dso"]
    return subprocess.run(show, check=True, capture_output=True, text=True, timeout=300).stdout
