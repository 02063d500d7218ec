"""Clients that connect to another node than the one that has their session."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqttlite import Client
from mqttlite.client import ScramSha256
from mqttlite.extensions.nodes import peer
from mqttlite.extensions.nodes.blobs import Notes, decode
from mqttlite.extensions.nodes.peer import Peer
from mqttlite.extensions.nodes.pipes import WINDOW_BYTES
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.tls import client_context
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V31, V311
from mqttlite.wire.packets import Connack, Will
from tests.integration.conftest import Rig
from tests.integration.nodes.test_nodes import QUIET_S, Fleet, Reader, air, connected, fleet, nodes_of
from tests.support.air import Air
from tests.support.device import until
from tests.support.inside import core_of, loop_driver_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

__all__ = ["air", "fleet"]

CERTIFICATES = {"cert_file": "server.crt", "key_file": "server.key", "ca_file": "ca.crt"}
SECRET = keys_of("secret", b"0123456789abcdef", 4_096)


def is_online(broker: Broker, client_id: str) -> bool:
    session = core_of(broker).sessions.get(client_id)
    return session is not None and session.outbox is not None


def holders(client_id: str, *brokers: Broker) -> list[str]:
    """The nodes that have a session of a client."""
    return [nodes_of(each).node for each in brokers if core_of(each).sessions.get(client_id) is not None]


@pytest.mark.parametrize("version", [V31, V311, V5])
async def test_a_kept_session_goes_on_at_whichever_node_its_client_connects_to(
    fleet: Fleet, rig: Rig, version: int
) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    kept = {"clean_start": False, "expiry": 1_000 if version == V5 else None}
    here = await rig.device(a.port, "us", version, **kept)
    await here.subscribe("t/#", 2)
    await here.disconnect()
    async with Client("127.0.0.1", c.port) as them:
        for number in range(20):
            await them.publish(f"t/{number}", str(number), 1)
        there = await rig.dial(b.port, version)
        there.hello("us", **kept)  # type: ignore[arg-type]
        assert (await there.expect(Connack)).session_present == (version != V31)
        assert [(await there.message())[1] for _ in range(20)] == [str(number).encode() for number in range(20)]
        await them.publish("t/x", "live", 1)
        assert await there.message() == ("t/x", b"live")
    there.publish("t/own", b"own", 0)
    assert await there.message() == ("t/own", b"own")
    assert holders("us", a, b, c) == ["a"]
    assert [each.passed_on for each in nodes_of(b).states()] == [1, 0]
    assert nodes_of(b).figures()["nodes_passed_on"][0] == ({"node": "a"}, 1)
    await there.disconnect()
    await until(lambda: not is_online(a, "us"))
    assert [each.passed_on for each in nodes_of(b).states()] == [0, 0]


async def test_a_client_is_connected_at_one_node_only(fleet: Fleet, rig: Rig) -> None:
    a, b = await fleet.together("a", "b")
    here = await rig.device(a.port, "us", will=Will(b"will", b"", 0, False))
    witness = await rig.device(b.port, "witness")
    await witness.subscribe("will")
    there = await rig.device(b.port, "us")
    assert await here.goodbye() == 0x8E
    assert await witness.message() == ("will", b"")
    await there.ping()
    assert holders("us", a, b) == ["a"]
    again = await rig.device(a.port, "us")
    assert await there.goodbye() == 0x8E
    await again.disconnect()
    await until(lambda: not holders("us", a, b))
    await rig.device(b.port, "us")
    assert holders("us", a, b) == ["b"]


async def test_a_client_that_connects_everywhere_at_once_has_one_session(fleet: Fleet, rig: Rig, air: Air) -> None:
    air.max_delay_s = 0.005
    brokers = await fleet.together("a", "b", "c")
    for number in range(20):
        devices = [await rig.dial(broker.port) for broker in brokers]
        for device in devices:
            device.hello(f"us-{number}", clean_start=number % 2 == 0, expiry=1_000)
        await until(lambda number=number: sum(is_online(each, f"us-{number}") for each in brokers) == 1)  # type: ignore[misc]
        assert len(holders(f"us-{number}", *brokers)) == 1
        assert [(await device.expect(Connack)).reason_code for device in devices] == [0, 0, 0]


async def test_who_has_not_the_password_takes_no_session_at_another_node(
    fleet: Fleet, rig: Rig, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    set_user(users, "ann", SECRET, create=True)
    a, b = [await fleet.start(name, password_file=str(users)) for name in ("a", "b")]
    await connected(a, b)
    here = await rig.device(a.port, "us", username="ann", password=b"secret")
    thief = await rig.dial(b.port)
    thief.hello("us", username="ann", password=b"guess")
    assert (await thief.expect(Connack)).reason_code == 0x86
    assert await thief.goodbye() is None
    await here.ping()
    there = await rig.device(b.port, "us", username="ann", password=b"secret")
    assert await here.goodbye() == 0x8E
    session = core_of(a).sessions.get("us")
    assert session is not None
    assert session.identity.username == "ann"
    await there.ping()


async def test_a_client_whose_way_is_cut_is_lost_to_its_node_and_may_come_again(
    fleet: Fleet, rig: Rig, air: Air
) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    witness = await rig.device(c.port, "witness")
    await witness.subscribe("will")
    kept = {"clean_start": False, "expiry": 1_000, "will": Will(b"will", b"lost", 1, False)}
    await (await rig.device(a.port, "us", **kept)).close()
    assert await witness.message() == ("will", b"lost")
    there = await rig.device(b.port, "us", **kept)
    air.cut.add(frozenset("ab"))
    assert await there.goodbye() is None
    assert await witness.message() == ("will", b"lost")
    assert not is_online(a, "us")
    air.cut.clear()
    await connected(a, b, c)
    again = await rig.dial(b.port)
    again.hello("us", clean_start=False, expiry=1_000)
    assert (await again.expect(Connack)).session_present


async def test_a_session_that_began_while_nodes_were_apart_ends_when_its_client_is_elsewhere(
    fleet: Fleet, rig: Rig, air: Air, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    us = await rig.device(a.port, "us", **kept)
    await us.subscribe("t", 1)
    await us.disconnect()
    us = await rig.device(a.port, "them", **kept)
    await us.disconnect()
    air.cut.add(frozenset("ab"))
    await until(lambda: nodes_of(b).states()[0].state == "away")
    for name in ("us", "them"):
        await (await rig.device(b.port, name, **kept)).disconnect()
    assert holders("us", a, b) == ["a", "b"]
    async with Client("127.0.0.1", a.port) as other:
        await other.publish("t", "waits", 1)
    air.cut.clear()
    await connected(a, b)
    us = await rig.device(b.port, "us", **kept)
    assert await us.message() == ("t", b"waits")  # of two sessions, the one in which more waits
    assert holders("us", a, b) == ["a"]
    await rig.device(b.port, "them", **kept)
    await until(lambda: len(holders("them", a, b)) == 1)


async def test_much_goes_both_ways_and_a_slow_client_fills_no_node(fleet: Fleet, rig: Rig) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    us = await rig.device(a.port, "us", **kept)
    await us.subscribe("down", 0)
    await us.disconnect()
    us = await rig.device(b.port, "us", **kept)
    them = await rig.device(a.port, "them")
    await them.subscribe("up")
    piece = bytes(500_000)
    for number in range(20):
        us.publish("up", str(number).encode() + piece)
    assert [len((await them.message())[1]) for _ in range(20)] == [len(str(n)) + len(piece) for n in range(20)]
    us.freeze()
    for _ in range(40):
        them.publish("down", piece)
    await them.ping()
    session = core_of(a).sessions.get("us")
    assert session is not None
    outbox = session.outbox
    assert outbox is not None
    await until(lambda: outbox.blocked)
    link = loop_driver_of(a).links[outbox.number]
    assert link.unsent_bytes <= WINDOW_BYTES + len(piece) + 100
    us.thaw()
    assert (await us.message())[1] == piece
    await us.ping()
    await until(lambda: not outbox.blocked)


async def test_keep_alive_is_watched_where_the_session_is(fleet: Fleet, rig: Rig) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    await (await rig.device(a.port, "us", **kept)).disconnect()
    us = await rig.device(b.port, "us", keep_alive=1, **kept)
    assert await us.goodbye() == 0x8D


async def test_the_name_in_a_certificate_goes_with_its_client(fleet: Fleet, rig: Rig, certs: Path) -> None:
    tls = {name: str(certs / file) for name, file in CERTIFICATES.items()}
    doors = [{"port": 0}, {"port": 0, "tls": tls, "authentication": ["certificate"]}]
    a, b = [await fleet.start(name, listeners=doors) for name in ("a", "b")]
    await connected(a, b)
    context = client_context(str(certs / "ca.crt"), str(certs / "thermometer.crt"), str(certs / "thermometer.key"))
    kept = {"clean_start": False, "expiry": 1_000, "tls": context}
    await (await rig.device(a.listeners[1].port, "us", **kept)).disconnect()
    there = await rig.device(b.listeners[1].port, "us", **kept)
    await there.subscribe("t", 1)
    for size in (0, 100_000, 900_000):
        there.publish("t", bytes(size))
        assert await there.message() == ("t", bytes(size))
    session = core_of(a).sessions.get("us")
    assert session is not None
    assert session.identity.username == "thermometer"
    assert session.outbox is not None
    link = loop_driver_of(a).links[session.outbox.number]
    assert (link.address, link.tls_version) == (there.address, "TLSv1.3")
    await there.disconnect()
    await until(lambda: not is_online(a, "us"))


async def test_an_exchange_of_auth_is_made_where_the_session_is(fleet: Fleet, rig: Rig, tmp_path: Path) -> None:
    users = tmp_path / "users"
    set_user(users, "ann", SECRET, create=True)
    a, b = [await fleet.start(name, password_file=str(users)) for name in ("a", "b")]
    await connected(a, b)
    options: Any = {"client_id": "us", "clean_start": False, "session_expiry_interval": 1_000}
    for broker in (a, b):
        async with Client("127.0.0.1", broker.port, authentication=ScramSha256("ann", "secret"), **options) as us:
            await us.subscribe("t", 1)
            await us.publish("t", "x", 1)
            await us.reauthenticate()
            assert (await anext(us.messages)).payload == b"x"
    assert holders("us", a, b) == ["a"]


async def test_a_client_over_websocket_is_passed_on(fleet: Fleet) -> None:
    web: Any = [{"port": 0}, {"port": 0, "websocket": True, "name": "web"}]
    a, b = [await fleet.start(name, listeners=web) for name in ("a", "b")]
    await connected(a, b)
    options: Any = {"client_id": "us", "clean_start": False, "session_expiry_interval": 1_000}
    async with Client("127.0.0.1", a.port, **options) as us:
        await us.subscribe("t/#", 1)
    async with Client("127.0.0.1", b.listeners[1].port, transport="websocket", **options) as us:
        assert us.session_present
        reader = Reader(us)
        for number in range(10):
            await us.publish(f"t/{number}", "x" * 70_000, 1)
        await until(lambda: len(reader.messages) == 10)
        assert holders("us", a, b) == ["a"]
    await until(lambda: not is_online(a, "us"))


async def test_a_node_without_that_listener_takes_no_client_in(
    fleet: Fleet, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    a = await fleet.start("a", listeners=[{"port": 0, "name": "one"}])
    b = await fleet.start("b", listeners=[{"port": 0, "name": "two"}])
    await connected(a, b)
    await rig.device(a.port, "us")
    us = await rig.dial(b.port)
    us.hello("us")
    assert await us.goodbye() is None
    assert "client us of node b is turned away: there is no listener 'two' here" in caplog.text


async def test_a_full_listener_takes_no_client_in(fleet: Fleet, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    a, b = [await fleet.start(name, listeners=[{"port": 0, "max_connections": 1}]) for name in ("a", "b")]
    await connected(a, b)
    here = await rig.device(a.port, "us")
    us = await rig.dial(b.port)
    us.hello("us")
    assert await us.goodbye() is None
    assert "client us of node b is turned away: its listener has no room" in caplog.text
    await here.ping()


async def test_a_node_that_stops_says_goodbye_to_the_clients_that_it_passes_on(fleet: Fleet, rig: Rig) -> None:
    a = await fleet.start("a")
    b = await fleet.start("b")
    await connected(a, b)
    kept = {"clean_start": False, "expiry": 1_000}
    for name in ("here", "there"):
        await (await rig.device((a if name == "here" else b).port, name, **kept)).disconnect()
    here, there = await rig.device(b.port, "here", **kept), await rig.device(a.port, "there", **kept)
    await b.stop()
    assert await here.goodbye() is None
    assert await there.goodbye() is None
    assert not is_online(a, "here")
    await rig.device(a.port, "here", **kept)


async def test_lost_notes_end_the_connection_of_the_nodes_and_the_client_is_served(
    fleet: Fleet, rig: Rig, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    _a, b = brokers = await fleet.together("a", "b")
    send, lost = air.send, 1

    def lose(sender: str, node: str, blob: bytes) -> None:
        nonlocal lost
        if lost and isinstance(decode(blob), Notes):
            lost -= 1
        else:
            send(sender, node, blob)

    monkeypatch.setattr(air, "send", lose)
    await rig.device(b.port, "us")  # its question was lost
    await connected(*brokers)
    assert nodes_of(b).states()[0].connects == 2
    lost = 1
    await rig.device(b.port, "us")
    await connected(*brokers)
    assert nodes_of(b).states()[0].connects == 3


async def test_nobody_ends_what_waits_for_a_node_by_its_name(fleet: Fleet, rig: Rig) -> None:
    a, b, c = await fleet.together("a", "b", "c")
    await (await rig.device(c.port, "us")).subscribe("t", 1)
    await until(lambda: all(each.states()[1].filters == 1 for each in (nodes_of(a), nodes_of(b))))
    await c.stop()
    thief = await rig.dial(a.port)
    thief.hello("$node/c")
    assert (await thief.expect(Connack)).reason_code == 0x85
    assert holders("$node/c", a, b) == ["a", "b"]


async def test_sessions_of_the_program_are_each_nodes_own(fleet: Fleet, rig: Rig) -> None:
    a, b = await fleet.together("a", "b")
    own = LocalClient(client_id="us", clean_start=False, session_expiry_s=1_000, is_trusted=True)
    sessions = [LocalSession(core_of(each), loop_driver_of(each), lambda: None) for each in (a, b)]
    for session in sessions:
        session.connect(own, 20)
    for session in sessions:
        session.end()
    thief = await rig.dial(b.port)
    thief.hello("us")
    assert (await thief.expect(Connack)).reason_code == 0x85
    await asyncio.sleep(QUIET_S)
    assert holders("us", a, b) == ["a", "b"]


async def test_a_node_that_does_not_take_what_its_clients_are_sent_is_given_up(
    fleet: Fleet, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await fleet.together("a", "b")
    await rig.device(a.port, "us")
    monkeypatch.setattr(peer, "NOTES_WAITING_BYTES", 10)
    monkeypatch.setattr(Peer, "blobs", lambda _peer, _now: ())
    us = await rig.dial(b.port)
    us.hello("us")
    assert (await us.expect(Connack)).reason_code == 0
    assert nodes_of(b).states()[0].reason == "It did not take what its clients are sent as fast as it came."
