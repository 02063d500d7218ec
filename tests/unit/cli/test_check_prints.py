"""`mqttlite check` prints what servers and files say so that it cannot steer the terminal or forge a line."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqttlite.cli.main import main

NASTY = "evil\x1b[2J\x1b]0;owned\x07\nwarning: all is well"


class Rogue:
    """NATS servers that say what they like, on a thread of their own."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._end = asyncio.Event()
        self._greeting: set[asyncio.Task[object] | None] = set()

    def __enter__(self) -> "Rogue":
        self._thread.start()
        assert self._is_listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        servers = [await asyncio.start_server(self._greet, "127.0.0.1", 0) for _ in range(3)]
        self.urls = [f"nats://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in servers]
        self._is_listening.set()
        await self._end.wait()
        for each in servers:
            each.close()
        await asyncio.gather(*filter(None, self._greeting))

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._greeting.add(asyncio.current_task())
        port = writer.get_extra_info("sockname")[1]
        greeting = {"server_id": str(port), "server_name": NASTY, "version": "1\x1b[31m", "cluster": "c"}
        writer.write(f"INFO {json.dumps(greeting)}\r\n".encode())
        with suppress(ConnectionError):
            await reader.read(1)
            writer.close()
            await writer.wait_closed()


@pytest.fixture
def rogue() -> Iterator[Rogue]:
    with Rogue() as servers:
        yield servers


@pytest.mark.parametrize(
    ("command", "section", "exit_code"),
    [
        (["check"], 'nodes]\nname = "n"\nnode = "a"', 1),
        (["check"], "cluster]\nsync_assured = true", 2),
        (["config", "check"], 'nodes]\nname = "n"\nnode = "a"', 0),
        (["config", "check"], "cluster]\nsync_assured = true", 2),
    ],
)
def test_the_name_of_a_nats_server_is_printed_with_escapes(
    tmp_path: Path, rogue: Rogue, command: list[str], section: str, exit_code: int
) -> None:
    file = tmp_path / "broker.toml"
    servers = f"servers = {json.dumps(rogue.urls)}"
    file.write_text(f'data_dir = "{tmp_path}"\n[[listeners]]\nport = 0\n[{section}\n{servers}\n')
    found = CliRunner().invoke(main, [*command, str(file)])
    assert found.exit_code == exit_code, found.output
    assert r"evil\x1b[2J\x1b]0;owned\x07\nwarning: all is well is 1\x1b[31m" in found.stderr
    assert all(line.isprintable() for line in found.output.split("\n"))
    assert not any(line.startswith("warning: all is well") for line in found.output.splitlines())


def test_names_of_files_are_printed_with_escapes(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    (tmp_path / "a\x1b[2J").write_text("topic read x\n")
    acl_file = json.dumps(str(tmp_path / "a\x1b[2J"))
    file.write_text(f"acl_file = {acl_file}\n[[listeners]]\nport = 0\n")
    found = CliRunner().invoke(main, ["check", str(file)])
    assert r"a\x1b[2J" in found.stdout, found.output
    assert all(line.isprintable() for line in found.output.split("\n"))
