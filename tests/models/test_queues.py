"""A queue beside a reference model: attempts, deadlines, back-offs, ordering keys and ends, over restarts.

The machine drives it at random by its clock, over MQTT and by pulls, and predicts with a dict of messages what it may
do. Invariant: each message comes to one end; what is delivered again was refused, or its time was over; a key has one
message under way.
"""

from typing import Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mqttlite.extensions.queues.limits import MAX_LANE
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from mqttlite.log.deliveries import ARRIVAL_S
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.packets import Ack, Publish
from tests.support.core_driver import Client, publishes
from tests.support.queues import QueueWorld, options, told
from tests.support.rounds import rounds

DEADLINE_S: Final = 10.0
ATTEMPTS: Final = 2
NEVER: Final = float("-inf")

delays = st.sampled_from([None, 0.0, 0.5, 3.0])


class Known:
    """A message of the model; `not_before` is when it may be delivered again."""

    def __init__(self, key: str, number: int = 0) -> None:
        self.key = key
        self.number = number
        self.resets = 0
        self.attempts = 0
        self.not_before = NEVER
        self.leased_until = NEVER
        self.restored = False
        self.end = ""
        self.may_come = False
        """Whether it may come once more, though it has ended: it was on its way already when the disk stood still."""

    def reset(self) -> None:
        """A seek has it wait again."""
        self.end = ""
        self.attempts = 0
        self.resets += 1
        self.not_before = self.leased_until = NEVER


class Sent:
    """A delivery to the client over MQTT."""

    def __init__(self, link: Client, packet: Publish, message: Known) -> None:
        self.link = link
        self.packet = packet
        self.message = message
        self.attempt = message.attempts
        self.resets = message.resets
        self.has_puback = False
        self.refused = False


def backoff(message: Known) -> float:
    """The least that the queue waits after a failure."""
    return min(4.0, 2.0 ** (message.attempts - 1))


class QueueMachine(RuleBasedStateMachine):
    ordering: bool
    priority: bool
    pages: bool
    retains: bool = False
    max_lane: int = MAX_LANE
    retry: RetryOptions = RetryOptions(min_s=1, max_s=4)
    ack: str = "puback"

    @initialize(is_connected=st.booleans())
    def begin(self, is_connected: bool) -> None:
        self.world = QueueWorld([self.queue()], MemoryStore(pages=self.pages), max_lane=self.max_lane)
        self.known: dict[str, Known] = {}
        self.client: Client | None = None
        self.sent: list[Sent] = []
        self.handles: list[tuple[str, str, int, int]] = []
        self.snapshots: list[tuple[str, set[str], int]] = []
        self.letters = 0
        self.publish(key="", priority=1, count=1)  # so that most runs have something to refuse
        self.publish(key="k", priority=1, count=3)
        if is_connected:
            self.connect(V311)
        else:
            self.pull(most=2, lease_s=None)

    def queue(self) -> QueueOptions:
        kept = self.kept()
        return options(
            max_attempts=ATTEMPTS,
            ordering=self.ordering,
            priority=self.priority,
            retry=self.retry,
            ack=self.ack,
            **kept,
        )

    def kept(self) -> dict[str, object]:
        return {"retain_acked": True, "expiry_s": 86_400} if self.retains else {"expiry_s": 0}

    # ------------------------------------------------------------------ what happens

    @rule(key=st.sampled_from(["", "", "k", "l"]), priority=st.integers(0, 3), count=st.integers(1, 3))
    def publish(self, key: str, priority: int, count: int) -> None:
        self.go_on()
        for _ in range(count):
            payload = str(len(self.known))
            properties = [("priority", str(priority)), *([("ordering-key", key)] if key else [])]
            message = self.known[payload] = Known(key if self.ordering else "")
            self.world.publish("a", payload, 1, user_properties=properties)
            message.number = self.world.broker.effects.numbers.latest
        self.settle()

    @rule(most=st.integers(1, 5), lease_s=st.sampled_from([None, 2.0, 60.0]))
    def pull(self, most: int, lease_s: float | None) -> None:
        self.go_on()
        for pulled in self.world.queues.pull("q", most, lease_s):
            payload = pulled.message.payload.decode()
            self.on_delivered(payload, pulled.attempt, DEADLINE_S if lease_s is None else lease_s)
            self.handles.append((pulled.ack_id, payload, pulled.attempt, self.known[payload].resets))
        self.settle()

    def on_delivered(self, payload: str, attempt: int, lease_s: float) -> None:
        """The queue delivers a message: it may, and its next attempt is not before the lease and the back-off."""
        now, message = self.world.now, self.known[payload]
        if message.may_come:
            message.may_come = False
            assert attempt == message.attempts + 1 <= ATTEMPTS
            return
        assert message.end == ""
        assert now >= message.not_before, "it was delivered before its time"
        message.attempts += 1
        assert attempt == message.attempts <= ATTEMPTS
        message.leased_until = now + lease_s + ARRIVAL_S
        message.not_before = now + lease_s + self.backoff_after_deadline(message)
        message.restored = False
        if message.key:
            same = [each for each in self.known.values() if each.key == message.key and not each.end]
            assert same[0] is message, "another message with its key is before it"

    def backoff_after_deadline(self, message: Known) -> float:
        return 0.0 if self.retry.on_deadline == "at_once" else backoff(message)

    # ------------------------------------------------------------------ a consumer over MQTT

    @rule(version=st.sampled_from([V311, V5]))
    def connect(self, version: int) -> None:
        if self.client is None:
            self.client = self.world.connect("c", version, auto_ack=False)
            self.client.subscribe("$queue/q", qos=1)
            self.settle()

    @rule()
    def disconnect(self) -> None:
        if self.client is None:
            return
        client, self.client = self.client, None
        for sent in self.sent:
            if self.is_with(sent):  # what it has goes to others at once
                sent.message.leased_until = sent.message.not_before = NEVER
        client.lose()
        self.settle()

    @rule()
    def stall(self) -> None:
        """The disk stands still: what is to be sent waits for its commit."""
        self.world.stall()

    @rule()
    def go_on(self) -> None:
        if self.world.is_stalled:
            self.world.go_on()
            self.settle()
            for message in self.known.values():
                message.may_come = False

    @rule(version=st.sampled_from([V311, V5]), times=st.integers(1, 3), seconds=st.sampled_from([0.0, 10.5]))
    def come_and_go_while_it_stalls(self, version: int, times: int, seconds: float) -> None:
        self.stall()
        for _ in range(times):
            self.disconnect()
            self.connect(version)
            self.wait(seconds)

    @rule(data=st.data())
    def send_puback(self, data: st.DataObject) -> None:
        """Of a delivery that may have been refused, or whose deadline may be over."""
        waiting = [each for each in self.sent if each.link is self.client and not each.has_puback]
        if self.client is None or not waiting:
            return
        self.puback(data.draw(st.sampled_from(waiting)))

    def puback(self, sent: Sent) -> None:
        sent.has_puback = True
        message = sent.message
        if self.ack == "puback" and not message.end and message.resets == sent.resets and not sent.refused:
            self.acknowledged(message)
        assert self.client is not None
        self.client.send(Ack(PUBACK, sent.packet.packet_id))
        self.settle()

    @rule(data=st.data(), delay=delays, by_id=st.booleans(), puback_follows=st.booleans())
    def refuse_over_mqtt(self, data: st.DataObject, delay: float | None, by_id: bool, puback_follows: bool) -> None:
        """By the packet identifier, which names a message until its PUBACK, or until it is settled. Most clients send a
        PUBACK by themselves."""
        mine = [each for each in self.sent if each.link is self.client]
        if self.client is None or not mine:
            return
        sent = data.draw(st.sampled_from(mine))
        message = sent.message
        by_id &= self.client.version == V5
        is_open = not message.end and message.resets == sent.resets
        is_leased = is_open and message.attempts == sent.attempt and self.has_lease(message)
        is_named = by_id or not sent.has_puback or (self.ack == "explicit" and is_leased)
        name = told(sent.packet)["ack-id"] if by_id else str(sent.packet.packet_id)
        if is_open and is_named:
            sent.refused = True
            if is_leased:
                message.leased_until = NEVER
                message.not_before = self.world.now + (backoff(message) if delay is None else delay)
        payload = name if delay is None else f"{name} {delay}"
        self.client.send(Publish(b"$queue/q/$nack", payload.encode()))
        self.settle()
        if puback_follows and not sent.has_puback:
            self.puback(sent)

    def is_with(self, sent: Sent) -> bool:
        """Whether the client holds the lease of a delivery."""
        message = sent.message
        is_latest = message.resets == sent.resets and message.attempts == sent.attempt
        return not message.end and is_latest and self.has_lease(message)

    def settle(self) -> None:
        """Everything happens; the client takes what the queue sends."""
        self.world.settle()
        self.note_dead_letters()
        if self.client is not None:
            for packet in publishes(self.client.received()):
                payload = packet.payload.decode()
                message = self.known[payload]
                attempt = int(told(packet)["delivery-attempt"]) if self.client.version == V5 else message.attempts + 1
                self.on_delivered(payload, attempt, DEADLINE_S)
                self.sent.append(Sent(self.client, packet, message))

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if not self.handles:
            return
        ack_id, payload, _, resets = data.draw(st.sampled_from(self.handles))
        message = self.known[payload]
        is_open = not message.end and message.resets == resets
        assert self.world.queues.ack("q", [ack_id]) == [is_open]
        if is_open:
            self.acknowledged(message)
        self.settle()

    def acknowledged(self, message: Known) -> None:
        message.end = "acknowledged"
        message.may_come = self.world.is_stalled

    @rule(data=st.data())
    def guess(self, data: st.DataObject) -> None:
        """The place of one `ack-id` with the MAC of another place names nothing."""
        if not self.handles:
            return
        place, mac = (data.draw(st.sampled_from(self.handles))[0] for _ in range(2))
        if place[:16] != mac[:16]:
            assert self.world.queues.ack("q", [place[:16] + mac[16:]]) == [False]

    @rule(data=st.data(), delay=delays)
    def refuse(self, data: st.DataObject, delay: float | None) -> None:
        if not self.handles:
            return
        ack_id, payload, attempt, resets = data.draw(st.sampled_from(self.handles))
        message = self.known[payload]
        is_open = not message.end and message.resets == resets
        assert self.world.queues.nack("q", [ack_id], delay) == [is_open]
        if is_open and message.attempts == attempt and self.has_lease(message):
            message.leased_until = NEVER
            message.not_before = self.world.now + (backoff(message) if delay is None else delay)
        self.settle()

    @rule(data=st.data(), seconds=st.sampled_from([1.0, 30.0]))
    def extend(self, data: st.DataObject, seconds: float) -> None:
        if not self.handles:
            return
        ack_id, payload, attempt, resets = data.draw(st.sampled_from(self.handles))
        message = self.known[payload]
        is_latest = message.resets == resets and message.attempts == attempt
        is_leased = not message.end and is_latest and self.has_lease(message)
        assert self.world.queues.extend("q", [ack_id], seconds) == [is_leased]
        if is_leased:
            message.leased_until = self.world.now + seconds
            message.not_before = message.leased_until + self.backoff_after_deadline(message)
        self.settle()

    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        if self.snapshots and not self.retains:
            return  # what the snapshots keep comes back too, which is not said here
        self.go_on()
        numbers = sorted(each.number for each in self.known.values())
        number = data.draw(st.sampled_from([0, *numbers, numbers[-1] + 1]))
        done: list[bool] = []
        self.world.queues.seek("q", number, lambda: done.append(True))
        self.world.settle()
        assert done == [True]
        newer = [each for each in self.known.values() if each.number >= number and each.end != "dead_lettered"]
        for message in self.known.values():
            if message.number < number and not message.end:
                message.end = "passed"
        if self.retains and any(each.end for each in newer):
            for message in newer:
                message.reset()
        self.settle()

    @rule()
    def make_snapshot(self) -> None:
        self.go_on()
        name = f"s{len(self.snapshots)}"
        self.world.queues.snapshots.create(name, "q")
        self.settle()
        open_now = {payload for payload, message in self.known.items() if not message.end}
        self.snapshots.append((name, open_now, len(self.known)))

    @rule(data=st.data())
    def seek_a_snapshot(self, data: st.DataObject) -> None:
        if not self.snapshots:
            return
        self.go_on()
        name, open_then, published = data.draw(st.sampled_from(self.snapshots))
        self.world.queues.seek_snapshot("q", name)
        self.world.settle()
        opens = [
            message.end != "dead_lettered" and (payload in open_then or at >= published)
            for at, (payload, message) in enumerate(self.known.items())
        ]
        for is_open, message in zip(opens, self.known.values(), strict=True):
            if is_open:
                message.reset()
            elif not message.end:
                message.end = "passed"
        self.settle()

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0, 10.5, 10.5]))
    def wait(self, seconds: float) -> None:
        end = self.world.now + seconds
        while (due := self.world.broker.due_at()) is not None and due < end:
            self.world.advance(max(0.0, due - self.world.now))
            self.settle()
        self.world.advance(end - self.world.now)
        self.settle()

    @rule()
    def kill(self) -> None:
        self.go_on()
        for sent in self.sent:
            if self.is_with(sent):
                sent.message.not_before = NEVER
        self.client = None
        self.world = self.world.restart()
        for message in self.known.values():
            message.restored = True
        self.settle()

    # ------------------------------------------------------------------ what must hold

    def has_lease(self, message: Known) -> bool:
        """Whether its latest attempt can still be refused or extended; after a restart it cannot."""
        return message.leased_until > self.world.now and not message.restored

    def note_dead_letters(self) -> None:
        letters = list(self.world.queues.dead_letters("q").letters())
        for letter in letters[self.letters :]:
            message = self.known[letter.message.payload.decode()]
            assert (message.end, message.attempts) == ("", ATTEMPTS)
            assert not self.has_lease(message)
            message.end = "dead_lettered"
        self.letters = len(letters)

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        if hasattr(self, "world"):
            open_messages = sum(not each.end for each in self.known.values())
            assert self.world.queues.state("q").depth == open_messages

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.go_on()
        self.disconnect()
        for _ in range(200):
            if self.world.queues.state("q").depth == 0:
                break
            self.world.advance(100)
            self.note_dead_letters()
            for pulled in self.world.queues.pull("q", 100):
                message = self.known[pulled.message.payload.decode()]
                assert message.end == ""
                message.end = "acknowledged"
                assert self.world.queues.ack("q", [pulled.ack_id]) == [True]
            self.world.settle()
            self.note_dead_letters()
        assert [payload for payload, message in self.known.items() if not message.end] == [], "none is stuck"
        self.world.end()


AT_ONCE: Final = RetryOptions(min_s=1, max_s=4, on_deadline="at_once")


@pytest.mark.long
@pytest.mark.parametrize(
    ("ordering", "priority", "pages", "retains", "max_lane", "fields"),
    [
        (False, False, False, True, MAX_LANE, {}),
        (False, False, False, False, MAX_LANE, {"ack": "explicit"}),
        (True, False, True, True, 1, {"retry": AT_ONCE}),
        (True, True, True, False, 2, {"ack": "explicit", "retry": AT_ONCE}),
    ],
)
def test_a_queue_does_what_the_model_predicts(
    ordering: bool, priority: bool, pages: bool, retains: bool, max_lane: int, fields: dict[str, object]
) -> None:
    kind = type(
        "Machine",
        (QueueMachine,),
        {
            "ordering": ordering,
            "priority": priority,
            "pages": pages,
            "retains": retains,
            "max_lane": max_lane,
            **fields,
        },
    )
    run_state_machine_as_test(
        kind, settings=settings(max_examples=40, stateful_step_count=30, deadline=None, derandomize=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("ordering", [False, True])
@pytest.mark.parametrize("priority", [False, True])
@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("retains", [False, True])
def test_a_queue_does_so_in_long_runs(ordering: bool, priority: bool, pages: bool, retains: bool) -> None:
    ack = "explicit" if pages == ordering else "puback"
    kind = type(
        "Machine",
        (QueueMachine,),
        {"ordering": ordering, "priority": priority, "pages": pages, "retains": retains, "max_lane": 2, "ack": ack},
    )
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=rounds(150), stateful_step_count=100, deadline=None, phases=(Phase.generate, Phase.shrink)
        ),
    )
