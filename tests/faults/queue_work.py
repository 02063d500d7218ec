"""What a queue does, at random but by the real one: the changes of each commit, and what is in the queue after it.

Invariant: a payload is published once, so that a test can tell where it is, and that it is nowhere twice.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

from mqttlite.core.changes import Change
from mqttlite.core.log_changes import Append
from mqttlite.extensions.queues.marks import attempts_of
from mqttlite.extensions.queues.options import RetryOptions
from mqttlite.extensions.queues.service import Pulled
from mqttlite.store.memory import MemoryStore
from tests.support.queues import QueueWorld, options
from tests.support.stores import loaded

ATTEMPTS: Final = 3

Seen = dict[str, Any]


class RecordingStore(MemoryStore):
    """Remembers each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[list[Change]] = []

    def commit(self, changes: list[Change]) -> None:
        self.commits.append(list(changes))
        super().commit(changes)


def options_of_queue(rng: random.Random) -> Any:
    """Without a back-off after a missed deadline, messages come to their last attempt more often."""
    retry = RetryOptions(min_s=1, max_s=4, on_deadline=rng.choice(["back_off", "at_once"]))
    return options(max_attempts=ATTEMPTS, ordering=True, expiry_s=0, retry=retry)


def seen(store: MemoryStore) -> Seen:
    """Where each message is, and how often it was delivered: under way, waiting, or a dead letter."""
    found: Seen = {}
    for change in loaded(store):
        if isinstance(change, Append):
            payload = change.delivery.message.payload.decode()
            assert payload not in found, "a message is in one place"
            attempts = attempts_of(change.mark) if change.mark else 0
            found[payload] = "dead" if change.key.endswith("$dlq/q") else attempts
    return found


class QueueWork:
    """`commits` are the changes of each step."""

    def __init__(self, seed: int, steps: int) -> None:
        self._rng: Final = random.Random(seed)
        self._store: Final = RecordingStore()
        self._world: Final = QueueWorld([], self._store)
        self._pulled: list[Pulled] = []
        self._published = 0
        self.acknowledged: Final[dict[str, int]] = {}
        """By payload, in which commit the acknowledgement of a consumer was made durable."""
        self._world.queues.create(options_of_queue(self._rng))
        self._world.settle()
        for _ in range(steps):
            self._step()
            self._world.settle()

    @property
    def commits(self) -> list[list[Change]]:
        return self._store.commits

    def restarts(self) -> Iterator[tuple[int, Seen, Seen]]:
        """For each commit what is in the store after it, and what a broker has that starts again with that."""
        for number in range(1, len(self.commits) + 1):
            store, copy = MemoryStore(), MemoryStore()
            for changes in self.commits[:number]:
                store.commit(changes)
                copy.commit(changes)
            world = QueueWorld([], copy, self._world.now)
            found = seen(copy)
            if "q" in world.queues.names:
                assert world.queues.state("q").depth == sum(each != "dead" for each in found.values())
            yield number, seen(store), found

    def _step(self) -> None:
        rng, queues, step = self._rng, self._world.queues, self._rng.random()
        if step < 0.4:
            for _ in range(rng.randint(1, 4)):
                self._published += 1
                payload = f"{self._published} " + "x" * rng.choice([0, 10, 2_000])
                key = rng.choice(["", "", "k", "l"])
                self._world.publish("a", payload, 1, user_properties=[("ordering-key", key)] if key else [])
        elif step < 0.6:
            self._pulled += queues.pull("q", rng.randint(1, 3))
        elif step < 0.72:
            for each in self._take():
                if queues.ack("q", [each.ack_id])[0]:
                    self.acknowledged[each.message.payload.decode()] = len(self._store.commits) + 1
        elif step < 0.84:
            queues.nack("q", [each.ack_id for each in self._take()], rng.choice([None, 0.0, 5.0]))
        elif step < 0.88:
            queues.extend("q", [each.ack_id for each in self._take()], 30.0)
        elif step < 0.94:
            self._world.advance(rng.choice([1.0, 11.0]))
        else:
            self._operate(rng.randrange(4))

    def _take(self) -> list[Pulled]:
        self._rng.shuffle(self._pulled)
        taken, self._pulled = self._pulled[:2], self._pulled[2:]
        return taken

    def _operate(self, what: int) -> None:
        queues = self._world.queues
        letters = [letter.number for letter in queues.dead_letters("q").letters(most=1)]
        if what == 0:
            queues.purge("q")
        elif what == 1:
            queues.delete("q")
            queues.create(options_of_queue(self._rng))
        elif what == 2:
            for number in letters:
                queues.replay("q", number)
        else:
            for number in letters:
                queues.drop_dead_letter("q", number)
