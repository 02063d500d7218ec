"""Publishers that follow their messages over real sockets: for everybody else there was one connection."""

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mqttlite.cluster import handoff
from mqttlite.config import Config, ListenerOptions
from mqttlite.core.connection import Connection
from mqttlite.core.limits import FOLLOW_BYTES, FOLLOW_CHUNKS
from mqttlite.net.http import Options as MetricsOptions
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.server import Broker
from mqttlite.telemetry.options import Options as TelemetryOptions
from mqttlite.telemetry.sys_topics import Options as SysOptions
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Disconnect, Publish, Will
from tests.support.crew import crew
from tests.support.device import Device, Gone, until
from tests.support.web import dial as dial_web

CHUNK = 8_192
PAYLOAD = 100


class House:
    """Two workers, each with a port of its own; a subscriber at the second, a publisher at the first."""

    def __init__(self, workers: list[Broker]) -> None:
        self.workers = workers
        self.devices: list[Device] = []
        self.sent = 0
        self.heard: list[bytes] = []
        self.subscriber: Device
        self.publisher: Device

    async def dial(self, at: int, name: str, version: int = V5, **options: Any) -> Device:
        device = await Device.dial(self.workers[at].port, version)
        self.devices.append(device)
        await device.connect(name, **options)
        return device

    def where(self, name: str) -> list[int]:
        """The workers that have a connection of a client."""
        return [at for at, worker in enumerate(self.workers) if self._find(worker, name)]

    def connection(self, name: str) -> Connection:
        (found,) = [each for worker in self.workers for each in self._find(worker, name)]
        return found

    def _find(self, worker: Broker, name: str) -> list[Connection]:
        return [each for each in worker._core.connections.values() if each.client_id == name]

    async def stream(self, chunks: int, qos: int = 0) -> None:
        """Long chunks, one at a time; all of it arrives, in order, and once."""
        for _ in range(chunks):
            each = range(self.sent, self.sent + CHUNK // PAYLOAD)
            self.sent = each.stop
            self.publisher.send(
                *[Publish(b"t", b"%0*d" % (PAYLOAD, at), qos, packet_id=at % 1_000 + 1 if qos else 0) for at in each]
            )
            for at in each:
                _topic, payload = await self.subscriber.message()
                assert int(payload) == at
            if qos:
                for at in each:
                    assert (await self.publisher.expect(Ack)).packet_id == at % 1_000 + 1
        await self.publisher.ping()

    async def streams_until(self, worker: int, qos: int = 0) -> None:
        """A stream moves when some of its chunks came in as they were sent."""
        for _ in range(20):
            await self.stream(FOLLOW_CHUNKS, qos)
            if self.where("p") == [worker]:
                return
        raise AssertionError(self.where("p"))


@asynccontextmanager
async def house(
    listener: ListenerOptions | None = None,
    version: int = V5,
    publisher: dict[str, Any] | None = None,
    more: tuple[ListenerOptions, ...] = (),
    **options: Any,
) -> AsyncIterator[House]:
    config = Config(
        listeners=(listener or ListenerOptions(port=0), *more), **{"sys": SysOptions(interval_s=0), **options}
    )
    async with crew(config, apart=True) as workers:
        house = House(workers)
        house.subscriber = await house.dial(1, "s")
        await house.subscriber.subscribe("t", 1)
        house.publisher = await house.dial(0, "p", version, **(publisher or {}))
        try:
            yield house
        finally:
            for device in house.devices:
                await device.close()


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in folder.glob(f"**/table={table}/**/part-*")
        for line in path.read_text().splitlines()
    ]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [V311, V5])
async def test_a_stream_goes_where_its_receivers_are_and_nobody_notices(version: int, qos: int) -> None:
    async with house(version=version) as home:
        await home.streams_until(1, qos)
        number = home.connection("p").number
        await home.stream(3 * FOLLOW_CHUNKS, qos)
        assert home.where("p") == [1]
        assert home.connection("p").number == number
        await home.publisher.close()
        await until(lambda: home.where("p") == [])
        assert [worker._core.online for worker in home.workers] == [0, 1]
        assert [listener._open for worker in home.workers for listener in worker.listeners] == [0, 1]


async def test_short_messages_stay_where_they_come_in() -> None:
    async with house() as home:
        for number in range(3 * FOLLOW_CHUNKS):
            home.publisher.publish("t", b"%d" % number)
            assert (await home.subscriber.message())[1] == b"%d" % number
        assert home.where("p") == [0]


async def test_it_is_one_row_one_coming_and_one_going(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = TelemetryOptions(directory=str(tmp_path), format="jsonl", interval_s=0.5)
    caplog.set_level(logging.INFO, "mqttlite")
    async with house(telemetry=telemetry, sys=SysOptions(interval_s=0.1), metrics=MetricsOptions(port=0)) as home:
        watcher = await home.dial(1, "watcher")
        await watcher.subscribe("$SYS/broker/clients/p/#")
        came_in = home.workers[0].broker_id
        number = home.connection("p").number
        connected_at = home.connection("p").connected_at
        connection = home.connection("p")
        connection.backpressure_s, connection.backpressure_count, connection.outbox.high_water_bytes = 1.5, 3, 99
        await home.streams_until(1)
        sent, bytes_sent = home.sent, home.publisher.bytes_sent
        assert home.connection("p").connected_at == connected_at
        totals = [(await worker.monitor.figures()).totals for worker in home.workers if worker.monitor is not None]
        assert sum(each.messages_received for each in totals) == sent
        assert sum(each.connects for each in totals) == 3, "it connected once"
        assert [worker.dataset._open for worker in home.workers if worker.dataset is not None] == [0, 3]
        reader = await home.dial(0, "reader")
        await reader.subscribe("$SYS/broker/#")
        said: dict[str, bytes] = {}
        wanted = {
            "publish/messages/received": b"%d" % sent,
            "clients/connected": b"4",
            "connections/socket/count": b"4",
        }
        while any(said.get(name) != value for name, value in wanted.items()):
            topic, payload = await reader.message()
            said[topic.removeprefix("$SYS/broker/")] = payload
        home.publisher.send(Disconnect())
        await until(lambda: home.where("p") == [])
        bytes_sent = home.publisher.bytes_sent
    rows = rows_of(tmp_path, "sessions")
    (row,) = [row for row in rows if row["client_id"] == "p"]
    assert row["connection_id"] == number
    assert row["broker_id"] == came_in
    assert (row["received_qos0"], row["bytes_received"]) == (sent, bytes_sent)
    assert row["bytes_sent"] == home.publisher.bytes_received
    assert row["close_reason"] == "client_disconnected"
    assert row["duration_s"] > 0
    assert (row["backpressure_s"], row["backpressure_count"], row["outbox_high_water_bytes"]) == (1.5, 3, 99)
    assert len(rows) == 4
    activity = rows_of(tmp_path, "activity")
    assert sum(each["messages_received"] for each in activity if each["client_id"] == "p") == sent
    assert {each["broker_id"] for each in activity if each["client_id"] == "p"} == {came_in}
    events = rows_of(tmp_path, "events")
    assert {each["broker_id"] for each in events if each["client_id"] == "p"} == {came_in}
    assert sorted(each["event"] for each in events if each["client_id"] == "p") == ["connected", "disconnected"]
    lines = [record.getMessage() for record in caplog.records if "client 'p'" in record.getMessage()]
    assert len(lines) == 2
    assert "connected: MQTT" in lines[0]
    assert "disconnected" in lines[1]


async def test_a_will_is_kept_where_it_was_promised() -> None:
    async with house(publisher={"will": Will(b"t", b"-1", 0, False)}) as home:
        await home.stream(4 * FOLLOW_CHUNKS)
        assert home.where("p") == [0]
        home.publisher.writer.transport.abort()
        assert await home.subscriber.message() == ("t", b"-1")


class Full(asyncio.Transport):
    """A transport that holds what its client does not read."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattribute__(self, name: str) -> Any:
        if name == "get_write_buffer_size":
            return lambda: 1
        return getattr(object.__getattribute__(self, "_transport"), name)


async def test_who_has_yet_to_read_its_answers_stays() -> None:
    async with house() as home:
        (link,) = home.workers[0]._turns.links.values()
        transport = link._transport
        link._transport = Full(transport)
        await home.stream(4 * FOLLOW_CHUNKS)
        assert home.where("p") == [0]
        link._transport = transport
        await home.streams_until(1)


@pytest.mark.parametrize("kind", ["tls", "ws"])
async def test_who_is_decoded_here_stays(certs: Path, kind: str) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
    door = ListenerOptions(port=0, tls=tls) if kind == "tls" else ListenerOptions(port=0, websocket=True)
    async with house(more=(door,)) as home:
        port = home.workers[0].listeners[1].port
        trusted = client_context(str(certs / "ca.crt"))
        home.publisher = await (Device.dial(port, tls=trusted) if kind == "tls" else dial_web(port, V5))
        home.devices.append(home.publisher)
        await home.publisher.connect("q")
        await home.stream(4 * FOLLOW_CHUNKS)
        assert home.where("q") == [0]


async def test_so_many_ask_at_a_time() -> None:
    async with house() as home:
        home.workers[0]._turns.max_leaving = 0
        await home.stream(4 * FOLLOW_CHUNKS)
        assert home.where("p") == [0]
        home.workers[0]._turns.max_leaving = 1
        await home.streams_until(1)


async def ends(home: House) -> None:
    """A stream whose connection does not get where it goes."""
    chunk = b"".join(encode(Publish(b"t", bytes(PAYLOAD)), V5) for _ in range(CHUNK // PAYLOAD))

    async def stream() -> None:
        while True:
            home.publisher.send_bytes(chunk)
            await home.publisher.ping()

    with pytest.raises(Gone):
        await stream()


async def test_where_there_is_no_room_nobody_goes() -> None:
    async with house(ListenerOptions(port=0, max_connections=1)) as home:
        await home.stream(4 * FOLLOW_CHUNKS)
        assert home.where("p") == [0]
    async with house(ListenerOptions(port=0, max_connections=2)) as home:
        await home.streams_until(1)


async def test_whose_room_is_gone_when_it_comes_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async with house(ListenerOptions(port=0, max_connections=1)) as home:
        monkeypatch.setattr(type(home.workers[1].listeners[0]), "has_room", True)
        await home.streams_until(1)
        assert home.workers[1].listeners[0].open == 2


@pytest.mark.parametrize("how", ["too many under way", "no file to go", "no file to come", "stopping", "lost there"])
async def test_who_is_lost_on_the_way_has_its_row_and_may_come_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    telemetry = TelemetryOptions(directory=str(tmp_path), format="jsonl")
    async with house(telemetry=telemetry) as home:
        number = home.connection("p").number
        (listener,) = home.workers[1].listeners
        crew_there = home.workers[1]._crew
        assert crew_there is not None
        with monkeypatch.context() as patched:
            if how == "too many under way":
                patched.setattr(handoff, "MAX_WAITING", 0)
            elif how == "no file to go":

                def fails(_descriptor: int) -> int:
                    raise OSError(24, "Too many open files")

                patched.setattr(os, "dup", fails)
            elif how == "no file to come":
                there = crew_there._handoffs[0]

                def without(sock: socket.socket | None, *said: Any) -> None:
                    assert sock is not None
                    sock.close()
                    crew_there._adopt(0, None, *said)

                patched.setattr(there, "_on_arrival", without)
            elif how == "stopping":
                patched.setattr(type(listener), "has_room", True)
                patched.setattr(listener, "_stopping", True)
            else:

                async def take_over(*_arguments: object) -> None:
                    """The client is gone by now."""

                patched.setattr(type(listener), "_take_over", take_over)
            await ends(home)
            await until(lambda: home.where("p") == [])
            for worker in home.workers:
                assert worker._core._workers is not None
                await until(lambda worker=worker: not worker._core._workers._departed)
                assert not worker._turns._leaving
        received = home.publisher.bytes_sent
        home.publisher = await home.dial(1, "p")
        assert home.where("p") == [1]
        await home.publisher.ping()
    rows = rows_of(tmp_path, "sessions")
    (row,) = [row for row in rows if row["connection_id"] == number]
    assert row["broker_id"] == home.workers[0].broker_id
    assert sorted(row["client_id"] for row in rows) == ["p", "p", "s"]
    assert row["close_reason"] == "connection_lost"
    assert row["close_detail"] == "it was lost on its way to another worker"
    assert 0 < row["bytes_received"] <= received
    assert row["duration_s"] >= 0


async def test_a_link_that_was_never_made_holds_nothing() -> None:
    async with house() as home:
        assert home.workers[0].listeners[0].link().unsent_bytes == 0


async def test_nobody_goes_from_a_broker_that_stops() -> None:
    async with house() as home:
        crew_there = home.workers[0]._crew
        assert crew_there is not None
        crew_there.is_leaving()
        await home.stream(4 * FOLLOW_CHUNKS)
        assert home.where("p") == [0]


async def test_a_stop_in_between_says_goodbye() -> None:
    async with house() as home:
        chunk = b"".join(encode(Publish(b"t", bytes(PAYLOAD)), V5) for _ in range(CHUNK // PAYLOAD))
        assert len(chunk) >= FOLLOW_BYTES
        for _ in range(3):
            home.publisher.send_bytes(chunk * FOLLOW_CHUNKS)
            await asyncio.sleep(0.001)
        await asyncio.gather(*[worker.stop() for worker in home.workers])
        assert (await home.publisher.expect(Disconnect)).reason_code == 0x8B


async def test_bytes_that_lie_in_the_kernel_when_it_goes_are_read_where_it_went() -> None:
    """A publisher that never waits: at any time there is something on its way."""
    async with house() as home:
        sock: socket.socket = home.publisher.writer.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        messages = [Publish(b"t", b"%0*d" % (10 * PAYLOAD, at)) for at in range(20_000)]
        data = b"".join(encode(message, V5) for message in messages)

        heard = 0

        async def flood() -> None:
            for at in range(0, len(data), 60_000):
                while at - heard * len(data) / 20_000 > 2_000_000:  # more than that a slow reader may lose
                    await asyncio.sleep(0)
                home.publisher.send_bytes(data[at : at + 60_000])
                await home.publisher.writer.drain()

        flooding = asyncio.create_task(flood())
        for heard in range(20_000):
            assert int((await home.subscriber.message())[1]) == heard
        await flooding
        await home.publisher.ping()
        assert home.where("p") == [1]
