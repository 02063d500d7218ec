"""A shared group beside a naive reference, with a seed: members come, go, acknowledge, refuse and are silent, messages
come, the disk stands still, and the broker is killed.

Invariants: what is acknowledged on disk does not come again; an attempt is a delivery, and there are so many up to the
limit; at peace each message is acknowledged or a dead letter, and was delivered.
"""

import random

import pytest

from mqttlite.extensions.streams.shared_options import SharedGroupOptions
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish
from tests.support.core_driver import Client, publishes
from tests.support.streams import StreamWorld, options, places, reader

MAX_ATTEMPTS = 4
GROUP = SharedGroupOptions(name="g", ack_deadline_s=5, max_attempts=MAX_ATTEMPTS, min_delay_s=1, max_delay_s=8)


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = MemoryStore(pages=seed % 2 == 0)
        stream = options("s", "a/#", partitions=3, keep_bytes=1 << 30, groups=(GROUP,))
        self.world = StreamWorld([stream], self.store)
        self.members: dict[str, Client] = {}
        self.held: dict[str, list[Publish]] = {}
        self.published = 0
        self.done: set[tuple[int, int]] = set()
        """What was acknowledged, and is on disk."""
        self.unsafe: set[tuple[int, int]] = set()
        """What was acknowledged while the disk stands still."""
        self.seen: dict[tuple[int, int], int] = {}
        """How often each message was delivered."""

    def step(self) -> None:
        steps = (self.publish, self.publish, self.join, self.answer, self.answer, self.wait, self.break_, self.stall)
        self.random.choice(steps)()
        self.look()

    def publish(self) -> None:
        self.go_on()
        for _ in range(self.random.randint(1, 6)):
            self.world.append(str(self.published), topic="$stream/s")
            self.published += 1

    def join(self) -> None:
        name = self.random.choice("xyz")
        if name not in self.members:
            self.members[name] = reader(
                self.world, "$share/g/$stream/s@earliest", name, receive_maximum=self.random.randint(1, 5)
            )
            self.held[name] = []

    def answer(self) -> None:
        for name, client in self.members.items():
            held = self.held[name]
            for each in self.random.sample(held, self.random.randint(0, len(held))):
                held.remove(each)
                is_refused = self.random.random() < 0.3
                client.send(Ack(PUBACK, each.packet_id, 0x80 if is_refused else 0))
                if not is_refused:
                    (self.unsafe if self.world.is_stalled else self.done).add(places([each])[0])
                self.look()  # it may have made room for a message whose lease ended, which another one acknowledges

    def wait(self) -> None:
        self.world.advance(self.random.choice((0.5, 3.0, 6.0)))

    def break_(self) -> None:
        if self.random.random() < 0.4:
            self.world = self.world.restart()
            self.unsafe.clear()
            self.members.clear()
            self.held.clear()
        elif self.members:
            name = self.random.choice(sorted(self.members))
            self.members.pop(name).lose()
            del self.held[name]

    def stall(self) -> None:
        """The disk stands still; members come and go, and time passes."""
        self.world.stall()
        for _ in range(self.random.randint(1, 4)):
            self.join()
            self.wait()
            if self.members and self.random.random() < 0.7:
                name = self.random.choice(sorted(self.members))
                self.members.pop(name).lose()
                del self.held[name]

    def go_on(self) -> None:
        if self.world.is_stalled:
            self.world.go_on()
            self.look()  # what was acknowledged too late may be on its way already
            self.done |= self.unsafe
            self.unsafe.clear()

    def look(self) -> None:
        self.world.settle()
        for name, client in self.members.items():
            for each in publishes(client.received()):
                (place,) = places([each])
                attempt = int(dict(each.properties.user_properties)["delivery-attempt"])
                self.seen[place] = self.seen.get(place, 0) + 1
                assert place not in self.done, f"{place} was acknowledged"
                assert self.seen[place] == attempt <= MAX_ATTEMPTS
                self.held[name].append(each)

    def make_peace(self) -> None:
        self.go_on()
        for _ in range(40):
            self.join()
            self.look()
            for name, client in self.members.items():
                while self.held[name]:
                    each = self.held[name].pop()
                    client.send(Ack(PUBACK, each.packet_id))
                    self.done.add(places([each])[0])
                    self.look()
            self.look()
            self.world.advance(3.0)
            self.look()


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(each, marks=pytest.mark.slow) for each in range(6, 150))])
def test_each_message_is_acknowledged_or_a_dead_letter(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(60):
        walk.step()
    walk.make_peace()
    group = walk.world.streams.shared_group("s", "g")
    dead = {(each.partition, each.offset) for each in group.dead.all()} - walk.done
    (found,) = walk.world.streams.groups("s")
    assert (found.lag, found.under_way, found.scheduled) == (0, 0, 0)
    ends = {(each.number, at) for each in walk.world.streams.partitions("s") for at in range(each.end)}
    assert len(ends) == walk.published
    assert ends == walk.done | dead
    assert ends == set(walk.seen), "each was delivered"
    assert all(walk.seen[each] == MAX_ATTEMPTS for each in dead)
    walk.world.end()
