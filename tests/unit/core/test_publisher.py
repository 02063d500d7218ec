"""Publishers that have no session, such as callers over HTTP; and who subscribes to a topic."""

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.limits import Limits
from mqttlite.core.route.tally import NOT_AUTHORIZED_CODE, TOPIC_NAME_INVALID
from mqttlite.security.built_in_rules import built_in_rules
from tests.support.core_driver import World
from tests.support.rules import OpenRules
from tests.unit.core.test_sink import Recorder


class OnlyAnn(OpenRules):
    """Only the user `ann`, or somebody of the group `writers`, publishes."""

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return int(username == "ann" or "writers" in grants.groups)

    def is_open(self, topic: bytes) -> bool:
        return False

    def may_publish(self, role: int, topic: bytes) -> bool:
        return role == 1


def test_a_publisher_may_do_what_a_client_of_that_name_may() -> None:
    world = World()
    broker = world.broker
    broker.authorize(built_in_rules(authorizer=OnlyAnn()))
    for username, grants, code in (
        ("ann", NO_GRANTS, 0x10),
        ("bob", NO_GRANTS, NOT_AUTHORIZED_CODE),
        ("bob", Grants(frozenset({"writers"})), 0x10),
        (None, NO_GRANTS, NOT_AUTHORIZED_CODE),
    ):
        source = broker.publisher("http", username, grants)
        assert broker.publish(b"a", b"", 0, False, world.now, source=source).tally.code == code


def test_a_publisher_has_the_limits_of_clients() -> None:
    world = World(Limits(max_topic_levels=2))
    source = world.broker.publisher("http", None, NO_GRANTS)
    assert world.broker.publish(b"a/b", b"", 0, False, world.now, source=source).tally.code == 0x10
    assert world.broker.publish(b"a/b/c", b"", 0, False, world.now, source=source).tally.code == TOPIC_NAME_INVALID


def test_each_message_has_an_id_and_a_refused_one_says_so() -> None:
    world = World()
    first = world.broker.publish(b"a", b"", 0, False, world.now)
    second = world.broker.publish(b"a", b"", 1, True, world.now)
    assert 0 < first.message_id() == first.message_id() < second.message_id()
    refused = world.broker.publish(
        b"$SYS/x", b"", 0, False, world.now, source=world.broker.publisher("http", None, NO_GRANTS)
    )
    assert refused.tally.is_refused
    assert not second.tally.is_refused


def test_the_subscribers_of_a_topic_are_the_clients_that_a_publish_may_reach_each_once() -> None:
    world = World()
    for name, filters in (
        ("c1", ["a/b", "a/+", "$share/g/a/b"]),
        ("c2", ["#"]),
        ("c3", ["$share/g/a/b"]),
        ("c4", ["other"]),
        ("shut out", ["a/b"]),
        ("shut out, too", ["$share/g/a/b"]),
    ):
        client = world.connect(name)
        for topic_filter in filters:
            client.subscribe(topic_filter)
    world.broker.bind(b"a/#", Recorder())
    everybody = {"c1", "c2", "c3", "shut out", "shut out, too"}
    found, others = world.broker.subscribers(b"a/b")
    assert (sorted(each.client_id for each in found), others) == (sorted(everybody), 1)
    world.broker.authorize(built_in_rules(authorizer=SomeShutOut()))
    found, others = world.broker.subscribers(b"a/b")
    assert (sorted(each.client_id for each in found), others) == (["c1", "c2", "c3"], 1)


class SomeShutOut(OpenRules):
    """Clients that are `shut out` receive nothing."""

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return int(client_id.startswith("shut out"))

    def is_readable(self, topic: bytes) -> bool:
        return False

    def may_receive(self, role: int, topic: bytes) -> bool:
        return role == 0
