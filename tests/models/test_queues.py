"""A queue beside a reference model: attempts, deadlines, back-offs, ordering keys and ends, over restarts.

The machine drives it at random by its clock, and predicts with a dict of messages what it may do. Invariant: each
message comes to one end; what is delivered again was refused, or its time was over; a key has one message under way.
"""

from typing import Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mqttlite.delivery.queues.limits import ARRIVAL_S, MAX_LANE
from mqttlite.delivery.queues.options import QueueOptions
from mqttlite.store.memory import MemoryStore
from tests.support.queues import QueueWorld, options

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

    def reset(self) -> None:
        """A seek has it wait again."""
        self.end = ""
        self.attempts = 0
        self.resets += 1
        self.not_before = self.leased_until = NEVER


class QueueMachine(RuleBasedStateMachine):
    ordering: bool
    priority: bool
    pages: bool
    retains: bool = False
    max_lane: int = MAX_LANE

    @initialize()
    def begin(self) -> None:
        self.world = QueueWorld([self.queue()], MemoryStore(pages=self.pages), max_lane=self.max_lane)
        self.known: dict[str, Known] = {}
        self.handles: list[tuple[str, str, int, int]] = []
        self.snapshots: list[tuple[str, set[str], int]] = []
        self.letters = 0
        self.publish(key="", priority=1, count=1)  # so that most runs have something to refuse
        self.publish(key="k", priority=1, count=3)
        self.pull(most=2, lease_s=None)

    def queue(self) -> QueueOptions:
        return options(max_attempts=ATTEMPTS, ordering=self.ordering, priority=self.priority, **self.kept())

    def kept(self) -> dict[str, object]:
        return {"retain_acked": True, "expiry_s": 86_400} if self.retains else {"expiry_s": 0}

    # ------------------------------------------------------------------ what happens

    @rule(key=st.sampled_from(["", "", "k", "l"]), priority=st.integers(0, 3), count=st.integers(1, 3))
    def publish(self, key: str, priority: int, count: int) -> None:
        for _ in range(count):
            payload = str(len(self.known))
            properties = [("priority", str(priority)), *([("ordering-key", key)] if key else [])]
            message = self.known[payload] = Known(key if self.ordering else "")
            self.world.publish("a", payload, 1, user_properties=properties)
            message.number = self.world.broker.effects.numbers.latest

    @rule(most=st.integers(1, 5), lease_s=st.sampled_from([None, 2.0, 60.0]))
    def pull(self, most: int, lease_s: float | None) -> None:
        now = self.world.now
        for pulled in self.world.queues.pull("q", most, lease_s):
            payload = pulled.message.payload.decode()
            message = self.known[payload]
            assert message.end == ""
            assert now >= message.not_before, "it was delivered before its time"
            message.attempts += 1
            assert pulled.attempt == message.attempts <= ATTEMPTS
            message.not_before = now + (DEADLINE_S if lease_s is None else lease_s)
            message.leased_until = message.not_before + ARRIVAL_S
            message.restored = False
            if message.key:
                same = [each for each in self.known.values() if each.key == message.key and not each.end]
                assert same[0] is message, "another message with its key is before it"
            self.handles.append((pulled.ack_id, payload, pulled.attempt, message.resets))
        self.world.settle()
        self.note_dead_letters()

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if not self.handles:
            return
        ack_id, payload, _, resets = data.draw(st.sampled_from(self.handles))
        message = self.known[payload]
        is_open = not message.end and message.resets == resets
        assert self.world.queues.ack("q", [ack_id]) == [is_open]
        if is_open:
            message.end = "acknowledged"
        self.world.settle()
        self.note_dead_letters()

    @rule(data=st.data())
    def guess(self, data: st.DataObject) -> None:
        """The place of one `ack-id` with the MAC of another names nothing."""
        if not self.handles:
            return
        place, mac = (data.draw(st.sampled_from(self.handles))[0] for _ in range(2))
        forged = place[:16] + mac[16:]
        if forged != place:
            assert self.world.queues.ack("q", [forged]) == [False]

    @rule(data=st.data(), delay=delays)
    def refuse(self, data: st.DataObject, delay: float | None) -> None:
        if not self.handles:
            return
        ack_id, payload, attempt, resets = data.draw(st.sampled_from(self.handles))
        message = self.known[payload]
        is_latest = message.resets == resets and message.attempts == attempt
        is_leased = not message.end and is_latest and self.has_lease(message)
        assert self.world.queues.nack("q", [ack_id], delay) == [is_leased]
        if is_leased:
            message.leased_until = NEVER
            backoff = min(4.0, 2.0 ** (message.attempts - 1))
            message.not_before = self.world.now + (backoff if delay is None else delay)
        self.world.settle()
        self.note_dead_letters()

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
            message.leased_until = message.not_before = self.world.now + seconds
        self.world.settle()

    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        if self.snapshots and not self.retains:
            return  # what the snapshots keep comes back too, which is not said here
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
        self.note_dead_letters()

    @rule()
    def make_snapshot(self) -> None:
        name = f"s{len(self.snapshots)}"
        self.world.queues.snapshots.create(name, "q")
        self.world.settle()
        open_now = {payload for payload, message in self.known.items() if not message.end}
        self.snapshots.append((name, open_now, len(self.known)))

    @rule(data=st.data())
    def seek_a_snapshot(self, data: st.DataObject) -> None:
        if not self.snapshots:
            return
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
        self.note_dead_letters()

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.note_dead_letters()

    @rule()
    def kill(self) -> None:
        self.world = self.world.restart()
        for message in self.known.values():
            message.restored = True
        self.note_dead_letters()

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


@pytest.mark.parametrize(
    ("ordering", "priority", "pages", "retains", "max_lane"),
    [(False, False, False, True, MAX_LANE), (True, False, True, True, 1), (True, True, True, False, 2)],
)
def test_a_queue_does_what_the_model_predicts(
    ordering: bool, priority: bool, pages: bool, retains: bool, max_lane: int
) -> None:
    kind = type(
        "Machine",
        (QueueMachine,),
        {"ordering": ordering, "priority": priority, "pages": pages, "retains": retains, "max_lane": max_lane},
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
    kind = type(
        "Machine",
        (QueueMachine,),
        {"ordering": ordering, "priority": priority, "pages": pages, "retains": retains, "max_lane": 2},
    )
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=150, stateful_step_count=100, deadline=None, phases=(Phase.generate, Phase.shrink)
        ),
    )
