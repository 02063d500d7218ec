"""The queue of the broker's own messages: in order, none lost, and for a bounded time in one loop iteration."""

from collections.abc import Callable

import pytest

from mqttlite.core.limits import ITERATION_WORK
from mqttlite.telemetry import publish_queue
from mqttlite.telemetry.publish_queue import SLICE_S, PublishQueue
from tests.support.core_driver import World


class Queued:
    """A queue whose clock moves by `cost_s` each time the queue looks at it; `iterate` is a loop iteration."""

    def __init__(self, cost_s: float) -> None:
        self.world = World()
        self.watcher = self.world.connect("watcher")
        self.watcher.subscribe("#", "$SYS/#")
        self.wakes = 0
        self._cost_s = cost_s
        self._clock_s = 0.0
        self._scheduled: list[Callable[[], None]] = []
        self.queue = PublishQueue(
            self.world.broker, self._wake, lambda: self.world.now, call_soon=self._scheduled.append, clock=self._clock
        )

    def _wake(self) -> None:
        self.wakes += 1

    def _clock(self) -> float:
        self._clock_s += self._cost_s
        return self._clock_s

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.queue.put(b"$SYS/n", str(number).encode())

    def iterate(self) -> list[int]:
        """What the watcher is sent in one iteration."""
        scheduled, self._scheduled[:] = list(self._scheduled), []
        assert len(scheduled) <= 1
        for callback in scheduled:
            callback()
        self.world.settle()
        return [int(payload) for _topic, payload in self.watcher.messages()]


def test_nothing_is_published_before_the_next_iteration() -> None:
    queued = Queued(0.0)
    queued.put(1, 2)
    assert (queued.watcher.messages(), len(queued.queue), queued.wakes) == ([], 2, 0)
    assert queued.iterate() == [1, 2]
    assert (len(queued.queue), queued.wakes) == (0, 1)
    assert queued.iterate() == []


@pytest.mark.parametrize(("cost_s", "first"), [(SLICE_S, 1), (SLICE_S / 2, 2), (SLICE_S / 4, 4)])
def test_an_iteration_publishes_for_a_slice_of_time_and_in_order(cost_s: float, first: int) -> None:
    queued = Queued(cost_s * 1.01)
    queued.put(*range(10))
    assert queued.iterate() == list(range(first))
    queued.put(10)
    seen: list[int] = []
    while len(queued.queue):
        seen += queued.iterate()
    assert seen == list(range(first, 11))


@pytest.mark.parametrize(("work", "first"), [(ITERATION_WORK, [0]), (0, [0, 1, 2])])
def test_an_iteration_whose_work_budget_is_used_up_publishes_one_message(work: int, first: list[int]) -> None:
    queued = Queued(0.0)
    queued.put(0, 1, 2)
    queued.world.broker.effects.work = work
    published = queued.iterate()
    assert len(queued.queue) == 3 - len(first)
    assert published == first


@pytest.mark.parametrize("above", [-1, 0, 1, 3])
def test_a_full_queue_publishes_the_oldest_at_once(monkeypatch: pytest.MonkeyPatch, above: int) -> None:
    monkeypatch.setattr(publish_queue, "MAX_MESSAGES", 5)
    queued = Queued(0.0)
    queued.put(*range(5 + above))
    queued.world.settle()
    assert len(queued.queue) == min(5, 5 + above)
    published = [int(payload) for _topic, payload in queued.watcher.messages()]
    assert published == list(range(max(0, above)))
    assert queued.iterate() == list(range(max(0, above), 5 + above))


def test_a_cleared_queue_publishes_nothing() -> None:
    queued = Queued(0.0)
    queued.put(1)
    queued.queue.clear()
    assert queued.iterate() == []
    queued.put(2)
    assert queued.iterate() == [2]
