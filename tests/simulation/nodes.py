"""Nodes in one process, in a time of its own, and their faults: all from a seed.

Each node has the core, loop driver and `Nodes` that a broker has; its store keeps what a commit had reached when the
node dies. Publishers, subscribers and members of groups are kept sessions, as clients are that come back. Members
come and go, but one only leaves its group while all other nodes know a node with another one. In the end each
acknowledged message has reached each subscriber, one of QoS 2 once, each publisher's in order, and one member of each
group that its node knew; and all nodes retain the same. With odd seeds little may be on its way between two nodes, and
packets are cut.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from mqttlite.core.authentication import Verdict
from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change
from mqttlite.core.limits import Limits
from mqttlite.core.message import Message
from mqttlite.core.question import Authenticate, Locate, Question
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.extensions.nodes import peer, window
from mqttlite.extensions.nodes.nodes import Nodes
from mqttlite.extensions.nodes.sessions import CLIENT_ID_PREFIX
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC
from mqttlite.wire.packets import Ack, Publish, Suback, SubscriptionRequest
from tests.simulation.cluster import VirtualLoop
from tests.support.air import Air

NAMES: Final = "abc"
TOPICS: Final = ("t/1", "t/2", "u/1")
FILTERS: Final = ("t/+", "t/1", "#", "u/#")
GROUP_FILTERS: Final = ("t/+", "#", "u/1")
KEPT_S: Final = 100_000
LASTS_S: Final = 20.0
"""How long faults go on."""
HEALS_S: Final = 15.0
"""How long nodes without faults have to bring everything to its end."""
LOGIN_S: Final = 0.01
MAX_COMMIT_S: Final = 0.02
NARROW_BYTES: Final = 200
"""In place of `UNDER_WAY_BYTES`: what waits after a fault is more."""


class DyingStore(MemoryStore):
    """Keeps a commit a while after it was asked to, unless its node has died."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.run = 0
        """The number of the node's life: what an earlier one asked for is not kept."""

    def commit(self, changes: list[Change]) -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        loop.call_later(self._chance.random() * MAX_COMMIT_S, self._keep, changes, done, self.run)
        return done

    def _keep(self, changes: list[Change], done: "asyncio.Future[None]", run: int) -> None:
        if run == self.run and not done.cancelled():
            super().commit(changes)
            done.set_result(None)


class Life:
    """A node from its start to its end."""

    def __init__(self, name: str, store: DyingStore, air: Air) -> None:
        loop = asyncio.get_running_loop()
        self.core = Broker(Limits(), pages=False, namespaces=NAMESPACES, newest_retained=True)
        self.driver = LoopDriver(
            *(self.core, store),
            on_connected=lambda _link: None,
            on_closed=lambda _link: None,
            on_question=self._on_question,
            on_memory_short=lambda _is_short, _detail: None,
        )
        self.core.restore(store.load(), loop.time())
        self.nodes = Nodes(name, KEPT_S, self.core, self.driver, air.carrier(), on_alarm=lambda _active, _detail: None)

    def _on_question(self, question: Question) -> None:
        if isinstance(question, Locate):
            self.nodes.locating.locate(question)
        else:
            assert isinstance(question, Authenticate)
            asyncio.get_running_loop().call_later(LOGIN_S, self._let_in, question.id)

    def _let_in(self, question_id: int) -> None:
        self.core.answer(question_id, Verdict(0), asyncio.get_running_loop().time())
        self.driver.wake()

    def session(self, client_id: str, on_readable: Any) -> LocalSession:
        """The kept session of a client."""
        session = LocalSession(self.core, self.driver, on_readable)
        session.connect(LocalClient(client_id=client_id, clean_start=False, session_expiry_s=KEPT_S), 20)
        return session


class SimulatedNode:
    """One node with its clients, which come back whenever it starts."""

    def __init__(self, name: str, chance: random.Random, air: Air) -> None:
        self.name: Final = name
        self._air: Final = air
        self.store: Final = DyingStore(chance)
        self.life: Life | None = None
        self.subscribers: Final[list[Subscriber]] = []
        self.publishers: Final[list[Publisher]] = []

    async def start(self) -> None:
        life = Life(self.name, self.store, self._air)
        await life.nodes.start()
        self.life = life
        for client in (*self.subscribers, *self.publishers):
            client.come(life)

    def knows(self, other: "SimulatedNode", share: str) -> bool:
        """Whether it runs, and knows that another node has members of a shared subscription."""
        session = None if self.life is None else self.life.core.sessions.get(f"{CLIENT_ID_PREFIX}{other.name}")
        return session is not None and share.encode() in session.subscriptions

    async def stop(self, *, is_killed: bool) -> None:
        """End it, with goodbye or without."""
        life, self.life = self.life, None
        if life is None:
            return
        for client in (*self.subscribers, *self.publishers):
            client.session = None
        if is_killed:
            self.store.run += 1
            await life.nodes._carrier.close()
            for task in life.nodes._tasks:
                task.cancel()
            await asyncio.wait(life.nodes._tasks)
        else:
            await life.nodes.stop()
            await life.driver.settled()
            self.store.run += 1
        life.core.effects.interest = None
        life.driver._stopped = True
        if life.driver._timer is not None:
            life.driver._timer.cancel()


def later(read: Callable[[LocalSession], None], session: LocalSession) -> None:
    """Read when the broker has written: a session is not used from within."""
    asyncio.get_running_loop().call_soon(read, session)


class Subscriber:
    """Acknowledges each message, and remembers it; of QoS 2 when it is released."""

    def __init__(self, client_id: str, topic_filter: str, qos: int) -> None:
        self.client_id: Final = client_id
        self.filter: Final = topic_filter
        self.qos: Final = qos
        self.session: LocalSession | None = None
        self.got: list[tuple[bytes, bytes]] = []
        self._unreleased: Final[dict[int, Publish]] = {}
        self._is_subscribed = False
        self.is_acknowledged = False
        """Whether SUBACK has come."""

    def come(self, life: Life) -> None:
        session = self.session = life.session(self.client_id, lambda: later(self._read, session))
        if not self._is_subscribed:
            self._subscribe(session)
        self._read(session)

    def _subscribe(self, session: LocalSession) -> None:
        session.subscribe([SubscriptionRequest(self.filter.encode(), self.qos, retain_handling=2)])
        self._is_subscribed = True

    def _read(self, session: LocalSession) -> None:
        if self.session is not session:
            return
        while (packet := session.link.receive()) is not None:
            if isinstance(packet, Publish):
                if packet.qos < 2:
                    self.got.append((packet.topic, packet.payload))
                else:
                    self._unreleased.setdefault(packet.packet_id, packet)
                session.acknowledge(packet)
            elif isinstance(packet, Suback):
                self.is_acknowledged = self._is_subscribed
            elif isinstance(packet, Ack) and packet.packet_type not in (PUBACK, PUBREC, PUBCOMP):
                released = self._unreleased.pop(packet.packet_id, None)
                if released is not None:
                    self.got.append((released.topic, released.payload))
                session.complete(packet.packet_id)


class Member(Subscriber):
    """One of a group. It may leave the group, and its session may end."""

    def toggle(self) -> None:
        """Leave the group, or join it again."""
        if self.session is None:
            return
        if self._is_subscribed:
            self.session.unsubscribe([self.filter.encode()])
            self._is_subscribed = self.is_acknowledged = False
        else:
            self._subscribe(self.session)

    def end(self, life: Life) -> None:
        """End the session, and come again as a new client."""
        self.session = None
        self._is_subscribed = self.is_acknowledged = False
        life.core.end_session(self.client_id, asyncio.get_running_loop().time())
        self.come(life)


class Group:
    """The members of a shared subscription, at all nodes."""

    def __init__(self, name: str, topic_filter: str, qos: int) -> None:
        self.name: Final = name
        self.filter: Final = topic_filter
        self.qos: Final = qos
        self.members: Final[list[Member]] = []
        self.unheard: Final[set[bytes]] = set()
        """Payloads published where no member was known."""

    def add(self, node: SimulatedNode) -> None:
        """Another member."""
        client_id = f"m-{self.name}-{len(self.members)}"
        member = Member(client_id, f"$share/{self.name}/{self.filter}", self.qos)
        self.members.append(member)
        node.subscribers.append(member)


class Publisher:
    """Publishes numbered messages one after the other, each until it is acknowledged."""

    def __init__(self, client_id: str, chance: random.Random) -> None:
        self.client_id: Final = client_id
        self._chance: Final = chance
        self.session: LocalSession | None = None
        self.acknowledged: list[Publish] = []
        self._number = 0
        self._sent: Publish | None = None
        self._is_received = False
        """Whether the PUBREC of the message has come."""

    def come(self, life: Life) -> None:
        session = self.session = life.session(self.client_id, lambda: later(self._read, session))
        sent = self._sent
        if sent is None:
            return
        if self._is_received:
            session.release(sent.packet_id)
        else:
            self._sent = Publish(sent.topic, sent.payload, sent.qos, sent.retain, True, sent.packet_id)
            session.publish(self._sent)

    def publish(self, *, retain: bool) -> None:
        """The next message, if the one before is acknowledged."""
        session = self.session
        if session is None or self._sent is not None:
            return
        self._number += 1
        qos = self._chance.choice((1, 2))
        topic = f"r/{self._chance.randrange(3)}" if retain else self._chance.choice(TOPICS)
        payload = b"" if retain and self._chance.random() < 0.2 else f"{self.client_id} {self._number}".encode()
        self._sent = Publish(topic.encode(), payload, qos, retain, False, self._number % 60_000 + 1)
        self._is_received = False
        session.publish(self._sent)

    def _read(self, session: LocalSession) -> None:
        if self.session is not session:
            return
        while (packet := session.receive()) is not None:
            sent = self._sent
            if not isinstance(packet, Ack) or sent is None or packet.packet_id != sent.packet_id:
                continue
            if packet.packet_type == PUBREC and packet.reason_code < 0x80:
                self._is_received = True
                session.release(packet.packet_id)
            elif packet.packet_type in (PUBACK, PUBREC, PUBCOMP):
                assert packet.reason_code < 0x80 or packet.packet_type == PUBCOMP, packet
                self.acknowledged.append(sent)
                self._sent = None


class World:
    """`faults` go on for `LASTS_S`."""

    def __init__(self, seed: int) -> None:
        self.chance: Final = random.Random(seed)
        self.air: Final = Air(random.Random(seed + 1), self.chance.choice((0.0, 0.005, 0.2)))
        self.nodes: Final = [SimulatedNode(name, self.chance, self.air) for name in NAMES]
        for node in self.nodes:
            node.publishers.append(Publisher(f"p-{node.name}", self.chance))
            for number in range(2):
                qos = self.chance.choice((1, 2))
                node.subscribers.append(Subscriber(f"s-{node.name}-{number}", self.chance.choice(FILTERS), qos))
        self.plain: Final = [each for node in self.nodes for each in node.subscribers]
        self.groups: Final[list[Group]] = []
        for name in ("g", "h"):
            group = Group(name, self.chance.choice(GROUP_FILTERS), self.chance.choice((1, 2)))
            self.groups.append(group)
            for _ in range(self.chance.choice((2, 3, 5))):
                group.add(self.chance.choice(self.nodes))

    async def live(self) -> None:
        for node in self.nodes:
            await node.start()
        await asyncio.sleep(2)
        publishing = asyncio.create_task(self._publish())
        coming = asyncio.create_task(self._come_and_go())
        until = asyncio.get_running_loop().time() + LASTS_S
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(self.chance.random() * 2)
            await self._fail()
        coming.cancel()
        self.air.loss = 0.0
        self.air.cut.clear()
        self.air.without.clear()
        self.air.go_on()
        for node in self.nodes:
            if node.life is None:
                await node.start()
                self._note_unheard(node)
        await asyncio.sleep(HEALS_S)
        publishing.cancel()
        await asyncio.sleep(HEALS_S)
        self.check()
        for node in self.nodes:
            await node.stop(is_killed=False)

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(self.chance.random() * 0.2)
            for node in self.nodes:
                for publisher in node.publishers:
                    publisher.publish(retain=self.chance.random() < 0.1)
                self._note_unheard(node)

    async def _come_and_go(self) -> None:
        while True:
            await asyncio.sleep(self.chance.random() * 0.4)
            await self._regroup()

    async def _fail(self) -> None:
        node = self.chance.choice(self.nodes)
        fault = self.chance.choice(
            ("kill", "stop", "start", "start", "cut", "heal", "loss", "without", "still", "go on", "nothing")
        )
        if fault in ("kill", "stop"):
            await node.stop(is_killed=fault == "kill")
        elif fault == "start" and node.life is None:
            await node.start()
            self._note_unheard(node)
        elif fault == "cut":
            other = self.chance.choice([each for each in self.nodes if each is not node])
            self.air.cut.add(frozenset((node.name, other.name)))
        elif fault == "heal":
            self.air.cut.clear()
            self.air.without.clear()
            self.air.loss = 0.0
        elif fault == "loss":
            self.air.loss = 0.05
        elif fault == "without":
            self.air.without.add(node.name)
        elif fault == "still":
            self.air.still.add(node.name)
        elif fault == "go on":
            self.air.go_on()

    async def _regroup(self) -> None:
        """A member comes or goes, or its session ends."""
        group = self.chance.choice(self.groups)
        member = self.chance.choice(group.members)
        ends = group.qos == 1 and self.chance.random() < 0.3  # of QoS 2, what a session has ends with it
        if member._is_subscribed:
            if not self._may_leave(group, member, ends):
                return
            await asyncio.sleep(2 * MAX_COMMIT_S)
            if not self._may_leave(group, member, ends):
                return
        life = self._node_of(member).life
        if life is not None:
            if ends:
                member.end(life)
            else:
                member.toggle()

    def _note_unheard(self, node: SimulatedNode) -> None:
        """What is published where no member is known need not reach one."""
        life = node.life
        if life is None:
            return
        for group in self.groups:
            if life.core._routes.share(f"$share/{group.name}/{group.filter}".encode()) is None:
                group.unheard.update(each._sent.payload for each in node.publishers if each._sent is not None)

    def _may_leave(self, group: Group, member: Member, ends: bool) -> bool:
        """Whether there is another member, and all nodes know that its node has some. The node of the member need not
        know it, unless messages of its session must go on."""
        without = None if ends else self._node_of(member)
        for other in group.members:
            if other is not member and other.is_acknowledged and other.session is not None:
                home = self._node_of(other)
                if all(each in (home, without) or each.knows(home, other.filter) for each in self.nodes):
                    return True
        return False

    def _node_of(self, member: Member) -> SimulatedNode:
        return next(node for node in self.nodes if member in node.subscribers)

    def check(self) -> None:
        """All promises."""
        for publisher in (each for node in self.nodes for each in node.publishers):
            assert publisher._sent is None, "each is acknowledged in the end"
            for subscriber in self.plain:
                self._check_pair(publisher, subscriber)
            for group in self.groups:
                self._check_group(publisher, group)
        tables = [self._retained(node) for node in self.nodes]
        assert tables[0] == tables[1] == tables[2]

    def _check_pair(self, publisher: Publisher, subscriber: Subscriber) -> None:
        prefix = f"{publisher.client_id} ".encode()
        wanted = [each for each in publisher.acknowledged if each.payload and _matches(subscriber.filter, each.topic)]
        got = [payload for _topic, payload in subscriber.got if payload.startswith(prefix)]
        counts = Counter(got)
        missing = [each.payload for each in wanted if not counts[each.payload]]
        assert not missing, f"{subscriber.client_id} lacks {missing} of {len(wanted)}"
        assert not set(counts) - {each.payload for each in wanted}, f"{subscriber.client_id} has what it did not want"
        if subscriber.qos == 2:
            twice = [each.payload for each in wanted if each.qos == 2 and counts[each.payload] > 1]
            assert not twice, f"{subscriber.client_id} has {twice} twice"
        first = list(dict.fromkeys(got))
        for qos in (1, 2):
            these = [each.payload for each in wanted if min(each.qos, subscriber.qos) == qos]
            places = {payload: place for place, payload in enumerate(these)}
            numbers = [places[each] for each in first if each in places]
            assert numbers == sorted(numbers), f"{subscriber.client_id} has those of {publisher.client_id} in disorder"

    def _check_group(self, publisher: Publisher, group: Group) -> None:
        wanted = [each for each in publisher.acknowledged if each.payload and _matches(group.filter, each.topic)]
        counts = Counter(payload for member in group.members for _topic, payload in member.got)
        missing = [each.payload for each in wanted if not counts[each.payload] and each.payload not in group.unheard]
        assert not missing, f"no member of {group.name} has {missing} of {len(wanted)}"
        if group.qos == 2:
            twice = [each.payload for each in wanted if each.qos == 2 and counts[each.payload] > 1]
            assert not twice, f"members of {group.name} have {twice} twice"

    def _retained(self, node: SimulatedNode) -> dict[bytes, bytes]:
        life = node.life
        assert life is not None
        found: list[Message] = []
        search = life.core.router.retained.search(b"#")
        while len(search):
            found += search.take(100)
        return {each.topic: each.payload for each in found}


def _matches(topic_filter: str, topic: bytes) -> bool:
    levels = topic.decode().split("/")
    wanted = topic_filter.split("/")
    for number, level in enumerate(wanted):
        if level == "#":
            return True
        if number >= len(levels) or level not in ("+", levels[number]):
            return False
    return len(levels) == len(wanted)


def run_nodes(seed: int) -> World:
    """Let nodes live. Raises AssertionError if a promise is broken."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(window, "UNDER_WAY_BYTES", NARROW_BYTES)
            patch.setattr(window, "ANSWER_BYTES", NARROW_BYTES // 8)
            patch.setattr(window, "NEWS_UNDER_WAY", 3)
            patch.setattr(peer, "MAX_BLOB_BYTES", 100)
        world = World(seed)
        runner.run(world.live())
        return world
