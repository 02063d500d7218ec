"""Retained messages whose writers may no longer publish to their topics (Mosquitto's `check_retain_source`)."""

import pytest

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.identity import Identity
from mqttlite.core.memory import WRITER_BYTES, text_bytes
from mqttlite.core.source import CLIENT, THE_BROKER, THE_PROGRAM, Source
from mqttlite.security.acl_file import parse
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.security.rules import Rules
from tests.support.core_driver import Client, World
from tests.support.rules import OpenRules

QOS = pytest.mark.parametrize("qos", [0, 1, 2])


class Banned(OpenRules):
    """Clients and users whose names begin with one of these letters may not publish below `private`."""

    def __init__(self, letters: str = "") -> None:
        self.letters = letters

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return int(client_id[0] in self.letters or (username or " ")[0] in self.letters)

    def is_open(self, topic: bytes) -> bool:
        return not topic.startswith(b"private")

    def may_publish(self, role: int, topic: bytes) -> bool:
        return role == 0


def ban(world: World, letters: str) -> None:
    world.broker.authorize(built_in_rules(authorizer=Banned(letters)))


def heard(world: World, qos: int = 1) -> list[str]:
    client = world.connect("reader")
    client.subscribe("#", qos=qos)
    payloads = client.payloads()
    client.lose()
    return sorted(payloads)


def write(world: World, name: str, qos: int = 1) -> Client:
    client = world.connect(name)
    client.publish(f"private/{name}", name, qos, retain=True)
    client.publish(f"public/{name}", f"public {name}", qos, retain=True)
    client.lose()
    return client


@QOS
def test_a_retained_message_is_not_sent_while_its_writer_may_not_write_it(qos: int) -> None:
    world = World()
    ban(world, "")
    write(world, "a", qos)
    write(world, "b", qos)
    ban(world, "a")
    for _ in range(2):  # the role of a writer is looked up once, and remembered
        assert heard(world, qos) == ["b", "public a", "public b"]
    ban(world, "")
    assert heard(world, qos) == ["a", "b", "public a", "public b"]


@QOS
def test_the_writer_of_a_retained_message_outlives_a_restart(qos: int) -> None:
    world = World()
    ban(world, "")
    write(world, "a", qos)
    write(world, "b", qos)
    world = world.restart()
    ban(world, "a")
    assert heard(world, qos) == ["b", "public a", "public b"]


def test_a_writer_keeps_its_right_when_no_session_has_its_role() -> None:
    """The rules give roles to ten clients at most, and forget the roles of those that are gone."""
    world = World()
    acl = parse(["pattern readwrite private/%c", "topic read #"], "acl.conf")
    rules = Rules(
        acl,
        roles_in_use=lambda: {each.role for each in world.broker.sessions.values()},
        max_roles=10,
        on_forgotten=world.broker.permissions.ask_roles_again,
    )
    world.broker.authorize(rules)
    names = [f"c{each}" for each in range(30)]
    for name in names:
        client = world.connect(name)
        client.publish(f"private/{name}", name, 1, retain=True)
        client.disconnect()
    for _ in range(3):
        assert heard(world) == sorted(names)


def test_two_brokers_of_one_store_ask_their_own_rules() -> None:
    world = World()
    ban(world, "")
    write(world, "a")
    assert heard(world) == ["a", "public a"]
    world = world.restart()
    ban(world, "a")
    assert heard(world) == ["public a"]


def test_a_message_that_another_replaces_has_the_writer_of_the_other() -> None:
    world = World()
    ban(world, "")
    for name in ("a", "b"):
        world.connect(name).publish("private/x", name, 1, retain=True)
    ban(world, "a")
    assert heard(world) == ["b"]
    ban(world, "b")
    assert heard(world) == []


def test_a_message_from_before_there_were_rules_has_no_writer() -> None:
    world = World()
    write(world, "a")
    ban(world, "a")
    assert heard(world) == ["a", "public a"]


def test_messages_of_the_program_have_no_writer() -> None:
    world = World()
    world.publish("private/x", "x", 1, retain=True)
    ban(world, "abcdefghijklmnopqrstuvwxyz")
    assert heard(world) == ["x"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_delayed_message_keeps_the_writer_that_it_came_from(restarts: bool) -> None:
    world = World()
    ban(world, "")
    world.connect("a").publish("$delayed/10/private/x", "x", 1, retain=True)
    world.connect("b").publish("$delayed/10/private/y", "y", 1, retain=True)
    if restarts:
        world = world.restart()
    ban(world, "a")
    world.advance(10)
    assert heard(world) == ["y"]


def test_the_memory_of_a_writer_counts_once_and_as_long_as_it_has_messages() -> None:
    world = World()
    ban(world, "")
    memory = world.broker.effects.memory
    client = world.connect("a")
    for topic in ("t/1", "t/2", "t/3"):  # so that there are routes to them, and a prefix
        client.publish(topic, "x", 1, retain=True)
        client.publish(topic, "", 1, retain=True)
    before = memory.used
    for topic in ("t/1", "t/2"):
        client.publish(topic, "x", 1, retain=True)
    writer = world.broker.router.retained.search(b"t/1").take(1)[0].writer
    assert writer is not None
    assert (writer.holders, writer.memory_bytes) == (2, WRITER_BYTES + text_bytes("a"))
    client.publish("$delayed/10/t/3", "x", 1, retain=True)
    assert writer.holders == 3
    for topic in ("t/1", "t/2"):
        client.publish(topic, "", 1, retain=True)
    assert writer.holders == 1
    world.advance(10)
    assert writer.holders == 1
    client.publish("t/3", "", 1, retain=True)
    assert writer.holders == 0
    assert memory.used == before


def test_a_user_that_changes_is_another_writer() -> None:
    source = Source(CLIENT, "a")
    source.identity = Identity("user")
    writer = source.writer()
    assert writer is not None
    assert (writer.client_id, writer.username) == ("a", "user")
    assert source.writer() is writer
    source.identity = Identity("other")
    other = source.writer()
    assert other is not writer
    assert other is not None
    assert other.username == "other"


@pytest.mark.parametrize(
    ("grants", "is_known"),
    [
        (NO_GRANTS, True),
        (Grants(expires_at=7.0), True),
        (Grants(groups=frozenset({"g"})), False),
        (Grants(publish=(b"#",)), False),
    ],
)
def test_a_client_whose_rights_came_with_its_credentials_is_no_writer(grants: Grants, is_known: bool) -> None:
    source = Source(CLIENT, "a")
    source.grants = grants
    assert (source.writer() is not None) == is_known
    source.identity = Identity(is_trusted=True)
    assert source.writer() is THE_BROKER.writer() is THE_PROGRAM.writer() is None
