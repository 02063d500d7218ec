"""MQTT through a Unix socket, and what becomes of its file."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions, parse_config
from mqttlite.config.checks import is_open
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.net.endpoints import CannotListen
from mqttlite.server import Broker
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Disconnect
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.web import request


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mqttlite.sock"


def at(path: Path, **options: object) -> Config:
    return Config(listeners=(ListenerOptions(path=str(path), **options),))  # type: ignore[arg-type]


def exists(path: Path) -> bool:
    return os.path.lexists(path)


def make(path: Path, kind: str) -> None:
    """Something that is no socket."""
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.with_name("elsewhere"))


def read(path: Path) -> str:
    return path.read_text()


def only_row(directory: Path) -> str:
    (file,) = directory.glob("table=sessions/**/*.jsonl")
    return file.read_text()


async def dial(path: Path) -> Device:
    return Device(*await asyncio.open_unix_connection(str(path)), V5)


async def test_messages_pass_and_telemetry_says_unix(rig: Rig, path: Path, tmp_path: Path) -> None:
    config = Config(
        listeners=(ListenerOptions(path=str(path)),),
        telemetry=TelemetryOptions(directory=str(tmp_path / "telemetry"), format="jsonl"),
    )
    broker = await rig.broker(config)
    device = await dial(path)
    await device.connect("local")
    await device.subscribe("#")
    device.publish("a", b"x" * 300_000)
    assert await device.message() == ("a", b"x" * 300_000)
    device.send(Disconnect())
    assert await device.goodbye() is None
    await device.close()
    await broker.stop()
    row = next((tmp_path / "telemetry").glob("table=sessions/**/*.jsonl")).read_text()
    assert '"transport":"unix"' in row
    assert '"listener":"unix-mqttlite.sock"' in row
    assert '"peer":"unix"' in row
    assert '"close_reason":"client_disconnected"' in row


async def test_websocket_works_through_it_too(rig: Rig, path: Path) -> None:
    await rig.broker(at(path, websocket=True))
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(request())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("mode", [0o660, 0o600, 0o666])
async def test_its_file_has_the_mode_and_is_removed_at_the_end(rig: Rig, path: Path, mode: int) -> None:
    broker = await rig.broker(at(path, mode=mode))
    assert stat.S_IMODE(os.lstat(path).st_mode) == mode
    assert stat.S_ISSOCK(os.lstat(path).st_mode)
    await broker.stop()
    assert not exists(path)
    await broker.start()
    assert exists(path)


async def test_the_file_of_a_killed_broker_is_replaced(rig: Rig, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    await rig.broker(at(path))
    device = await dial(path)
    await device.connect("local")
    await device.close()


async def test_a_socket_with_a_listener_is_left_alone(rig: Rig, path: Path) -> None:
    first = await rig.broker(at(path))
    inode = os.lstat(path).st_ino
    with pytest.raises(CannotListen, match="another program listens on it") as caught:
        await Broker(at(path)).start()
    assert str(path) in str(caught.value)
    assert os.lstat(path).st_ino == inode
    device = await dial(path)
    await device.connect("local")
    await device.close()
    await first.stop()


async def test_a_socket_whose_owner_is_too_busy_to_accept_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
        busy.bind(str(path))
        busy.listen(0)
        first.connect(str(path))
        with pytest.raises(CannotListen, match="another program listens on it"):
            await Broker(at(path)).start()
        assert exists(path)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_a_file_that_is_no_socket_is_left_alone(path: Path, kind: str) -> None:
    make(path, kind)
    before = os.lstat(path)
    with pytest.raises(CannotListen, match="no socket"):
        await Broker(at(path)).start()
    assert os.lstat(path) == before


async def test_a_file_that_took_the_place_of_ours_is_left_alone(rig: Rig, path: Path) -> None:
    broker = await rig.broker(at(path))
    os.rename(path, path.with_name("old.sock"))
    make(path, "file")
    await broker.stop()
    assert read(path) == "precious"


async def test_a_file_that_is_gone_already_is_no_trouble(rig: Rig, path: Path) -> None:
    broker = await rig.broker(at(path))
    os.unlink(path)
    await broker.stop()


async def test_a_path_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match="its folder does not exist"):
        await Broker(at(tmp_path / "no" / "x.sock")).start()
    with pytest.raises(ValueError, match="107 bytes at most"):
        at(tmp_path / ("x" * 200))


async def test_a_system_without_unix_sockets_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.delattr(socket, "AF_UNIX")
        with pytest.raises(CannotListen, match="no Unix sockets on this system"):
            await Broker(at(path)).start()


async def test_connections_are_counted_and_end_with_the_broker(rig: Rig, path: Path) -> None:
    broker = await rig.broker(at(path, max_connections=1))
    first = await dial(path)
    await first.connect("first")
    second = await dial(path)
    assert await second.goodbye() is None
    await broker.stop()
    assert await first.goodbye() == 0x8B
    await until(lambda: broker.listeners[0].open == 0)
    await first.close()
    await second.close()


def test_a_unix_socket_is_not_open_to_the_network() -> None:
    listener = ListenerOptions(path="/run/x.sock")
    assert not is_open(Config(listeners=(listener,)), listener)


@pytest.mark.parametrize(
    ("options", "says"), [({"path": ""}, "path is empty"), ({"mode": 0o1777}, r"mode is 1023 \(0o1777\)")]
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_config({"listeners": [options]})
