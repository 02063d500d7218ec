"""The broker's tables beside reference models: what is retained, which member of a group is next, when a will is due.

Each machine drives the core at random and predicts from the standard alone, with dicts, what it does.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mqttlite.core.message import Delivery
from mqttlite.core.session import Session
from mqttlite.core.shared_subscription import HASH_KEY, HASH_TOPIC, SHARE_POLICIES
from mqttlite.topics.names import matches
from mqttlite.wire.constants import NEVER_EXPIRES, PUBACK, V5, V311
from mqttlite.wire.packets import Ack, Connack, Publish, SubscriptionRequest, Unsubscribe, Will
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import Client, World, publishes, request

FOREVER: Final = float("inf")


def ends_at(now: float, expiry: int) -> float:
    return FOREVER if expiry == NEVER_EXPIRES else now + expiry


def unfinished(session: Session) -> list[Delivery]:
    """QoS 1 messages of shared subscriptions that the client has not acknowledged."""
    sent = [*session.inflight.by_id().values(), *session.window.resend.values()]
    deliveries = [*[each.delivery for each in sent if each.delivery is not None], *session.queue.deliveries]
    return [delivery for delivery in deliveries if delivery.origin is not None]


# ---------------------------------------------------------------------- what is retained

first_levels = st.sampled_from(["a", "a", "b", "", "$x"])
levels = st.sampled_from(["a", "b", ""])
topics = (
    st.tuples(first_levels, st.lists(levels, max_size=1))
    .map(lambda drawn: "/".join([drawn[0], *drawn[1]]))
    .filter(lambda topic: topic != "")
)
filters = (
    st.tuples(st.lists(st.sampled_from(["a", "+", "b", "", "$x"]), max_size=2), st.sampled_from([[], ["#"]]))
    .map(lambda drawn: "/".join([*drawn[0], *drawn[1]]))
    .filter(lambda topic_filter: topic_filter != "")
)
requests = st.builds(
    request,
    filters,
    st.integers(0, 2),
    retain_as_published=st.booleans(),
    retain_handling=st.integers(0, 2),
)
subscribers = st.integers(0, 1)


class Retained(RuleBasedStateMachine):
    """Two subscribers, one of each version, whose sessions are kept; the publisher is asked for nothing but 5.0."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.kept: dict[str, tuple[bytes, int, float]] = {}
        """Payload, QoS and when it expires, by topic."""
        self.filters: list[dict[bytes, SubscriptionRequest]] = [{}, {}]
        self.sent = 0
        self.connect_all()

    def connect_all(self) -> None:
        self.publisher = self.world.connect("publisher")
        self.links = [self.connect(0, clean=False), self.connect(1, clean=False)]

    def connect(self, who: int, clean: bool) -> Client:
        if who == 0:
            return self.world.connect("s", V5, clean_start=clean, expiry=NEVER_EXPIRES)
        return self.world.connect("t", V311, clean_start=clean)

    @rule(
        topic=topics,
        qos=st.integers(0, 2),
        retain=st.sampled_from([True, True, True, False]),
        empty=st.sampled_from([False, False, False, True]),
        expiry=st.sampled_from([None, None, 0, 3, 10]),
    )
    def publish(self, topic: str, qos: int, retain: bool, empty: bool, expiry: int | None) -> None:
        self.sent += 1
        payload = b"" if empty else b"%d" % self.sent
        properties = NONE if expiry is None else Properties(message_expiry_interval=expiry)
        packet_id = self.publisher.packet_id() if qos else 0
        self.publisher.send(Publish(topic.encode(), payload, qos, retain, False, packet_id, properties))
        if retain:
            self.kept.pop(topic, None)
            if payload:
                self.kept[topic] = payload, qos, FOREVER if expiry is None else self.world.now + expiry
        for link, theirs in zip(self.links, self.filters, strict=True):
            reached = [each for each in theirs.values() if matches(each.topic_filter, topic.encode())]
            flags = [retain and any(each.retain_as_published for each in reached)] if reached else []
            got = publishes(link.received())
            assert [(each.topic, each.payload, each.retain) for each in got] == [
                (topic.encode(), payload, flag) for flag in flags
            ]

    @rule(who=subscribers, wanted=st.lists(requests, min_size=1, max_size=3))
    def subscribe(self, who: int, wanted: list[SubscriptionRequest]) -> None:
        if who == 1:
            wanted = [SubscriptionRequest(each.topic_filter, each.qos) for each in wanted]
        expected: Counter[tuple[bytes, bytes, int, int | None]] = Counter()
        mine = self.filters[who]
        for each in wanted:
            handling = each.retain_handling
            if handling == 0 or (handling == 1 and each.topic_filter not in mine):
                expected.update(self.found(each, who))
            mine[each.topic_filter] = each
        self.links[who].subscribe(*wanted)
        got = publishes(self.links[who].received())
        assert all(each.retain for each in got)
        assert (
            Counter((each.topic, each.payload, each.qos, each.properties.message_expiry_interval) for each in got)
            == expected
        )

    def found(self, wanted: SubscriptionRequest, who: int) -> list[tuple[bytes, bytes, int, int | None]]:
        """What is retained for a filter, as the subscriber sees it."""
        now = self.world.now
        return [
            (topic.encode(), payload, min(qos, wanted.qos), None if who == 1 or at == FOREVER else int(at - now))
            for topic, (payload, qos, at) in self.kept.items()
            if at > now and matches(wanted.topic_filter, topic.encode())
        ]

    @rule(who=subscribers, topic_filter=filters, qos=st.integers(0, 2))
    def subscribe_in_a_group(self, who: int, topic_filter: str, qos: int) -> None:
        """A group gets no retained messages; the subscriber leaves it at once."""
        name = f"$share/g/{topic_filter}"
        link = self.links[who]
        link.subscribe(name, qos=qos)
        link.send(Unsubscribe(link.packet_id(), (name.encode(),)))
        assert publishes(link.received()) == []

    @rule(who=subscribers, data=st.data())
    def unsubscribe(self, who: int, data: st.DataObject) -> None:
        mine = self.filters[who]
        if mine:
            topic_filter = data.draw(st.sampled_from(sorted(mine)))
            del mine[topic_filter]
            link = self.links[who]
            link.send(Unsubscribe(link.packet_id(), (topic_filter,)))
            assert publishes(link.received()) == []

    @rule(who=subscribers, clean=st.booleans())
    def come_back(self, who: int, clean: bool) -> None:
        """No SUBSCRIBE, nothing retained."""
        self.links[who].lose()
        self.links[who] = self.connect(who, clean)
        if clean:
            self.filters[who].clear()
            if who == 1:  # a clean session of 3.1.1 would not be kept
                self.links[who].lose()
                self.links[who] = self.connect(who, clean=False)
        assert self.links[who].received() == []

    @rule(seconds=st.integers(1, 6))
    def pass_time(self, seconds: int) -> None:
        self.world.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.world = self.world.restart()
        self.connect_all()
        assert [link.received() for link in self.links] == [[], []]

    def teardown(self) -> None:
        link = self.world.connect("last")
        everything = [request("#", 2), request("$x/#", 2)]
        link.subscribe(*everything)
        got = publishes(link.received())
        assert {(each.topic, each.payload) for each in got} == {
            (topic, payload) for each in everything for topic, payload, _qos, _left in self.found(each, 0)
        }


# ---------------------------------------------------------------------- which member of a group is next

WINDOW: Final = 2
SHARES: Final = (b"$share/g/t/+", b"$share/h/t/+", b"$share/g/t/a", b"$share/z/t/+")
"""What a member may join; the subscription's identifier is its place here, from 1. The last is joined at QoS 0."""
MEMBERS: Final = ("k", "l", "m")

Copy = tuple[bytes, bytes]
"""A shared subscription and a payload: what one member of the group is to get once."""

members = st.integers(0, len(MEMBERS) - 1)
shares = st.sampled_from([SHARES[0], SHARES[0], *SHARES])
expiries = st.sampled_from([0, 3, 8, NEVER_EXPIRES])


class Member:
    """A client with its session; `link` is None while it is away, `ends` is when its session then ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.link: Client | None = None
        self.blocked = False
        self.exists = False
        self.expiry = 0
        self.ends = FOREVER
        self.joined: set[bytes] = set()
        self.unacknowledged: list[tuple[int, Copy]] = []
        """What arrived on this connection at QoS 1, and was not answered."""
        self.seen: set[Copy] = set()
        """What arrived on an earlier connection of the same session."""

    def end(self) -> None:
        self.exists = False
        self.ends = FOREVER
        self.joined.clear()
        self.seen.clear()


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.members = [Member(name) for name in MEMBERS]
        self.owner: dict[Copy, str] = {}
        """Who has a QoS 1 copy that is not acknowledged."""
        self.backlog: dict[Copy, set[str]] = {}
        """QoS 0 copies that wait for a link that takes no bytes, and whose that may be."""
        self.got_qos0: Counter[Copy] = Counter()
        self.sent = 0

    @initialize(
        policy=st.sampled_from(SHARE_POLICIES),
        kept=st.tuples(expiries, expiries, expiries),
        joined=st.lists(st.tuples(members, shares), max_size=4),
    )
    def begin(self, policy: str, kept: Sequence[int], joined: list[tuple[int, bytes]]) -> None:
        self.policy = policy
        self.world = World(share_policies={"*": policy})
        self.publisher = self.world.connect("publisher")
        for who, expiry in enumerate(kept):
            self.connect(who, False, expiry)
            self.join(who, SHARES[0])
        for who, share in joined:
            self.join(who, share)

    # ------------------------------------------------------------------ what the twin knows

    def in_share(self, share: bytes) -> list[Member]:
        return [member for member in self.members if share in member.joined]

    def connected_first(self, share: bytes) -> list[Member]:
        joined = self.in_share(share)
        return [member for member in joined if member.link is not None] or joined

    def first_choice(self, share: bytes, others: int) -> list[Member]:
        """Among whom the next message is to go: who reads and has caught up, else who is connected, else anybody.

        The same message reaches so many `others`, which may take up a member's window before.
        """
        candidates = self.connected_first(share)
        if self.policy in (HASH_TOPIC, HASH_KEY):
            return candidates  # a topic stays with its member, even if that is slow
        owned = Counter(self.owner.values())
        ready = [each for each in candidates if each.link and not each.blocked and owned[each.name] <= WINDOW]
        return ready if any(owned[each.name] + others <= WINDOW for each in ready) else candidates

    def holders(self) -> dict[Copy, str]:
        """Which member has which copy unacknowledged, as the broker sees it; no copy is with two members."""
        found: dict[Copy, str] = {}
        for session in self.world.broker.sessions.values():
            for delivery in unfinished(session):
                copy = (delivery.origin.name, delivery.message.payload)
                assert copy not in found, "two have the same message"
                found[copy] = session.client_id
        return found

    def collect(self) -> dict[Copy, str]:
        """Look at what arrived; the QoS 0 copies among it, and who got each."""
        fresh: dict[Copy, str] = {}
        for member in self.members:
            for packet in publishes(member.link.received()) if member.link else []:
                (identifier,) = packet.properties.subscription_identifiers
                copy = (SHARES[identifier - 1], packet.payload)
                if packet.qos:
                    assert self.owner[copy] == member.name
                    assert copy not in [each for _packet_id, each in member.unacknowledged], "twice on one connection"
                    assert packet.dup == (copy in member.seen)
                    member.unacknowledged.append((packet.packet_id, copy))
                else:
                    assert copy not in self.owner
                    self.got_qos0[copy] += 1
                    assert self.got_qos0[copy] == 1
                    if copy in self.backlog:
                        assert member.name in self.backlog.pop(copy)
                    fresh[copy] = member.name
        return fresh

    def link_is_gone(self, member: Member) -> None:
        member.link = None
        member.blocked = False
        member.seen.update(copy for _packet_id, copy in member.unacknowledged)
        member.unacknowledged.clear()
        for copy in [copy for copy, names in self.backlog.items() if member.name in names]:
            del self.backlog[copy]  # it may have been lost with the link
        member.ends = ends_at(self.world.now, member.expiry)

    def sessions_ended(self, ended: Sequence[Member]) -> None:
        """Copies that they had not acknowledged are with other members, if there are any."""
        for member in ended:
            member.end()
        held = self.holders()
        names = [member.name for member in ended]
        for copy in [copy for copy, name in self.owner.items() if name in names]:
            del self.owner[copy]
            candidates = [member.name for member in self.connected_first(copy[0])]
            if candidates:
                assert held[copy] in candidates
                self.owner[copy] = held[copy]

    # ------------------------------------------------------------------ what happens

    @rule(who=members, clean=st.sampled_from([False, False, True]), expiry=expiries)
    def connect(self, who: int, clean: bool, expiry: int) -> None:
        """Come, come back, or take over from oneself."""
        member = self.members[who]
        link = self.world.open(V5)
        taken_over = member.link is not None
        if taken_over:
            self.link_is_gone(member)
        ends = member.exists and (clean or (taken_over and member.expiry == 0))
        connack = link.connect(member.name, clean_start=clean, expiry=expiry, receive_maximum=WINDOW, auto_ack=False)
        assert isinstance(connack, Connack)
        assert connack.session_present == (member.exists and not ends)
        if ends:
            self.sessions_ended([member])
        member.link, member.exists, member.expiry, member.ends = link, True, expiry, FOREVER
        self.collect()

    @rule(who=members)
    def lose(self, who: int) -> None:
        member = self.members[who]
        if member.link is not None:
            member.link.lose()
            self.link_is_gone(member)
            self.sessions_ended([member] if member.expiry == 0 else [])
            self.collect()

    @rule(who=members, share=shares)
    def join(self, who: int, share: bytes) -> None:
        member = self.members[who]
        if member.link is not None and not member.blocked:
            qos = 0 if share == SHARES[-1] else 1
            member.link.subscribe(share.decode(), qos=qos, identifier=SHARES.index(share) + 1)
            member.joined.add(share)
            assert self.collect() == {}

    @rule(who=members, share=shares)
    def leave(self, who: int, share: bytes) -> None:
        """What a member was given before it leaves stays with it."""
        member = self.members[who]
        if member.link is not None:
            member.link.send(Unsubscribe(member.link.packet_id(), (share,)))
            member.joined.discard(share)
            assert self.collect() == {}

    @rule(who=members)
    def block(self, who: int) -> None:
        member = self.members[who]
        if member.link is not None:
            member.link.block()
            member.blocked = True

    @rule(who=members)
    def unblock(self, who: int) -> None:
        member = self.members[who]
        if member.link is not None:
            member.link.unblock()
            member.blocked = False
            self.collect()

    @rule(who=members, messages=st.integers(1, 3))
    def acknowledge(self, who: int, messages: int) -> None:
        member = self.members[who]
        if member.link is not None and member.unacknowledged:
            answered = member.unacknowledged[:messages]
            del member.unacknowledged[:messages]
            for _packet_id, copy in answered:
                del self.owner[copy]
                member.seen.discard(copy)
            member.link.send(*[Ack(PUBACK, packet_id) for packet_id, _copy in answered])
            assert self.collect() == {}

    @rule(topic=st.sampled_from([b"t/a", b"t/b"]), qos=st.integers(0, 1), messages=st.integers(1, 4))
    def publish(self, topic: bytes, qos: int, messages: int) -> None:
        """QoS 0 messages in one chunk, so that they are dealt out together; the others one by one."""
        reached = [share for share in SHARES if matches(share.split(b"/", 2)[2], topic)]
        payloads = [b"%05d" % (self.sent + at) for at in range(messages)]
        self.sent += messages
        for some in [payloads] if qos == 0 else [[payload] for payload in payloads]:
            choice = {share: self.first_choice(share, len(reached) - 1 if qos else 0) for share in reached}
            packet_ids = [self.publisher.packet_id() if qos else 0 for _payload in some]
            sent = zip(some, packet_ids, strict=True)
            self.publisher.send(*[Publish(topic, payload, qos, packet_id=each) for payload, each in sent])
            held = self.holders()
            for share in reached if qos else []:
                if share != SHARES[-1] and choice[share]:
                    copy = (share, some[0])
                    assert held[copy] in [member.name for member in choice[share]]
                    self.owner[copy] = held[copy]
            arrived = self.collect()
            for share in reached:
                for payload in some:
                    if qos == 0 or share == SHARES[-1]:
                        self.dealt((share, payload), choice[share], arrived)

    def dealt(self, copy: Copy, candidates: list[Member], arrived: dict[Copy, str]) -> None:
        """A QoS 0 copy went to one of these, or waits for one that is blocked; or they are all away."""
        if copy in arrived:
            assert arrived[copy] in [member.name for member in candidates if not member.blocked]
            return
        blocked = {member.name for member in candidates if member.blocked}
        assert blocked or not any(member.link for member in candidates)
        if blocked:
            self.backlog[copy] = blocked

    @rule(seconds=st.integers(1, 5))
    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.advance(1)
            self.sessions_ended([member for member in self.members if member.ends <= self.world.now])
            assert self.collect() == {}

    # ------------------------------------------------------------------ what is always true

    @invariant()
    def each_copy_is_where_the_twin_has_it(self) -> None:
        if hasattr(self, "world"):
            assert self.holders() == self.owner

    def teardown(self) -> None:
        """Whoever is connected reads; the others come back if they can; then nothing is left."""
        if not hasattr(self, "world"):
            return
        for who, member in enumerate(self.members):
            self.unblock(who)
            if member.exists and member.link is None:
                self.connect(who, False, NEVER_EXPIRES)
        assert self.backlog == {}
        while any(member.unacknowledged for member in self.members):
            for who in range(len(self.members)):
                self.acknowledge(who, WINDOW)
        assert self.owner == {}
        assert self.holders() == {}


# ---------------------------------------------------------------------- when a will is due


class Mortal:
    """A client, its session and its will."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.link: Client | None = None
        self.exists = False
        self.expiry = 0
        self.ends = FOREVER
        self.silent_at = FOREVER
        """When the broker gives up waiting for a sign of life."""
        self.will: bytes | None = None
        self.delay = 0
        self.due = FOREVER
        """When the will of a lost connection is to be published."""


mortals = st.integers(0, 2)


class Wills(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.watcher = self.world.connect("watcher")
        self.watcher.subscribe("#", qos=2)
        self.mortals = [Mortal(name) for name in "abc"]
        self.published: list[bytes] = []
        """What has to arrive in this step."""
        self.made = 0

    # ------------------------------------------------------------------ what the twin knows

    def publish_will(self, each: Mortal) -> None:
        assert each.will is not None
        self.published.append(each.will)
        each.will = None
        each.due = FOREVER

    def end_session(self, each: Mortal) -> None:
        if each.will is not None:
            self.publish_will(each)
        each.exists = False
        each.ends = FOREVER

    def connection_ended(self, each: Mortal, now: float, with_will: bool) -> None:
        each.link = None
        each.silent_at = FOREVER
        if not with_will:
            each.will = None
        if each.will is not None:
            each.due = now + each.delay
        each.ends = ends_at(now, each.expiry)
        self.let_be_due(each, now)

    def let_be_due(self, each: Mortal, now: float) -> None:
        if each.silent_at <= now:
            self.connection_ended(each, now, True)
        if each.due <= now:
            self.publish_will(each)
        if each.ends <= now:
            self.end_session(each)

    # ------------------------------------------------------------------ what happens

    @rule(
        who=mortals,
        version=st.sampled_from([V5, V5, V5, V311]),
        clean=st.booleans(),
        expiry=st.sampled_from([0, 3, 6, NEVER_EXPIRES]),
        delay=st.sampled_from([None, None, 0, 2, 3, 5, 9]),
        qos=st.integers(0, 2),
        keep_alive=st.sampled_from([0, 0, 4]),
        leaves_a_will=st.sampled_from([True, True, True, False]),
    )
    def connect(
        self,
        who: int,
        version: int,
        clean: bool,
        expiry: int,
        delay: int | None,
        qos: int,
        keep_alive: int,
        leaves_a_will: bool,
    ) -> None:
        """Come, resume, begin anew, or take over from oneself."""
        each = self.mortals[who]
        now = self.world.now
        if version == V311:
            expiry, delay = 0 if clean else NEVER_EXPIRES, None
        self.made += 1
        payload = b"%d" % self.made
        properties = NONE if delay is None else Properties(will_delay_interval=delay)
        will = Will(b"w/" + each.name.encode(), payload, qos, properties=properties) if leaves_a_will else None
        if each.link is not None:
            self.connection_ended(each, now, True)
        if each.exists and clean:
            self.end_session(each)
        link = self.world.open(version)
        connack = link.connect(
            each.name,
            clean_start=clean,
            expiry=expiry if version == V5 else None,
            keep_alive=keep_alive,
            will=will,
        )
        assert isinstance(connack, Connack)
        if version == V5:
            assert connack.session_present == each.exists
        each.link, each.exists, each.expiry, each.ends, each.due = link, True, expiry, FOREVER, FOREVER
        each.will, each.delay = payload if leaves_a_will else None, delay or 0
        each.silent_at = now + 1.5 * keep_alive if keep_alive else FOREVER

    @rule(who=mortals)
    def lose(self, who: int) -> None:
        each = self.mortals[who]
        if each.link is not None:
            each.link.lose()
            self.connection_ended(each, self.world.now, True)

    @rule(who=mortals)
    def break_a_rule(self, who: int) -> None:
        each = self.mortals[who]
        if each.link is not None:
            each.link.send_bytes(b"\x00\x00")
            assert each.link.closed
            self.connection_ended(each, self.world.now, True)

    @rule(who=mortals, code=st.sampled_from([0x00, 0x04]), expiry=st.sampled_from([None, 0, 4, NEVER_EXPIRES]))
    def disconnect(self, who: int, code: int, expiry: int | None) -> None:
        each = self.mortals[who]
        if each.link is None:
            return
        if each.link.version != V5:
            code, expiry = 0, None
        elif each.expiry == 0:
            expiry = None  # there is nothing that could be kept longer
        each.link.disconnect(code, NONE if expiry is None else Properties(session_expiry_interval=expiry))
        if expiry is not None:
            each.expiry = expiry
        self.connection_ended(each, self.world.now, code != 0)

    @rule(seconds=st.integers(1, 7))
    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.advance(1)
            for each in self.mortals:
                self.let_be_due(each, self.world.now)
            self.each_will_comes_when_it_is_due()

    # ------------------------------------------------------------------ what is always true

    @invariant()
    def each_will_comes_when_it_is_due(self) -> None:
        got = [packet.payload for packet in publishes(self.watcher.received())]
        expected, self.published = self.published, []
        assert sorted(got) == sorted(expected)

    @invariant()
    def sessions_are_there_as_long_as_they_should(self) -> None:
        for each in self.mortals:
            assert (self.world.broker.sessions.get(each.name) is not None) == each.exists

    def teardown(self) -> None:
        for who in range(len(self.mortals)):
            self.lose(who)
        self.pass_time(10)
        self.world.advance(1_000)
        assert publishes(self.watcher.received()) == []


QUICK = settings(max_examples=15, stateful_step_count=25, deadline=None)
THOROUGH = settings(max_examples=350, stateful_step_count=50, deadline=None, phases=[Phase.generate, Phase.shrink])


def test_a_new_subscription_finds_what_is_retained_and_has_not_expired() -> None:
    run_state_machine_as_test(Retained, settings=QUICK)  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_many_new_subscriptions_find_what_is_retained_and_has_not_expired() -> None:
    run_state_machine_as_test(Retained, settings=THOROUGH)  # type: ignore[no-untyped-call]


def test_each_message_is_one_member_s_of_each_group() -> None:
    run_state_machine_as_test(Groups, settings=QUICK)  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_each_message_is_one_member_s_of_each_group_in_many_worlds() -> None:
    run_state_machine_as_test(Groups, settings=THOROUGH)  # type: ignore[no-untyped-call]


def test_a_will_is_published_once_when_it_is_due() -> None:
    run_state_machine_as_test(Wills, settings=QUICK)  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_a_will_is_published_once_when_it_is_due_in_many_worlds() -> None:
    run_state_machine_as_test(Wills, settings=THOROUGH)  # type: ignore[no-untyped-call]
