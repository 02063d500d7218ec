"""What the dataset says of a broker's work, beside what its clients count at the other ends of real sockets."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions, parse_config
from mqttlite.core.limits import Limits
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.server import Broker
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311
from mqttlite.wire.packets import Ack, Publish
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.inside import core_of

TOPICS = ("plant/1", "plant/2", "lab")


async def serve(rig: Rig, folder: Path, interval_s: float = 0.1, **options: Any) -> Broker:
    telemetry = TelemetryOptions(directory=str(folder), format="jsonl", interval_s=interval_s)
    return await rig.broker(Config(listeners=(ListenerOptions(port=0, name="door"),), telemetry=telemetry, **options))


def read(folder: Path, table: str) -> list[dict[str, Any]]:
    lines = [
        line for path in sorted(folder.glob(f"table={table}/**/*.jsonl")) for line in path.read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


class Reader:
    """A subscriber that acknowledges, and counts what it gets."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.got: Counter[tuple[str, int]] = Counter()

    async def take(self, messages: int) -> None:
        """That many more."""
        wanted = self.got.total() + messages
        while self.got.total() < wanted:
            packet = await self.device.next()
            if isinstance(packet, Publish):
                self.got[packet.topic.decode(), packet.qos] += 1
                if packet.qos:
                    self.device.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
            elif isinstance(packet, Ack) and packet.packet_type == PUBREL:
                self.device.send(Ack(PUBCOMP, packet.packet_id))


@pytest.mark.long
async def test_every_table_agrees_with_what_the_clients_count(rig: Rig, tmp_path: Path) -> None:
    broker = await serve(rig, tmp_path)
    readers = [Reader(await rig.device(broker.port, f"reader{number}", V5 if number else V311)) for number in range(3)]
    for reader, topic_filter, qos in zip(readers, ("plant/#", "plant/1", "#"), (0, 1, 2), strict=True):
        await reader.device.subscribe(topic_filter, qos)
    away = await rig.device(broker.port, "away", expiry=60)
    await away.subscribe("lab", 0)
    await away.disconnect()
    publisher = await rig.device(broker.port, "publisher")
    published: Counter[tuple[str, int]] = Counter()
    payload_bytes: Counter[str] = Counter()
    for round_ in range(4):
        for number in range(24):
            topic, qos = TOPICS[number % 3], number // 3 % 3
            payload = b"x" * (number + 1)
            packet_id = publisher.publish(topic, payload, qos)
            if qos:
                assert (await publisher.expect(Ack)).packet_type == (PUBACK if qos == 1 else PUBREC)
            if qos == 2:
                publisher.send(Ack(PUBREL, packet_id))
                assert (await publisher.expect(Ack)).packet_type == PUBCOMP
            published[topic, qos] += 1
            payload_bytes[topic] += len(payload)
        await asyncio.gather(readers[0].take(16), readers[1].take(8), readers[2].take(24))
        await asyncio.sleep(0.12 * (round_ % 2))
    for _ in range(5):
        publisher.publish("$nobody/hears", b"12")
        published["$nobody/hears", 0] += 1
        payload_bytes["$nobody/hears"] += 2
    for device in (*(reader.device for reader in readers), publisher):
        await device.ping()
    for device in (*(reader.device for reader in readers), publisher):
        await device.disconnect()
    await until(lambda: not core_of(broker).connections)
    await broker.stop()

    sessions = {row["client_id"]: row for row in read(tmp_path, "sessions")}
    devices = {device.client_id: device for device in (*(reader.device for reader in readers), publisher, away)}
    assert sessions.keys() == devices.keys()
    for client_id, device in devices.items():
        row = sessions[client_id]
        assert (row["bytes_received"], row["bytes_sent"]) == (device.bytes_sent, device.bytes_received)
    assert [sessions["publisher"][f"received_qos{qos}"] for qos in range(3)] == [
        sum(count for (_, of), count in published.items() if of == qos) for qos in range(3)
    ]

    traffic, deliveries = Counter[tuple[str, int]](), Counter[str]()
    for row in read(tmp_path, "traffic"):
        for qos in range(3):
            traffic[row["topic"], qos] += row[f"messages_qos{qos}"]
        payload_bytes[row["topic"]] -= row["payload_bytes"]
        deliveries[row["topic"]] += row["deliveries"]
        assert 0 < row["interval_s"] < 5
    assert +traffic == published
    assert not any(payload_bytes.values())
    got = sum((reader.got for reader in readers), Counter[tuple[str, int]]())
    lab = sum(published["lab", qos] for qos in range(3))
    heard = Counter({topic: sum(got[topic, qos] for qos in range(3)) for topic in TOPICS})
    assert +deliveries == heard + Counter({"lab": lab})

    drops: Counter[tuple[str, Any, Any]] = Counter()
    for row in read(tmp_path, "drops"):
        drops[row["reason"], row["client_id"], row["topic"]] += row["messages"]
    assert drops == {("qos0_offline", "away", "lab"): lab, ("no_subscribers", None, "$nobody/hears"): 5}

    activity = read(tmp_path, "activity")
    assert len({(row["connection_id"], row["interval_start"]) for row in activity}) == len(activity)
    for reader in readers:
        mine = [row for row in activity if row["client_id"] == reader.device.client_id]
        assert sum(row["messages_sent"] for row in mine) == reader.got.total()
        assert sum(row["bytes_sent"] for row in mine) <= reader.device.bytes_received
    mine = [row for row in activity if row["client_id"] == "publisher"]
    assert sum(row["messages_received"] for row in mine) == published.total()
    assert len(mine) >= 2, "intervals went by"

    measured: Counter[tuple[str, int]] = Counter()
    for row in read(tmp_path, "latency"):
        measured[row["stage"], row["qos"]] += row["messages"]
        assert sum(row["counts"]) == row["messages"]
        assert row["max_us"] < 5_000_000
    by_qos = [sum(count for (_, of), count in got.items() if of == qos) for qos in range(3)]
    assert measured == {
        **{("route", qos): sum(count for (_, of), count in published.items() if of == qos) for qos in range(3)},
        **{(stage, qos): by_qos[qos] for stage in ("queue", "write", "total") for qos in range(3)},
        **{("acknowledge", qos): by_qos[qos] for qos in (1, 2)},
    }
    samples = Counter((row["receiver"], row["outcome"], row["reason"]) for row in read(tmp_path, "samples"))
    assert samples == {
        **{(reader.device.client_id, "sent", None): _of(reader, 0) for reader in readers if _of(reader, 0)},
        **{
            (reader.device.client_id, "acknowledged", None): _of(reader, 1, 2)
            for reader in readers
            if _of(reader, 1, 2)
        },
        ("away", "dropped", "qos0_offline"): lab,
        (None, "dropped", "no_subscribers"): 5,
    }

    events = Counter(row["event"] for row in read(tmp_path, "events"))
    assert events["connected"] == events["disconnected"] == len(sessions)
    assert events["subscribed"] == 4
    assert events["broker_started"] == events["broker_stopped"] == 1
    assert 1 <= events["drop_burst"] <= lab


def _of(reader: Reader, *qos: int) -> int:
    return sum(count for (_, of), count in reader.got.items() if of in qos)


@pytest.mark.slow
async def test_a_flood_is_counted_whole_and_followed_in_part(rig: Rig, tmp_path: Path) -> None:
    broker = await serve(rig, tmp_path)
    reader = Reader(await rig.device(broker.port, "reader"))
    await reader.device.subscribe("flood/#")
    publisher = await rig.device(broker.port, "publisher")
    messages = 20_000
    for topic in ("flood/a", "flood/b"):
        for _ in range(10):
            publisher.send(*[Publish(topic.encode(), b"12345678")] * (messages // 20))
            await publisher.writer.drain()
            await reader.take(messages // 20)
    await broker.stop()
    assert sum(row["messages_qos0"] for row in read(tmp_path, "traffic")) == messages
    assert sum(row["messages_sent"] for row in read(tmp_path, "activity")) == messages
    samples = read(tmp_path, "samples")
    assert 200 <= len(samples) < messages // 5
    # A message is traced when the distance that was drawn for it is over: what is left of the last is in none.
    assert 0.5 * messages < sum(row["one_in"] for row in samples) <= messages


async def test_a_refused_client_and_a_new_limit_are_events(rig: Rig, tmp_path: Path) -> None:
    broker = await serve(rig, tmp_path, limits=Limits(max_sessions=1))
    await rig.device(broker.port, "first")
    second = await rig.dial(broker.port)
    second.hello("second")
    await second.goodbye()
    await broker.stop()
    started, *_ = events = read(tmp_path, "events")
    assert started["numbers"]["max_sessions"] == 1
    assert started["numbers"]["max_connections"] == 50_000
    (refused,) = (row for row in events if row["event"] == "refused")
    assert (refused["peer"], refused["reason_code"]) == (second.address, 0x97)
    assert refused["client_id"] == "second"
    assert [row["client_id"] for row in read(tmp_path, "sessions")] == ["first"]


async def test_the_event_of_a_refused_login_names_user_client_and_address(rig: Rig, tmp_path: Path) -> None:
    set_user(tmp_path / "users", "ann", keys_of("other", b"0123456789abcdef", 4_096), create=True)
    broker = await serve(rig, tmp_path / "rows", password_file=str(tmp_path / "users"))
    device = await rig.dial(broker.port)
    device.hello("device", username="ann")
    await device.goodbye()
    await broker.stop()
    (refused,) = (row for row in read(tmp_path / "rows", "events") if row["event"] == "refused")
    about = ("username", "client_id", "peer", "reason_code")
    assert [refused[name] for name in about] == ["ann", "device", device.address, 0x86]


@pytest.mark.slow
async def test_a_slow_client_is_told_of_while_it_is_slow(rig: Rig, tmp_path: Path) -> None:
    broker = await serve(rig, tmp_path, limits=Limits(max_outbox_bytes=100_000))
    slow = await rig.device(broker.port, "slow", small_buffers=True)
    await slow.subscribe("x")
    publisher = await rig.device(broker.port, "publisher")
    for _ in range(200):
        publisher.publish("x", b"x" * 50_000)
        await publisher.writer.drain()
    await publisher.ping()
    await asyncio.sleep(0.3)
    await slow.close()
    await until(lambda: len(core_of(broker).connections) == 1)
    await broker.stop()
    events = read(tmp_path, "events")
    assert [row["client_id"] for row in events if row["event"] == "backpressure_began"] == ["slow"]
    (session,) = (row for row in read(tmp_path, "sessions") if row["client_id"] == "slow")
    activity = [row for row in read(tmp_path, "activity") if row["client_id"] == "slow"]
    assert sum(row["backpressure_s"] for row in activity) == pytest.approx(session["backpressure_s"])
    assert sum(row["dropped"] for row in activity) == session["dropped"] > 0
    drops = [row for row in read(tmp_path, "drops") if row["client_id"] == "slow"]
    assert sum(row["messages"] for row in drops) == session["dropped"]
    assert {(row["reason"], row["topic"]) for row in drops} == {("buffer_full", "x")}
    samples = [row for row in read(tmp_path, "samples") if row["receiver"] == "slow"]
    assert {row["outcome"] for row in samples} >= {"sent", "dropped"}


async def test_the_delivery_log_answers_over_real_sockets_and_writes_nothing(rig: Rig, tmp_path: Path) -> None:
    delivery_log = DeliveryLogOptions(topics=("plant/#",), clients=("c7",), sampled=False)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), delivery_log=delivery_log))
    c7, c3 = await rig.device(broker.port, "c7", expiry=60), await rig.device(broker.port, "c3")
    await c7.subscribe("#", 1)
    await c3.published("plant/7", b"1")
    packet = await c7.expect(Publish)
    assert broker.observer is not None
    assert broker.observer.answers is not None
    why: Callable[[str], dict[str, Any]] = broker.observer.answers.why
    (sentence,) = why("plant/7")["sentences"]
    assert re.match(r"\d{16} on plant/7 from c3 at ", sentence)
    assert " unacknowledged for " in sentence
    c7.send(Ack(PUBACK, packet.packet_id))
    await until(lambda: why("plant/7")["entries"][0]["outcome"] == "acknowledged")
    await c7.disconnect()
    await until(lambda: len(core_of(broker).connections) == 1)
    await c3.published("lab", b"2")
    (sentence,) = why("lab")["sentences"]
    assert "waits for c7 since " in sentence
    assert broker.dataset is None
    await broker.stop()
    assert broker.observer is None


async def test_nothing_is_watched_unless_it_is_configured(rig: Rig) -> None:
    broker = await rig.broker()
    assert broker.observer is None
    assert core_of(broker).effects.tracer is None


def test_a_delivery_log_that_cannot_be_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"^delivery_log\.topics\[0\]: '#' in 'a#'"):
        parse_config({"delivery_log": {"topics": ["a#"]}})
