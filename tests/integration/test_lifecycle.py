"""A broker starts, stops and starts again: what it keeps, what it ends, and that it leaves nothing behind."""

import asyncio
import contextlib
import gc
import logging
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.core.log_changes import LOG_MARK, SaveRecord
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.net.link import Link
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Disconnect, Publish, Will
from tests.integration.conftest import JumpingLoop, Rig
from tests.support.device import Device, Gone, until
from tests.support.inside import core_of, loop_driver_of
from tests.support.stores import loaded

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])


async def test_a_stop_says_goodbye_to_everybody(rig: Rig) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), stop_timeout_s=60.0))
    newer, older = await rig.device(broker.port, "newer"), await rig.device(broker.port, "older", V311)
    unborn = await rig.dial(broker.port)
    stop = asyncio.create_task(broker.stop())
    assert await newer.goodbye() == 0x8B
    assert await older.goodbye() is None
    assert await unborn.goodbye() is None
    for device in (newer, older, unborn):
        await device.close()
    async with asyncio.timeout(30):
        await stop
    with pytest.raises(ConnectionRefusedError):
        await Device.dial(broker.port)


async def test_a_second_stop_is_harmless_and_waits_for_the_first(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    first, second = asyncio.create_task(broker.stop()), asyncio.create_task(broker.stop())
    assert await device.goodbye() == 0x8B
    assert not first.done()
    assert not second.done()
    await device.close()
    await asyncio.gather(first, second)
    await broker.stop()


async def test_a_stop_whose_caller_is_cancelled_goes_on(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    stop = asyncio.create_task(broker.stop())
    assert await device.goodbye() == 0x8B
    stop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stop
    await device.close()
    await until(lambda: broker._stop is None)


@asyncio_only
async def test_a_client_that_stays_is_cut_off_soon_and_one_that_reads_nothing_in_the_end(
    rig: Rig, jump: Callable[[float], None]
) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), stop_timeout_s=30.0))
    frozen = await rig.device(broker.port, "frozen", small_buffers=True)
    await frozen.subscribe("flood")
    frozen.freeze()
    await rig.device(broker.port, "stays")
    (state,) = [each for each in core_of(broker).connections.values() if each.client_id == "frozen"]
    while not state.outbox.blocked:
        await broker.publish("flood", bytes(100_000))
    (listener,) = broker.listeners
    stop = asyncio.create_task(broker.stop())
    await until(lambda: not loop_driver_of(broker).links)
    assert len(listener._links) == 2
    jump(0.6)
    await until(lambda: len(listener._links) == 1)
    jump(14)
    await asyncio.sleep(0)
    assert len(listener._links) == 1
    jump(16)
    await stop
    assert not listener._links


async def test_a_broker_can_be_started_again_and_its_clients_go_on(rig: Rig) -> None:
    store = MemoryStore()
    broker = await rig.broker(store=store)
    absent = await rig.device(broker.port, "absent", expiry=600)
    await absent.subscribe("kept/#", 2)
    older = await rig.device(broker.port, "older", V311, clean_start=False)
    await older.subscribe("kept/#", 1)
    publisher = await rig.device(broker.port, "publisher")
    publisher.publish("kept/before", b"sent and not acknowledged", 1)
    await publisher.expect(Ack)
    assert (await absent.expect(Publish)).dup is False
    await absent.close()
    await older.message()
    await older.disconnect()
    await until(lambda: len(core_of(broker).connections) == 1)
    for number in range(5):
        await publisher.published("kept/queued", b"%d" % number)
    publisher.publish("kept/retained", b"r", 1, retain=True)
    await publisher.expect(Ack)
    await publisher.close()
    first_run = broker.broker_id
    await broker.stop()

    for again in (broker, Broker(Config(listeners=(ListenerOptions(port=0),)), store=store)):
        await again.start()
        assert again.broker_id != first_run
        device = await rig.dial(again.port)
        connack = await device.connect("absent", clean_start=False, expiry=600)
        assert connack.session_present
        expected = [b"sent and not acknowledged", b"0", b"1", b"2", b"3", b"4", b"r"]
        got = [await device.expect(Publish) for _ in expected]
        assert [packet.payload for packet in got] == expected
        newcomer = await rig.device(again.port, "newcomer")
        await newcomer.subscribe("kept/retained")
        assert await newcomer.message() == ("kept/retained", b"r")
        await device.close()
        await newcomer.close()
        await again.stop()


@asyncio_only
async def test_a_stopped_broker_touches_its_store_no_more(rig: Rig, jump: Callable[[float], None]) -> None:
    """Its sessions would expire one day, but they are the next broker's now."""
    store = MemoryStore()
    broker = await rig.broker(store=store)
    absent = await rig.device(broker.port, "absent", expiry=10)
    await absent.subscribe("a")
    await absent.close()
    await until(lambda: not core_of(broker).connections)
    await broker.stop()
    jump(60)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(loaded(store)) == 2


async def test_a_running_broker_is_not_started_twice(rig: Rig) -> None:
    broker = await rig.broker()
    with pytest.raises(RuntimeError, match="runs already"):
        await broker.start()


@pytest.mark.long
@pytest.mark.parametrize("what", ["a port in use", "a certificate that is not there", "a host that does not exist"])
async def test_a_start_that_fails_half_way_leaves_nothing_behind(
    what: str, tmp_path: Path, certs: Path, recwarn: pytest.WarningsRecorder
) -> None:
    threads = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        bad = {
            "a port in use": ListenerOptions(port=port),
            "a certificate that is not there": ListenerOptions(port=0, tls=TlsOptions("nowhere.crt", "nowhere.key")),
            "a host that does not exist": ListenerOptions(host="nowhere.invalid", port=0),
        }[what]
        secured = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
        broker = Broker(
            Config(
                listeners=(ListenerOptions(port=0), ListenerOptions(port=0, tls=secured), bad),
                telemetry=TelemetryOptions(directory=str(tmp_path)),
            )
        )
        with pytest.raises((OSError, ConfigError)) as caught:
            await broker.start()
        for listener in broker.listeners[:2]:
            with pytest.raises(OSError):  # noqa: PT011 - refused, or port 0 where it never began
                await Device.dial(listener.port)
        assert not [thread for thread in {*threading.enumerate()} - threads if "mqttlite" in thread.name]
        assert (
            str(caught.value)
            == {
                "a port in use": f"cannot listen on 127.0.0.1:{port} (tcp-{port}): the port is in use; stop the "
                "program that uses it, or choose another port",
                "a certificate that is not there": "listeners[2].tls.cert_file: nowhere.crt: no such file. 'mqttlite "
                "certs init' makes a set for development.",
                "a host that does not exist": str(caught.value),
            }[what]
        )
    await broker.stop()
    with pytest.raises(RuntimeError):
        await broker.publish("a")
    gc.collect()
    assert not recwarn.list


@pytest.mark.long
async def test_many_connections_leave_nothing_behind(rig: Rig) -> None:
    broker = await rig.broker()
    core, loop_driver, (listener,) = core_of(broker), loop_driver_of(broker), broker.listeners

    async def visit(number: int) -> None:
        device = await Device.dial(broker.port, V5 if number % 2 else V311)
        kind = number % 5
        if kind:
            await device.connect(f"visitor-{number}", keep_alive=60, will=Will(b"will", b""))
            await device.subscribe(f"a/{number}/#")
            await device.published("a/b", b"")
        if kind == 1:
            await device.disconnect()
        elif kind == 2:
            device.drop()
        elif kind == 3:
            device.send_bytes(b"\x00\x00")
            await device.goodbye()
        await device.close()

    for start in range(0, 200, 40):
        await asyncio.gather(*[visit(number) for number in range(start, start + 40)])
    await until(lambda: not (core.connections or loop_driver.links or listener._links or listener.open))
    assert len(core.sessions) == 0
    assert core._online == {}
    assert len(core.deadlines) == core.deadlines._cancelled
    assert (loop_driver._closing, loop_driver.commits.held, loop_driver.commits.late) == ([], [], [])
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Link)]


async def test_the_broker_does_not_wait_for_a_client_that_said_goodbye(rig: Rig) -> None:
    broker = await rig.broker()
    (listener,) = broker.listeners
    device = await rig.device(broker.port, "device")
    device.publish("a", b"", 1)
    device.send(Disconnect())
    await until(lambda: listener.open == 0)  # though it leaves its end open
    assert isinstance(await device.next(), Ack)
    assert await device.goodbye() is None


async def test_one_connection_more_than_the_limit_is_turned_away(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0, max_connections=3, name="door"),)))
    inside = [await rig.device(broker.port, f"inside-{number}") for number in range(3)]
    for _ in range(4):
        with pytest.raises((Gone, ConnectionError)):
            await (await rig.dial(broker.port)).connect("outside")
    assert [line for line in caplog.messages if "door: 3 connections are the limit" in line] == [
        f"door: 3 connections are the limit (max_connections); turned away so far: {count}" for count in (1, 2, 4)
    ]
    await inside[0].disconnect()
    (listener,) = broker.listeners
    await until(lambda: listener.open == 2)
    await rig.device(broker.port, "inside-again")
    for device in inside[1:]:
        await device.ping()


@asyncio_only
async def test_a_silent_client_is_closed_after_one_and_a_half_intervals_and_its_will_published(
    rig: Rig, jump: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = await rig.broker()
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("lost/#", 1)
    silent = await rig.device(broker.port, "silent", keep_alive=10, will=Will(b"lost/silent", b"gone", 1))
    awake = await rig.device(broker.port, "awake", keep_alive=10, will=Will(b"lost/awake", b"gone", 1))
    for _ in range(3):
        jump(4.9)
        await awake.ping()
    jump(0.4)
    assert await watcher.message() == ("lost/silent", b"gone")
    assert (await silent.expect(Disconnect)).reason_code == 0x8D
    await awake.ping()
    await watcher.ping()
    assert watcher.waiting() == []
    assert re.search(r"keep_alive_timeout: silent for 15\.[1-9] s with a keep-alive of 10 s", caplog.text)


@pytest.mark.slow
async def test_a_silent_client_is_closed_by_the_real_clock_too(rig: Rig) -> None:
    broker = await rig.broker()
    silent = await rig.device(broker.port, "silent", keep_alive=1)
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert await silent.goodbye() == 0x8D
    assert 1.4 <= loop.time() - started <= 2.5


@asyncio_only
async def test_a_connection_that_is_accepted_as_the_broker_stops_is_closed(rig: Rig) -> None:
    broker = await rig.broker()
    assert isinstance(asyncio.get_running_loop(), JumpingLoop)
    (listener,) = broker.listeners
    link = listener._plain()
    assert isinstance(link, Link)
    stop = asyncio.create_task(broker.stop())
    await until(lambda: listener._stopping)
    here, there = socket.socketpair()
    there.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=there)
    await stop
    assert here.recv(1) == b""
    here.close()


async def test_a_broker_with_small_limits_refuses_sessions_above_them(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_sessions=1))
    await rig.device(broker.port, "one")
    two = await rig.dial(broker.port)
    two.hello("two")
    assert (await two.next()).reason_code == 0x97  # type: ignore[union-attr]


async def test_a_queue_that_the_store_kept_and_this_version_does_not_know_stops_the_start() -> None:
    store = MemoryStore()
    store.commit([SaveRecord(f"{LOG_MARK}$queue/q", b'{"options": {"name": "q", "later": 1}, "origin": "config"}')])
    broker = Broker(Config(listeners=(ListenerOptions(port=0),)), store=store)
    with pytest.raises(ConfigError, match=r"data_dir: .*the options of \$queue/q cannot be used: .*`later`"):
        await broker.start()
