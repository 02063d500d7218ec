"""Three machines of a cluster and three servers of its engine, as processes on loopback, to be killed and stopped.

Invariant: what runs was started here, and is ended by `close`.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.torture_links import Links
from tools.torture_processes import PATIENCE_S, Processes, free_ports, get, nats_server

NUMBER = 3
PAGE_BYTES = 4_096
FILL_ATTEMPTS = 100

ENGINE = """
server_name: n{place}
listen: 127.0.0.1:{port}
http: 127.0.0.1:{monitoring}
jetstream {{ store_dir: "{folder}/engine{place}", sync_interval: always{max_file} }}
cluster {{ name: c, listen: 127.0.0.1:{route}, routes: [{routes}]{advertise} }}
"""

DISK_BYTES = 1_073_741_824
"""The room on each disk that can be filled. It is in memory, and takes what is written only."""

MACHINE = """
data_dir = "{folder}/m{place}"
[[listeners]]
port = {port}
[metrics]
port = {metrics}
[limits]
max_queued_messages = 10_000_000
max_queued_bytes = 10_000_000_000
[[queues]]
name = "jobs"
filters = ["jobs/#"]
[[streams]]
name = "events"
filters = ["events/#"]
partitions = 1
[cluster]
servers = {servers}
monitoring = {monitoring}
node = "m{place}"
addresses = ["127.0.0.1:{port}"]
log_bytes = 268_435_456
snapshot_bytes = 268_435_456
"""


class Machines(Processes):
    """`ports` are where clients find the machines. `serve` is the command of the broker. `has` names what can have
    faults: `links` between all processes, `disks` (to mount them needs root), `clocks` of the machines (which this
    interpreter then runs). `more` is added to the configuration of each machine; in it `{servers}` stands for the
    addresses of the engine."""

    def __init__(self, serve: list[str], folder: Path, has: frozenset[str] = frozenset(), more: str = "") -> None:
        super().__init__(folder)
        self._serve = serve
        self.links = Links()
        self._disks = (
            [f"{kind}{place}" for kind in ("m", "engine") for place in range(NUMBER)] if "disks" in has else []
        )
        for name in self._disks:
            (folder / name).mkdir()
            self._mount(name, DISK_BYTES, "mount", "-t", "tmpfs")
        self._has_clocks = "clocks" in has
        ports = free_ports(5 * NUMBER)
        self.ports, self._metrics, self._engines, self._monitoring, routes = (
            ports[at : at + NUMBER] for at in range(0, 5 * NUMBER, NUMBER)
        )
        engines = self._engines
        entries = {(place, other): routes[other] for place in range(NUMBER) for other in range(NUMBER)}
        if "links" in has:
            ways = iter(free_ports(2 * NUMBER * NUMBER))
            for (place, other), port in entries.items():
                entries[place, other] = next(ways)  # that of a server to itself is where others are told to find it
                self.links.add(frozenset({f"n{place}", f"n{other}"}), entries[place, other], port)
        for place in range(NUMBER):
            values: dict[str, Any] = {
                "folder": folder,
                "place": place,
                "port": self._engines[place],
                "monitoring": self._monitoring[place],
                "route": routes[place],
                "routes": ", ".join(f"nats-route://127.0.0.1:{entries[place, other]}" for other in range(NUMBER)),
                "advertise": f", advertise: 127.0.0.1:{entries[place, place]}" if "links" in has else "",
                "max_file": ", max_file: 10GB" if self._disks else "",
            }
            (folder / f"engine{place}.conf").write_text(ENGINE.format(**values))
            if "links" in has:
                engines = [next(ways) for _ in range(NUMBER)]
                for other, port in enumerate(engines):
                    self.links.add(frozenset({f"m{place}"}), port, self._engines[other])
            values |= {
                "port": self.ports[place],
                "metrics": self._metrics[place],
                "servers": [f"nats://127.0.0.1:{port}" for port in engines],
                "monitoring": [f"http://127.0.0.1:{port}" for port in self._monitoring],
            }
            self.config(place).write_text((MACHINE + more).format(**values))

    @property
    def servers(self) -> list[str]:
        """The addresses of the engine."""
        return [f"nats://127.0.0.1:{port}" for port in self._engines]

    def config(self, place: int) -> Path:
        return self.folder / f"m{place}.toml"

    # ------------------------------------------------------------------ processes

    def start(self, place: int) -> None:
        """Start a machine."""
        command = self._serve
        if self._has_clocks:
            self.set_clock(place, 0)
            command = [sys.executable, "-m", "tools.torture_clock", str(self._clock(place)), "serve"]
        self.run(f"m{place}", [*command, "--config", str(self.config(place)), "--log-format", "text"])

    def start_engine(self, place: int) -> None:
        """Start a server of the engine."""
        self.run(f"engine{place}", [nats_server(), "-c", str(self.folder / f"engine{place}.conf")])

    def lose_data(self, place: int) -> None:
        """Delete all that a machine has which does not run. Its data directory may be a disk of its own, and stays."""
        for each in (self.folder / f"m{place}").iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    def set_clock(self, place: int, ahead_s: int) -> None:
        """Let the wall clock of a machine be ahead of the true one; negative: behind."""
        new = self.folder / "clock.new"
        new.write_text(f"{ahead_s:+d}\n")
        new.replace(self._clock(place))

    def _clock(self, place: int) -> Path:
        return self.folder / f"clock{place}"

    def fill_disk(self, name: str) -> None:
        """Let a disk have no more room: that of a machine, like m0, or of a server of the engine, like engine0."""
        for _ in range(FILL_ATTEMPTS):
            used = shutil.disk_usage(self.folder / name).used
            with contextlib.suppress(subprocess.CalledProcessError):  # meanwhile it has more
                self._mount(name, used + PAGE_BYTES, "mount", "-o", "remount")
                return
        raise OSError(f"{name} was written faster than its disk could be filled")

    def empty_disk(self, name: str) -> None:
        """Let it have room again."""
        self._mount(name, DISK_BYTES, "mount", "-o", "remount")

    def _mount(self, name: str, size: int, *command: str) -> None:
        where = str(self.folder / name)
        subprocess.run(
            [*command, "-o", f"size={size}", "mqttlite-torture", where], check=True, stderr=subprocess.DEVNULL
        )

    async def hand_over(self, command: list[str]) -> str:
        """Let another machine serve; return what the command says."""
        arguments = [*command, "cluster", "hand-over", "--config", str(self.config(0))]
        async with asyncio.timeout(PATIENCE_S):
            while True:
                process = await asyncio.create_subprocess_exec(
                    *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
                )
                said, _ = await process.communicate()
                if b"the engine is not available" not in said:  # it may have begun just now
                    assert process.returncode == 0, said.decode()
                    return said.decode().strip()

    def close(self) -> None:
        """As `Processes`; disks are gone, too."""
        super().close()
        for name in self._disks:
            subprocess.run(["umount", "--lazy", str(self.folder / name)], check=True)

    # ------------------------------------------------------------------ what they are

    async def serving(self) -> int:
        """The machine that serves, as a balancer sees it; waits until there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for place, (status, _) in enumerate(await self._ready()):
                    if status == 200:
                        return place
                await asyncio.sleep(0.02)

    async def whole(self) -> None:
        """Wait until one machine serves and the others follow."""
        seen: list[tuple[int, bytes]] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    seen = await self._ready()
                    following = sum(status == 503 and b"follows" in body for status, body in seen)
                    if following == NUMBER - 1 and any(status == 200 for status, _ in seen):
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"the machines are not whole again after {PATIENCE_S:g} s: {seen}") from None

    async def leader(self) -> int:
        """The server of the engine that leads the log."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for port in self._monitoring:
                    status, body = await get(port, "/jsz?streams=true")
                    found = _leader_of_log(json.loads(body)) if status == 200 else None
                    if found is not None:
                        return found
                await asyncio.sleep(0.1)

    async def _ready(self) -> list[tuple[int, bytes]]:
        return await asyncio.gather(*(get(port, "/readyz") for port in self._metrics))


def _leader_of_log(answer: dict[str, Any]) -> int | None:
    for account in answer.get("account_details", []):
        for stream in account.get("stream_detail", []):
            leader = stream.get("cluster", {}).get("leader", "")
            if "-log-" in stream["name"] and leader:
                return int(leader.removeprefix("n"))
    return None
