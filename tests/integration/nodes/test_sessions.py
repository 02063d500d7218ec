"""Clients that connect to another node than the one that has their session."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqttlite import Client, server
from mqttlite.client import ScramSha256
from mqttlite.core.reasons import HoldReason
from mqttlite.extensions.nodes import locating, moving, peer
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
from mqttlite.wire.packets import Connack, Disconnect, Publish, Will
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.integration.nodes.test_nodes import QUIET_S, Fleet, Reader, air, connected, fleet, nodes_of, peer_of
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


async def test_a_stranger_takes_no_session_at_another_node(fleet: Fleet, rig: Rig, tmp_path: Path) -> None:
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


async def apart(air: Air, *brokers: Broker) -> None:
    """Cut two nodes off from each other."""
    air.cut.add(frozenset(nodes_of(each).node for each in brokers))
    await until(lambda: all(nodes_of(each).states()[0].state == "away" for each in brokers))


async def together(air: Air, *brokers: Broker) -> None:
    air.cut.clear()
    await connected(*brokers)


async def test_of_two_sessions_that_began_while_nodes_were_apart_the_newer_one_goes_on_with_all_that_waits(
    fleet: Fleet, rig: Rig, air: Air
) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    for name in ("us", "them"):
        us = await rig.device(a.port, name, **kept)
        await us.subscribe(name, 2)
        await us.disconnect()
    await apart(air, a, b)
    us = await rig.device(b.port, "us", **kept)
    await us.subscribe("new", 2)
    await (await rig.device(b.port, "them", **kept)).disconnect()
    async with Client("127.0.0.1", a.port) as other:
        for number in range(50):
            await other.publish("us", str(number), number % 2 + 1, properties=Properties(user_properties=[("k", "v")]))
    await together(air, a, b)
    await until(lambda: holders("us", a, b) == holders("them", a, b) == ["b"])
    got = []
    for _ in range(50):
        message = await us.expect(Publish)
        assert message.properties.user_properties == [("k", "v")]
        got.append((message.qos, int(message.payload)))
    assert got == [(number % 2 + 1, number) for number in range(50)]
    async with Client("127.0.0.1", a.port) as other:
        await other.publish("us", "gone", 1)  # to which it did not subscribe in its new session
        await other.publish("new", "last", 1)
    assert (await us.expect(Publish)).payload == b"last"


async def test_a_client_that_is_connected_at_two_nodes_when_they_meet_stays_at_the_latest(
    fleet: Fleet, rig: Rig, air: Air
) -> None:
    a, b = await fleet.together("a", "b")
    await apart(air, a, b)
    first = await rig.device(a.port, "us")
    second = await rig.device(b.port, "us")
    await together(air, a, b)
    assert await first.goodbye() == 0x8E
    await second.ping()
    await until(lambda: holders("us", a, b) == ["b"])


async def test_messages_at_a_node_that_was_away_come_to_its_clients_session_elsewhere(
    fleet: Fleet, rig: Rig, tmp_path: Path
) -> None:
    a, b = await fleet.start("a", tmp_path), await fleet.start("b")
    await connected(a, b)
    kept = {"clean_start": False, "expiry": 1_000}
    us = await rig.device(a.port, "us", **kept)
    await us.subscribe("t", 1)
    await us.disconnect()
    async with Client("127.0.0.1", b.port) as other:
        await other.publish("t", "before", 1)
        await until(lambda: peer_of(b, "a").waiting == 0)
        await a.stop()
        us = await rig.device(b.port, "us", **kept)
        await us.subscribe("t", 1)
        await other.publish("t", "meanwhile", 1)
        assert await us.message() == ("t", b"meanwhile")
        a = await fleet.start("a", tmp_path)
        await connected(a, b)
        assert await us.message() == ("t", b"before")
        await until(lambda: holders("us", a, b) == ["b"])
        await other.publish("t", "after", 1)
        assert await us.message() == ("t", b"after")
    await us.ping()
    assert us.waiting() == [], "and what was published meanwhile comes once"


async def test_a_move_that_is_cut_off_goes_on_when_the_nodes_meet_again(fleet: Fleet, rig: Rig, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    us = await rig.device(a.port, "us", **kept)
    await us.subscribe("t", 1)
    await us.disconnect()
    await apart(air, a, b)
    us = await rig.device(b.port, "us", **kept)
    async with Client("127.0.0.1", a.port) as other:
        for number in range(200):
            await other.publish("t", str(number), 1)
    air.max_delay_s = 0.02
    await together(air, a, b)
    await until(lambda: len(nodes_of(a).locating._moving._moves) == 1)
    await apart(air, a, b)
    session = core_of(a).sessions.get("us")
    assert session is not None
    assert not session.identity.is_trusted
    await together(air, a, b)
    await until(lambda: holders("us", a, b) == ["b"])
    got = []
    while len(set(got)) < 200:
        got.append((await us.message())[1])
    assert list(dict.fromkeys(got)) == [str(number).encode() for number in range(200)]


async def test_a_move_that_an_operator_cuts_off_goes_on(fleet: Fleet, rig: Rig, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    us = await rig.device(a.port, "us", **kept)
    await us.subscribe("t", 1)
    await us.disconnect()
    await apart(air, a, b)
    us = await rig.device(b.port, "us", **kept)
    async with Client("127.0.0.1", a.port) as other:
        for number in range(100):
            await other.publish("t", str(number), 1)
    air.max_delay_s = 0.02
    await together(air, a, b)
    await until(lambda: len(nodes_of(a).locating._moving._moves) == 1)
    assert core_of(a).kick("us", loop_driver_of(a).time())
    loop_driver_of(a).wake()
    await until(lambda: holders("us", a, b) == ["b"])
    got = {(await us.message())[1] for _ in range(100)}
    while len(got) < 100:
        got.add((await us.message())[1])


async def test_messages_for_a_client_whose_session_is_gone_come_first_when_it_is_back(
    fleet: Fleet, rig: Rig, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    us = await rig.device(a.port, "us", **kept)
    await us.subscribe("t", 1)
    await us.disconnect()
    await apart(air, a, b)
    us = await rig.device(b.port, "us", **kept)
    async with Client("127.0.0.1", a.port) as other:
        await other.publish("t", "x", 1)
    air.max_delay_s = 0.05
    await together(air, a, b)
    await until(lambda: len(nodes_of(a).locating._moving) == 1)
    monkeypatch.setattr(moving, "AGAIN_S", 0.3)
    core_of(b).end_session("us", loop_driver_of(b).time())
    await until(lambda: len(nodes_of(a).locating._moving._not_before) == 1)
    assert holders("us", a, b) == ["a"]
    air.max_delay_s = 0.0
    us = await rig.device(b.port, "us", **kept)  # which is passed on
    assert await us.message() == ("t", b"x")
    assert await us.goodbye() == 0x98  # its session has no subscriptions any more
    us = await rig.dial(b.port)
    us.hello("us", **kept)  # type: ignore[arg-type]
    assert not (await us.expect(Connack)).session_present
    assert len(nodes_of(a).locating._moving) == 0


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
    assert "client 'us' of node b is turned away: there is no listener 'two' here" in caplog.text


async def test_a_full_listener_takes_no_client_in(fleet: Fleet, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    a, b = [await fleet.start(name, listeners=[{"port": 0, "max_connections": 1}]) for name in ("a", "b")]
    await connected(a, b)
    here = await rig.device(a.port, "us")
    us = await rig.dial(b.port)
    us.hello("us")
    assert await us.goodbye() is None
    assert "client 'us' of node b is turned away: its listener has no room" in caplog.text
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


class Losing:
    """Loses the next blob with notes."""

    def __init__(self, air: Air, monkeypatch: pytest.MonkeyPatch) -> None:
        self._send = air.send
        self.is_due = False
        monkeypatch.setattr(air, "send", self._lose)

    def _lose(self, sender: str, node: str, blob: bytes) -> None:
        if self.is_due and isinstance(decode(blob), Notes):
            self.is_due = False
        else:
            self._send(sender, node, blob)


async def test_lost_notes_end_the_connection_of_the_nodes_and_no_session(
    fleet: Fleet, rig: Rig, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await fleet.together("a", "b")
    losing = Losing(air, monkeypatch)
    kept = {"clean_start": False, "expiry": 1_000}
    await (await rig.device(a.port, "us", **kept)).disconnect()
    losing.is_due = True
    us = await rig.dial(b.port)
    us.hello("us", **kept)  # type: ignore[arg-type]
    assert (await us.expect(Connack)).session_present
    assert nodes_of(b).states()[0].connects == 2
    losing.is_due = True
    us.publish("t", b"x", 0)
    assert await us.goodbye() is None
    us = await rig.dial(b.port)
    us.hello("us", **kept)  # type: ignore[arg-type]
    assert (await us.expect(Connack)).session_present
    assert nodes_of(b).states()[0].connects == 3
    assert holders("us", a, b) == ["a"]


async def test_a_client_waits_a_while_for_a_node_that_runs_and_is_not_connected(
    fleet: Fleet, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _a, b = await fleet.together("a", "b")
    monkeypatch.setattr(locating, "MEET_S", 0.3)
    monkeypatch.setattr(Peer, "_begin", lambda *_arguments: None)
    nodes_of(b)._peers["a"].end("It is to be connected no more.")
    us = await rig.dial(b.port)
    us.hello("us")
    assert nodes_of(b)._peers["a"].is_near(loop_driver_of(b).time())
    assert (await us.expect(Connack)).reason_code == 0


async def test_a_node_that_stops_begins_no_sessions(fleet: Fleet, rig: Rig, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    us = await rig.device(a.port, "us", **kept)
    await us.subscribe("t", 1)
    await us.disconnect()
    air.max_delay_s = 0.1
    asking = await rig.dial(b.port)
    asking.hello("fresh")
    await until(lambda: len(nodes_of(b).locating._claims) == 1)
    nodes_of(b).locating.leave()
    await asyncio.sleep(4 * air.max_delay_s)  # it is answered
    late = await rig.dial(b.port)
    late.hello("us", **kept)  # type: ignore[arg-type]
    await b.stop()
    assert await asking.goodbye() is None
    assert await late.goodbye() is None
    assert holders("us", a, b) == ["a"]


async def test_clients_of_a_node_that_drains_are_served_elsewhere_at_once_and_other_nodes_hear_it_to_the_end(
    fleet: Fleet, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_DRAIN_AT_ONCE", 1)
    a = await fleet.start("a", lame_duck={"deadline_s": 1.0})
    b = await fleet.start("b")
    await connected(a, b)
    kept = {"clean_start": False, "expiry": 1_000}
    await (await rig.device(b.port, "theirs", **kept)).disconnect()
    ours = [await rig.device(a.port, f"ours-{number}", **kept) for number in range(4)]
    theirs = await rig.device(a.port, "theirs", **kept)
    drain = asyncio.create_task(a.drain())
    assert await ours[0].goodbye() == 0x8B
    await theirs.ping()
    assert peer_of(a, "b").is_connected
    again = await rig.dial(b.port)
    again.hello("ours-0", **kept)  # type: ignore[arg-type]
    assert (await again.expect(Connack)).reason_code == 0
    assert await theirs.goodbye() is None
    for device in ours:
        await device.close()
    await drain


async def test_sessions_of_two_users_are_not_taken_for_two_of_one_client(
    fleet: Fleet, rig: Rig, air: Air, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    for name in ("ann", "mallory"):
        set_user(users, name, SECRET, create=not users.exists())
    a, b = [await fleet.start(name, password_file=str(users)) for name in ("a", "b")]
    await connected(a, b)
    kept = {"clean_start": False, "expiry": 1_000, "password": b"secret"}
    await (await rig.device(a.port, "us", username="ann", **kept)).disconnect()
    await (await rig.device(a.port, "them", username="ann", **kept)).disconnect()
    await apart(air, a, b)
    await (await rig.device(b.port, "us", username="mallory", **kept)).disconnect()
    await (await rig.device(b.port, "them", username="ann", **kept)).disconnect()
    await together(air, a, b)
    await until(lambda: holders("them", a, b) == ["b"])
    thief = await rig.dial(a.port)
    thief.hello("us", username="nobody", password=b"guess")
    assert (await thief.expect(Connack)).reason_code == 0x86
    await asyncio.sleep(QUIET_S)
    assert holders("us", a, b) == ["a", "b"]


async def test_a_client_that_says_all_and_leaves_is_heard_at_every_node(fleet: Fleet, rig: Rig, air: Air) -> None:
    air.max_delay_s = 0.005
    a, b = await fleet.together("a", "b")
    witness = await rig.device(a.port, "witness")
    await witness.subscribe("t/#")
    kept = {"clean_start": False, "expiry": 1_000}
    await (await rig.device(a.port, "us", **kept)).disconnect()
    for broker in (a, b):
        for number in range(10):
            us = await rig.dial(broker.port)
            us.hello("us", **kept)  # type: ignore[arg-type]
            us.publish(f"t/{broker.port}/{number}", b"x", 1)
            us.send(Disconnect())
            await us.close()
            assert await witness.message() == (f"t/{broker.port}/{number}", b"x")
    await until(lambda: not nodes_of(a).locating.passing._pipes._ends and not is_online(a, "us"))
    assert not nodes_of(b).locating.passing._pipes._ends


async def test_a_link_that_waits_for_its_turn_is_paused_by_its_pipe_alone(fleet: Fleet, rig: Rig, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    kept = {"clean_start": False, "expiry": 1_000}
    await (await rig.device(a.port, "us", **kept)).disconnect()
    air.max_delay_s = 0.05
    us = await rig.dial(b.port)
    us.hello("us", **kept)  # type: ignore[arg-type]
    await until(lambda: len(nodes_of(b).locating._claims) == 1)
    (link,) = [each for each in loop_driver_of(b).links.values() if each.connection.client_id == "us"]
    link.hold(HoldReason.TURN)
    assert (await us.expect(Connack)).session_present
    assert link.connection.hold_reasons == 0
    link.release(HoldReason.TURN)
    await us.ping()


async def test_a_revoked_certificate_ends_a_client_that_is_passed_on(fleet: Fleet, rig: Rig) -> None:
    a, b = await fleet.together("a", "b")
    await rig.device(a.port, "us")
    us = await rig.device(b.port, "us")
    (listener,) = b.listeners
    (link,) = listener._links
    assert link.is_passed_on
    watch = b._assembly.network.certificates
    await watch._end_revoked(CertificateFilesOf(), [link])  # type: ignore[arg-type]
    assert await us.goodbye() is None
    await until(lambda: not is_online(a, "us"))


class CertificateFilesOf:
    name = "a listener"


async def test_a_client_writes_no_lines_into_the_log(fleet: Fleet, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mqttlite.nodes")
    a, b = await fleet.together("a", "b")
    name = "us\n2026 ERROR the disk is full"
    await rig.device(a.port, name)
    await rig.device(b.port, name)
    assert "passed on to node a" in caplog.text
    assert not [each for each in caplog.messages if "\n" in each]


async def test_a_client_under_the_name_of_a_node_ends_nothing_that_waits_for_it(fleet: Fleet, rig: Rig) -> None:
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
