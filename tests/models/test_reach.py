"""Whoever subscribes gets each message once, and nobody else: the routes and their cache, beside a rule of ten lines.

A handful of clients come and go, subscribe with all options, and publish to few topics, so that everything meets. The
limits of the cache are so small that it is full, falls behind and begins anew all the time.
"""

from collections import Counter
from random import Random

import pytest

from mqttlite.core import routes
from mqttlite.core.limits import Limits
from mqttlite.core.shares import SHARE_POLICIES
from mqttlite.topics.names import matches
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish, SubscriptionRequest, Unsubscribe
from tests.support.core_driver import Client, World, publishes

LEVELS = [b"a", b"a", b"b", b"", b"$s"]

Copy = tuple[bytes, int, tuple[int, ...]]
"""Payload, QoS and subscription identifiers, which only a 5.0 client is told."""


class Person:
    def __init__(self, name: str) -> None:
        self.name = name
        self.link: Client | None = None
        self.version = V5
        self.expiry = 0
        self.ends: float | None = None
        self.subscriptions: dict[bytes, tuple[SubscriptionRequest, int]] = {}
        self.queue: list[Copy] = []

    def copies_of(self, topic: bytes, payload: bytes, qos: int, own: bool) -> list[Copy]:
        """What it gets of a message for its own subscriptions."""
        found = [
            (request, identifier)
            for topic_filter, (request, identifier) in self.subscriptions.items()
            if matches(topic_filter, topic) and not (own and request.no_local)
        ]
        if not found:
            return []
        identifiers = sorted(identifier for _request, identifier in found if identifier)
        return [(payload, min(qos, max(request.qos for request, _identifier in found)), tuple(identifiers))]

    def end(self) -> None:
        self.subscriptions.clear()
        self.queue.clear()
        self.ends = None


class Town:
    """All that is drawn is drawn from a seed, so that a failure can be told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        limits = Limits(max_route_cache_bytes=self.random.choice([0, 600, 2_000, 10**6]))
        self.world = World(limits, share_policies={"*": self.random.choice(SHARE_POLICIES)})
        self.people = [Person(name) for name in "abcd"]
        self.published = 0
        self.groups: dict[bytes, Counter[bytes]] = {}
        """By payload, the groups that have yet to get it."""
        for person in self.people:
            self.connect(person)

    def step(self) -> None:
        person = self.random.choice(self.people)
        act = self.random.choice(
            [self.connect, self.leave, self.wait, *[self.subscribe] * 2, self.unsubscribe, *[self.publish] * 4]
        )
        self.world.now += self.random.choice([0, 0, 0.001])
        act(person)

    # ------------------------------------------------------------------ what happens

    def connect(self, person: Person) -> None:
        """Come, come back, or take over from oneself."""
        clean = self.random.random() < 0.4
        if person.link is not None:
            self.left(person)
        person.version = self.random.choice([V5, V311])
        person.expiry = self.random.choice([0, 5, 1_000])
        if person.version == V311:
            clean = clean or person.expiry == 0
            person.expiry = 0 if clean else 10**9
        if clean:
            person.end()
        person.ends = None
        expiry = person.expiry if person.version == V5 else None
        person.link = self.world.connect(person.name, person.version, clean_start=clean, expiry=expiry)
        waited, person.queue = person.queue, []
        self.look({person: waited})

    def leave(self, person: Person) -> None:
        if person.link is not None:
            link = person.link
            self.left(person)
            self.random.choice([link.lose, link.disconnect])()
            self.look({})

    def left(self, person: Person) -> None:
        person.link = None
        if person.expiry == 0:
            person.end()
        else:
            person.ends = self.world.now + person.expiry

    def wait(self, _person: Person) -> None:
        self.world.advance(self.random.choice([1, 6]))
        for person in self.people:
            if person.ends is not None and person.ends <= self.world.now:
                person.end()
        self.look({})

    def subscribe(self, person: Person) -> None:
        if person.link is None:
            return
        newer = person.version == V5
        identifier = self.random.choice([0, 5, 268_435_455]) if newer else 0
        requests = []
        for _ in range(self.random.choice([1, 1, 2, 5])):
            topic_filter = self.filter()
            shared = self.random.random() < 0.25
            if shared:
                topic_filter = self.random.choice([b"$share/g/", b"$share/h/"]) + topic_filter
            no_local = newer and not shared and self.random.random() < 0.3
            request = SubscriptionRequest(topic_filter, self.random.randint(0, 2), no_local)
            requests.append(request)
            person.subscriptions[topic_filter] = (request, identifier)
        assert max(person.link.subscribe(*requests, identifier=identifier)) <= 2
        self.look({})

    def unsubscribe(self, person: Person) -> None:
        if person.link is None or not person.subscriptions:
            return
        count = self.random.randint(1, len(person.subscriptions))
        filters = self.random.sample(sorted(person.subscriptions), count)
        for topic_filter in filters:
            del person.subscriptions[topic_filter]
        person.link.send(Unsubscribe(1, tuple(filters)))
        self.look({})

    def publish(self, person: Person) -> None:
        """Several messages in one chunk, or one from inside the broker."""
        link = person.link
        topic, qos = self.topic(), self.random.randint(0, 2)
        count = 1 if link is None else self.random.choice([1, 1, 2, 5])
        payloads = [b"%d" % (self.published + number) for number in range(count)]
        self.published += count
        expected: dict[Person, list[Copy]] = {each: [] for each in self.people}
        groups = {
            topic_filter
            for each in self.people
            for topic_filter in each.subscriptions
            if topic_filter.startswith(b"$share/") and matches(topic_filter.split(b"/", 2)[2], topic)
        }
        for payload in payloads:
            self.groups[payload] = Counter(groups)
            for each in self.people:
                copies = each.copies_of(topic, payload, qos, link is not None and each is person)
                if each.link is not None:
                    expected[each] += copies
                else:
                    each.queue += [copy for copy in copies if copy[1]]
        if link is None:
            self.world.publish(topic.decode(), payloads[0].decode(), qos)
        else:
            link.send(*[Publish(topic, each, qos, packet_id=link.packet_id() if qos else 0) for each in payloads])
        self.look(expected)
        for payload in payloads:  # each group with somebody connected has got its copy
            for group in +self.groups[payload]:
                assert not any(each.link is not None and group in each.subscriptions for each in self.people)

    # ------------------------------------------------------------------ what has to come of it

    def look(self, expected: dict[Person, list[Copy]]) -> None:
        """Each got what was expected; whatever else came is a group's, and that group's only copy."""
        for person in self.people:
            if person.link is None:
                continue
            newer = person.version == V5
            left = [(payload, qos, ids if newer else ()) for payload, qos, ids in expected.get(person, [])]
            for packet in publishes(person.link.received()):
                copy = (packet.payload, packet.qos, tuple(sorted(packet.properties.subscription_identifiers)))
                if copy in left:
                    left.remove(copy)
                else:
                    self.take_for_a_group(person, packet.payload)
            assert left == [], f"{person.name} did not get it"

    def take_for_a_group(self, person: Person, payload: bytes) -> None:
        waiting = +self.groups[payload]
        groups = [group for group in waiting if group in person.subscriptions] or list(waiting)  # one may have left
        assert groups, f"{person.name} got {payload!r}, which it did not ask for or has already"
        self.groups[payload][groups[0]] -= 1

    def check(self) -> None:
        """The cache says what the tree does."""
        table = self.world.broker._routes
        for topic, route in table.cache.items():
            if route is not None:
                now = table._make(topic)
                assert {id(each.session) for each in route.receivers} == {id(each.session) for each in now.receivers}
                assert set(map(id, route.shares)) == set(map(id, now.shares))
                assert {id(box) for box in route.plain3 + route.plain5} == {id(box) for box in now.plain3 + now.plain5}
        assert table._cached_bytes <= table._max_bytes
        assert table.subscriptions + table.shared_subscriptions == sum(
            len(session.subscriptions) for session in self.world.broker.sessions.values()
        )

    # ------------------------------------------------------------------ names

    def topic(self) -> bytes:
        return b"/".join(self.random.choices(LEVELS, k=self.random.randint(1, 3))) or b"a"

    def filter(self) -> bytes:
        levels = self.random.choices([*LEVELS, b"+", b"+"], k=self.random.randint(0, 3))
        return b"/".join([*levels, b"#"] if not levels or self.random.random() < 0.4 else levels) or b"#"


def play(seed: int, steps: int) -> None:
    town = Town(seed)
    for step in range(steps):
        town.step()
        if step % 5 == 0:
            town.check()


TINY = [
    {"TOPICS_COMPARED": 1, "COMPARED_IN_A_PASS": 100},
    {"TOPICS_COMPARED": 2, "COMPARED_IN_A_PASS": 5},
    {"TOPICS_COMPARED": 3, "COMPARED_IN_A_PASS": 1_000},
]


@pytest.fixture(params=TINY, ids=["one topic is compared", "little is compared", "much is compared"])
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if str(routes.__file__).endswith(".py"):  # a compiled module has its limits as they are
        for name, value in request.param.items():
            monkeypatch.setattr(routes, name, value)


@pytest.mark.usefixtures("tiny")
def test_each_message_reaches_whoever_subscribes() -> None:
    for seed in range(25):
        play(seed, 150)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_each_message_reaches_whoever_subscribes_in_many_towns() -> None:
    for seed in range(400):
        play(1_000 + seed, 300)
