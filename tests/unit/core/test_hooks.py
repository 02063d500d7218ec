"""What the core does with the answers of hooks, by whatever way a message comes in."""

from collections.abc import Callable

import pytest

from mqttlite.core.hook import UNCHANGED, Hook, HookAnswer
from mqttlite.core.inbound.inbound import MANY_WAIT, Ticket
from mqttlite.core.limits import DISCONNECT, MAX_WAITING_INSIDE, ROOM_LOOK_S, Limits
from mqttlite.core.message import Message
from mqttlite.core.reasons import HOOK_REJECTED, NOT_AUTHORIZED, PACKET_TOO_LARGE
from mqttlite.core.source import CLIENT, THE_PROGRAM, Source
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.packets import Ack, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World
from tests.support.rules import OpenRules
from tests.unit.core.test_topic_overflow import away, back, world_of

Answer = HookAnswer | None | Callable[[Message], HookAnswer | None]
NO: HookAnswer = HookAnswer(code=0x99, reason="no number", detail="hook shop.check: no number")


class Hooks:
    """A `HookFinder` and the `Hook` of the topics below `h`: gives `answer`, or keeps the questions that wait."""

    def __init__(self, world: World, answer: Answer = UNCHANGED) -> None:
        self.world = world
        self.reply = answer
        self.asked: list[tuple[str, str, str]] = []
        self.waiting: list[tuple[object, Message]] = []
        world.broker.hook_with(self)

    def hook_of(self, topic: bytes) -> Hook | None:
        return self if topic.startswith(b"h/") else None

    def ask(self, message: Message, source: Source, held: object) -> HookAnswer | None:
        self.asked.append((message.topic.decode(), message.payload.decode(), source.client_id))
        answer = self.reply(message) if callable(self.reply) else self.reply
        if answer is None:
            self.waiting.append((held, message))
        return answer

    def answer(self, answer: HookAnswer = UNCHANGED, at: int = 0) -> None:
        """Answer a question that waits."""
        held, _ = self.waiting.pop(at)
        self.world.broker.on_hooked(held, answer, self.world.now)
        self.world.settle()


def louder(message: Message) -> HookAnswer:
    return HookAnswer(Message(message.topic, message.payload.upper(), message.qos, message.retain))


def moved(message: Message) -> HookAnswer:
    return HookAnswer(Message(b"moved", message.payload, message.qos, message.retain))


def world_with(answer: Answer, limits: Limits | None = None) -> tuple[World, Hooks, Client]:
    """A world, its hooks, and a client that reads everything."""
    world = World(limits)
    reader = world.connect("reader")
    reader.subscribe("#", qos=2)
    return world, Hooks(world, answer), reader


TWO = 2
"""The messages that a queue holds."""

VERSIONS = pytest.mark.parametrize("version", [V311, V5])
QOS = pytest.mark.parametrize("qos", [0, 1, 2])


@VERSIONS
@QOS
def test_a_hook_sees_each_message_once_and_may_change_it(version: int, qos: int) -> None:
    world, hooks, reader = world_with(louder)
    client = world.connect("c", version)
    for number in range(3):  # the second and third find the route in the cache
        client.publish("h/a", f"x{number}", qos)
    client.publish("free", "y", qos)
    assert reader.messages() == [("h/a", "X0"), ("h/a", "X1"), ("h/a", "X2"), ("free", "y")]
    assert hooks.asked == [("h/a", f"x{number}", "c") for number in range(3)]
    world.end()


@QOS
def test_a_chunk_of_equal_messages_comes_one_by_one(qos: int) -> None:
    world, hooks, reader = world_with(louder)
    client = world.connect("c", V311, auto_ack=True)
    first, step = 0x30 | qos << 1, b"" if qos == 0 else b"\0"
    chunk = b"".join(
        bytes([first, 6 + 2 * (qos > 0)]) + b"\0\x03h/a" + (step + bytes([number]) if qos else b"") + b"%d" % number
        for number in range(1, 6)
    )
    client.send_bytes(chunk)
    assert [payload for _, payload in reader.messages()] == ["1", "2", "3", "4", "5"]
    assert len(hooks.asked) == 5
    world.end()


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_refusal_is_told_to_those_who_can_be_told(qos: int, kind: int) -> None:
    world, hooks, reader = world_with(NO)
    client, old = world.connect("c", auto_ack=False), world.connect("old", V311, auto_ack=False)
    packet_id = client.publish("h/a", "x", qos)
    assert client.received() == [Ack(kind, packet_id, 0x99, Properties(reason_string="no number"))]
    packet_id = old.publish("h/a", "x", qos)
    assert old.received() == [Ack(kind, packet_id)]
    assert reader.messages() == []
    assert world.broker.router.drops.by_reason == {HOOK_REJECTED: 2}
    assert len(hooks.asked) == 2
    world.end()


def test_a_refused_qos_0_message_is_counted() -> None:
    world, _, reader = world_with(NO)
    world.connect("c").publish("h/a", "x")
    assert reader.messages() == []
    assert world.broker.router.drops.by_reason == {HOOK_REJECTED: 1}
    world.end()


@VERSIONS
@QOS
def test_later_messages_wait_for_a_late_answer(version: int, qos: int) -> None:
    world, hooks, reader = world_with(None)
    client, other = world.connect("c", version), world.connect("other", version)
    client.publish("h/a", "1", qos)
    client.publish("free", "2", qos)
    other.publish("free", "3", qos)
    assert reader.payloads() == ["3"], "only its own publisher waits"
    hooks.answer(louder(hooks.waiting[0][1]))
    assert reader.payloads() == ["1", "2"]
    client.publish("h/a", "4", qos)
    hooks.answer(NO)
    client.publish("free", "5", qos)
    assert reader.payloads() == ["5"]
    world.end()


@QOS
def test_of_a_client_that_went_only_qos_0_is_published(qos: int) -> None:
    world, hooks, reader = world_with(None)
    client = world.connect("c")
    client.publish("h/a", "x", qos)
    client.lose()
    hooks.answer()
    assert reader.payloads() == ([] if qos else ["x"]), (
        "the others were not acknowledged: their clients send them again"
    )
    client = world.connect("c")
    client.publish("h/a", "y", qos)
    client.lose()
    hooks.answer(NO)
    assert reader.payloads() == []
    world.end()


def test_a_message_with_another_topic_is_authorised_again() -> None:
    class Rules(OpenRules):
        def is_open(self, topic: bytes) -> bool:
            return False

        def may_publish(self, role: int, topic: bytes) -> bool:
            return topic.startswith(b"h/")

    world, hooks, reader = world_with(moved)
    world.broker.authorize(built_in_rules(authorizer=Rules()))
    client = world.connect("c", auto_ack=False)
    client.publish("h/a", "x", 1)
    (ack,) = client.received()
    assert isinstance(ack, Ack)
    assert ack.reason_code == 0x87
    hooks.reply = UNCHANGED
    client.publish("h/a", "y", 1)
    assert reader.messages() == [("h/a", "y")]
    world.end()


def test_no_hook_sees_what_its_publisher_may_not_publish() -> None:
    class Rules(OpenRules):
        def is_open(self, topic: bytes) -> bool:
            return False

        def may_publish(self, role: int, topic: bytes) -> bool:
            return False

    world, hooks, _ = world_with(louder)
    world.broker.authorize(built_in_rules(authorizer=Rules()))
    world.connect("c").publish("h/a", "x", 1)
    assert hooks.asked == []
    assert world.broker.router.drops.by_reason == {NOT_AUTHORIZED: 1}
    world.end()


def test_a_message_that_became_too_large_is_refused() -> None:
    world, hooks, reader = world_with(
        lambda message: HookAnswer(Message(b"h/a", b"x" * 200, 1)), Limits(max_payload_bytes=100)
    )
    client = world.connect("c", auto_ack=False)
    client.publish("h/a", "x", 1)
    (ack,) = client.received()
    assert isinstance(ack, Ack)
    assert ack.reason_code == 0x97
    assert reader.payloads() == []
    assert world.broker.router.drops.by_reason == {PACKET_TOO_LARGE: 1}
    assert len(hooks.asked) == 1
    world.end()


@pytest.mark.parametrize("policy", ["block", "reject"])
@pytest.mark.parametrize("is_late", [False, True])
def test_room_is_asked_for_after_the_hook(policy: str, is_late: bool) -> None:
    world = world_of(policy, Limits(max_queued_messages=TWO))
    away(world)
    client = world.connect("c", auto_ack=False)
    for number in range(TWO):
        client.publish("t", str(number), 1)
    client.received()

    class OfT(Hooks):
        def hook_of(self, topic: bytes) -> Hook | None:
            return self

    hooks = OfT(world, None if is_late else louder)
    client.publish("t", "a", 1)
    if is_late:
        hooks.answer(louder(hooks.waiting[0][1]))
    if policy == "reject":
        (ack,) = client.received()
        assert isinstance(ack, Ack)
        assert ack.reason_code == 0x97
        assert back(world) == [str(number) for number in range(TWO)]
    else:
        assert client.received() == []
        reader = world.connect("away", clean_start=False, expiry=1_000)
        world.advance(2 * ROOM_LOOK_S)
        assert reader.payloads() == [*(str(number) for number in range(TWO)), "A"]
        assert len(client.received()) == 1
    assert len(hooks.asked) == 1
    world.end()


def offer(world: World, topic: str = "h/a", payload: str = "x", qos: int = 1) -> Ticket:
    ticket = world.broker.publish(topic.encode(), payload.encode(), qos, False, world.now, source=THE_PROGRAM)
    world.settle()
    return ticket


def test_messages_of_the_program_are_shown_too() -> None:
    world, hooks, reader = world_with(louder)
    assert offer(world).done
    assert reader.payloads() == ["X"]
    hooks.reply = NO
    ticket = offer(world)
    assert (ticket.done, ticket.tally.code, ticket.tally.refusal) == (True, 0x99, "no number")
    assert ticket.tally.dropped == {HOOK_REJECTED: 1}
    hooks.reply = None
    ticket = offer(world, payload="late")
    assert not ticket.done
    assert world.broker.inbound.waiting == 1
    hooks.answer()
    assert ticket.done
    assert world.broker.inbound.waiting == 0
    assert reader.payloads() == ["late"]
    world.end()


def test_a_message_from_inside_waits_for_its_hook_and_then_for_room_in_one_place() -> None:
    world = world_of("block", Limits(max_queued_messages=TWO))
    away(world)

    class OfT(Hooks):
        def hook_of(self, topic: bytes) -> Hook | None:
            return self

    hooks = OfT(world)
    for number in range(TWO):
        offer(world, "t", str(number))
    hooks.reply = None
    ticket = offer(world, "t", "late")
    hooks.answer()
    assert (ticket.done, world.broker.inbound.waiting) == (False, 1)
    reader = world.connect("away", clean_start=False, expiry=1_000)
    world.advance(2 * ROOM_LOOK_S)
    assert reader.payloads() == ["0", "1", "late"]
    assert (ticket.done, world.broker.inbound.waiting) == (True, 0)
    world.end()


def test_no_more_than_so_many_wait_inside() -> None:
    world, hooks, _ = world_with(None)
    world.broker.inbound.waiting = MAX_WAITING_INSIDE
    ticket = offer(world)
    assert (ticket.done, ticket.tally.refusal) == (True, MANY_WAIT)
    assert hooks.asked == []
    world.broker.inbound.waiting = 0
    world.end()


def test_a_delayed_message_is_shown_when_it_comes() -> None:
    world, hooks, reader = world_with(moved)
    client = world.connect("c")
    client.publish("$delayed/5/h/a", "x", 1)
    assert hooks.asked == [("h/a", "x", "c")]
    world.advance(5)
    assert reader.messages() == [("moved", "x")]
    hooks.reply = NO
    client.publish("$delayed/5/h/a", "y", 1)
    world.advance(5)
    assert reader.messages() == []
    assert len(hooks.asked) == 2
    world.end()


def test_a_delayed_message_whose_new_topic_is_too_long_is_refused() -> None:
    long = b"x" * 65_530
    world, _, reader = world_with(lambda message: HookAnswer(Message(long, message.payload, message.qos)))
    client = world.connect("c", auto_ack=False)
    client.publish("$delayed/5/h/a", "x", 1)
    (ack,) = client.received()
    assert isinstance(ack, Ack)
    assert ack.reason_code == 0x97
    world.advance(5)
    assert reader.messages() == []
    assert world.broker.router.drops.by_reason == {HOOK_REJECTED: 1}
    world.end()


WILL = Will(b"h/will", b"x", 1)


@pytest.mark.parametrize(("answer", "seen"), [(UNCHANGED, ["x"]), (louder, ["X"]), (NO, [])])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_will_is_shown_when_it_is_due(answer: Answer, seen: list[str], is_late: bool) -> None:
    world, hooks, reader = world_with(None if is_late else answer)
    client = world.connect("c", will=WILL, expiry=100)
    assert hooks.asked == []
    client.lose()
    if is_late:
        assert reader.payloads() == []
        assert world.session("c").saved_will is not None, "the store has it until then"
        message = hooks.waiting[0][1]
        late = answer(message) if callable(answer) else answer
        assert late is not None
        hooks.answer(late)
    assert reader.payloads() == seen
    assert hooks.asked == [("h/will", "x", "c")]
    assert world.session("c").saved_will is None
    assert world.broker.router.drops.by_reason == ({} if seen else {HOOK_REJECTED: 1})
    world.end()


def test_a_will_without_a_hook_is_published_as_ever() -> None:
    world, hooks, reader = world_with(NO)
    world.connect("c", will=Will(b"free", b"x", 1)).lose()
    assert reader.payloads() == ["x"]
    assert hooks.asked == []
    world.end()


def test_no_hook_sees_a_will_that_its_client_may_no_longer_publish() -> None:
    world, hooks, reader = world_with(louder)
    client = world.connect("c", will=WILL)

    class Rules(OpenRules):
        def is_open(self, topic: bytes) -> bool:
            return False

        def may_publish(self, role: int, topic: bytes) -> bool:
            return False

    world.broker.authorize(built_in_rules(authorizer=Rules()))
    client.lose()
    assert (hooks.asked, reader.payloads()) == ([], [])
    assert world.broker.router.drops.by_reason == {NOT_AUTHORIZED: 1}
    world.end()


def test_a_late_message_may_be_too_much_for_a_client_that_reads_nothing() -> None:
    world = World(Limits(max_outbox_bytes=10_000, on_overflow=DISCONNECT))
    hooks = Hooks(world, None)
    stuck, client = world.connect("stuck"), world.connect("c")
    stuck.subscribe("#")
    stuck.block()
    for _ in range(3):
        client.publish("h/a", "x" * 6_000)
        hooks.answer()
    assert stuck.closed
    world.end()


def test_a_look_at_a_route_asks_no_hook() -> None:
    world, hooks, _ = world_with(NO)
    assert world.broker.planner.publish("c", None, b"h/a", b"x", 1, False).has_hook
    assert world.broker.planner.publish("c", None, b"$delayed/5/h/a", b"x", 1, False).has_hook
    assert not world.broker.planner.publish("c", None, b"free", b"x", 1, False).has_hook
    assert hooks.asked == []
    world.end()


def test_other_hooks_hold_for_routes_that_are_known() -> None:
    world, _, reader = world_with(louder)
    client = world.connect("c")
    client.publish("h/a", "x")
    Hooks(world, UNCHANGED)
    client.publish("h/a", "y")
    assert reader.payloads() == ["X", "y"]
    world.end()


def test_it_says_who_publishes() -> None:
    world, hooks, _ = world_with(UNCHANGED)
    world.connect("c").publish("h/a", "x")
    offer(world)
    source = Source(CLIENT, "http")
    world.broker.publish(b"h/a", b"y", 0, False, world.now, source=source)
    assert [client_id for _, _, client_id in hooks.asked] == ["c", "", "http"]
    world.end()


def test_the_first_of_two_that_wait_may_be_answered_last() -> None:
    world, hooks, reader = world_with(None)
    first, second = world.connect("a"), world.connect("b")
    first.publish("h/a", "1", 1)
    second.publish("h/a", "2", 1)
    hooks.answer(at=1)
    hooks.answer(at=0)
    assert reader.payloads() == ["2", "1"]
    assert all(isinstance(each, Publish) for each in reader.received())
    world.end()
