"""The will of a connected client survives a broker that stops without a goodbye, and is published once."""

import pytest

from mqttlite.core.changes import SaveSession, SaveWill
from mqttlite.core.limits import WILL_GRACE_S
from mqttlite.wire.constants import NEVER_EXPIRES, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World


def watched(world: World) -> Client:
    watcher = world.connect("watcher", expiry=NEVER_EXPIRES)
    watcher.subscribe("w", qos=1)
    return watcher


def returned(world: World) -> Client:
    return world.connect("watcher", clean_start=False, expiry=NEVER_EXPIRES)


@pytest.mark.parametrize("expiry", [0, 100])
@pytest.mark.parametrize("version", [V311, V5])
def test_the_will_of_a_connected_client_is_published_once_after_a_crash(expiry: int, version: int) -> None:
    world = World()
    watched(world)
    client = world.open(version)
    client.connect("c", clean_start=not expiry, expiry=expiry or None, will=Will(b"w", b"gone", 1, False))
    world = world.restart()
    watcher = returned(world)
    world.advance(WILL_GRACE_S - 0.1)
    assert watcher.payloads() == []
    world.advance(0.2)
    assert watcher.payloads() == ["gone"]
    world = world.restart()
    watcher = returned(world)
    world.advance(WILL_GRACE_S + 1)
    assert watcher.payloads() == []
    world.end()


@pytest.mark.parametrize("expiry", [0, 100])
@pytest.mark.parametrize("clean_start", [False, True])
def test_a_client_that_comes_back_after_a_crash_takes_its_will_back(expiry: int, clean_start: bool) -> None:
    world = World()
    watched(world)
    world.connect("c", expiry=expiry, will=Will(b"w", b"gone", 1, False))
    world = world.restart()
    watcher = returned(world)
    back = world.open()
    connack = back.connect("c", clean_start=clean_start, expiry=expiry)
    assert connack is not None
    assert connack.session_present == (expiry > 0 and not clean_start)
    world.advance(WILL_GRACE_S + 1)
    assert watcher.payloads() == []
    back.lose()
    world = world.restart()
    watcher = returned(world)
    world.advance(WILL_GRACE_S + 1)
    assert watcher.payloads() == []
    world.end()


@pytest.mark.parametrize("expiry", [0, 100])
def test_a_client_that_disconnects_before_a_crash_has_no_will(expiry: int) -> None:
    world = World()
    watched(world)
    client = world.connect("c", expiry=expiry, will=Will(b"w", b"gone", 1, False))
    client.disconnect()
    world = world.restart()
    watcher = returned(world)
    world.advance(WILL_GRACE_S + 1)
    assert watcher.payloads() == []
    world.end()


@pytest.mark.parametrize("expiry", [0, 100])
def test_a_will_that_was_published_before_a_crash_is_not_published_again(expiry: int) -> None:
    world = World()
    watcher = watched(world)
    client = world.connect("c", expiry=expiry, will=Will(b"w", b"gone", 1, False))
    client.lose()
    assert watcher.payloads() == ["gone"]
    world = world.restart()
    watcher = returned(world)
    world.advance(WILL_GRACE_S + 1)
    assert watcher.payloads() == []
    world.end()


def test_the_delay_of_a_will_begins_with_the_restart() -> None:
    world = World()
    watched(world)
    will = Will(b"w", b"gone", 1, False, Properties(will_delay_interval=20))
    world.connect("c", expiry=100, will=will)
    world.advance(50)
    world = world.restart()
    watcher = returned(world)
    world.advance(19.9)
    assert watcher.payloads() == []
    world.advance(0.2)
    assert watcher.payloads() == ["gone"]
    world.end()


@pytest.mark.parametrize(("expiry", "published"), [(0, []), (100, ["gone"])])
def test_a_will_of_qos_0_survives_a_crash_with_its_session(expiry: int, published: list[str]) -> None:
    world = World()
    watched(world)
    world.connect("c", expiry=expiry, will=Will(b"w", b"gone", 0, False))
    world = world.restart()
    watcher = returned(world)
    world.advance(WILL_GRACE_S + 1)
    assert watcher.payloads() == published
    world.end()


def test_a_session_that_ends_before_the_grace_is_over_publishes_its_will_once() -> None:
    world = World()
    watched(world)
    world.connect("c", expiry=1, will=Will(b"w", b"gone", 1, False))
    world = world.restart()
    watcher = returned(world)
    world.advance(1.1)
    assert watcher.payloads() == ["gone"]
    world.advance(WILL_GRACE_S)
    assert watcher.payloads() == []
    world.end()


def test_a_will_that_is_replaced_at_a_takeover_is_kept_for_the_new_connection() -> None:
    world = World()
    watcher = watched(world)
    world.connect("c", will=Will(b"w", b"first", 1, False))
    world.connect("c", will=Will(b"w", b"second", 1, False))
    assert watcher.payloads() == ["first"]
    world = world.restart()
    watcher = returned(world)
    world.advance(WILL_GRACE_S + 1)
    assert watcher.payloads() == ["second"]
    world.end()


def test_connack_does_not_wait_for_the_commit_of_a_will() -> None:
    world = World()
    client = world.open()
    packet = Connect("c", V5, True, 0, will=Will(b"w", b"gone", 1, False))
    world.broker.feed(client.connection, encode(packet, V5), world.now)
    assert [type(change) for change in world.broker.effects.changes] == [SaveSession, SaveWill]
    assert not client.connection.outbox.awaits_commit
    world.settle()
    world.end()
