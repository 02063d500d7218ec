"""One row per accepted connection, with the numbers that went over the socket."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Publish, Will
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of, loop_driver_of

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])


async def serve(rig: Rig, folder: Path, **options: Any) -> Broker:
    listeners = options.pop("listeners", (ListenerOptions(port=0, name="door"),))
    return await rig.broker(
        Config(
            listeners=listeners,
            telemetry=TelemetryOptions(directory=str(folder), format="jsonl"),
            stop_timeout_s=0.5,
            **options,
        )
    )


def read(folder: Path) -> list[dict[str, Any]]:
    lines = [
        line for path in sorted(folder.glob("table=sessions/**/part-*.jsonl")) for line in path.read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


def seconds_between(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


async def rows(broker: Broker, folder: Path) -> dict[str, dict[str, Any]]:
    """Stop the broker and read what it wrote, by client identifier."""
    await broker.stop()
    found = read(folder)
    assert len({(row["broker_id"], row["connection_id"]) for row in found}) == len(found)
    by_client = {row["client_id"]: row for row in found}
    assert len(by_client) == len(found)
    return by_client


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_row_counts_every_byte_and_message(rig: Rig, tmp_path: Path, version: int) -> None:
    broker = await serve(rig, tmp_path)
    before = datetime.now(UTC)
    subscriber = await rig.device(broker.port, "subscriber", version, keep_alive=30)
    publisher = await rig.device(broker.port, "publisher", version)
    for qos in range(3):
        await subscriber.subscribe(f"q{qos}", qos)
    for qos, count in enumerate((7, 5, 3)):
        for number in range(count):
            packet_id = publisher.publish(f"q{qos}", b"x" * number * 100, qos)
            if qos == 1:
                assert (await publisher.expect(Ack)).packet_type == 4
            if qos == 2:
                assert (await publisher.expect(Ack)).packet_type == 5
                publisher.send(Ack(6, packet_id))
                assert (await publisher.expect(Ack)).packet_type == 7
            packet = await subscriber.expect(Publish)
            if qos == 1:
                subscriber.send(Ack(4, packet.packet_id))
            if qos == 2:
                subscriber.send(Ack(5, packet.packet_id))
                assert (await subscriber.expect(Ack)).packet_type == 6
                subscriber.send(Ack(7, packet.packet_id))
    await subscriber.ping()
    await subscriber.disconnect()
    await publisher.disconnect()
    await until(lambda: not core_of(broker).connections)
    found = await rows(broker, tmp_path)
    assert set(found) == {"subscriber", "publisher"}
    for device, row in ((subscriber, found["subscriber"]), (publisher, found["publisher"])):
        assert (row["bytes_received"], row["bytes_sent"]) == (device.bytes_sent, device.bytes_received)
        assert row["peer"] == device.address
        assert row["close_reason"] == "client_disconnected"
        assert row["listener"] == "door"
        assert row["transport"] == "tcp"
        assert row["drops"] == {}
        assert row["connected_at"] <= row["last_heard_at"] <= row["ended_at"]
        assert row["keep_alive_late_s"] is None
        started, ended = datetime.fromisoformat(row["connected_at"]), datetime.fromisoformat(row["ended_at"])
        assert before - timedelta(seconds=1) < started <= ended < datetime.now(UTC) + timedelta(seconds=1)
    assert [found["publisher"][f"received_qos{qos}"] for qos in range(3)] == [7, 5, 3]
    assert [found["subscriber"][f"sent_qos{qos}"] for qos in range(3)] == [7, 5, 3]
    assert found["subscriber"]["subscriptions"] == 3
    assert found["subscriber"]["keep_alive_s"] == 30


async def test_each_end_has_its_reason(rig: Rig, tmp_path: Path) -> None:
    broker = await serve(rig, tmp_path, limits=Limits(max_packet_bytes=1_000))
    names = ["lost", "closed", "will", "rude", "wrong", "large", "taken", "stays"]
    devices = {name: await rig.device(broker.port, name, will=Will(b"w", b"")) for name in names}
    devices["lost"].drop()
    await devices["closed"].close()
    devices["will"].send_bytes(b"\xe0\x02\x04\x00")
    devices["rude"].send_bytes(b"\x36\x06\x00\x01a\x00\x01\x00")
    devices["wrong"].send_bytes(b"\x20\x03\x00\x00\x00")
    devices["large"].send_bytes(b"\x30\xff\x7f")
    await until(lambda: len(core_of(broker).connections) == 2)
    await (await rig.dial(broker.port)).close()  # no CONNECT, no row
    again = await rig.device(broker.port, "taken", will=Will(b"w", b""), username="second")
    await devices["taken"].goodbye()
    stop = asyncio.create_task(broker.stop())
    await again.goodbye()
    await devices["stays"].goodbye()
    for device in (*devices.values(), again):
        await device.close()
    await stop
    found = read(tmp_path)
    ended = {
        (row["client_id"], row["username"]): (row["close_reason"], row["reason_code"], row["will_published"])
        for row in found
    }
    assert len(found) == len(ended) == 9
    assert ended == {
        ("lost", None): ("connection_lost", 0, True),
        ("closed", None): ("connection_lost", 0, True),
        ("will", None): ("client_disconnected_with_will", 0x04, True),
        ("rude", None): ("malformed_packet", 0x81, True),
        ("wrong", None): ("protocol_error", 0x82, True),
        ("large", None): ("packet_too_large", 0x95, True),
        ("taken", None): ("taken_over", 0x8E, True),
        ("taken", "second"): ("server_shutdown", 0x8B, True),
        ("stays", None): ("server_shutdown", 0x8B, True),
    }


@asyncio_only
async def test_a_keep_alive_that_ran_out_is_a_reason_too(
    rig: Rig, tmp_path: Path, jump: Callable[[float], None]
) -> None:
    broker = await serve(rig, tmp_path)
    silent = await rig.device(broker.port, "silent", keep_alive=10)
    jump(15.1)
    assert await silent.goodbye() == 0x8D
    await silent.close()
    row = (await rows(broker, tmp_path))["silent"]
    assert (row["close_reason"], row["reason_code"]) == ("keep_alive_timeout", 0x8D)
    assert 15 < row["duration_s"] < 16
    assert 0.05 < row["keep_alive_late_s"] < 1
    silent_s = seconds_between(row["last_heard_at"], row["ended_at"])
    assert row["keep_alive_late_s"] == pytest.approx(silent_s - 15, abs=1e-3)


@pytest.mark.long
async def test_back_pressure_and_drops_are_in_the_row(rig: Rig, tmp_path: Path) -> None:
    broker = await serve(rig, tmp_path, limits=Limits(max_outbox_bytes=100_000))
    frozen = await rig.device(broker.port, "frozen", small_buffers=True)
    await frozen.subscribe("flood")
    frozen.freeze()
    publisher = await rig.device(broker.port, "publisher")
    (state,) = [each for each in core_of(broker).connections.values() if each.client_id == "frozen"]
    sent = 0
    while state.outbox.drops.get("buffer_full", 0) < 10:
        publisher.publish("flood", bytes(20_000))
        sent += 1
        await publisher.ping()
    dropped = state.outbox.drops["buffer_full"]
    waiting = state.outbox.waiting_bytes
    assert waiting <= state.outbox.held_bytes <= 100_000 < state.outbox.held_bytes + 21_000
    frozen.thaw()
    for _ in range(sent - dropped):
        await frozen.message()
    await frozen.disconnect()
    await publisher.disconnect()
    await until(lambda: not core_of(broker).connections)
    row = (await rows(broker, tmp_path))["frozen"]
    assert row["drops"] == {"buffer_full": dropped}
    assert row["dropped"] == dropped
    assert row["sent_qos0"] == sent - dropped
    assert row["bytes_sent"] == frozen.bytes_received
    assert row["backpressure_s"] > 0
    assert row["backpressure_count"] >= 1
    assert row["outbox_high_water_bytes"] == waiting
    assert row["outbox_high_water_messages"] == waiting // 20_000 > 0


async def test_a_tls_row_says_who_and_how(rig: Rig, tmp_path: Path, certs: Path) -> None:
    options = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"), str(certs / "ca.crt"), True)
    broker = await serve(rig, tmp_path, listeners=(ListenerOptions(port=0, tls=options, name="devices"),))
    context = client_context(str(certs / "ca.crt"), str(certs / "thermometer.crt"), str(certs / "thermometer.key"))
    device = await rig.device(broker.port, "device", tls=context)
    await device.disconnect()
    await until(lambda: not loop_driver_of(broker).links)
    row = (await rows(broker, tmp_path))["device"]
    assert (row["transport"], row["tls_version"], row["username"]) == ("tls", "TLSv1.3", "thermometer")
    assert row["tls_cipher"].startswith("TLS_")
    assert (row["bytes_received"], row["bytes_sent"]) == (device.bytes_sent, device.bytes_received)


async def test_two_runs_of_one_broker_keep_their_rows_apart(rig: Rig, tmp_path: Path) -> None:
    broker = await serve(rig, tmp_path)
    for name in ("first", "second"):
        if name == "second":
            await broker.start()
        device = await rig.device(broker.port, name)
        await device.disconnect()
        await until(lambda: not core_of(broker).connections)
        await broker.stop()
    found = await rows(broker, tmp_path)
    assert set(found) == {"first", "second"}
    assert found["first"]["broker_id"] != found["second"]["broker_id"]


async def test_names_are_pseudonyms_in_the_rows_and_in_the_journal(rig: Rig, tmp_path: Path) -> None:
    folder, key = tmp_path / "telemetry", tmp_path / "key"
    options = TelemetryOptions(
        directory=str(folder),
        format="jsonl",
        pseudonymise=("client_ids", "usernames", "addresses"),
        pseudonym_key_file=str(key),
    )
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), telemetry=options, stop_timeout_s=0.5))
    await (await rig.device(broker.port, "$node/secret")).close()
    device = await rig.device(broker.port, "secret-client", username="secret-user")
    journal = folder / f".journal-{broker.broker_id}"
    await until(journal.exists)
    await until(lambda: bool(journal.read_bytes()))
    assert b"secret" not in journal.read_bytes()
    assert b"127.0.0.1" not in journal.read_bytes()
    device.send_bytes(b"\xe0\x0d\x04\x0b\x1f\x00\x08secret!!")  # a reason of the client's own
    await until(lambda: not core_of(broker).connections)
    await broker.stop()
    rows = read(folder)
    assert "secret" not in json.dumps(rows)
    row = rows[-1]
    names = Pseudonyms(("client_ids", "usernames", "addresses"), key.read_bytes().strip())
    assert row["client_id"] == names.client_id("secret-client")
    assert row["username"] == names.username("secret-user")
    assert row["peer"] == names.address("127.0.0.1:1")
    assert (row["close_reason"], row["close_detail"]) == ("client_disconnected_with_will", None)


async def test_telemetry_that_cannot_be_set_up_is_said_with_its_option(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("short")
    options = TelemetryOptions(directory=str(tmp_path), pseudonymise=("topics",), pseudonym_key_file=str(key))
    broker = Broker(Config(listeners=(ListenerOptions(port=0),), telemetry=options))
    with pytest.raises(ConfigError, match=f"telemetry.pseudonym_key_file: {key}: a key of 5 bytes is too short"):
        await broker.start()
