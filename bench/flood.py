"""More than the broker can handle: a thousand publishers that send as fast as they can, beside polite clients.

The polite have a process of their own, as have the publishers and the receivers of the flood. A run in which an
acknowledged message is lost, or the polite lose anything, ends with exit code 1.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import brokers, build, entrants, native, report

MIB: Final = 1_048_576

POLITE: Final = ("--mode", "fanin", "--pubs", "20", "--qos", "1", "--rate", "200", "--size", "64", "--secs", "600")
USUAL: Final = ("--mode", "flood", "--subs", "1", "--size", "64")


@dataclass(frozen=True, slots=True)
class Flood:
    """What is put on the broker."""

    publishers: int = 1_000
    seconds: float = 6.0
    compiled: bool = True
    mosquitto: bool = False
    """Put it on Mosquitto in place of our broker."""
    quiet_s: float = 5.0
    rest_s: float = 2.0
    """What the broker has to recover, before the part begins that shows whether it did."""


FLOODS: Final = {
    "QoS 0": (*USUAL, "--qos", "0"),
    "QoS 1, MQTT 3.1.1": (*USUAL, "--qos", "1"),
    "QoS 1, MQTT 5.0": (*USUAL, "--qos", "1", "--v5"),
    "half QoS 0, half QoS 1": (*USUAL, "--mixed"),
}
"""By name, what the load generator is told."""


def run(flood: Flood) -> int:
    """Measure each flood and print a table; 1 if a bound is broken."""
    rows, broken = [], []
    for name, load in FLOODS.items():
        figures, polite, drops_of, log = _measure(flood, load)
        lost = figures["acknowledged"] - figures["received_acked"]
        quiet, meanwhile, after = (polite["parts"][at] for at in (0, 2, 4))
        stages = [line.partition(": ")[2] for line in log if "overload, load" in line and "no longer" not in line]
        drops = ", ".join(f"{count} {reason}" for reason, count in sorted(drops_of.items())) or "none"
        rows.append(
            [
                name,
                f"{figures['sent_per_s'] / 1e3:.0f} k/s, {figures['recv_per_s'] / 1e3:.0f} k/s",
                *_latencies(quiet),
                *_latencies(meanwhile),
                f"{meanwhile['p99_us'] / quiet['p99_us']:.1f}",
                f"{after['p99_us'] / 1e3:.2f} ms",
                f"{figures['acknowledged']}, {max(0, lost)}",
                drops,
                str(len({stage.rpartition(": ")[2] for stage in stages})),
            ]
        )
        if lost > 0:
            broken.append(f"{name}: {lost} acknowledged messages were lost: {drops}")
        if polite["lost"] or polite["disconnects"]:
            broken.append(f"{name}: the polite lost {polite['lost']} messages, {polite['disconnects']} connections")
    heads = ["flood", "sent, received", "quiet p50", "quiet p99", "p50", "p99", "p99, times", "p99 2 s after"]
    print(report.markdown([*heads, "acknowledged, lost", "drops", "stages"], rows))
    print("".join(f"\nbroken: {each}" for each in broken) or "\nno acknowledged message was lost")
    return 1 if broken else 0


def _latencies(part: dict[str, float]) -> list[str]:
    return [f"{part[key] / 1e3:.2f} ms" for key in ("p50_us", "p99_us")]


def _broker(flood: Flood, home: Path, status_port: int) -> brokers.Spec:
    if flood.mosquitto:
        found = entrants.mosquitto(home)
        if found is None:
            raise brokers.BrokerError("mosquitto is not installed")
        return found
    source = native.tree() if flood.compiled else native.ROOT
    port = brokers.free_port()
    (home / "mqttlite.toml").write_text(
        f'data_dir = ""\n[[listeners]]\nport = {port}\n[metrics]\nport = {status_port}\n', encoding="utf-8"
    )
    return brokers.Spec(
        "mqttlite",
        brokers.LOOPBACK,
        port,
        (sys.executable, "-P", "-m", "mqttlite", "serve", "-c", str(home / "mqttlite.toml"), "--log-level", "warning"),
        folder=home,
        environment={"PYTHONPATH": str(source)},
    )


def _measure(flood: Flood, load: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any], dict[str, int], list[str]]:
    """One flood: the figures of the publishers, those of the polite, and our broker's drops and lines of its log."""
    loadgen = str(build.loadgen())
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home, status_port = Path(folder), brokers.free_port()
        broker = brokers.Broker(_broker(flood, home, status_port), home)
        broker.ready()
        where = ("--host", brokers.LOOPBACK, "--port", str(broker.spec.port))
        polite = subprocess.Popen([loadgen, *where, *POLITE], stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(flood.quiet_s)
            polite.send_signal(signal.SIGUSR1)
            more = ("--pubs", str(flood.publishers), "--secs", f"{flood.seconds:g}", "--drain", "30", "--idle", "5")
            publishers = subprocess.Popen([loadgen, *where, *load, *more], stdout=subprocess.PIPE, text=True)
            begin_s = min(1.0, flood.seconds / 2)
            for wait_s in (begin_s, flood.seconds - begin_s):  # the first part is that in which they connect and begin
                time.sleep(wait_s)
                polite.send_signal(signal.SIGUSR1)
            told, _ = publishers.communicate(timeout=60)
            time.sleep(flood.rest_s)
            polite.send_signal(signal.SIGUSR1)
            time.sleep(flood.rest_s)
            drops = {} if flood.mosquitto else _drops(status_port)
            polite.send_signal(signal.SIGUSR2)
            polite_told, _ = polite.communicate(timeout=30)
        finally:
            polite.kill()
            polite.wait()
            broker.stop()
        log = (home / f"{broker.spec.name}.stderr").read_text(encoding="utf-8").splitlines()
    return _figures(told), _figures(polite_told), drops, log


def _drops(status_port: int) -> dict[str, int]:
    """By reason."""
    status = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{status_port}/status", timeout=10).read())
    drops: dict[str, int] = status["drops"]
    return drops


def _figures(told: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(told)
    if "error" in figures:
        raise brokers.BrokerError(f"the load generator: {figures['error']}")
    return figures
