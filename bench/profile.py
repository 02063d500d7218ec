"""Where the time goes: perf looks at the compiled broker while the load generator keeps it busy."""

import shutil
import subprocess
import tempfile
import time
from collections import Counter
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
TOP: Final = 12


def run(case: Case, folder: Path | None) -> str:
    """The shares of a case as Markdown; its flame graph goes into the folder."""
    found = _look(case)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{case.name}.svg").write_text(flame.svg(found, case.title), encoding="utf-8")
    rows = [[name, f"{100 * share:.1f} %"] for name, share in stacks.shares(found)[:TOP]]
    return f"### {case.table}: {case.title}\n\n{report.markdown(['where', 'share'], rows)}"


def _look(case: Case) -> Counter[stacks.Stack]:
    if shutil.which("perf") is None:
        raise BrokerError("perf is not installed (Debian: apt-get install linux-perf)")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        broker = Broker(entrants.serving("mqttlite", home, {"PYTHONPATH": str(native.tree())}), home)
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
