"""Shared subscriptions beside a reference model: which member of a group has which message.

The machine drives the core at random and predicts from the standard alone, with dicts, what it does.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mqttlite.core.message import Delivery
from mqttlite.core.route.share_members import HASH_KEY, HASH_TOPIC, SHARE_POLICIES
from mqttlite.core.session.session import Session
from mqttlite.topics.names import matches
from mqttlite.wire.constants import NEVER_EXPIRES, PUBACK, V5
from mqttlite.wire.packets import Ack, Connack, Publish, Unsubscribe
from tests.support.core_driver import Client, World, publishes
from tests.support.rounds import rounds

FOREVER: Final = float("inf")


def ends_at(now: float, expiry: int) -> float:
    return FOREVER if expiry == NEVER_EXPIRES else now + expiry


def unfinished(session: Session) -> list[Delivery]:
    """QoS 1 messages of shared subscriptions that the client has not acknowledged."""
    sent = [*session.inflight.by_id().values(), *session.window.resend.values()]
    deliveries = [*[each.delivery for each in sent if each.delivery is not None], *session.queue.deliveries]
    return [delivery for delivery in deliveries if delivery.origin is not None]


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
        """Connected members read; the others come back if they can; then nothing is left."""
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
        self.world.end()


QUICK = settings(max_examples=15, stateful_step_count=25, deadline=None)
THOROUGH = settings(
    max_examples=rounds(350), stateful_step_count=50, deadline=None, phases=[Phase.generate, Phase.shrink]
)


@pytest.mark.long
def test_each_message_is_one_member_s_of_each_group() -> None:
    run_state_machine_as_test(Groups, settings=QUICK)  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_each_message_is_one_member_s_of_each_group_in_many_worlds() -> None:
    run_state_machine_as_test(Groups, settings=THOROUGH)  # type: ignore[no-untyped-call]
