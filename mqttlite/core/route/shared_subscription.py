"""Shared subscriptions (5.0 §4.8.2): each message that the filter matches goes to one of the group's members.

`share_members` decides the order of members, and `share_relays` which broker's members get a message, if other brokers
have some. The chosen session handles the message.
"""

from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    DELIVERY_WORK,
    JSON_BYTES_PER_WORK_UNIT,
    MEMBERS_ASKED,
    MEMBERS_PER_WORK_UNIT,
)
from mqttlite.core.message import Delivery, Message, PublishBatch, RawProperties
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.reasons import FILTER_MISMATCH, NOT_AUTHORIZED
from mqttlite.core.route.outlook import EXCLUDED, PlannedReceiver
from mqttlite.core.route.outlook import FILTERED as IF_FILTERED
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.relayed import NO_TARGET, number_of
from mqttlite.core.route.route import offer, send_aliased
from mqttlite.core.route.share_members import AWAY, Member, ShareMembers
from mqttlite.core.route.share_relays import ShareRelay, ShareRelays
from mqttlite.core.route.subscription import Binding, RoutePlan, Subscription
from mqttlite.core.route.tally import ALONE, DROPPED, Tally
from mqttlite.core.session.session import Session
from mqttlite.core.session.session_backlog import FILLING
from mqttlite.core.source import Source
from mqttlite.wire.constants import V5

MOST_TIMES: Final = 2
"""How often a message goes to the same broker, looking for a member."""

_COPY: Final = b""
"""The name of a temporary copy of a group, its key in `Session.watchers`."""


@final
class SharedSubscription(Binding):
    """The members of one share name and filter.

    Some members may not get every message, because the rules forbid the topic or their filters do not let it pass.
    Invariant: a message goes to a member that may get it. If there is none, the reason is counted.
    """

    __slots__ = (
        "_connected",
        "_effects",
        "_filters",
        "_permissions",
        "_relays",
        "_shares",
        "is_told",
        "members",
        "name",
        "number",
        "traced",
    )

    def __init__(
        self,
        name: bytes,
        policy: str,
        effects: Effects,
        permissions: Permissions,
        shares: "dict[bytes, SharedSubscription] | None" = None,
    ) -> None:
        self._effects: Final = effects
        self._permissions: Final = permissions
        self._shares: Final[dict[bytes, SharedSubscription]] = {} if shares is None else shares
        """All groups with members, by name. A group that lost its last member is replaced when a new member joins."""
        self.name: Final = name
        """The complete `$share/group/filter`."""
        self.members: Final = ShareMembers(name, policy, effects)
        self._filters = 0
        """How many members have filters."""
        self.traced: Final[dict[str, None]] = {}
        """The traced members. While there are any, all messages of the group are traced."""
        self.number: int = 0
        """By which other brokers name it, if there are any."""
        self.is_told: bool = False
        """Whether other brokers are told how many members it has here."""
        self._relays: ShareRelays | None = None
        """The other brokers with members, if there are any."""
        self._connected = 0
        """How many members are connected, if there are other brokers."""

    def __len__(self) -> int:
        return len(self.members) if self._relays is None else len(self.members) + len(self._relays)

    def join(self, plan: RoutePlan) -> None:
        plan.add_sink(self)
        plan.traced |= len(self.traced) > 0

    def prepare(self, messages: int) -> bool:
        """Implements `Sink`."""
        return self.members.prepare(messages)

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`: the predicted outcome of each member, and which member is next. The latter is left out if
        it depends on filters that read an unknown payload."""
        found: list[PlannedReceiver] = []
        asked: dict[MessageFilter, bool] = {}
        is_known = True
        if self._relays is not None:
            for relay in self._relays.all():
                delivery = self._relayed(relay, message, NO_TARGET)
                outcome, reason = relay.session.outlook(delivery)
                found.append(PlannedReceiver(relay.session.client_id, self.name, delivery.qos, outcome, reason))
        for member in self.members.all():
            planned, is_asked = self._outlook_of(member, message, knows_payload, asked)
            found.append(planned)
            is_known &= is_asked
        if is_known:
            first = self._would_choose(message)
            for planned in found:
                planned.is_next = planned.client_id == first
        return found

    def receivers(self) -> list[tuple[Session, Subscription]]:
        """The members, and the relays of other brokers with members."""
        found = [(member.session, member.subscription) for member in self.members.all()]
        if self._relays is not None:
            found += [(relay.session, relay.subscription) for relay in self._relays.all()]
        return found

    def _outlook_of(
        self, member: Member, message: Message, knows_payload: bool, asked: dict[MessageFilter, bool]
    ) -> tuple[PlannedReceiver, bool]:
        """The predicted outcome for a member, and whether its filter could be asked."""
        session, message_filter = member.session, member.subscription.message_filter
        rule = session.why_denied(message.topic)
        if rule:
            return PlannedReceiver(session.client_id, self.name, 0, EXCLUDED, NOT_AUTHORIZED, rule), True
        is_asked = message_filter is None or knows_payload or not message_filter.reads_payload
        if is_asked and message_filter is not None and not self._may_get(member, message, asked):
            expression = message_filter.expression
            return PlannedReceiver(session.client_id, self.name, 0, EXCLUDED, FILTER_MISMATCH, expression), True
        delivery = self._delivery(member, message)
        outcome, reason = session.outlook(delivery)
        detail = "" if is_asked else IF_FILTERED
        return PlannedReceiver(session.client_id, self.name, delivery.qos, outcome, reason, detail), is_asked

    def _would_choose(self, message: Message) -> str:
        """The client identifier of the member that would get a message now; empty if none may.

        A copy of the group chooses, so that the turns do not change."""
        assert len(self), "no route has a group without members"
        if self._relays is not None:
            relay = self._relays.copy().choose(message, self.members, self._connected)
            if relay is not None:
                return relay.session.client_id
        copy = SharedSubscription(
            _COPY, self.members.policy, Effects(), self._permissions
        )  # its work is charged to no message
        copy.members.copy_from(self.members)
        copy.prepare(1)
        chosen = copy._choose_allowed(message)
        copy.members.stop_watching()
        return "" if chosen is None else chosen[0].session.client_id

    def has_room(self, message: Message, qos: int) -> bool:
        """Implements `Sink`: whether one of the members that a message would be offered to has room."""
        for ring in self.members.rings:
            for member in ring.in_turn(MEMBERS_ASKED):
                if member.session.has_room(message, min(qos, member.subscription.qos)):
                    return True
        if self._relays is not None:
            for relay in self._relays.all():
                if relay.session.has_room(message, min(qos, relay.subscription.qos)):
                    return True
        return len(self) == 0

    def reader(self, message: Message, publisher: Source) -> Session | None:
        """A member that the publisher may wait for: its queue fills up, it reads, and no member has room. Never the
        publisher itself. Considers only the members that a message would be offered to."""
        found: Session | None = None
        if self._relays is not None:
            for relay in self._relays.all():
                if relay.session.has_room_to_spare(message):
                    return None
        for ring in self.members.rings:
            for member in ring.in_turn(MEMBERS_ASKED):
                session = member.session
                if member.subscription.qos == 0 or session.has_room_to_spare(message):
                    return None
                if session.filling == FILLING and session is not publisher:
                    found = session
        return found

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Give a message to the first member that may get it and has room for it."""
        if not self._take(message, source, tally, ALONE):
            tally.reached -= 1

    def _take(self, message: Message, source: Source, tally: Tally, at: int) -> bool:
        """The same for one at a position of a batch, or `ALONE`. Return whether the group counts as a receiver."""
        if self._relays is not None or message.target or self._must_ask(message.topic):
            return self._offer(message, source, tally, at, self._first(message, message.target))
        if not len(self.members):  # the last member left meanwhile
            return False
        member, delivery = self._choose(message)
        self._hand_over(member.session, delivery, tally, at)
        return True

    def _first(self, message: Message, target: tuple[int, ...]) -> ShareRelay | None:
        """The broker whose turn it is to get a message; None: this one, as with a `target`, with which it comes from
        another broker for a member here."""
        relays = self._relays
        return None if relays is None or target else relays.choose(message, self.members, self._connected)

    def _find(
        self, message: Message, target: tuple[int, ...], first: ShareRelay | None
    ) -> tuple[Session, Delivery] | None:
        """A member that may get a message, or the relay of another broker; None if there is none.

        It goes to `first`, or to a member here. If that broker has no room, or no member may get the message, it goes
        to a broker that has not had it.
        """
        relays = self._relays
        if relays is None:
            allowed = self._choose_allowed(message) if len(self.members) else None
            return None if allowed is None else (allowed[0].session, allowed[1])
        full: tuple[Session, Delivery] | None = None
        if first is not None:
            full = first.session, self._relayed(first, message, NO_TARGET)
            if _has_room(full):
                return full
        own: tuple[Session, Delivery] | None = None
        if len(self.members):
            chosen = self._choose_allowed(message) if self._must_ask(message.topic) else self._choose(message)
            if chosen is not None:
                own = chosen[0].session, chosen[1]
                full = full or own
                if (own[0].outbox is not None or (first is None and not target)) and _has_room(own):
                    return own
        tried = (*target[1:], relays.me)
        for relay in relays.untried(tried, first):
            if own is not None and relay.state == AWAY:
                break
            other = relay.session, self._relayed(relay, message, tried)
            if _has_room(other):
                return other
            full = full or other
        return own if own is not None and _has_room(own) else full

    def _relayed(self, relay: ShareRelay, message: Message, tried: tuple[int, ...]) -> Delivery:
        """A message for a member at another broker. Those in `tried` have had it."""
        qos = min(message.qos, relay.subscription.qos)
        return Delivery(message, qos, message.retain, (self.number, *tried), self)

    def _must_ask(self, topic: bytes) -> bool:
        """Whether some members may not get messages of a topic, so that each is asked."""
        return self._filters > 0 or self._permissions.hides(topic)

    def _go_on(self, message: Message, source: Source) -> tuple[Session, Delivery] | None:
        """The broker that gets a message from another one if no broker is known here that has not had it: that other
        one, which may know more, and at the second time a broker that has got a member since it had the message."""
        interest, target = self._effects.interest, message.target
        if not target or interest is None or len(self.members):
            return None
        me = number_of(interest.me.encode())
        if me not in target[1:] and isinstance(source, Session):
            return source, Delivery(message, message.qos, message.retain, (*target, me), self)
        if self._relays is not None:
            for relay in self._relays.untried((), None):
                if target[1:].count(relay.number) < MOST_TIMES:
                    return relay.session, self._relayed(relay, message, (*target[1:], me))
        return None

    def _take_each(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Give each message of a batch to a member, one by one."""
        self._effects.work += DELIVERY_WORK * batch.count
        tally.reached -= 1
        reached = [at for at in range(batch.count) if self._take(batch.delivery(at, 0).message, source, tally, at)]
        tally.reach(reached, batch.count)

    def _offer(self, message: Message, source: Source, tally: Tally, at: int, first: ShareRelay | None) -> bool:
        """Offer a message to the members that may get it, or to the broker that comes `first`. Return whether the group
        counts as a receiver."""
        found = self._find(message, message.target, first)
        if found is None:
            found = self._go_on(message, source)
        if found is not None:
            self._effects.work += DELIVERY_WORK
            self._hand_over(found[0], found[1], tally, at)
            return True
        if not len(self.members):
            return False
        for member in self.members.all():
            if member.session.may_receive(message.topic):  # so a filter keeps it out
                tally.filtered += 1
                self._permissions.drops.add_filtered(1, message.trace, self.name.decode(), "")
                return False
        self._permissions.drop_shared(message.topic, message.trace, tally)
        return True

    def _hand_over(self, session: Session, delivery: Delivery, tally: Tally, at: int) -> None:
        if delivery.qos:
            outcome = session.deliver(delivery)
            tally.count(outcome)
            if outcome == DROPPED:
                tally.refuse(at)
        else:
            tally.count_qos0(session.deliver_qos0(delivery))

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Dispatch messages of one topic and size to the members."""
        relays, is_from_broker = self._relays, len(batch.target) > 0
        if self._must_ask(batch.topic) or (is_from_broker and self.members.best_state() >= AWAY):
            self._take_each(batch, source, tally)
            return
        if not len(self):
            tally.reached -= 1
            return
        if not self.members.is_in_turn or (batch.qos and batch.traces):
            self._take_each(batch, source, tally)
            return
        if batch.qos:
            if relays is not None and not is_from_broker:
                self._deal_acknowledged(relays, batch, source, tally)
            elif not self._dispatch_acknowledged(batch, list(range(batch.count)), tally):
                self._take_each(batch, source, tally)
            return
        if relays is None or is_from_broker:
            self._dispatch(batch, tally)
            return
        own: list[int] = []
        by_relay: dict[ShareRelay, list[int]] = {}
        for at in range(batch.count):
            relay = relays.in_turn(self.members, self._connected)
            if relay is None:
                own.append(at)
            elif relay in by_relay:
                by_relay[relay].append(at)
            else:
                by_relay[relay] = [at]
        if own:
            self._dispatch(batch if len(own) == batch.count else batch.select(own), tally)
        for relay, positions in by_relay.items():
            self._dispatch_to(relay, batch if len(positions) == batch.count else batch.select(positions), tally)

    def _dispatch_to(self, relay: ShareRelay, batch: PublishBatch, tally: Tally) -> None:
        """Send QoS 0 messages to another broker."""
        outbox = relay.session.outbox
        if outbox is None or outbox.has_own_packets:
            self._effects.work += DELIVERY_WORK * batch.count
            for at in range(batch.count):
                message = batch.delivery(at, 0).message
                tally.count_qos0(relay.session.deliver_qos0(self._relayed(relay, message, NO_TARGET)))
            return
        self._effects.work += DELIVERY_WORK
        form = batch.identified((self.number,))
        packets = form.frames(V5, 0, 0, form.count)
        offer(outbox, packets, form.count, form.expires_at, form.on_overflow, tally)

    def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
        """Implements `Sink`: if members take turns, whatever the message is."""
        return self.members.is_in_turn and not self._must_ask(topic)

    def _deal_acknowledged(self, relays: ShareRelays, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Give QoS 1 or 2 messages to the brokers in turn: to others one by one, and to the members here in blocks.

        If a member might not take its block, each message goes alone, for the next one's turn may depend on it."""
        if not self._takes_blocks(batch.count):
            self._take_each(batch, source, tally)
            return
        own: list[int] = []
        for at in range(batch.count):
            relay = relays.in_turn(self.members, self._connected)
            if relay is None:
                own.append(at)
            else:
                self._offer(batch.delivery(at, 0).message, source, tally, at, relay)
        if not self._dispatch_acknowledged(batch, own, tally):  # what others got has filled the memory
            for at in own:
                self._offer(batch.delivery(at, 0).message, source, tally, at, None)

    def _takes_blocks(self, messages: int) -> bool:
        """Whether so many messages can be given out in a block for each member whose turn it is."""
        members = self.members.next_ready(messages)
        for number, member in enumerate(members):
            subscription = member.subscription
            if not subscription.qos or subscription.identifier:
                return False
            if not member.session.takes_batch(len(range(number, messages, len(members)))):
                return False
        return len(members) > 0

    def _dispatch_acknowledged(self, batch: PublishBatch, places: list[int], tally: Tally) -> bool:
        """Send the QoS 1 or 2 messages at these places to the members in turn, a block to each. False, and nothing is
        sent, if a member does not take its whole part so."""
        if not self._takes_blocks(len(places)):
            return False
        members = self.members.dispatch_many(len(places))
        for number, member in enumerate(members):
            part = batch.dealt(places[number :: len(members)], self)
            qos = min(batch.qos, member.subscription.qos)  # [MQTT-4.8.2-3]
            sent = member.session.deliver_batch(part, qos)
            tally.sent += sent
            for at in range(sent, part.count):
                self._hand_over(member.session, part.delivery(at, qos), tally, places[number + at * len(members)])
            part.forget_forms()
        self._effects.work += DELIVERY_WORK * len(members)
        return True

    def _dispatch(self, batch: PublishBatch, tally: Tally) -> None:
        """Send QoS 0 messages to the members in turn."""
        members = self.members.dispatch_many(batch.count)
        self._effects.work += DELIVERY_WORK * len(members)
        for number, member in enumerate(members):
            outbox = member.session.outbox
            if outbox is None or member.subscription.identifier or outbox.has_own_packets:
                for at in range(number, batch.count, len(members)):
                    message = batch.delivery(at, 0).message
                    tally.count_qos0(member.session.deliver_qos0(self._delivery(member, message)))
                continue
            mine = batch if len(members) == 1 else batch.every(number, len(members))
            if outbox.topic_alias_maximum:
                send_aliased(outbox, mine, tally)
            else:
                packets = mine.frames(outbox.version, 0, 0, mine.count)
                offer(outbox, packets, mine.count, mine.expires_at, mine.on_overflow, tally)

    @property
    def keeps(self) -> bool:
        return False

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        """Not called, because a group keeps no message. A rejected one goes to no other member [MQTT-4.4.0-2]
        [MQTT-4.8.2-6]."""

    def returned(self, delivery: Delivery) -> bool:
        """A member's session ended: give its QoS 1 message to another member, if there is one (5.0 §4.8.2).

        A QoS 2 message that was sent goes to no other member [MQTT-4.8.2-5].
        """
        return delivery.qos == 1 and self.pass_on(delivery)

    def pass_on(self, delivery: Delivery) -> bool:
        """Give a message to another member. Return whether there is one, and it takes the message."""
        group = self if len(self) else self._shares.get(self.name)
        if group is None:
            return False
        found = group._find(delivery.message, NO_TARGET, group._first(delivery.message, NO_TARGET))
        if found is None:
            return False
        session, again = found
        if again.qos == 0:
            return not session.deliver_qos0(again)
        return session.deliver(again) != DROPPED

    def _choose(self, message: Message) -> tuple[Member, Delivery]:
        """The member that gets a message: the first one, or, if its queue is full, the next one with room."""
        first = self.members.first(message)
        delivery = self._delivery(first, message)
        if delivery.qos and not first.session.has_room(message, delivery.qos):
            for member in self.members.others(first):
                other = self._delivery(member, message)
                if other.qos == 0 or member.session.has_room(message, other.qos):
                    return member, other
        return first, delivery

    def _choose_allowed(self, message: Message) -> tuple[Member, Delivery] | None:
        """The same among the members that may receive it and whose filters let it pass; None if there are none."""
        asked: dict[MessageFilter, bool] = {}
        first: Member | None = self.members.first(message)
        assert first is not None
        if not self._may_get(first, message, asked):
            first = self._next_allowed(first, message, asked)
            if first is None:
                return None
        delivery = self._delivery(first, message)
        if delivery.qos and not first.session.has_room(message, delivery.qos):
            for member in self.members.others(first):
                other = self._delivery(member, message)
                if self._may_get(member, message, asked) and (
                    other.qos == 0 or member.session.has_room(message, other.qos)
                ):
                    return member, other
        return first, delivery

    def _may_get(self, member: Member, message: Message, asked: dict[MessageFilter, bool]) -> bool:
        """Whether a member may receive a message and its filter lets it pass. `asked` caches the filters' results."""
        if not member.session.may_receive(message.topic):
            return False
        message_filter = member.subscription.message_filter
        if message_filter is None:
            return True
        passes = asked.get(message_filter)
        if passes is None:
            passes = asked[message_filter] = message_filter.matches(message)
            self._effects.work += 1
            if message_filter.reads_payload:
                self._effects.work += len(message.payload) // JSON_BYTES_PER_WORK_UNIT
        return passes

    def _next_allowed(self, denied: Member, message: Message, asked: dict[MessageFilter, bool]) -> Member | None:
        """The next member that may get a message, preferably a connected one. In the worst case it checks all members,
        because a message that one of them may receive must not be lost."""
        away: Member | None = None
        by_key = self.members.is_by_key
        looked = 0
        for ring in self.members.rings:
            start = denied.at if by_key else ring.next_at
            for member in ring.members[start:] + ring.members[:start]:
                looked += 1
                if not self._may_get(member, message, asked):
                    continue
                if member.session.outbox is not None:
                    if not by_key:
                        ring.next_at = member.at + 1
                    self._effects.work += looked // MEMBERS_PER_WORK_UNIT
                    return member
                if away is None:
                    away = member
        self._effects.work += looked // MEMBERS_PER_WORK_UNIT
        return away

    def _delivery(self, member: Member, message: Message) -> Delivery:
        subscription = member.subscription
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        qos = min(message.qos, subscription.qos)  # [MQTT-4.8.2-3]
        retain = message.retain and subscription.retain_as_published
        return Delivery(message, qos, retain, identifiers, self)

    def add(self, session: Session, subscription: Subscription) -> None:
        """Add a session, or replace its subscription."""
        interest = self._effects.interest
        if interest is not None and session.client_id.startswith(interest.relays):
            if self._relays is None:
                self._relays = ShareRelays(number_of(interest.me.encode()))
            self._relays.add(session, subscription)
            return
        former = self.members.add(session, subscription)
        if former is not None:
            self._filters -= former.message_filter is not None
        self._filters += subscription.message_filter is not None
        self.count(session.client_id)

    def remove(self, subscription: Subscription) -> None:
        """Remove the session of a subscription."""
        client_id = subscription.client_id
        if self._relays is not None and self._relays.remove(client_id):
            if not len(self._relays):
                self._relays = None
            return
        self._filters -= subscription.message_filter is not None
        member = self.members.find(client_id)
        assert member is not None, "it is a member"
        self._connected -= member.is_connected
        if self._effects.interest is not None:
            self._effects.interest.shares.uncount(self.name, member.counted)
        self.members.remove(client_id)

    def tell(self) -> None:
        """From now on, other brokers have members, too. Their relays, which a store has brought back, are no members
        here."""
        self.is_told = True
        interest = self._effects.interest
        assert interest is not None, "there are others"
        for member in list(self.members.all()):
            if member.session.client_id.startswith(interest.relays):
                self.members.remove(member.session.client_id)
                self.add(member.session, member.subscription)
            else:
                self.count(member.session.client_id)

    def count(self, client_id: str) -> None:
        """Tell other brokers of a member that is new, or that has connected or disconnected."""
        interest, member = self._effects.interest, self.members.find(client_id)
        if interest is None or member is None:
            return
        self._connected -= member.is_connected
        member.is_connected = member.session.outbox is not None
        self._connected += member.is_connected
        if self.is_told:
            qos = member.subscription.qos
            member.counted = interest.shares.count(self.name, qos, member.is_connected, member.counted)


def _has_room(found: tuple[Session, Delivery]) -> bool:
    session, delivery = found
    return delivery.qos == 0 or session.has_room(delivery.message, delivery.qos)
