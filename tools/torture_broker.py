"""A broker that is started, asked and killed, in a directory that stays."""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Final

START_S: Final = 60.0
"""How long a broker may take to start after it was killed."""


class TorturedBroker:
    """`serve` is its command, without data directory and configuration."""

    def __init__(self, serve: list[str], directory: Path, config: str) -> None:
        self._serve: Final = serve
        self._directory: Final = directory
        self._config: Final = directory / "torture.toml"
        self._config.write_text(config)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.port: int = 0
        self.slowest_start_s: float = 0.0

    async def start(self) -> None:
        """Raises `AssertionError` with its log if it does not listen."""
        begun = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(*self._serve, "--data-dir", str(self._directory), "--log-format", "text"),
            *("--config", str(self._config)),
            stderr=asyncio.subprocess.PIPE,
        )
        self._process = process
        assert process.stderr is not None
        said = b""
        async with asyncio.timeout(START_S):
            async for line in process.stderr:
                said += line
                if b"listening for MQTT" in line:
                    self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - begun)
                    self.port = int(line.split(b" on ")[1].split()[0].rpartition(b":")[2])
                    self._reading = asyncio.get_running_loop().create_task(_read_log(process.stderr))
                    return
        raise AssertionError(f"the broker did not start:\n{said.decode()}")

    async def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        if self._reading is not None:
            await self._reading
            self._reading = None

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """The admin socket. Raises `ValueError` with a refusal, and `OSError`."""
        reader, writer = await asyncio.open_unix_connection(self._directory / "admin.sock")
        try:
            sent = b"" if body is None else json.dumps(body).encode()
            head = f"{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sent)}\r\nConnection: close\r\n"
            head += "Content-Type: application/json\r\n\r\n"
            writer.write(head.encode() + sent)
            answer = await reader.read(-1)
        finally:
            writer.close()
        head_bytes, _, found = answer.partition(b"\r\n\r\n")
        if not head_bytes.startswith(b"HTTP/1.1 2"):
            raise ValueError(found)
        decoded: dict[str, object] = json.loads(found)
        return decoded


async def _read_log(log: asyncio.StreamReader) -> None:
    async for line in log:
        if b"ERROR" in line or b"Traceback" in line:
            print(line.decode(errors="replace").rstrip(), file=sys.stderr)
