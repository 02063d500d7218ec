"""Each subscriber gets each message once, and no other client does: routes and cache beside ten lines of rules.

Four clients connect and leave, subscribe with all options, and publish to few topics. The limits of the cache are so
small that it is full and cleared all the time.
"""

from collections import Counter
from random import Random

import pytest

from mqttlite.core import routes
from mqttlite.core.limits import Limits
from mqttlite.core.share_members import SHARE_POLICIES
from mqttlite.topics.names import matches
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish, SubscriptionRequest, Unsubscribe
from tests.support.core_driver import Client, World, publishes

LEVELS = [b"a", b"a", b"b", b"", b"$s"]

Copy = tuple[bytes, int, tuple[int, ...]]
"""Payload, QoS and subscription identifiers, which only a 5.0 client gets."""


class SimulatedClient:
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


class Site:
    """A broker and four clients; all choices come from a seed, so that a failure can be repeated."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        limits = Limits(max_route_cache_bytes=self.random.choice([0, 600, 2_000, 10**6]))
        self.world = World(limits, share_policies={"*": self.random.choice(SHARE_POLICIES)})
        self.clients = [SimulatedClient(name) for name in "abcd"]
        self.published = 0
        self.groups: dict[bytes, Counter[bytes]] = {}
        """By payload, the shared subscriptions that have yet to get it."""
        for client in self.clients:
            self.connect(client)

    def step(self) -> None:
        client = self.random.choice(self.clients)
        act = self.random.choice(
            [self.connect, self.leave, self.wait, *[self.subscribe] * 2, self.unsubscribe, *[self.publish] * 4]
        )
        self.world.now += self.random.choice([0, 0, 0.001])
        act(client)

    # ------------------------------------------------------------------ what happens

    def connect(self, client: SimulatedClient) -> None:
        """Connect, reconnect, or take over from an own connection."""
        clean = self.random.random() < 0.4
        if client.link is not None:
            self.on_left(client)
        client.version = self.random.choice([V5, V311])
        client.expiry = self.random.choice([0, 5, 1_000])
        if client.version == V311:
            clean = clean or client.expiry == 0
            client.expiry = 0 if clean else 10**9
        if clean:
            client.end()
        client.ends = None
        expiry = client.expiry if client.version == V5 else None
        client.link = self.world.connect(client.name, client.version, clean_start=clean, expiry=expiry)
        waited, client.queue = client.queue, []
        self.check_received({client: waited})

    def leave(self, client: SimulatedClient) -> None:
        if client.link is not None:
            link = client.link
            self.on_left(client)
            self.random.choice([link.lose, link.disconnect])()
            self.check_received({})

    def on_left(self, client: SimulatedClient) -> None:
        client.link = None
        if client.expiry == 0:
            client.end()
        else:
            client.ends = self.world.now + client.expiry

    def wait(self, _client: SimulatedClient) -> None:
        self.world.advance(self.random.choice([1, 6]))
        for client in self.clients:
            if client.ends is not None and client.ends <= self.world.now:
                client.end()
        self.check_received({})

    def subscribe(self, client: SimulatedClient) -> None:
        if client.link is None:
            return
        newer = client.version == V5
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
            client.subscriptions[topic_filter] = (request, identifier)
        assert max(client.link.subscribe(*requests, identifier=identifier)) <= 2
        self.check_received({})

    def unsubscribe(self, client: SimulatedClient) -> None:
        if client.link is None or not client.subscriptions:
            return
        count = self.random.randint(1, len(client.subscriptions))
        filters = self.random.sample(sorted(client.subscriptions), count)
        for topic_filter in filters:
            del client.subscriptions[topic_filter]
        client.link.send(Unsubscribe(1, tuple(filters)))
        self.check_received({})

    def publish(self, client: SimulatedClient) -> None:
        """Several messages in one chunk, or one from inside the broker."""
        link = client.link
        topic, qos = self.topic(), self.random.randint(0, 2)
        count = 1 if link is None else self.random.choice([1, 1, 2, 5])
        payloads = [b"%d" % (self.published + number) for number in range(count)]
        self.published += count
        expected: dict[SimulatedClient, list[Copy]] = {each: [] for each in self.clients}
        groups = {
            topic_filter
            for each in self.clients
            for topic_filter in each.subscriptions
            if topic_filter.startswith(b"$share/") and matches(topic_filter.split(b"/", 2)[2], topic)
        }
        for payload in payloads:
            self.groups[payload] = Counter(groups)
            for each in self.clients:
                copies = each.copies_of(topic, payload, qos, link is not None and each is client)
                if each.link is not None:
                    expected[each] += copies
                else:
                    each.queue += [copy for copy in copies if copy[1]]
        if link is None:
            self.world.publish(topic.decode(), payloads[0].decode(), qos)
        else:
            link.send(*[Publish(topic, each, qos, packet_id=link.packet_id() if qos else 0) for each in payloads])
        self.check_received(expected)
        for payload in payloads:  # each shared subscription with a connected member has got its copy
            for group in +self.groups[payload]:
                assert not any(each.link is not None and group in each.subscriptions for each in self.clients)

    # ------------------------------------------------------------------ what is expected

    def check_received(self, expected: dict[SimulatedClient, list[Copy]]) -> None:
        """Each client got what was expected; all else is for a shared subscription, and its only copy."""
        for client in self.clients:
            if client.link is None:
                continue
            newer = client.version == V5
            left = [(payload, qos, ids if newer else ()) for payload, qos, ids in expected.get(client, [])]
            for packet in publishes(client.link.received()):
                copy = (packet.payload, packet.qos, tuple(sorted(packet.properties.subscription_identifiers)))
                if copy in left:
                    left.remove(copy)
                else:
                    self.take_for_a_group(client, packet.payload)
            assert left == [], f"{client.name} did not get it"

    def take_for_a_group(self, client: SimulatedClient, payload: bytes) -> None:
        waiting = +self.groups[payload]
        groups = [group for group in waiting if group in client.subscriptions] or list(waiting)  # one may have left
        assert groups, f"{client.name} got {payload!r}, which it did not subscribe to or has already"
        self.groups[payload][groups[0]] -= 1

    def check(self) -> None:
        """The cache agrees with the tree."""
        table = self.world.broker._routes
        for topic, route in table.cache.items():
            if route is not None:
                now = table.make(topic)
                assert {id(each.session) for each in route.receivers} == {id(each.session) for each in now.receivers}
                assert set(map(id, route.sinks)) == set(map(id, now.sinks))
                assert {id(box) for box in route.direct3 + route.direct5} == {
                    id(box) for box in now.direct3 + now.direct5
                }
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
    site = Site(seed)
    for step in range(steps):
        site.step()
        if step % 5 == 0:
            site.check()
    site.world.end()


TINY = [
    {"TOPICS_COMPARED": 1, "COMPARED_PER_ITERATION": 100},
    {"TOPICS_COMPARED": 2, "COMPARED_PER_ITERATION": 5},
    {"TOPICS_COMPARED": 3, "COMPARED_PER_ITERATION": 1_000},
]


@pytest.fixture(params=TINY, ids=["one topic is compared", "little is compared", "much is compared"])
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if str(routes.__file__).endswith(".py"):  # a compiled module has its limits as they are
        for name, value in request.param.items():
            monkeypatch.setattr(routes, name, value)


@pytest.mark.usefixtures("tiny")
def test_each_message_reaches_its_subscribers() -> None:
    for seed in range(25):
        play(seed, 150)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_each_message_reaches_its_subscribers_in_many_runs() -> None:
    for seed in range(400):
        play(1_000 + seed, 300)
