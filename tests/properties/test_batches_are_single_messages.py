"""Messages and answers that come together are what each of them would be by itself.

Two brokers get the same traffic: one as clients send it, so that it takes runs of messages and blocks of answers in one
step; the other packet by packet, or so that none goes the short way: messages with DUP, answers with a reason code, and
between any two an acknowledgement that answers nothing. It also checks payloads, for which all properties are decoded.
What they write, keep, count and store must be the same, but for what nothing orders:

- what a client gets of its own messages, and the answers to them, are two streams, and so is what is stored of them;
- changes for the store have an order in each session, not between sessions; that a message is done with has one only
  among the changes of its identifier (a block of answers is, before what it makes room for is looked at);
- a mark of how much waited for a blocked link is that of a whole run, or of each message in turns with what it drops;
- memory: decoded properties take more of it than raw ones, a batch less than its messages.
"""

import re
from operator import itemgetter
from random import Random
from typing import Final

import pytest

from mqttlite.core.authentication import Grants
from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change, Enqueue, SaveRetained, SaveSession, SaveSubscription
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.connect.connection import CLOSED, Connection, Peer
from mqttlite.core.limits import DISCONNECT, OVERFLOW_POLICIES, Limits
from mqttlite.core.message import Delivery
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, V5, V31, V311
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Ack, Connect, Disconnect, Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import NONE, Properties
from tests.support.rounds import todays
from tests.support.rules import OpenRules
from tests.support.stores import loaded

NAMES: Final = ("a", "b", "c", "d")
TOPICS: Final = (b"t", b"u/v", b"u/w")
FILTERS: Final = (b"t", b"#", b"u/+", b"+", b"$share/g/u/v")
START: Final = 1_000_000.0
OTHERS: Final = (
    *("connect", "connect", "lose", "disconnect", "block", "block"),
    *("unblock", "unblock", "look", "restart", "wait", "subscribe"),
)
FAULTS: Final = ("qos", "zero", "wildcard", "length", "flags", "alias", "short", "large")
BESIDE: Final = {
    "properties": Properties(user_properties=[("a", "b")]),
    "expiry": Properties(message_expiry_interval=5),
    "expired": Properties(message_expiry_interval=0),
    "many": Properties(
        payload_format_indicator=1,
        message_expiry_interval=5,
        content_type="c",
        response_topic="r",
        correlation_data=b"d",
        user_properties=[("b", ""), ("a", "b")],
    ),
    "long": Properties(user_properties=[("a", "b" * 122)]),
    "longer": Properties(user_properties=[("a", "b" * 123)]),
    "alias": Properties(topic_alias=1, user_properties=[("a", "b")]),
}
UNUSUAL: Final = ("reverse", "odd", "twice", "wrong", "refused", "unknown")
TO_SENDER: Final = frozenset({PUBACK, PUBREC, PUBCOMP})

Part = tuple[str, int, int, int, int, str, str]
Step = tuple[str, int, list[Part], int, bool]

Profile = tuple[int, int, int | None, int | None, int | None, int, bool, list[int]]

# ---------------------------------------------------------------------- what may happen


class Scenario:
    """Limits, clients and what happens to them, drawn from a seed: mostly what is taken in one step, and now and then
    what is not."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        one_of = self.random.choice
        self.limits = Limits(
            max_inflight=one_of([1_000, 1_000, 1_000, 3]),
            receive_maximum=one_of([1_000, 1_000, 5]),
            max_queued_messages=one_of([10_000, 10_000, 0, 2, 5]),
            max_queued_bytes=one_of([1_048_576, 1_048_576, 100]),
            max_outbox_bytes=one_of([1_048_576, 1_048_576, 1_048_576]),  # frames of a batch take less memory
            max_outbox_messages=one_of([1_000, 4]),
            max_packet_bytes=one_of([1_048_576, 1_048_576, 150]),
            on_overflow=one_of(OVERFLOW_POLICIES),
            min_drain_rate=0,
        )
        self.alone = one_of([False, False, True])
        self.profiles = [self.profile() for _ in NAMES]
        self.steps = [self.step() for _ in range(40)]
        self.rules = one_of([None, None, self.drawn_rules()])

    def drawn_rules(self) -> "SomeRules":
        """Some clients may not publish to a topic, and another topic has a policy."""
        one_of = self.random.choice
        policy = TopicPolicy(
            "policy",
            max_payload_bytes=one_of([0, 0, 39]),
            min_qos=one_of([0, 0, 0, 1, 2]),
            max_qos=one_of([2, 2, 1, 0]),
            ttl_s=one_of([0, 0, 0, 3]),
            priority=one_of(["normal", "low"]),
            on_overflow=one_of(["", "", "drop_oldest", "drop_newest", "reject"]),
        )
        return SomeRules(one_of(NAMES), one_of(TOPICS), one_of(TOPICS), policy)

    def profile(self) -> Profile:
        one_of = self.random.choice
        return (
            one_of([V5, V5, V311, V31]),
            one_of([0, 0, 100]),  # Session Expiry Interval
            one_of([None, None, None, 1, 2, 5]),  # Receive Maximum
            one_of([*[None] * 6, 60]),  # Maximum Packet Size
            one_of([*[None] * 6, 2]),  # Topic Alias Maximum
            one_of([1, 65_530, 65_533]),  # first packet identifier, of its own messages and of those for it
            one_of([False, False, False, True]),  # whether it is told of deliveries
            [one_of([1, 1, 1, 6, *range(30)]) for _ in range(one_of([1, 1, 2]))],  # subscriptions
        )

    def step(self) -> Step:
        one_of = self.random.choice
        who = one_of(range(len(NAMES)))
        if self.random.random() < 0.2:
            return one_of(OTHERS), who, [], self.random.randrange(30), one_of([False, False, True])
        parts = []
        for _ in range(one_of([1, 1, 2, 3])):
            parts.append(one_of([self.answers, self.answers, self.messages])())
        if self.random.random() < 0.03:
            parts.append(("fault", 0, 0, 1, 0, one_of(FAULTS), ""))
            parts.append(self.messages())
        return "send", who, parts, one_of([*[0] * 5, 1, 5, 17, 60]), False

    def messages(self) -> Part:
        one_of = self.random.choice
        return (
            "messages",
            one_of([0, 0, 1, 2]),  # topic
            one_of([0, 1, 1, 1, 2, 2, 2]),  # QoS
            one_of([1, 2, 3, 4, 5, 6, 7, 20]),  # how many
            one_of([*[3] * 10, 0, 1, 40, 140, 200]),  # payload bytes
            one_of([*["next"] * 30, "same", "jump", "back", "far", "zero"]),  # packet identifiers
            one_of([*[""] * 18, "dup", "retain", "sizes", *BESIDE, "one with properties", "turns"]),
        )

    def answers(self) -> Part:
        one_of = self.random.choice
        kind = one_of(["answers", "answers", "releases"])
        return kind, 0, 0, one_of([1, 2, 3, 7]), 0, one_of([*["all"] * 6, *["some"] * 4, *UNUSUAL]), ""


class SomeRules(OpenRules):
    """No topic is open: `denied` may not publish to `topic`, and `governed` has the policy."""

    def __init__(self, denied: str, topic: bytes, governed: bytes, policy: TopicPolicy) -> None:
        self._denied = denied
        self._topic = topic
        self._governed = governed
        self._policy = policy

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return int(client_id == self._denied)

    def is_open(self, topic: bytes) -> bool:
        return False

    def may_publish(self, role: int, topic: bytes) -> bool:
        return role == 0 or topic != self._topic

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return self._policy if topic == self._governed else NO_POLICY


class Side:
    """One of the two brokers, with its store and what the links carried away."""

    def __init__(self, limits: Limits, rules: SomeRules | None) -> None:
        self.limits = limits
        self.rules = rules
        self.store = MemoryStore()
        self.links: list[Connection | None] = [None] * len(NAMES)
        self.all: list[Connection] = []
        self.noise = 0
        self.start()

    def start(self) -> None:
        self.broker = Broker(self.limits)
        if self.rules is not None:
            self.broker.authorize(self.rules)
        self.broker.restore(self.store.load(), START)

    def settle(self, now: float) -> dict[str, object]:
        """Do what is in the turn; what there was to see of it."""
        seen: dict[str, object] = {}
        effects = self.broker.effects
        while True:
            self._changes(seen, effects.changes)
            dirty, effects.dirty = effects.dirty, []
            effects.pending_bytes = 0
            effects.work = 0
            for outbox in dirty:
                seen[f"{outbox.number} awaits"] = outbox.awaits_commit
                outbox.awaits_commit = False
                self._written(seen, outbox.number, outbox.take())
            for number in effects.closed:
                outbox = self.all[number - 1].outbox
                self._written(seen, number, outbox.take())
            effects.closed.clear()
            effects.connected.clear()
            if not effects.backlogged and not len(self.broker.jobs):
                return seen
            self.broker.tick(now)

    def _changes(self, seen: dict[str, object], changes: list[Change]) -> None:
        self.store.commit(list(changes))
        for change in changes:
            owner = change.client_id if hasattr(change, "client_id") else "retained"
            told = seen.setdefault(f"changes of {owner}", [])
            assert isinstance(told, list)
            told.append(plain(change))
        changes.clear()

    def _written(self, seen: dict[str, object], number: int, data: bytes) -> None:
        before = seen.get(f"{number} got", b"")
        assert isinstance(before, bytes)
        seen[f"{number} got"] = before + data

    def feed(self, who: int, chunks: list[bytes], now: float) -> None:
        link = self.links[who]
        assert link is not None
        for chunk in chunks:
            self.broker.feed(link, chunk, now)

    def counted(self) -> dict[str, object]:
        """All that is told of connections and sessions, and costs nothing to look at."""
        seen: dict[str, object] = {
            "drops": self.broker.router.drops.by_reason,
            "retained": len(self.broker.router.retained),
        }
        for link in self.all:
            outbox = link.outbox
            seen[f"link {link.number}"] = (
                [link.state, link.close_reason, link.reason_code, link.close_detail, link.drops, outbox.drops],
                [link.received_qos0, link.received_qos1, link.received_qos2, link.requests, link.request_bytes],
                [outbox.sent_qos0, outbox.sent_qos1, outbox.sent_qos2, outbox.bytes_sent],
                [outbox.answers, outbox.answer_bytes, outbox.blocked],
                [link.queue_high_water, link.inflight_high_water, link.will_published],
            )
        for session in self.broker.sessions.values():
            seen[f"session {session.client_id}"] = (
                [len(session.inflight), session.queued, session.window.quota, session.drops],
                [len(session.window.released), session.received.all(), session.window.released.all()],
                [session.queue_high_water, session.window.high_water],
            )
        return seen

    def kept(self) -> dict[str, object]:
        """What is in the sessions, one by one, and in the store."""
        seen: dict[str, object] = {"store": [plain(change) for change in loaded(self.store)]}
        for session in self.broker.sessions.values():
            seen[session.client_id] = (
                {packet_id: shape(each.delivery) for packet_id, each in session.inflight.by_id().items()},
                {packet_id: shape(each.delivery) for packet_id, each in session.window.resend.items()},
                [shape(delivery) for delivery in session.queue.deliveries],
            )
        return seen


def shape(delivery: Delivery | None) -> tuple[object, ...]:
    assert delivery is not None
    message = delivery.message
    return (
        *[message.topic, message.payload, message.qos, message.retain, message.expires_at, message.properties],
        *[delivery.qos, delivery.retain, delivery.identifiers, getattr(delivery.origin, "name", None)],
    )


def plain(change: Change) -> tuple[object, ...]:
    """A change as values."""
    name = type(change).__name__
    if isinstance(change, Enqueue):
        return name, change.client_id, change.sequence, change.packet_id, shape(change.delivery)
    if isinstance(change, SaveRetained):
        return name, change.message.topic, change.message.payload
    if isinstance(change, SaveSession):
        return name, change.client_id, change.expiry_interval, change.expires_at
    if isinstance(change, SaveSubscription):
        return name, change.client_id, change.subscription.topic_filter, change.subscription.qos
    return name, *[
        getattr(change, slot)
        for slot in ("client_id", "sequence", "packet_id", "topic_filter", "topic")
        if hasattr(change, slot)
    ]


class Traffic:
    """Plays steps to both brokers, and holds what they did side by side."""

    def __init__(self, limits: Limits, who: list[Profile], alone: bool, rules: SomeRules | None = None) -> None:
        self.profiles = who
        self.together = Side(limits, rules)
        self.apart = Side(limits, rules)
        # In one chunk a link that overflows is cut off at its end; packet by packet it would be before the next.
        self.alone = alone and limits.on_overflow != DISCONNECT and limits.max_outbox_bytes > 1_024
        self.now = START
        self.next_id = [profile[5] for profile in who]
        self.unanswered: list[list[tuple[int, int]]] = [[] for _ in NAMES]  # packet type to answer with, identifier
        self.unreleased: list[list[int]] = [[] for _ in NAMES]
        self.sent = 0

    def play(self, steps: list[Step]) -> None:
        for who in range(len(NAMES)):
            self.connect(who, True)
            for choice in self.profiles[who][7]:
                self.subscribe(who, choice)
        for name, who, parts, number, flag in steps:
            if name == "connect":
                self.connect(who, flag)
            elif name == "look":
                assert self.together.kept() == self.apart.kept()
            elif name == "restart":
                self.restart()
            elif name == "wait":
                self.now += 10.0
                for side in (self.together, self.apart):
                    side.broker.tick(self.now)
                self.compare(False)
            elif name == "send":
                if not self.connected(who):
                    self.connect(who, flag)
                self.send(who, parts, number)
            elif not self.connected(who):
                continue
            elif name == "subscribe":
                self.subscribe(who, number)
            elif name == "disconnect":
                self.feed(who, encode(Disconnect(), self.profiles[who][0]))
                self.lose(who)
            elif name == "lose":
                self.lose(who)
            else:
                for side in (self.together, self.apart):
                    link = side.links[who]
                    assert link is not None
                    (side.broker.block if name == "block" else side.broker.unblock)(link, self.now)
                self.compare(False)
        assert self.together.kept() == self.apart.kept()

    def connected(self, who: int) -> bool:
        link = self.together.links[who]
        return link is not None and link.state != CLOSED

    def connect(self, who: int, clean: bool) -> None:
        version, expiry, receive_maximum, packet_size, aliases, first_id, tell, _ = self.profiles[who]
        properties = NONE
        if version == V5:
            properties = Properties(
                session_expiry_interval=expiry,
                receive_maximum=receive_maximum,
                maximum_packet_size=packet_size,
                topic_alias_maximum=aliases,
            )
        elif expiry:
            clean = False
        packet = encode(Connect(NAMES[who], version, clean, properties=properties), version)
        self.unanswered[who] = []
        for side in (self.together, self.apart):
            checks = side is self.apart
            peer = Peer(
                capabilities=Capabilities(1 if tell and expiry else 2, tell_delivery=tell, check_payload_format=checks)
            )
            link = side.broker.open(peer, self.now)
            side.all.append(link)
            side.links[who] = link
            new = side.broker.sessions.get(NAMES[who]) is None or clean
            side.feed(who, [packet], self.now)
            session = side.broker.sessions.get(NAMES[who])
            if session is not None and new:
                session.window.continue_at(first_id)
        self.compare(False)

    def subscribe(self, who: int, choice: int) -> None:
        version = self.profiles[who][0]
        qos = 2 - choice // 5 % 3
        special = version == V5 and choice >= 15
        session = self.together.broker.sessions.get(NAMES[who])
        if session is not None and _come_twice([*session.subscriptions, FILTERS[choice % 5]]):
            return
        request = SubscriptionRequest(FILTERS[choice % 5], qos, special and choice % 5 != 4 and choice % 2 == 0)
        properties = Properties(subscription_identifiers=[9]) if special and choice % 3 == 0 else NONE
        self.feed(who, encode(Subscribe(1, (request,), properties), version))

    def lose(self, who: int) -> None:
        for side in (self.together, self.apart):
            link = side.links[who]
            assert link is not None
            side.broker.close(link, self.now)
        self.compare(False)

    def restart(self) -> None:
        """The brokers are gone, and others begin with what was committed."""
        for side in (self.together, self.apart):
            side.all = []
            side.links = [None] * len(NAMES)
            side.start()
        self.compare(False)

    def feed(self, who: int, packet: bytes) -> None:
        for side in (self.together, self.apart):
            side.feed(who, [packet], self.now)
        self.compare(False)

    # ------------------------------------------------------------------ what clients send

    def send(self, who: int, parts: list[Part], cut: int) -> None:
        packets: list[bytes] = []
        publishes = False
        for part in parts:
            if part[0] == "messages" and not (part[2] and self.fills_its_own_room(who)):
                packets += self.messages(who, part)
                publishes = True
            elif part[0] == "fault":
                packets += self.fault(who, part)
            elif part[0] != "messages":
                packets += self.acks(who, part)
        stream = b"".join(packets)
        self.together.feed(who, [stream[:cut], stream[cut:]] if cut else [stream], self.now)
        if self.alone:
            self.apart.feed(who, packets, self.now)
        else:
            whole = 0  # so many packets end before the cut
            while whole < len(packets) and len(b"".join(packets[: whole + 1])) <= cut:
                whole += 1
            nothing = self.answer_to_nothing(who)
            packets = [long_way(packet, self.profiles[who][0]) for packet in packets]
            self.apart.feed(who, [nothing.join(packets[:whole]), nothing.join(packets[whole:])], self.now)
        self.compare(publishes)

    def fills_its_own_room(self, who: int) -> bool:
        """Whether what it gets of its own messages and their answers are kept in the same little room.

        Nothing orders them, and so which of its own it loses.
        """
        link = self.together.links[who]
        assert link is not None
        session = self.together.broker.sessions.get(NAMES[who])
        assert session is not None
        own = any(subscription.qos == 0 for subscription in session.subscriptions.values())
        return own and link.outbox.blocked and self.together.limits.max_outbox_bytes < 10_000

    def answer_to_nothing(self, who: int) -> bytes:
        """A PUBACK that no message waits for or will be waiting for."""
        session = self.apart.broker.sessions.get(NAMES[who])
        assert session is not None
        packet_id = (session.window.next_id + 30_000) % 60_000 + 1
        return encode(Ack(PUBACK, packet_id), V5)

    def messages(self, who: int, part: Part) -> list[bytes]:
        _, topic, qos, count, size, ids, special = part
        version = self.profiles[who][0]
        if qos == 0 and TOPICS[topic] == b"u/v":
            topic = 0  # a group is dealt QoS 0 messages by the run, which makes other shares of it
        packets = []
        for at in range(count):
            self.sent += 1
            packet_id = self.take_id(who, ids) if qos else 0
            payload = (b"%d " % self.sent * 60)[: size + (at if special == "sizes" else 0)]
            properties = NONE
            odd_one = at == count // 2
            if version == V5 and special == "one with properties":  # of the same size as the others
                payload = b"%20d" % self.sent
                if odd_one:
                    properties, payload = Properties(user_properties=[("a", "b")]), payload[7:]
            elif version == V5 and special == "turns":
                properties = BESIDE["properties"] if at % 3 else NONE
            elif version == V5:
                properties = BESIDE.get(special, NONE)
            dup = special == "dup" and odd_one and qos > 0
            retain = special == "retain" and odd_one
            packet = encode(Publish(TOPICS[topic], payload, qos, retain, dup, packet_id, properties), version)
            if ids == "zero" and qos and odd_one and count > 4:
                name = packet.index(TOPICS[topic]) + len(TOPICS[topic])
                packet = packet[:name] + b"\0\0" + packet[name + 2 :]
            packets.append(packet)
        return packets

    def take_id(self, who: int, how: str) -> int:
        packet_id = self.next_id[who]
        step = {"same": 0, "jump": 2, "back": -1, "far": 257}.get(how, 1)
        self.next_id[who] = (packet_id - 1 + step) % 65_535 + 1
        return packet_id

    def fault(self, who: int, part: Part) -> list[bytes]:
        version = self.profiles[who][0]
        end = b"\0" if version == V5 else b""
        kind = part[5]
        if kind == "qos":
            return [b"\x36" + bytes((6 + len(end),)) + b"\0\1t\0\1" + end + b"x"]
        if kind == "zero":
            return [b"\x32" + bytes((6 + len(end),)) + b"\0\1t\0\0" + end + b"x"]
        if kind == "wildcard":
            return [b"\x32" + bytes((6 + len(end),)) + b"\0\1#\0\1" + end + b"x"]
        if kind == "length":
            return [b"\x40\x82\0\0\1"]
        if kind == "flags":
            return [b"\x82\x02\0\1"]
        if kind == "alias":
            return [b"\x32\x09\0\0\0\1\3\x23\0\7x"]
        if kind == "short":
            return [b"\x32\x03\0\1t"]
        return [encode(Publish(b"t", bytes(300), 1, packet_id=77), version)]

    def acks(self, who: int, part: Part) -> list[bytes]:
        """Answers to what came, or releases of what was taken, in that way."""
        kind, _, _, number, _, how, _ = part
        version = self.profiles[who][0]
        if kind == "releases":
            waiting = [(PUBREL, packet_id) for packet_id in self.unreleased[who]]
        else:
            waiting = self.unanswered[who]
        done = list(waiting)
        if how in ("some", "refused"):
            done = waiting[:number]
        elif how == "reverse":
            done.reverse()
        elif how == "odd":
            done = waiting[1::2]
        elif how == "wrong":
            other = {PUBACK: PUBREC, PUBREC: PUBCOMP, PUBCOMP: PUBACK, PUBREL: PUBREL}
            done = [*waiting[:number], *[(other[answer], packet_id) for answer, packet_id in waiting[number:][:1]]]
        elif how == "unknown":
            done = [(PUBREC, 12_345), (PUBCOMP, 12_346), (PUBREL, 12_347), *waiting]
        rest = [each for each in waiting if each not in done]
        if kind == "releases":
            self.unreleased[who] = [packet_id for _, packet_id in rest]
        else:
            self.unanswered[who] = rest
        if how == "twice":
            done += done
        code = 0x80 if how == "refused" and version == V5 else 0
        return [
            encode(Ack(answer, packet_id, code if answer in (PUBACK, PUBREC) and at % 3 == 1 else 0), version)
            for at, (answer, packet_id) in enumerate(done)
        ]

    # ------------------------------------------------------------------ side by side

    def compare(self, publishes: bool) -> None:
        together, apart = self.together.settle(self.now), self.apart.settle(self.now)
        for link in self.together.all:
            self.take(link, together.get(f"{link.number} got", b""))
        assert in_order(together, publishes) == in_order(apart, publishes)
        assert self.together.counted() == self.apart.counted()

    def take(self, link: Connection, data: object) -> None:
        assert isinstance(data, bytes)
        if link.client_id not in NAMES:
            return
        who = NAMES.index(link.client_id)
        for packet in packets_of(data):
            kind = packet[0] >> 4
            if kind not in (PUBLISH, PUBREC, PUBREL):
                continue
            body = packet[1:].lstrip(bytes(range(128, 256)))[1:] if packet[1] > 127 else packet[2:]
            arrived = decode(packet[0], body, self.profiles[who][0])
            if isinstance(arrived, Publish) and arrived.qos:
                self.unanswered[who].append((PUBACK if arrived.qos == 1 else PUBREC, arrived.packet_id))
            elif isinstance(arrived, Ack) and arrived.packet_type == PUBREL:
                self.unanswered[who].append((PUBCOMP, arrived.packet_id))
            elif isinstance(arrived, Ack) and arrived.reason_code < 0x80:
                self.unreleased[who].append(arrived.packet_id)


def _come_twice(filters: list[bytes]) -> bool:
    """Whether messages come through the group and to the client itself, too: nothing orders the two."""
    return b"$share/g/u/v" in filters and (b"#" in filters or b"u/+" in filters)


def long_way(packet: bytes, version: int) -> bytes:
    """The same for the broker, which asks a message for its identifier and not for DUP."""
    if packet[0] >> 4 == PUBLISH and packet[0] & 6:
        return bytes((packet[0] | 8,)) + packet[1:]
    if version == V5 and packet[0] >> 4 in (*TO_SENDER, PUBREL) and packet[1] == 2:
        return packet[:1] + b"\3" + packet[2:] + b"\0"
    return packet


MESSAGE_ID: Final = re.compile(rb"(?<=message-id\x00\x0d)\d{13}")
"""Numbers are given as messages are kept and traced: in another order for those that come together."""


def packets_of(data: bytes) -> list[bytes]:
    packets = []
    at = 0
    while at < len(data):
        size = packet_size(data, at) or 2
        packets.append(data[at : at + size])
        at += size
    return packets


def in_order(seen: dict[str, object], publishes: bool) -> dict[str, object]:
    """What was seen, with what nothing orders by itself: see above."""
    streams: dict[str, object] = {}
    for name, what in seen.items():
        if isinstance(what, bytes) and publishes:
            packets = packets_of(MESSAGE_ID.sub(b"0" * 13, what))
            streams[name] = [packet for packet in packets if packet[0] >> 4 not in TO_SENDER]
            streams[f"{name} as sender"] = [packet for packet in packets if packet[0] >> 4 in TO_SENDER]
        elif isinstance(what, list):
            sent = [change for change in what if change[0] in ("Enqueue", "Sent", "Settled", "SaveReleased")]
            released = [change for change in what if change[0] == "RemoveReleased"]
            streams[f"{name} by sequence"] = sorted(sent, key=itemgetter(2))
            streams[f"{name} by identifier"] = sorted(released, key=itemgetter(2))
            streams[f"{name} as sender"] = [change for change in what if change[0].endswith("Received")]
            streams[name] = [
                change
                for change in what
                if change[0] not in ("Settled", "RemoveReleased") and not change[0].endswith("Received")
            ]
        else:
            streams[name] = what
    return streams


def tell(seed: int) -> None:
    scenario = Scenario(seed)
    try:
        Traffic(scenario.limits, scenario.profiles, scenario.alone, scenario.rules).play(scenario.steps)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.long
def test_packets_that_arrive_together_do_what_they_do_alone() -> None:
    for seed in range(80):
        tell(seed)


@pytest.mark.slow
def test_packets_that_arrive_together_do_what_they_do_alone_in_many_worlds() -> None:
    for seed in todays(range(80, 2_000)):
        tell(seed)
