"""Sessions begin, are resumed, taken over, left and expire; wills are published when they should, and only then."""

import pytest

from mqttlite.core.changes import Change, EndSession, SaveSession
from mqttlite.core.limits import Limits
from mqttlite.core.reasons import QUEUE_FULL, SESSION_EXPIRED, CloseReason
from mqttlite.wire.constants import NEVER_EXPIRES, V5, V31, V311
from mqttlite.wire.packets import Connack, Disconnect, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, publishes
from tests.support.stores import loaded


def present(client: Client, client_id: str = "c", **options: object) -> bool:
    connack = client.connect(client_id, **options)  # type: ignore[arg-type]
    assert connack is not None
    return connack.session_present


def kinds(world: World) -> list[type[Change]]:
    return [type(change) for change in world.changes]


def will(payload: str = "gone", delay: int | None = None, **fields: object) -> Will:
    properties = Properties(will_delay_interval=delay) if delay is not None else Properties()
    return Will(b"will", payload.encode(), properties=properties, **fields)  # type: ignore[arg-type]


def watcher(world: World) -> Client:
    client = world.connect("watcher", expiry=1_000)
    client.subscribe("will")
    return client


# ── how long a session lasts ───────────────────────────────────────────────────────────────────────────────────────


def test_a_session_lasts_as_long_as_its_connection_and_its_expiry_interval() -> None:
    world = World()
    client = world.connect("c", expiry=10)
    world.advance(100)
    client.lose()
    world.advance(9.999)
    assert len(world.broker.sessions) == 1
    world.advance(0.001)
    assert len(world.broker.sessions) == 0
    assert not present(world.open(), clean_start=False)


@pytest.mark.parametrize("version", [V31, V311])
def test_before_5_0_a_session_ends_with_its_connection_or_never(version: int) -> None:
    world = World()
    world.connect("clean", version).lose()
    world.connect("kept", version, clean_start=False).lose()
    world.advance(1e9)
    assert world.broker.sessions.get("clean") is None
    assert world.session("kept").expiry_interval == NEVER_EXPIRES


def test_a_session_that_never_expires_has_no_deadline() -> None:
    world = World()
    world.connect("c", expiry=NEVER_EXPIRES).lose()
    world.advance(10)  # the deadline of its CONNECT, cancelled, is still to be swept
    assert world.broker.due_at() is None


def test_the_brokers_own_maximum_holds_in_every_version() -> None:
    world = World(Limits(max_session_expiry_s=5))
    for version, client_id in [(V5, "five"), (V311, "three")]:
        world.connect(client_id, version, clean_start=False, expiry=1_000).lose()
    world.advance(5)
    assert len(world.broker.sessions) == 0


def test_a_client_that_comes_back_in_time_finds_its_session_and_one_that_starts_clean_does_not() -> None:
    world = World()
    world.connect("c", expiry=10).lose()
    world.advance(9)
    second = world.open()
    assert present(second, clean_start=False, expiry=10)
    world.advance(100)
    assert not second.closed
    second.lose()
    assert not present(world.open(), clean_start=True, expiry=10)


def test_a_resumed_session_has_the_expiry_of_its_new_connection() -> None:
    world = World()
    world.connect("c", expiry=10).lose()
    world.connect("c", clean_start=False).lose()
    assert len(world.broker.sessions) == 0


def test_disconnect_may_change_the_expiry() -> None:
    world = World()
    world.connect("longer", expiry=1).disconnect(0, Properties(session_expiry_interval=100))
    world.connect("shorter", expiry=100).disconnect(0, Properties(session_expiry_interval=0))
    assert world.broker.sessions.get("shorter") is None
    world.advance(99)
    assert world.session("longer")
    world.advance(1)
    assert world.broker.sessions.get("longer") is None


def test_disconnect_may_not_give_an_expiry_where_there_was_none() -> None:
    world = World()
    client = world.connect("c")
    client.disconnect(0, Properties(session_expiry_interval=1))
    (packet,) = client.received()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == 0x82
    client = world.connect("d", expiry=0)
    client.disconnect(0, Properties(session_expiry_interval=0))
    assert client.received() == []


def test_disconnect_may_name_an_expiry_where_only_the_broker_made_it_none() -> None:
    world = World(Limits(max_session_expiry_s=0))
    client = world.connect("c", expiry=10)
    client.disconnect(0, Properties(session_expiry_interval=5))
    assert client.received() == []
    assert client.connection.close_reason == CloseReason.CLIENT_DISCONNECTED


# ── what the store hears of it ─────────────────────────────────────────────────────────────────────────────────────


def test_the_store_hears_only_of_sessions_that_outlive_their_connection() -> None:
    world = World()
    client = world.connect("c")
    client.subscribe("t", qos=2)
    world.publish("t", "x", 2)
    client.publish("u", "x", 2)
    client.lose()
    assert world.changes == []


def test_the_store_hears_when_a_session_begins_is_left_and_ends() -> None:
    world = World()
    world.connect("c", expiry=10).lose()
    world.advance(10)
    assert kinds(world) == [SaveSession, SaveSession, EndSession]
    begun, left = world.changes[:2]
    assert isinstance(begun, SaveSession)
    assert isinstance(left, SaveSession)
    assert begun.expires_at == 0.0
    assert left.expires_at == world.now


def test_a_session_that_becomes_brief_is_over_for_the_store() -> None:
    world = World()
    world.connect("c", expiry=10).lose()
    client = world.connect("c", clean_start=False)
    assert kinds(world)[2:] == [EndSession]
    client.lose()
    world.connect("d", expiry=10).disconnect(0, Properties(session_expiry_interval=0))
    assert kinds(world)[3:] == [SaveSession, EndSession]
    assert loaded(world.store) == []


def test_a_clean_start_ends_the_former_session_before_the_connack() -> None:
    world = World()
    world.connect("c", expiry=10).lose()
    client = world.open()
    world.settle = lambda: None  # type: ignore[method-assign]
    client.connect("c", clean_start=True)
    assert isinstance(world.broker.effects.changes[-1], EndSession)
    assert client.connection.outbox.awaits_commit


# ── taken over ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_a_client_identifier_belongs_to_its_latest_connection(version: int) -> None:
    world = World()
    first = world.connect("c", version)
    second = world.connect("c", version)
    assert first.closed
    assert not second.closed
    assert first.connection.close_reason == CloseReason.TAKEN_OVER
    codes = [packet.reason_code for packet in first.received() if isinstance(packet, Disconnect)]
    assert codes == ([0x8E] if version == V5 else [])
    first.lose()
    second.subscribe("t")
    world.publish("t", "x")
    assert second.payloads() == ["x"]


def test_a_session_taken_over_goes_on_where_it_was() -> None:
    world = World()
    first = world.connect("c", expiry=10, auto_ack=False)
    first.subscribe("t", qos=1)
    world.publish("t", "x", 1)
    second = world.connect("c", clean_start=False, expiry=10)
    (packet,) = publishes(second.received())
    assert packet.dup


def test_a_brief_session_taken_over_begins_anew() -> None:
    world = World()
    world.connect("c").subscribe("t")
    assert not present(world.open(), clean_start=False)
    assert world.session("c").subscriptions == {}


# ── how many there may be ──────────────────────────────────────────────────────────────────────────────────────────


def test_as_many_sessions_as_allowed_are_begun_and_one_more_is_refused() -> None:
    world = World(Limits(max_sessions=2))
    world.connect("a", expiry=10).lose()
    world.connect("b")
    refused = world.open()
    connack = refused.connect("c")
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0x97
    assert refused.closed
    assert refused.connection.close_reason == CloseReason.QUOTA_EXCEEDED
    world.connect("a", clean_start=False)  # it has a session
    world.connect("b", clean_start=True)  # its session makes room for its next
    assert len(world.broker.sessions) == 2


def test_a_3_1_1_client_for_whom_there_is_no_session_hears_that_the_server_is_unavailable() -> None:
    world = World(Limits(max_sessions=1))
    world.connect("a")
    connack = world.open(V311).connect("b")
    assert connack == Connack(False, 3)


def test_a_session_that_ended_holds_no_messages_even_if_somebody_still_knows_it() -> None:
    """A cached route does, until somebody publishes to its topic."""
    world = World()
    world.publish("t/0", "kept", 1, retain=True)
    client = world.connect("c", expiry=10, receive_maximum=1, auto_ack=False)
    client.subscribe("t/+", "+/0", qos=1)
    for number in range(3):
        world.publish("t/1", str(number), 1)
    session = world.session("c")
    assert (session.queued, len(session.inflight)) == (4, 1)
    client.lose()
    world.advance(10)
    assert (session.queued, session.queued_bytes, session.retained_waiting) == (0, 0, 0)
    assert world.broker.router.drops.by_reason[SESSION_EXPIRED] == 5


def test_undelivered_messages_of_a_session_are_counted_when_it_ends() -> None:
    world = World(Limits(max_queued_messages=2))
    client = world.connect("c", expiry=10)
    client.subscribe("t", qos=1)
    client.lose()
    for _ in range(3):
        world.publish("t", "x", 1)
    world.advance(10)
    assert world.broker.router.drops.by_reason == {QUEUE_FULL: 1, SESSION_EXPIRED: 2}


# ── wills ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_clients_will_is_published() -> None:
    world = World()
    seen = watcher(world)
    client = world.connect("c", will=will(qos=1, retain=True))
    client.lose()
    assert seen.payloads() == ["gone"]
    assert client.connection.will_published
    late = world.connect("late")
    late.subscribe("will")
    assert late.payloads() == ["gone"]


@pytest.mark.parametrize(("reason_code", "published"), [(0x00, []), (0x04, ["gone"]), (0x80, ["gone"])])
def test_a_client_that_says_goodbye_takes_its_will_along_unless_it_says_otherwise(
    reason_code: int, published: list[str]
) -> None:
    world = World()
    seen = watcher(world)
    client = world.connect("c", will=will())
    client.disconnect(reason_code)
    assert seen.payloads() == published
    assert client.received() == []
    assert client.connection.will_published is bool(published)


def test_a_will_carries_its_properties_and_expires() -> None:
    world = World()
    seen = watcher(world)
    properties = Properties(message_expiry_interval=9, content_type="x", will_delay_interval=2)
    client = world.connect("c", expiry=10, will=Will(b"will", b"gone", 0, False, properties))
    client.lose()
    world.advance(2)
    (packet,) = publishes(seen.received())
    assert packet.properties == Properties(message_expiry_interval=9, content_type="x")


def test_a_delayed_will_waits_and_is_not_published_if_the_client_is_back_in_time() -> None:
    world = World()
    seen = watcher(world)
    world.connect("c", expiry=100, will=will(delay=10)).lose()
    world.advance(9.9)
    assert seen.payloads() == []
    again = world.connect("c", clean_start=False, expiry=100)
    world.advance(50)
    assert seen.payloads() == []
    again.lose()
    world.advance(50)
    assert seen.payloads() == [], "the second connection had no will"


def test_a_delayed_will_is_published_when_its_time_has_come() -> None:
    world = World()
    seen = watcher(world)
    world.connect("c", expiry=100, will=will(delay=10)).lose()
    world.advance(10)
    assert seen.payloads() == ["gone"]
    world.connect("c", clean_start=False, expiry=100).disconnect()
    world.advance(500)
    assert seen.payloads() == []


@pytest.mark.parametrize(("expiry", "at"), [(5, 5), (10, 10), (0, 0)])
def test_a_will_does_not_wait_longer_than_its_session(expiry: int, at: int) -> None:
    world = World()
    seen = watcher(world)
    world.connect("c", expiry=expiry, will=will(delay=10)).lose()
    world.advance(at - 0.1 if at else 0)
    assert seen.payloads() == (["gone"] if at == 0 else [])
    world.advance(0.1)
    assert seen.payloads() == ([] if at == 0 else ["gone"])
    world.advance(100)
    assert seen.payloads() == []


def test_a_clean_start_ends_the_session_and_so_publishes_the_will_that_waits() -> None:
    world = World()
    seen = watcher(world)
    world.connect("c", expiry=100, will=will(delay=10)).lose()
    world.connect("c", clean_start=True)
    assert seen.payloads() == ["gone"]
    world.advance(100)
    assert seen.payloads() == []


def test_the_will_of_a_client_taken_over_is_published_unless_its_session_goes_on_in_time() -> None:
    world = World()
    seen = watcher(world)
    world.connect("c", expiry=100, will=will("at once"))
    world.connect("c", clean_start=False, expiry=100, will=will("delayed", delay=10))
    assert seen.payloads() == ["at once"]
    world.connect("c", clean_start=False, expiry=100)
    assert seen.payloads() == []
    world.advance(100)
    assert seen.payloads() == []


def test_a_will_may_reach_the_session_of_the_client_that_left_it() -> None:
    world = World()
    client = world.connect("c", expiry=100, will=will(qos=1))
    client.subscribe("will", qos=1)
    client.lose()
    assert world.connect("c", clean_start=False).payloads() == ["gone"]


def test_the_latest_sessions_come_first() -> None:
    world = World()
    for name in "abc":
        world.connect(name)
    assert world.broker.sessions.latest(2) == ["c", "b"]
    assert world.broker.sessions.latest(4) == ["c", "b", "a"]


# ── nothing is left behind ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
@pytest.mark.parametrize("clean_start", [True, False])
def test_clients_that_come_and_go_leave_nothing_behind(clean_start: bool) -> None:
    world = World()
    for number in range(400):
        options = {"expiry": 5} if number % 3 else {}
        client = world.connect(
            f"c{number % 7}", clean_start=clean_start, keep_alive=10, will=will(delay=number % 4), **options
        )
        client.subscribe("will", "a/#", f"b/{number}", "$share/g/a", qos=number % 3)
        client.publish("a", "x", number % 3)
        if number % 5:
            client.lose()
        elif number % 2:
            client.disconnect()
        world.advance(0.1)
    world.broker.shut_down(world.now)
    world.settle()
    world.advance(100)
    broker = world.broker
    assert len(broker.sessions) == 0
    assert broker.connections == {}
    assert broker._online == {}
    assert broker.due_at() is None
    assert broker._routes._tree.match(b"a") == []
    assert broker._routes._tree._root.get(b"a") is None
    assert not broker._routes._tree._exact
    assert not broker._routes._shares
    assert not broker._routes._groups
    assert loaded(world.store) == []
    assert world.clients == {}
