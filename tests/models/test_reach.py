"""Each subscriber gets each message once, and no other client does: routes and cache beside ten lines of rules.

Four clients, of which some are below a mount point, connect and leave, subscribe with all options and filters, and
publish to few topics, of which some are ephemeral and some are hidden from a client. The limits of the cache are so
small that it is full and cleared all the time.
"""

from collections import Counter
from collections.abc import Callable
from itertools import product
from random import Random

import pytest

from mqttlite.core.authentication import Grants
from mqttlite.core.limits import Limits
from mqttlite.core.route import routes
from mqttlite.core.route.filtered_receivers import FilteredReceivers
from mqttlite.core.route.share_members import SHARE_POLICIES
from mqttlite.core.route.shared_subscription import SharedSubscription
from mqttlite.core.sink import Sink
from mqttlite.core.topic_policy import EPHEMERAL, NO_POLICY, TopicPolicy
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.filters import Filters
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.topics.names import matches
from mqttlite.topics.namespaces import unmounted
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish, SubscriptionRequest, Unsubscribe
from tests.support.core_driver import Client, World, publishes
from tests.support.rounds import todays
from tests.support.rules import OpenRules

LEVELS = [b"a", b"a", b"b", b"", b"$s"]

SHARED = [b"#", b"a", b"a/#"]
"""Few, so that groups have several members."""

Copy = tuple[bytes, int, tuple[int, ...]]
"""Payload, QoS and subscription identifiers, which only a 5.0 client gets."""

MOUNT_POINT = b"m/"

Passes = Callable[[bytes, bytes, int], bool]
"""Whether a message passes a filter, by its topic as the client sees it, its payload and its QoS."""

FILTERS: dict[str, Passes] = {
    "qos >= 1": lambda _topic, _payload, qos: qos >= 1,
    "payload > 100": lambda _topic, payload, _qos: int(payload) > 100,
    'topic: "a/"': lambda topic, _payload, _qos: topic.startswith(b"a/"),
}


class Rules(OpenRules):
    """The client `b` may not receive some topics. Some topics are ephemeral, and others have a QoS of 1 at most."""

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return int(client_id == "b")

    def is_readable(self, topic: bytes) -> bool:
        return not topic.startswith(b"b")

    def may_receive(self, role: int, topic: bytes) -> bool:
        return not role or self.is_readable(topic)

    def policy_of(self, topic: bytes) -> TopicPolicy:
        if topic.startswith(b"a/a"):
            return TopicPolicy("a/a", topic_class=EPHEMERAL)
        return TopicPolicy("a/b", max_qos=1) if topic.startswith(b"a/b") else NO_POLICY


class Subscribed:
    """A subscription. `topic_filter` has the mount point, and not the group."""

    def __init__(self, topic_filter: bytes, request: SubscriptionRequest, identifier: int, expression: str) -> None:
        self.topic_filter = topic_filter
        self.qos = request.qos
        self.no_local = request.no_local
        self.identifier = identifier
        self.expression = expression


class SimulatedClient:
    def __init__(self, name: str, mount_point: bytes, rules: Rules) -> None:
        self.name = name
        self.mount_point = mount_point
        self.rules = rules
        self.link: Client | None = None
        self.version = V5
        self.expiry = 0
        self.ends: float | None = None
        self.subscriptions: dict[bytes, Subscribed] = {}
        """By filter with mount point and group."""
        self.queue: list[Copy] = []

    def copies_of(self, topic: bytes, payload: bytes, qos: int, own: bool) -> list[Copy]:
        """What it gets of a message for its own subscriptions."""
        found = [
            each
            for name, each in self.subscriptions.items()
            if not name.startswith(b"$share/")
            and self.may_get(each, topic, payload, qos)
            and not (own and each.no_local)
        ]
        if not found:
            return []
        identifiers = sorted(each.identifier for each in found if each.identifier)
        return [(payload, min(qos, max(each.qos for each in found)), tuple(identifiers))]

    def may_get(self, subscribed: Subscribed, topic: bytes, payload: bytes, qos: int) -> bool:
        """Whether a message matches a subscription, the rules allow it and the filter lets it pass."""
        if not matches(subscribed.topic_filter, topic):
            return False
        if not self.rules.may_receive(int(self.name == "b"), topic):
            return False
        if not subscribed.expression:
            return True
        return FILTERS[subscribed.expression](unmounted(self.mount_point, topic), payload, qos)

    def end(self) -> None:
        self.subscriptions.clear()
        self.queue.clear()
        self.ends = None


class Site:
    """A broker and four clients; all choices come from a seed, so that a failure can be repeated."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        limits = Limits(max_route_cache_bytes=self.random.choice([0, 600, 2_000, *[10**6] * 3]))
        self.world = World(limits, share_policies={"*": self.random.choice(SHARE_POLICIES)}, filters=Filters())
        self.rules = Rules() if self.random.random() < 0.5 else OpenRules()
        if isinstance(self.rules, Rules):
            self.renew()
        self.alike, self.shared = self.random.choice([(0.1, 0.3), (0.9, 0.3), (0.9, 1.0)])
        """How many of the messages have one topic, and how many of the subscriptions are shared."""
        mount_points = [b"", b"", b"", MOUNT_POINT]
        self.clients = [SimulatedClient(name, self.random.choice(mount_points), self.rules) for name in "abcd"]
        self.published = 0
        self.groups: dict[bytes, Counter[bytes]] = {}
        """By payload, the shared subscriptions that have yet to get it."""
        for client in self.clients:
            self.connect(client)

    def step(self) -> None:
        client = self.random.choice(self.clients)
        if isinstance(self.rules, Rules) and self.random.random() < 0.05:
            self.renew()
        act = self.random.choice(
            [self.connect, self.leave, self.wait, *[self.subscribe] * 2, self.unsubscribe, *[self.publish] * 6]
        )
        self.world.now += self.random.choice([0, 0, 0.001])
        act(client)

    # ------------------------------------------------------------------ what happens

    def renew(self) -> None:
        """The rules are read again, unchanged."""
        self.world.broker.authorize(built_in_rules(authorizer=self.rules))

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
        client.link = self.world.open(client.version, mount_point=client.mount_point)
        assert client.link.connect(client.name, clean_start=clean, expiry=expiry) is not None
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
        expression = self.random.choice(["", "", *FILTERS]) if newer else ""
        requests = []
        for _ in range(self.random.choice([1, 1, 2, 5])):
            group = self.random.choice([b"$share/g/", b"$share/h/"]) if self.random.random() < self.shared else b""
            plain = self.random.choice(SHARED) if group else self.filter()
            no_local = newer and not group and self.random.random() < 0.3
            request = SubscriptionRequest(group + plain, self.random.randint(0, 2), no_local)
            requests.append(request)
            mounted = NAMESPACES.mounted_filter(client.mount_point, plain)
            client.subscriptions[group + mounted] = Subscribed(mounted, request, identifier, expression)
        where = expression or None
        assert max(client.link.subscribe(*requests, identifier=identifier, where=where)) <= 2
        self.check_received({})

    def unsubscribe(self, client: SimulatedClient) -> None:
        if client.link is None or not client.subscriptions:
            return
        count = self.random.randint(1, len(client.subscriptions))
        filters = self.random.sample(sorted(client.subscriptions), count)
        for topic_filter in filters:
            del client.subscriptions[topic_filter]
        length = len(client.mount_point)
        seen = [each[:9] + each[9 + length :] if each.startswith(b"$share/") else each[length:] for each in filters]
        client.link.send(Unsubscribe(1, tuple(seen)))
        self.check_received({})

    def publish(self, client: SimulatedClient) -> None:
        """Several messages in one chunk, or one from inside the broker."""
        link = client.link
        sent, sent_qos = self.topic(), self.random.randint(0, 2)
        topic = sent if link is None else NAMESPACES.mounted_name(client.mount_point, sent)
        qos = min(sent_qos, self.rules.policy_of(topic).max_qos)
        count = 1 if link is None else self.random.choice([1, 1, 2, 5])
        payloads = [b"%d" % (self.published + number) for number in range(count)]
        self.published += count
        expected: dict[SimulatedClient, list[Copy]] = {each: [] for each in self.clients}
        members: dict[bytes, dict[bytes, set[SimulatedClient]]] = {}
        """By payload and group, the connected clients that may get it."""
        for payload in payloads:
            self.groups[payload] = Counter()
            members[payload] = {}
            for each in self.clients:
                for name, subscribed in each.subscriptions.items():
                    if name.startswith(b"$share/") and matches(subscribed.topic_filter, topic):
                        self.groups[payload][name] = 1
                        may_get = members[payload].setdefault(name, set())
                        if each.link is not None and each.may_get(subscribed, topic, payload, qos):
                            may_get.add(each)
                copies = each.copies_of(topic, payload, qos, link is not None and each is client)
                if each.link is not None:
                    expected[each] += copies
                else:
                    each.queue += [copy for copy in copies if copy[1]]
        if link is None:
            self.world.publish(topic.decode(), payloads[0].decode(), sent_qos)
        else:
            packet_ids = [link.packet_id() if sent_qos else 0 for _ in payloads]
            link.send(
                *[
                    Publish(sent, each, sent_qos, packet_id=number)
                    for each, number in zip(payloads, packet_ids, strict=True)
                ]
            )
        self.check_received(expected, members)
        for payload in payloads:  # each shared subscription with a connected member that may get it has got its copy
            for group in +self.groups[payload]:
                assert not members[payload][group], f"nobody of {group!r} got {payload!r}"

    # ------------------------------------------------------------------ what is expected

    def check_received(
        self,
        expected: dict[SimulatedClient, list[Copy]],
        members: dict[bytes, dict[bytes, set[SimulatedClient]]] | None = None,
    ) -> None:
        """Each client got what was expected; all else is for a shared subscription, and its only copy. `members` says
        who may get messages that were just published."""
        extra: dict[bytes, list[SimulatedClient]] = {}
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
                    extra.setdefault(packet.payload, []).append(client)
            assert left == [], f"{client.name} did not get it"
        for payload, takers in extra.items():
            self.take_for_groups(takers, payload, None if members is None else members.get(payload))

    def take_for_groups(
        self, takers: list[SimulatedClient], payload: bytes, members: dict[bytes, set[SimulatedClient]] | None
    ) -> None:
        """Each client got a copy for another group that waits for one. Without `members` it may be one that it left."""
        waiting = list(+self.groups[payload])
        if members is not None:
            options = [[group for group in waiting if each in members[group]] for each in takers]
        else:
            options = [[group for group in waiting if group in each.subscriptions] or waiting for each in takers]
        for groups in product(*options):
            if len(set(groups)) == len(groups):
                self.groups[payload].subtract(groups)
                return
        names = [each.name for each in takers]
        raise AssertionError(f"{names} got {payload!r}, which they did not subscribe to or have already")

    def check(self) -> None:
        """The cache agrees with the tree."""
        table = self.world.broker._routes
        for topic, route in table.cache.items():
            if route is not None:
                now = table.make(topic)
                assert {id(each.session) for each in route.receivers} == {id(each.session) for each in now.receivers}
                assert set(map(identity, route.sinks)) == set(map(identity, now.sinks))
                assert {id(box) for box in route.direct3 + route.direct5} == {
                    id(box) for box in now.direct3 + now.direct5
                }
        assert table._cached_bytes <= table._max_bytes
        assert table.subscriptions + table.shared_subscriptions == sum(
            len(session.subscriptions) for session in self.world.broker.sessions.values()
        )

    # ------------------------------------------------------------------ names

    def topic(self) -> bytes:
        """Often the same one, whose route is then cached; sometimes one below the mount point."""
        if self.random.random() < self.alike:
            return b"a"
        topic = b"/".join(self.random.choices(LEVELS, k=self.random.randint(1, 3))) or b"a"
        return MOUNT_POINT + topic if self.random.random() < 0.2 else topic

    def filter(self) -> bytes:
        levels = self.random.choices([*LEVELS, b"+", b"+"], k=self.random.randint(0, 3))
        return b"/".join([*levels, b"#"] if not levels or self.random.random() < 0.4 else levels) or b"#"


def identity(sink: Sink) -> int | tuple[str, ...]:
    """What makes two sinks the same: some are made for one route."""
    if isinstance(sink, SharedSubscription):
        return id(sink)
    assert isinstance(sink, FilteredReceivers)
    return tuple(sorted(each.session.client_id for each in sink.receivers))


def play(seed: int, steps: int) -> None:
    site = Site(seed)
    for step in range(steps):
        site.step()
        if step % 5 == 0:
            site.check()
    site.world.end()


TINY: dict[str, dict[str, int]] = {
    "all is compared": {},
    "one topic is compared": {"TOPICS_COMPARED": 1, "COMPARED_PER_ITERATION": 100},
    "little is compared": {"TOPICS_COMPARED": 2, "COMPARED_PER_ITERATION": 5},
    "much is compared": {"TOPICS_COMPARED": 3, "COMPARED_PER_ITERATION": 1_000},
}
if not str(routes.__file__).endswith(".py"):  # a compiled module has its limits as they are
    TINY = {"all is compared": {}}


@pytest.fixture(params=TINY.values(), ids=TINY.keys())
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in request.param.items():
        monkeypatch.setattr(routes, name, value)


@pytest.mark.long
@pytest.mark.usefixtures("tiny")
def test_each_message_reaches_its_subscribers() -> None:
    for seed in range(25):
        play(seed, 150)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_each_message_reaches_its_subscribers_in_many_runs() -> None:
    for seed in todays(range(1_000, 1_400)):
        play(seed, 300)
