"""Subscriptions that the rules would refuse now end, in parts, also for clients that are away."""

import pytest

from mqttlite.core.authentication import Grants
from mqttlite.core.limits import ITERATION_WORK
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.packets import Publish, Unsubscribe
from tests.support.core_driver import World
from tests.support.recorder import Recorder
from tests.support.rules import OpenRules


class Filters(OpenRules):
    """Everybody may receive everything, and may subscribe to the filters that begin so."""

    def __init__(self, *beginnings: bytes) -> None:
        super().__init__()
        self._beginnings = beginnings

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return 1

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return topic_filter.removeprefix(b"$share/g/").startswith(self._beginnings)

    def reason(self, role: int, action: str, topic: bytes) -> str:
        return "no longer"


def authorize(world: World, *beginnings: bytes) -> None:
    world.broker.authorize(built_in_rules(authorizer=Filters(*beginnings)))
    world.broker.check_subscriptions()


def test_a_client_that_may_not_subscribe_any_more_gets_nothing_more() -> None:
    world = World()
    world.broker.watch(Recorder())
    authorize(world, b"a", b"b")
    online, away = world.connect("online"), world.connect("away", expiry=100)
    for client in (online, away):
        client.subscribe("a", "b", "$share/g/b", qos=1)
    away.lose()
    denied: list[tuple[str, bytes, str]] = []
    world.broker.permissions.on_denied = lambda client, _user, _action, topic, reason: denied.append(
        (client, topic, reason)
    )
    authorize(world, b"a")
    world.settle()
    for topic in ("a", "b"):
        world.publish(topic, "x", 1)
    assert [each.topic for each in online.received() if isinstance(each, Publish)] == [b"a"]
    assert world.session("away").queued == 1
    for name in ("online", "away"):
        assert list(world.session(name).subscriptions) == [b"a"]
    assert sorted(denied) == sorted(
        (name, topic, "no longer") for name in ("online", "away") for topic in (b"b", b"$share/g/b")
    )
    again = world.restart()
    assert list(again.session("away").subscriptions) == [b"a"]
    world.end()


@pytest.mark.reaches
@pytest.mark.long
def test_many_are_looked_at_in_parts_and_under_the_latest_rules() -> None:
    world = World()
    client = world.connect("c")
    names = [f"{letter}/{number}" for number in range(3_000) for letter in "ab"]
    client.subscribe(*names)
    gone = world.connect("gone", expiry=100)
    gone.subscribe("b/x")
    gone.lose()
    effects = world.broker.effects
    effects.work = ITERATION_WORK
    authorize(world, b"a")
    effects.work = ITERATION_WORK - 100
    world.broker.tick(world.now)
    assert len(world.session("c").subscriptions) > 3_000, "it is under way"
    authorize(world, b"a", b"b")
    world.broker.sessions.end(world.session("gone"))
    before = len(world.session("c").subscriptions)
    world.settle()
    assert len(world.session("c").subscriptions) == before


@pytest.mark.reaches
@pytest.mark.long
def test_a_session_that_ends_meanwhile_is_passed_over() -> None:
    world = World()
    client = world.connect("c", expiry=100)
    client.subscribe(*[f"b/{number}" for number in range(5_000)])
    client.lose()
    effects = world.broker.effects
    effects.work = ITERATION_WORK - 50
    authorize(world, b"a")
    session = world.session("c")
    assert 0 < len(session.subscriptions) < 5_000
    world.broker.sessions.end(session)
    world.settle()
    assert len(world.broker.jobs) == 0


def test_subscriptions_that_may_stay_stay() -> None:
    world = World()
    client = world.connect("c")
    client.subscribe("a", "b")
    client.send()
    authorize(world, b"a", b"b")
    world.settle()
    assert len(world.session("c").subscriptions) == 2


@pytest.mark.reaches
@pytest.mark.long
def test_a_subscription_that_has_ended_meanwhile_is_not_denied() -> None:
    world = World()
    client = world.connect("c")
    names = [b"b/%d" % number for number in range(5_000)]
    client.subscribe(*[name.decode() for name in names])
    effects = world.broker.effects
    effects.work = ITERATION_WORK - 50
    authorize(world, b"a")
    left = list(world.session("c").subscriptions)
    assert left
    denied = world.broker.permissions.denied["subscribe"]
    effects.work = 0
    client.send(Unsubscribe(1, (left[0],)))
    world.settle()
    assert world.broker.permissions.denied["subscribe"] == denied + len(left) - 1
