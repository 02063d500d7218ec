"""`mqttlite serve` with an extension that runs a broker again and again, as a cluster does."""

import asyncio
import gc
import os
import signal
import socket
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.cli import serve
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.manifest import Manifest
from mqttlite.operations.surroundings import Run, RunningBroker
from mqttlite.store.memory import MemoryStore

Serving = Callable[[Config, Run, asyncio.Event, Callable[[], None]], object]


class Turns:
    """Runs a broker for four turns, and one more until a signal ends it."""

    def __init__(self) -> None:
        self.brokers: list[weakref.ref[RunningBroker]] = []
        self.told: list[str] = []
        self._systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def listen(self, address: str) -> None:
        self._systemd.bind(address)
        self._systemd.setblocking(False)

    def close(self) -> None:
        self._systemd.close()

    def hear(self, *told: str) -> None:
        """Expect this of what systemd was told since the last call."""
        heard = []
        while True:
            try:
                heard.append(self._systemd.recv(4_096).decode().splitlines()[0])
            except BlockingIOError:
                break
        assert tuple(heard) == told

    async def serve(self, _config: Config, run: Run, ended: asyncio.Event, ready: Callable[[], None], /) -> None:
        self.hear("EXTEND_TIMEOUT_USEC=60000000")
        ready()
        self.hear("READY=1")
        assert gc.get_threshold() == serve.COLLECTED_AFTER, "also while another machine serves"
        for _ in range(4):
            over = asyncio.Event()
            over.set()
            await run(MemoryStore(), None, over, self._leave)  # type: ignore[arg-type]
            self.hear("READY=1")
            assert gc.get_freeze_count() == 0
        over = asyncio.Event()
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await run(MemoryStore(), None, over, self._leave)  # type: ignore[arg-type]
        assert ended.is_set()
        self.hear("READY=1", "STOPPING=1")

    async def _leave(self, broker: RunningBroker) -> None:
        gc.collect()
        assert [each for each in self.brokers[:-1] if each() is not None] == [], "the last may have been in use still"
        self.brokers.append(weakref.ref(broker))
        await broker.stop()


@pytest.mark.long
async def test_a_turn_ends_without_a_word_to_systemd_and_its_broker_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns()
    turns.listen(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setattr(serve, "turned_on", lambda _config: [Manifest(serving="of:this")])
    monkeypatch.setattr(serve, "resolve", lambda _name: turns.serve)
    await serve._serve(Config(listeners=(ListenerOptions(port=0),)), None, None)
    turns.close()
    assert len(turns.brokers) == 4
