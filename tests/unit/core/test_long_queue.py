"""A queue of many messages: each costs eight bytes in the session and eight in the store, and all leave in order."""

import sys
import tracemalloc

import pytest

from mqttlite.core.changes import Enqueue
from mqttlite.core.inbound.acknowledgements import Acknowledgements
from mqttlite.core.limits import Limits
from mqttlite.core.memory import ENTRY_BYTES, MESSAGE_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.route.tally import QUEUED
from mqttlite.core.session.session import Session
from mqttlite.store.memory import LOAD_BATCH
from mqttlite.wire.blocks import PUBACKS, counted
from mqttlite.wire.constants import V311
from tests.support.core_driver import World
from tests.support.stores import loaded

WINDOW = 1_000
PACKET_BYTES = 10
"""A PUBLISH of 3.1.1: two bytes, the topic `t`, its identifier and three digits."""
DIFFERENT = 1_000
BYTES_PER_MESSAGE = 32
COMMIT_EVERY = 10_000
DELIVERIES = [Delivery(Message(b"t", b"%03d" % number, 1), 1, False) for number in range(DIFFERENT)]
"""What is delivered, in turn; other sessions may have them, too."""


def empty_world(messages: int) -> World:
    """A world in which the client `c` is away, and so many messages may wait for it."""
    queued_bytes = (ENTRY_BYTES + MESSAGE_BYTES + 4) * messages
    world = World(Limits(max_queued_messages=messages, max_queued_bytes=queued_bytes, max_inflight=WINDOW))
    world.connect("c", V311, clean_start=False).lose()
    return world


def enqueue(world: World, messages: int) -> None:
    """Let so many wait, and the store know it."""
    session = world.session("c")
    for first in range(0, messages, COMMIT_EVERY):
        for at in range(first, first + COMMIT_EVERY):
            assert session.deliver(DELIVERIES[at % DIFFERENT]) == QUEUED
        commit(world)


def commit(world: World) -> None:
    effects = world.broker.effects
    world.store.commit(effects.changes)
    effects.changes.clear()


def attach(world: World, session: Session) -> Outbox:
    outbox = Outbox(1, world.broker.effects, world.broker.limits)
    outbox.version = V311
    session.attach(outbox, WINDOW)
    session.resume()
    return outbox


def read(world: World, outbox: Outbox, next_number: int, next_id: int) -> int:
    """What was sent is as it should be, and is acknowledged; how many messages that were."""
    data = outbox.take()
    count = len(data) // PACKET_BYTES
    for at in range(count):
        head, packet_id = b"\x32\x08\0\1t", (next_id + at - 1) % 65_535 + 1
        tail = b"%03d" % ((next_number + at) % DIFFERENT)
        assert data[at * PACKET_BYTES : (at + 1) * PACKET_BYTES] == head + packet_id.to_bytes(2, "big") + tail
    commit(world)
    effects = world.broker.effects
    effects.dirty.clear()
    outbox.dirty = False
    effects.pending_bytes = 0
    acknowledgements = Acknowledgements(effects)
    before_1 = min(count, 65_536 - next_id)
    for acks in (counted(PUBACKS, next_id, before_1), counted(PUBACKS, 1, count - before_1)):
        at = 0
        while at < len(acks):
            at = acknowledgements.on_pubacks(world.session("c"), acks, at)
    commit(world)
    return count


def deliver_in_order(world: World, waiting: int, messages: int) -> int:
    """The client is back and gets about so many of those that wait, from the first on; how many."""
    session = world.session("c")
    assert (session.queued, session.queue.first) == (waiting, 0)
    outbox = attach(world, session)
    arrived = 0
    while arrived < messages:
        arrived += read(world, outbox, arrived, arrived % 65_535 + 1)
    return arrived


@pytest.mark.slow
def test_a_message_that_waits_takes_few_bytes_with_those_in_the_store() -> None:
    world = empty_world(20_000)
    enqueue(world, 10_000)
    tracemalloc.start()
    enqueue(world, 10_000)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken <= BYTES_PER_MESSAGE * 10_000


@pytest.mark.parametrize(
    ("messages", "delivered"), [(10_000, 10_000), pytest.param(500_000, 100_000, marks=pytest.mark.slow)]
)
def test_many_messages_wait_and_leave_in_order_after_a_restart(messages: int, delivered: int) -> None:
    world = empty_world(messages)
    enqueue(world, messages)
    assert sys.getsizeof(world.session("c").queue.deliveries) <= BYTES_PER_MESSAGE * messages
    assert max(len(batch) for batch in world.store.load()) <= LOAD_BATCH
    after = world.restart()
    arrived = deliver_in_order(after, messages, delivered)
    assert arrived >= delivered
    session = after.session("c")
    session.detach()
    left = sum(isinstance(change, Enqueue) for change in loaded(after.store))
    assert left == session.queued == messages - arrived
