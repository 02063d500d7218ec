"""Machines of a cluster: one serves, and another goes on where it ends. The engine is its model."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mqttlite.client import Client, DisconnectedByServer
from mqttlite.config import ClusterOptions, Config, ConfigError, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.engine.memory import MemoryServers
from mqttlite.event_hub import CLUSTER_WEAK, Listener
from mqttlite.extensions.cluster import keys, machines, node, turn
from mqttlite.extensions.cluster.lease import Holder, encode
from mqttlite.extensions.cluster.options import LEAST_LOG_BYTES, EngineOptions
from mqttlite.extensions.cluster.overview import look
from mqttlite.extensions.cluster.record import encode_begin
from mqttlite.extensions.cluster.standby import ForeignDataError
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.server import Broker
from tests.support.cluster import Machine

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

Start = Callable[[str], Awaitable[Machine]]

TOLD_WITHIN_S = 30.0
"""Far more than an alarm takes."""


@pytest.fixture
def servers() -> MemoryServers:
    """With a lease that was given back, so that the first machine does not wait until one of an unknown age is over."""
    servers = MemoryServers()
    servers.change(keys.LEASE, encode(Holder(node="", run="", turn=0)), 0)
    return servers


@pytest.fixture
async def start(servers: MemoryServers, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a machine; the engine's model keeps what it has."""
    started: list[Machine] = []

    async def start(name: str) -> Machine:
        machine = Machine(name, servers, tmp_path / name)
        started.append(machine)
        await machine.start()
        return machine

    yield start
    for machine in started:
        await machine.stop()


def session(broker: Broker) -> Client:
    """The client whose session is looked at."""
    return Client("127.0.0.1", broker.port, client_id="s", clean_start=False, session_expiry_interval=600)


async def subscribe(broker: Broker) -> None:
    async with session(broker) as client:
        await client.subscribe("t/#", qos=1)


async def publish(broker: Broker, *payloads: str, retain: bool = False) -> None:
    async with Client("127.0.0.1", broker.port) as client:
        for payload in payloads:
            await client.publish("t/a", payload, qos=1, retain=retain)


async def received(broker: Broker, count: int) -> list[str]:
    """The next messages of the session, which are acknowledged."""
    found: list[str] = []
    async with session(broker) as client:
        async for message in client.messages:
            found.append(message.payload.decode())
            if len(found) == count:
                break
    return found


async def follows(machine: Machine) -> None:
    """Wait until a machine has all of the log, and has said so."""
    while (
        machine.node.picture is None
        or machine.node.role != "follows"
        or machine.node.picture.position < (await machine.engine.bounds(keys.LOG)).last
    ):
        await asyncio.sleep(0.01)


async def trimmed(servers: MemoryServers) -> None:
    """Wait until the log lacks what all machines have."""
    while servers.logs[keys.LOG].first <= 1:
        await asyncio.sleep(0.05)


async def test_another_machine_goes_on_with_the_sessions_of_one_that_stops(start: Start) -> None:
    a = await start("a")
    broker = await a.serves()
    b = await start("b")
    await subscribe(broker)
    payloads = [f"{number}" for number in range(100)]
    await publish(broker, *payloads)
    await a.stop()
    broker = await b.serves()
    assert await received(broker, 100) == payloads
    assert b.node.turns == 2


async def test_a_machine_that_is_cut_off_stops_and_follows_again(start: Start) -> None:
    a = await start("a")
    await subscribe(await a.serves())
    b = await start("b")
    await follows(b)
    a.engine.is_cut_off = True
    broker = await b.serves()
    while a.broker is not None:
        await asyncio.sleep(0.01)
    await publish(broker, "one", "two")
    a.engine.is_cut_off = False
    await follows(a)
    await b.stop()
    assert await received(await a.serves(), 2) == ["one", "two"]


async def test_a_publisher_waits_while_the_engine_has_no_majority_and_no_client_is_disconnected(
    start: Start, servers: MemoryServers
) -> None:
    a = await start("a")
    broker = await a.serves()
    await subscribe(broker)
    async with Client("127.0.0.1", broker.port) as client, Client("127.0.0.1", broker.port) as other:
        await other.subscribe("u", qos=0)
        servers.is_available = False
        waits = asyncio.create_task(client.publish("t/a", "late", qos=1))
        await other.publish("u", "now", qos=0)
        assert (await anext(aiter(other.messages))).payload == b"now"
        await asyncio.sleep(3.5)  # longer than a lease
        assert not waits.done()
        servers.is_available = True
        await waits
    assert a.broker is broker
    assert await received(broker, 1) == ["late"]


async def test_an_operator_hands_over(start: Start) -> None:
    a = await start("a")
    broker = await a.serves()
    await subscribe(broker)
    b, c = await start("b"), await start("c")
    await follows(b)
    await follows(c)
    while len(a.node.machines.said) < 3 or any(each.role == "starts" for each in a.node.machines.said.values()):
        await asyncio.sleep(0.05)
    async with Client("127.0.0.1", broker.port) as client:
        await client.publish("t/a", "before", qos=1)
        await keys.ask_to_hand_over(a.engine, a.node.turns, "c")
        error = await asyncio.wait_for(_end_of(client), 5)
    assert "c.example:1883" in error, "5.0 clients are told where to go"
    assert await received(await c.serves(), 1) == ["before"]
    assert b.broker is None
    overview = await look(b.engine)
    assert (overview.serving, overview.turn) == ("c", 2)


async def test_a_client_with_all_addresses_stays_with_the_cluster(start: Start) -> None:
    a = await start("a")
    broker = await a.serves()
    b = await start("b")
    await follows(b)
    while len(a.node.machines.said) < 2 or a.node.machines.said["b"].role != "follows":
        await asyncio.sleep(0.05)
    servers = [f"127.0.0.1:{a.port}", f"127.0.0.1:{b.port}"]
    async with (
        Client(
            servers, client_id="s", session_expiry_interval=600, min_reconnect_delay=0.05, max_reconnect_delay=0.1
        ) as client,
        Client(servers, min_reconnect_delay=0.05, max_reconnect_delay=0.1) as publisher,
    ):
        await client.subscribe("t/#", qos=1)
        await keys.ask_to_hand_over(a.engine, a.node.turns, "b")
        assert await b.serves() is not broker
        await publisher.publish("t/a", "after", qos=1)
        assert (await anext(aiter(client.messages))).payload == b"after"


async def _end_of(client: Client) -> str:
    try:
        async for _ in client.messages:
            pass
    except DisconnectedByServer as error:
        return str(error)
    return ""


async def test_a_request_for_an_earlier_turn_or_without_a_follower_is_ignored(start: Start) -> None:
    a = await start("a")
    broker = await a.serves()
    await keys.ask_to_hand_over(a.engine, a.node.turns, "")
    await keys.ask_to_hand_over(a.engine, a.node.turns - 1, "")
    await asyncio.sleep(0.1)
    assert a.broker is broker


async def test_the_data_of_a_single_broker_comes_along_by_a_snapshot(start: Start, tmp_path: Path) -> None:
    options = Config(listeners=(ListenerOptions(port=0),), data_dir=str(tmp_path / "a"))
    async with Broker(options) as broker:
        await subscribe(broker)
        await publish(broker, "old")
    a = await start("a")
    await publish(await a.serves(), "new")
    b = await start("b")
    await follows(b)
    assert (tmp_path / "b" / "cluster-snapshot").exists() is False
    await a.stop()
    assert await received(await b.serves(), 2) == ["old", "new"]


async def test_a_machine_that_lost_its_disk_starts_from_a_snapshot(
    start: Start, servers: MemoryServers, tmp_path: Path
) -> None:
    a = await start("a")
    broker = await a.serves()
    await subscribe(broker)
    await publish(broker, "one", "two")
    b = await start("b")
    await follows(b)
    await trimmed(servers)
    c = await start("c")
    await follows(c)
    await a.stop()
    await b.stop()
    assert await received(await c.serves(), 2) == ["one", "two"]


async def test_a_machine_that_lost_its_disk_starts_while_others_go_on(start: Start, servers: MemoryServers) -> None:
    a = await start("a")
    broker = await a.serves()

    async def go_on() -> None:
        while True:
            await publish(broker, "x", retain=True)
            await asyncio.sleep(0.02)

    going_on = asyncio.create_task(go_on())
    try:
        b = await start("b")
        await follows(b)
        await trimmed(servers)  # as it is again and again
        async with asyncio.timeout(10):
            await follows(await start("c"))
    finally:
        going_on.cancel()


async def test_the_data_of_another_broker_is_refused(start: Start, tmp_path: Path) -> None:
    a = await start("a")
    await a.serves()
    options = Config(listeners=(ListenerOptions(port=0),), data_dir=str(tmp_path / "b"))
    async with Broker(options) as broker:
        await subscribe(broker)
    b = await start("b")
    with pytest.raises(ForeignDataError, match=r"data_dir: .*/b has data of a broker that is not of the cluster"):
        await b.ended()


async def test_a_broker_alone_does_not_write_to_the_data_of_a_machine(start: Start, tmp_path: Path) -> None:
    a = await start("a")
    await a.serves()
    await a.stop()
    options = Config(listeners=(ListenerOptions(port=0),), data_dir=str(tmp_path / "a"))
    with pytest.raises(ConfigError, match="is that of a machine of a cluster"):
        Broker(options)
    (tmp_path / "a" / "cluster-machine").unlink()
    async with Broker(options) as broker:
        await subscribe(broker)
    again = await start("a")
    with pytest.raises(ForeignDataError, match="may have what a broker alone wrote there"):
        await again.ended()


async def test_an_engine_that_lost_the_log_is_refused(start: Start, servers: MemoryServers, tmp_path: Path) -> None:
    a = await start("a")
    await publish(await a.serves(), "x", retain=True)
    await a.stop()
    servers.logs.clear()
    again = await start("a")
    with pytest.raises(ForeignDataError, match=r"has the log of the cluster 'mqttlite' up to \d+, and the engine has"):
        await again.ended()


async def test_files_that_commands_write_come_along(start: Start, tmp_path: Path) -> None:
    a = await start("a")
    await a.serves()
    (tmp_path / "a" / "one.json").write_text("first")
    await asyncio.sleep(1.2)
    (tmp_path / "a" / "one.json").write_text("second one")
    (tmp_path / "a" / "two.json").write_text("{}")
    b = await start("b")
    await follows(b)
    (tmp_path / "b" / "two.json").write_text("of an earlier time")
    await asyncio.sleep(1.2)
    await a.stop()
    await b.serves()
    assert (tmp_path / "b" / "one.json").read_text() == "second one"
    assert (tmp_path / "b" / "two.json").read_text() == "{}"
    (tmp_path / "b" / "two.json").write_text("changed at the last moment")
    await b.stop()
    again = await start("b")
    await again.serves()
    assert (tmp_path / "b" / "two.json").read_text() == "changed at the last moment", "it is newer than the engine's"


async def test_the_log_of_another_engine_is_refused(start: Start, tmp_path: Path) -> None:
    a = await start("a")
    await publish(await a.serves(), "old", retain=True)
    await a.stop()
    others = MemoryServers()
    first = Machine("b", others, tmp_path / "b")
    await first.start()
    broker = await first.serves()
    await publish(broker, *(f"{number}" for number in range(20)), retain=True)
    foreign = Machine("a", others, tmp_path / "a")
    await foreign.start()
    with pytest.raises(ForeignDataError, match="has another log than the engine"):
        await foreign.ended()
    await foreign.stop()
    await first.stop()


async def test_old_data_is_not_mixed_with_a_cluster_that_began_without_it(start: Start, tmp_path: Path) -> None:
    options = Config(listeners=(ListenerOptions(port=0),), data_dir=str(tmp_path / "a"))
    async with Broker(options) as broker:
        await publish(broker, "old", retain=True)
    b = await start("b")
    await asyncio.sleep(0.5)
    a = await start("a")  # before the other one serves
    await b.serves()
    with pytest.raises(ForeignDataError, match=r"data_dir: .*/a has data of a broker"):
        await a.ended()
    async with Broker(options) as broker:
        assert len(broker._core.router.retained) > 0, "it is still there"


async def test_a_machine_with_old_data_that_was_interrupted_begins_again(
    start: Start, servers: MemoryServers, tmp_path: Path
) -> None:
    options = Config(listeners=(ListenerOptions(port=0),), data_dir=str(tmp_path / "a"))
    async with Broker(options) as broker:
        await subscribe(broker)
        await publish(broker, "old")
    del servers.keys[keys.LEASE]  # nobody has given it back
    engine = servers.connect()
    await engine.ensure_log(keys.LOG, 1 << 30)
    await engine.append(keys.LOG, 0, encode_begin(1, "a", True))  # and then it was killed
    b = await start("b")
    a = await start("a")
    broker = await a.serves()
    await follows(b)
    await a.stop()
    assert await received(await b.serves(), 1) == ["old"]


async def test_a_damaged_database_is_kept_aside_and_never_served(start: Start, tmp_path: Path) -> None:
    a = await start("a")
    broker = await a.serves()
    async with Client("127.0.0.1", broker.port) as client:
        for number in range(300):
            await client.publish(f"r/{number}", b"x" * 300, qos=1, retain=True)
    b = await start("b")
    await follows(b)
    await b.stop()
    file = tmp_path / "b" / "mqttlite.db"
    content = bytearray(file.read_bytes())
    for at in range(60_000, len(content) - 2_000, 9_000):
        content[at : at + 700] = b"\xa5" * 700
    file.write_bytes(content)
    again = await start("b")
    await follows(again)
    assert list((tmp_path / "b").glob("mqttlite.db.damaged-*"))
    await a.stop()
    broker = await again.serves()
    found = set()
    async with Client("127.0.0.1", broker.port) as client:
        await client.subscribe("r/#")
        async with asyncio.timeout(10):
            async for message in client.messages:
                found.add(message.topic)
                if len(found) == 300:
                    break


async def test_a_machine_that_cannot_renew_asks_which_servers_are_there(start: Start, servers: MemoryServers) -> None:
    a = await start("a")
    broker = await a.serves()
    servers.is_available = False  # two of three do not run
    await asyncio.sleep(4.5)
    assert a.broker is broker
    servers.is_available = True
    a.engine.is_cut_off = True  # none of them answers
    while a.broker is not None:
        await asyncio.sleep(0.05)
    a.engine.is_cut_off = False


async def test_figures_sys_topics_and_an_alarm_tell_of_the_cluster(start: Start, servers: MemoryServers) -> None:
    told: list[tuple[bool, str]] = []

    class Ears(Listener):
        def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
            if alarm == CLUSTER_WEAK:
                told.append((active, detail))

    async def told_times(number: int) -> None:
        async with asyncio.timeout(TOLD_WITHIN_S):
            while len(told) < number:
                await asyncio.sleep(0.05)

    a = await start("a")
    a.listeners.append(Ears())
    await a.serves()
    await told_times(1)
    assert told == [(True, "no other machine follows, so none could take over")]
    await start("b")
    await told_times(2)
    assert told[-1] == (False, "")
    servers.away = ("n2",)
    await told_times(3)
    assert told[-1] == (True, "the log has fewer than three copies, for servers of the engine are away: n2")
    values = a.figures.values()
    assert values["cluster_servers_away"] == 1.0
    servers.away = ()
    await told_times(4)
    assert told[-1] == (False, "")
    values = a.figures.values()
    assert values["cluster_serving"] == [({"machine": "a"}, 1.0)]
    assert values["cluster_machines"] == [
        ({"machine": "a", "role": "serves"}, 1.0),
        ({"machine": "b", "role": "follows"}, 1.0),
    ]
    assert values["cluster_turn"] == 1.0
    assert dict(a.figures.sys_values())["cluster/machines/b/role"] == "follows"


async def test_the_server_of_the_engine_beside_the_machine_that_serves_is_to_lead_nothing(
    start: Start, servers: MemoryServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def options(name: str) -> ClusterOptions:
        address = f"nats://127.0.0.1:{4220 + ord(name)}"
        return ClusterOptions(servers=(address,), node=name, engine=EngineOptions(address=address, secret="s" * 16))

    monkeypatch.setattr(Machine, "options", staticmethod(options))
    monkeypatch.setattr(node, "LEAD_S", 0.01)
    a = await start("a")
    await a.serves()
    await follows(await start("b"))
    servers.is_available = False  # while the engine is silent it is asked again and again
    await asyncio.sleep(0.1)
    servers.is_available = True
    servers.asked_to_lead_elsewhere.clear()
    async with asyncio.timeout(10):
        while not servers.asked_to_lead_elsewhere:
            await asyncio.sleep(0.05)
    assert set(servers.asked_to_lead_elsewhere) == {f"nats://127.0.0.1:{4220 + ord('a')}"}


async def test_datasets_of_all_machines_have_each_message_once_with_the_machine(
    servers: MemoryServers, tmp_path: Path
) -> None:
    a = Machine("a", servers, tmp_path / "a")
    b = a.beside("b")
    for machine in (a, b):
        machine.telemetry = TelemetryOptions(directory=str(tmp_path / f"dataset-{machine.name}"), format="jsonl")
    await a.start()
    broker = await a.serves()
    await b.start()
    await publish(broker, "1", "2", "3")
    await follows(b)
    await a.stop()
    await publish(await b.serves(), "4", "5")
    await b.stop()
    sessions, events, traffic = (rows_of(tmp_path, table) for table in ("sessions", "events", "traffic"))
    assert sum(each["messages_qos1"] for each in traffic if each["topic"] == "t/a") == 5
    assert sorted((each["node"], each["received_qos1"]) for each in sessions) == [("a", 3), ("b", 2)]
    started = {each["broker_id"]: each["node"] for each in events if each["event"] == "broker_started"}
    assert sorted(started.values()) == ["a", "b"]
    assert all(started[each["broker_id"]] == each["node"] for each in (*sessions, *events))


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    """A table of the datasets of all machines."""
    files = folder.glob(f"dataset-*/table={table}/*/*/*.jsonl")
    return [json.loads(line) for file in sorted(files) for line in file.read_text().splitlines()]


async def test_a_machine_that_says_nothing_counts_as_gone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "ALIVE_S", 0.1)
    monkeypatch.setattr(machines, "SILENT_S", 4.0)
    a = await start("a")
    await a.serves()
    b = await start("b")
    await follows(b)
    while "b" not in a.node.machines.followers():
        await asyncio.sleep(0.05)
    await asyncio.sleep(4.5)
    assert a.node.machines.followers() == ["b"]
    b.engine.is_cut_off = True
    await asyncio.sleep(4.5)
    assert a.node.machines.followers() == []
    assert a.node.machines.roles()["b"] == "silent"


async def test_a_program_cannot_run_a_machine_of_a_cluster_by_itself(tmp_path: Path) -> None:
    machine = Machine.options("a")
    with pytest.raises(ConfigError, match="only `mqttlite serve` runs a broker as a machine of a cluster"):
        Broker(Config(cluster=machine, data_dir=str(tmp_path)))
    with pytest.raises(ConfigError, match="cluster needs data_dir"):
        Broker(Config(cluster=machine))
    short = ClusterOptions(servers=machine.servers, log_bytes=LEAST_LOG_BYTES)
    limits = Limits(max_packet_bytes=LEAST_LOG_BYTES // 2)
    with pytest.raises(ConfigError, match=r"cluster\.log_bytes is .* must have room in the log"):
        Broker(Config(cluster=short, data_dir=str(tmp_path), limits=limits))


async def test_a_machine_whose_port_is_taken_says_so_and_is_no_heir(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node, "RECHECK_S", 0.1)
    a = await start("a")
    await a.serves()
    b = a.beside("b")
    with socket.create_server(("127.0.0.1", b.port)):
        await b.start()
        while a.node.machines.roles().get("b") != "cannot serve":
            assert a.node.machines.followers() == []
            await asyncio.sleep(0.02)
        why = f"cannot listen on 127.0.0.1:{b.port} (tcp-{b.port}): the port is in use"
        assert f"this machine follows, and could not serve: {why}" in caplog.text
        asked = await keys.ask_to_hand_over(a.engine, a.node.turns, "b")
        while not (refusal := await keys.refusal_of(a.engine, asked)):
            await asyncio.sleep(0.02)
        assert refusal.startswith(f"b does not follow the log; the machine b could not serve: {why}")
        assert a.node.turn.successor == ""
        await asyncio.sleep(2.5)  # the next look of the machine that serves
        assert a.figures.values()["cluster_machines"][1] == ({"machine": "b", "role": "cannot serve"}, 1.0)  # type: ignore[index]
        await a.stop()
        await asyncio.sleep(1.0)
        assert (b.node.role, b.broker) == ("cannot serve", None), "the lease is free"
    await b.serves()
    await b.stop()
    assert "this machine could serve again" in caplog.text


async def test_a_machine_that_is_behind_is_waited_for_and_no_heir_before(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "CATCH_UP_S", 0.5)
    a = await start("a")
    broker = await a.serves()
    await subscribe(broker)
    b = await start("b")
    await follows(b)
    while a.node.machines.followers() != ["b"]:
        await asyncio.sleep(0.02)
    b.engine.is_cut_off = True
    await publish(broker, "one")
    asked = await keys.ask_to_hand_over(a.engine, a.node.turns, "")
    while not (refusal := await keys.refusal_of(a.engine, asked)):
        await asyncio.sleep(0.02)
    assert re.search(r"b is \d+ records behind the log", refusal)
    assert a.broker is broker
    b.engine.is_cut_off = False
    await keys.ask_to_hand_over(a.engine, a.node.turns, "")
    assert await received(await b.serves(), 1) == ["one"]


async def test_the_heir_serves_while_a_client_still_holds_its_connection(start: Start) -> None:
    a = await start("a")
    broker = await a.serves()
    b = await start("b")
    await follows(b)
    while a.node.machines.followers() != ["b"]:
        await asyncio.sleep(0.02)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(bytes.fromhex("100d00044d5154540502003c000000"))
    assert (await reader.read(1)) == b"\x20"
    await keys.ask_to_hand_over(a.engine, a.node.turns, "b")
    await b.serves()
    assert a.open_connections() == 1, "it did not close its side"
    writer.close()


async def test_a_ping_is_answered_while_acknowledgements_wait_for_the_engine(
    start: Start, servers: MemoryServers
) -> None:
    a = await start("a")
    broker = await a.serves()
    await subscribe(broker)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(bytes.fromhex("100d00044d5154540402000a00017a"))
    assert await reader.readexactly(4) == bytes.fromhex("20020000")
    servers.is_available = False
    for number in range(3):
        writer.write(bytes.fromhex("32080003742f610001") + b"%d" % number)
        writer.write(b"\xc0\0")
        async with asyncio.timeout(8):  # with a keep-alive of ten seconds, libraries wait so long at least
            assert await reader.readexactly(2) == b"\xd0\0"
        await asyncio.sleep(1)
    servers.is_available = True
    async with asyncio.timeout(8):
        assert [(await reader.readexactly(4))[:2] for _ in range(3)] == [b"\x40\2"] * 3
    writer.close()
