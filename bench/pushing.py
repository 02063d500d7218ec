"""How many messages a queue pushes in a second, and how soon one is there while another queue's endpoint sleeps.

`python -m bench push` starts a broker with two queues of one topic, and is its publisher and both endpoints. Invariant:
each message is counted by the request that brings it, and one that is missing is an error.
"""

import asyncio
import base64
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.client import Client

SECRET: Final = "whsec_" + base64.b64encode(bytes(32)).decode()

SLEEP_S: Final = 30.0
"""How long the sleeping endpoint takes for nothing."""

LIMIT_S: Final = 120.0
"""How long anything may take."""

UNDER_WAY: Final = 500
"""Messages that the publisher has unacknowledged."""


class PushingError(RuntimeError):
    """The broker did not do what is measured."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured: a backlog of `messages`, then `rate` a second for so long."""

    messages: int = 20_000
    rate: int = 200
    seconds: float = 20.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured. Times in seconds; of the rate without those of the first two seconds."""

    pushed_per_s: float
    p50_s: float
    p99_s: float


class Sink(asyncio.Protocol):
    """An endpoint that does as little as one can. `on_request` gets each body."""

    def __init__(self, on_request: Callable[[bytes], None], sleep_s: float = 0.0) -> None:
        self._on_request: Final = on_request
        self._sleep_s: Final = sleep_s
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            at = head.index(b"content-length:") + len(b"content-length:")
            whole = end + 4 + int(head[at:].split(b"\r\n", 1)[0])
            if len(self._read) < whole:
                return
            self._on_request(self._read[end + 4 : whole])
            self._read = self._read[whole:]
            asyncio.get_running_loop().call_later(self._sleep_s, self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def measure(source: Path, plan: Plan) -> Figures:
    """Start a broker of that source tree and measure it. Raises `PushingError`."""
    loop = asyncio.get_running_loop()
    arrived: list[tuple[float, bytes]] = []
    quick = await loop.create_server(lambda: Sink(lambda body: arrived.append((time.time(), body))), "127.0.0.1", 0)
    asleep = await loop.create_server(lambda: Sink(lambda body: None, SLEEP_S), "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (quick, asleep)]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        port = _free_port()
        queues = "".join(
            f'[[queues]]\nname = "q{at}"\nfilters = ["bench/#"]\n'
            f'push = {{ url = "http://127.0.0.1:{each}/", secret = "{SECRET}" }}\n'
            for at, each in enumerate(ports)
        )
        config = f"{name}/config.toml"
        with open(config, "w", encoding="utf-8") as file:  # noqa: ASYNC230 (nothing runs yet)
            file.write(f'data_dir = "{name}/data"\nstop_timeout_s = 0.2\n[[listeners]]\nport = {port}\n')
            file.write(f'[push]\nallowed_hosts = ["127.0.0.1"]\n{queues}')
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "mqttlite", "serve", "--config", config),
            env={**os.environ, "PYTHONPATH": str(source)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                await _wait_for(port, process)
                async with Client("127.0.0.1", port) as client:
                    return await _measure(client, plan, arrived, lambda what: _queue(source, name, what))
        except TimeoutError:
            raise PushingError(f"after {LIMIT_S:g} s {len(arrived)} messages were pushed") from None
        finally:
            process.terminate()
            await process.wait()
            quick.close()
            asleep.close()


async def _measure(
    client: Client, plan: Plan, arrived: list[tuple[float, bytes]], queue: Callable[[str], Awaitable[None]]
) -> Figures:
    free = asyncio.Semaphore(UNDER_WAY)

    async def publish() -> None:
        async with free:
            await client.publish("bench/a", b"%.6f" % time.time(), qos=1)

    await queue("pause")
    await asyncio.gather(*(publish() for _ in range(plan.messages)))
    await queue("resume")
    while len(arrived) < plan.messages:
        await asyncio.sleep(0.01)
    pushed_per_s = plan.messages / (arrived[-1][0] - arrived[0][0])
    arrived.clear()
    began, count = time.time(), int(plan.rate * plan.seconds)
    tasks = []
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / plan.rate - time.time()))
        tasks.append(asyncio.create_task(publish()))
    await asyncio.gather(*tasks)
    while len(arrived) < count:
        await asyncio.sleep(0.01)
    took = sorted(at - _sent_at(body) for at, body in arrived if _sent_at(body) >= began + min(2.0, plan.seconds / 2))
    return Figures(pushed_per_s=pushed_per_s, p50_s=took[len(took) // 2], p99_s=took[len(took) * 99 // 100])


async def _queue(source: Path, folder: str, what: str) -> None:
    """Pause or resume the queue whose endpoint is awake."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "mqttlite", "queue", what, "q0", "--data-dir", f"{folder}/data"),
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=asyncio.subprocess.DEVNULL,
    )
    if await process.wait():
        raise PushingError(f"`mqttlite queue {what}` failed")


def _sent_at(body: bytes) -> float:
    return float(base64.b64decode(json.loads(body)["message"]["data"]))


async def _wait_for(port: int, process: asyncio.subprocess.Process) -> None:
    while process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return
    raise PushingError("the broker did not start")


def _free_port() -> int:
    with socket.socket() as kernel:
        kernel.bind(("127.0.0.1", 0))
        port: int = kernel.getsockname()[1]
        return port


def told(plan: Plan, figures: Figures) -> str:
    """The figures in two sentences."""
    return (
        f"{figures.pushed_per_s:,.0f} messages a second of a backlog were pushed and acknowledged.\n"
        f"At {plan.rate} a second, beside an endpoint that sleeps {SLEEP_S:g} s, half of the messages were at their "
        f"endpoint within {figures.p50_s * 1e3:.1f} ms, and 99 % within {figures.p99_s * 1e3:.1f} ms."
    )
