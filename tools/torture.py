"""Kills a broker at random moments while clients publish and subscribe, and checks what the standard promises.

The clients speak MQTT 3.1.1 by hand, keep their own state over connections as §4.4 demands, and know nothing of the
broker. In the end each acknowledged message was delivered to each subscriber, QoS 2 exactly once, those of a publisher
in their order, and each retained message is the last acknowledged one or a later one.
"""

import argparse
import asyncio
import contextlib
import itertools
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.torture_clients import Link, Publisher, Subscriber
from tools.torture_cluster import FAULTS, ClusterTorture
from tools.torture_nodes import FAULTS as NODE_FAULTS
from tools.torture_nodes import TAKEOVERS, NodesTorture
from tools.torture_packets import packet, text
from tools.torture_queues import QueueTorture
from tools.torture_streams import StreamTorture

START_S = 30.0
"""How long a broker may take to start after it was killed."""


@dataclass
class Result:
    """What was seen; the first three are to be 0."""

    lost: int = 0
    twice: int = 0
    out_of_order: int = 0
    acknowledged: int = 0
    kills: int = 0
    slowest_start_s: float = 0.0

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.twice or self.out_of_order) and self.acknowledged > 0


class Torture:
    """`serve` is the command of the broker, without its port and data directory."""

    def __init__(self, serve: list[str], directory: Path, seed: int) -> None:
        self._serve = serve
        self._directory = directory
        self._config = directory / "torture.toml"
        self._config.write_text("[limits]\nmax_queued_messages = 10_000_000\nmax_queued_bytes = 10_000_000_000\n")
        self._random = random.Random(seed)
        self.publishers = [Publisher(f"p{at}-qos{qos}", qos) for qos in (1, 2) for at in range(2)]
        self.publishers.append(Publisher("retained", 1, retain=True, prefix="kept"))
        self.subscribers = [Subscriber(f"s-qos{qos}", qos) for qos in (1, 2)]
        self.result = Result()

    async def run(self, kills: int) -> Result:
        """Kill the broker so often, then let everything arrive, and compare."""
        for subscriber in self.subscribers:  # their sessions begin before the first message
            await self._round(None, [subscriber], lambda: True, lambda: True)
        for _ in range(kills):
            clients = [*self.publishers, *(each for each in self.subscribers if self._random.random() < 0.7)]
            await self._round(self._random.uniform(0.05, 0.8), clients, lambda: False, lambda: False)
            self.result.kills += 1
        quiet = _Quiet(self)
        await self._round(None, [*self.publishers, *self.subscribers], lambda: True, quiet.is_over)
        await self._compare()
        return self.result

    async def _round(
        self,
        kill_after_s: float | None,
        clients: "list[Publisher | Subscriber]",
        has_published: Callable[[], bool],
        has_everything: Callable[[], bool],
    ) -> None:
        process, port = await self._start()
        tasks = [
            asyncio.create_task(client.run(port, has_published if isinstance(client, Publisher) else has_everything))
            for client in clients
        ]
        try:
            if kill_after_s is None:
                await asyncio.gather(*tasks)
            else:
                await asyncio.sleep(kill_after_s)
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            for task in tasks:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await task

    async def _start(self) -> tuple[asyncio.subprocess.Process, int]:
        begun = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(*self._serve, "--port", "0", "--data-dir", str(self._directory), "--log-format", "text"),
            *("--config", str(self._config)),
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        said = b""
        async with asyncio.timeout(START_S):
            async for line in process.stderr:
                said += line
                if b"listening for MQTT" in line:
                    self.result.slowest_start_s = max(self.result.slowest_start_s, time.monotonic() - begun)
                    return process, int(line.split(b" on ")[1].split()[0].rpartition(b":")[2])
        raise AssertionError(f"the broker did not start:\n{said.decode()}")

    async def _compare(self) -> None:
        result = self.result
        for publisher in self.publishers:
            result.acknowledged += len(publisher.acknowledged)
            if publisher.retain:
                continue
            for subscriber in self.subscribers:
                got = subscriber.got.get(publisher.name, [])
                result.lost += len(publisher.acknowledged - set(got))
                first = list(dict.fromkeys(got))
                result.out_of_order += sum(left > right for left, right in itertools.pairwise(first))
                if publisher.qos == 2 and subscriber.qos == 2:
                    result.twice += len(got) - len(first)
        process, port = await self._start()
        retained = self.publishers[-1]
        found = -1
        async with Link.open(port, "reader") as link:
            link.writer.write(packet(0x82, b"\0\1" + text("kept/#") + b"\0"))
            with contextlib.suppress(TimeoutError):
                while True:
                    first, body = await asyncio.wait_for(link.read(), 1.0)
                    if first >> 4 == 3:
                        found = int(body[2 + int.from_bytes(body[:2], "big") :])
        result.lost += found < max(retained.acknowledged, default=-1)
        process.send_signal(signal.SIGKILL)
        await process.wait()


class _Quiet:
    """Over when everything acknowledged has come, or nothing has for ten seconds. It is asked after every packet."""

    def __init__(self, torture: Torture) -> None:
        self._torture = torture
        self._count = -1
        self._changed = self._looked = time.monotonic()

    def is_over(self) -> bool:
        now = time.monotonic()
        if now - self._looked < 0.5:
            return False
        self._looked = now
        subscribers = self._torture.subscribers
        count = sum(len(numbers) for each in subscribers for numbers in each.got.values())
        if count != self._count:
            self._count, self._changed = count, now
            return False
        return self._is_whole() or now - self._changed > 10

    def _is_whole(self) -> bool:
        publishers = self._torture.publishers
        return not any(each.under_way for each in publishers) and all(
            each.acknowledged <= set(subscriber.got.get(each.name, []))
            for each in publishers
            if not each.retain
            for subscriber in self._torture.subscribers
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Kill a broker again and again, and look for lost messages.")
    parser.add_argument("--kills", type=int, default=200, help="how often the broker is killed (200)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which it is (1)")
    parser.add_argument("--queue", type=int, default=0, metavar="N", help="torture a queue with N messages instead")
    parser.add_argument("--keys", type=int, default=10_000, help="ordering keys of these messages (10,000)")
    parser.add_argument(
        "--stream", type=int, default=0, metavar="N", help="torture a group of a stream N times instead"
    )
    parser.add_argument("--cluster", type=int, default=0, metavar="N", help="torture three machines N times instead")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="simulate N clusters instead, from --seed on")
    parser.add_argument("--nodes", type=int, default=0, metavar="N", help="torture three nodes N times instead")
    parser.add_argument(
        "--takeovers",
        type=int,
        default=TAKEOVERS,
        metavar="N",
        help=f"of one client identifier, before the first fault of nodes ({TAKEOVERS})",
    )
    parser.add_argument(
        "--fault",
        action="append",
        choices=[*FAULTS, *NODE_FAULTS],
        help="only these faults of machines or nodes, in turn",
    )
    parser.add_argument("serve", nargs="*", help="the broker's command; by default mqttlite serve of this environment")
    options = parser.parse_args()
    if options.seeds:
        from tools.torture_seeds import play  # here, for it needs the tests

        play(options.seed, options.seeds)
        return
    serve = options.serve or [sys.executable, "-m", "mqttlite", "serve"]
    directory = Path(tempfile.mkdtemp(prefix="mqttlite-torture-"))
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a broker that was killed
    if options.cluster or options.nodes:
        if options.cluster:
            command = serve[:-1] if serve[-1] == "serve" else serve
            cluster = ClusterTorture(command, directory, options.seed, options.fault)
            several = asyncio.run(cluster.run(options.cluster))
        else:
            nodes = NodesTorture(serve, directory, options.seed, options.fault)
            several = asyncio.run(nodes.run(options.nodes, options.takeovers))
        print(several)
        if not several.is_good:
            sys.exit(f"the directory is kept: {directory}")
        shutil.rmtree(directory)
        return
    if options.stream:
        verdict = asyncio.run(StreamTorture(serve, directory, options.seed).run(options.stream))
        print(verdict)
        if not verdict.is_good:
            sys.exit(f"the data directory is kept: {directory}")
        shutil.rmtree(directory)
        return
    if options.queue:
        queues = QueueTorture(serve, directory, options.seed, options.queue, options.keys)
        seen = asyncio.run(queues.run(options.kills))
        print(seen)
        if not seen.is_good:
            sys.exit(f"the data directory is kept: {directory}")
        shutil.rmtree(directory)
        return
    result = asyncio.run(Torture(serve, directory, options.seed).run(options.kills))
    print(
        f"{result.kills} kills, {result.acknowledged} messages acknowledged: {result.lost} lost, "
        f"{result.twice} of QoS 2 twice, {result.out_of_order} out of order; "
        f"slowest start {result.slowest_start_s:.1f} s"
    )
    if not result.is_good:
        sys.exit(f"the data directory is kept: {directory}")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
