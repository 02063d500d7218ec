"""Neither commits nor reads wait long for the store's thread, whatever the pace of the thread and the loop.

The loop has one commit under way and asks for the next one at once, while the thread still does maintenance, or later;
readers ask all the time, or seldom. The thread does one job after the other.
"""

import asyncio

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from mqttlite.net.queue_reader import READS_AT_ONCE
from mqttlite.store.sqlite.worker import COMMITS_BETWEEN_READS, Turns


class StoreTurns(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns()
        self.loop = asyncio.new_event_loop()
        self.waiting: list[tuple[bool, int]] = []
        """Whether it is a read, and its number, in the order of asking."""
        self.number = 0
        self.may_pass: dict[int, int] = {}
        """By the number of a job that waits: how many jobs of the other kind may still go before it."""

    def ask(self, is_read: bool) -> None:
        self.number += 1
        number = self.number
        self.turns.add((lambda: number, self.loop.create_future(), is_read))
        self.waiting.append((is_read, number))
        ahead = sum(each is is_read for each, _ in self.waiting)
        self.may_pass[number] = COMMITS_BETWEEN_READS * ahead if is_read else 1

    @precondition(lambda self: not any(not is_read for is_read, _ in self.waiting))
    @rule()
    def a_commit_is_asked_for(self) -> None:
        self.ask(False)

    @precondition(lambda self: sum(is_read for is_read, _ in self.waiting) < READS_AT_ONCE)
    @rule()
    def a_read_is_asked_for(self) -> None:
        self.ask(True)

    @precondition(lambda self: self.waiting)
    @rule(again=st.booleans())
    def the_thread_does_a_job(self, again: bool) -> None:
        """With `again` the same is asked for at once."""
        job, _, is_read = self.turns.take()
        number = job()
        assert number == min(other for kind, other in self.waiting if kind is is_read), "a kind keeps its order"
        self.waiting.remove((is_read, number))
        for kind, other in self.waiting:
            self.may_pass[other] -= kind is not is_read
            assert self.may_pass[other] >= 0, f"{'a read' if kind else 'a commit'} waits for too many"
        if again:
            self.ask(is_read)

    def teardown(self) -> None:
        self.loop.close()


TestStoreTurns = StoreTurns.TestCase
