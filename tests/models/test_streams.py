"""Streams beside a naive reference: each reader gets each message of its partitions once, in order, over restarts.

The machine publishes, connects and disconnects readers of every kind, acknowledges some of what they have, removes old
messages or compacts them, and kills the broker, also between any two steps of a compaction. Invariants: what is at an
offset stays there; a reader skips only what was removed; of each key, the newest message is never removed; what it
acknowledged on a connection that it keeps does not come again, and what it did not comes again; who asks is told the
end behind all that was there; a message with an id that is there is no second message.
"""

from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mqttlite.core.route.tally import POLICY_REFUSES, QUOTA_EXCEEDED
from mqttlite.extensions.streams import compaction
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Publish, Subscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, publishes, request
from tests.support.streams import StreamWorld, ack, at_number, options, places, subscribe_at

PARTITIONS: Final = 2
KEEP_BYTES: Final = 12_000
KEEP_S: Final = 2_560
TOMBSTONE_S: Final = 5_000
EXPIRY_S: Final = 100_000
WINDOW: Final = 3
LARGE_BYTES: Final = 1_500
"""More than a message takes."""


class Known:
    """A reader of the model."""

    def __init__(self, name: str, qos: int, is_kept: bool) -> None:
        self.name = name
        self.qos = qos
        self.is_kept = is_kept
        self.client: Client | None = None
        self.begun = False
        self.next = [0] * PARTITIONS
        """The next offset that it gets on this connection, without those that are done ahead."""
        self.done: list[set[int]] = [set() for _ in range(PARTITIONS)]
        """What it acknowledged, by partition."""
        self.open: list[tuple[Publish, int, int]] = []
        """What it has and did not acknowledge. The message that tells the end is of partition -1."""
        self.asked: list[int] | None = None
        """Where the partitions ended when it asked to be told; None if it is not to be told, or knows."""
        self.is_told = False
        """Whether it has that message on this connection."""

    def position(self, partition: int, first: int) -> int:
        """The lowest offset that it has not acknowledged."""
        at = first
        while at in self.done[partition]:
            at += 1
        return at


class StreamMachine(RuleBasedStateMachine):
    pages: bool
    more: Mapping[str, object] = {}
    """Options of the stream."""

    @initialize()
    def begin(self) -> None:
        self.store = MemoryStore(pages=self.pages)
        stream = options("s", "a/#", partitions=PARTITIONS, keep_bytes=KEEP_BYTES, keep_s=KEEP_S, **self.more)
        self.world = StreamWorld([stream], self.store)
        self.log: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.keys: list[list[tuple[str, float]]] = [[] for _ in range(PARTITIONS)]
        """The key of each message, and when it was published."""
        self.count = 0
        self.once: set[int] = set()
        """The ids of messages."""
        self.readers = [Known("q0", 0, False), Known("kept0", 0, True), Known("q1", 1, False), Known("kept1", 1, True)]

    # ------------------------------------------------------------------ what happens

    @rule(count=st.integers(1, 8), key=st.sampled_from(["", "k", "l"]), size=st.sampled_from([0, 0, 500]))
    def publish(self, count: int, key: str, size: int) -> None:
        for _ in range(count):
            payload = f"{self.count}".ljust(size)
            self.count += 1
            before = [self.world.streams.partition("s", at).end for at in range(PARTITIONS)]
            self.world.append(payload, topic="a" if key else "$stream/s", key=key)
            after = [self.world.streams.partition("s", at).end for at in range(PARTITIONS)]
            (partition,) = [at for at in range(PARTITIONS) if after[at] != before[at]]
            assert after[partition] == len(self.log[partition]) + 1
            self.note(partition, payload, key)
        self.look()

    def note(self, partition: int, payload: str, key: str) -> None:
        """A message was appended."""
        self.log[partition].append(payload)
        self.keys[partition].append((key, self.world.now))

    def may_be_gone(self, partition: int, offset: int) -> bool:
        """Whether a message may be removed."""
        return offset < self.world.streams.partition("s", partition).first

    @rule(number=st.integers(0, 5))
    def publish_once(self, number: int) -> None:
        """A message with an id, which may be there already."""
        ends = self.ends()
        told = [("dedup-id", str(number)), ("ordering-key", "k")]
        assert self.world.publish("a", f"once {number}", 1, user_properties=told) == 0
        changed = [at for at, end in enumerate(self.ends()) if end != ends[at]]
        assert bool(changed) == (number not in self.once)
        self.once.add(number)
        for at in changed:
            self.note(at, f"once {number}", "k")
        self.look()

    def ends(self) -> list[int]:
        return [self.world.streams.partition("s", at).end for at in range(PARTITIONS)]

    @rule(which=st.integers(0, 3))
    def ask_for_the_end(self, which: int) -> None:
        known = self.readers[which]
        if known.client is None or known.asked is not None:
            return
        self.look()
        known.asked, known.is_told = self.ends(), False
        wanted = request("$stream/s@earliest", known.qos)
        properties = Properties(user_properties=[("stream-end", "")])
        known.client.send(Subscribe(known.client.packet_id(), (wanted,), properties))
        self.look()

    @rule(back=st.integers(0, 20), later=st.sampled_from([-1, 0, 1]))
    def read_since(self, back: int, later: int) -> None:
        """A reader that begins at a time gets what one gets from the beginning, from that time on."""
        known = self.read_from("earliest")
        if not known:
            return
        since = known[-1 - min(back, len(known) - 1)][0] + later
        for partition in range(PARTITIONS):
            assert [each for each in self.read_from(at_number(since)) if each[1] == partition] == [
                each for each in known if each[1] == partition and each[0] >= since
            ]
        self.look()

    def read_from(self, position: str) -> list[tuple[int, int, int]]:
        """The number, partition and offset of each message that a new reader gets there."""
        client = self.world.connect("new", receive_maximum=65_535)
        subscribe_at(client, position)
        packets = publishes(client.received())
        client.disconnect()
        numbers = [int(dict(each.properties.user_properties)["message-id"]) for each in packets]
        return [(number, *place) for number, place in zip(numbers, places(packets), strict=True)]

    @rule(which=st.integers(0, 3))
    def connect(self, which: int) -> None:
        known = self.readers[which]
        if known.client is not None:
            return
        kept = {"clean_start": False, "expiry": EXPIRY_S} if known.is_kept else {}
        client = self.world.connect(known.name, V5, auto_ack=False, receive_maximum=WINDOW, **kept)
        if not known.is_kept or not known.begun:
            known.done = [set() for _ in range(PARTITIONS)]
        known.begun = True
        known.client, known.open = client, []
        known.next = [known.position(at, 0) for at in range(PARTITIONS)]
        if not known.is_kept or "$stream/s@earliest" not in self.subscriptions(known):
            known.next = [self.world.streams.partition("s", at).first for at in range(PARTITIONS)]
            known.done = [set(range(at)) for at in known.next]
            known.asked = None
            client.subscribe("$stream/s@earliest", qos=known.qos)
        self.look()

    def subscriptions(self, known: Known) -> list[str]:
        return [each.subscription for each in self.world.streams.readers("s") if each.client_id == known.name]

    @rule(which=st.integers(0, 3))
    def disconnect(self, which: int) -> None:
        known = self.readers[which]
        if known.client is not None:
            known.client.lose()
            known.client, known.is_told = None, False

    @rule(which=st.integers(2, 3), at=st.integers(0, WINDOW - 1))
    def acknowledge(self, which: int, at: int) -> None:
        known = self.readers[which]
        if known.client is None or at >= len(known.open):
            return
        packet, partition, offset = known.open.pop(at)
        if partition < 0:
            known.asked = None
        else:
            known.done[partition].add(offset)
        ack(known.client, packet)
        self.look()

    @rule(seconds=st.sampled_from([1.0, 30.0, 900.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.look()

    @rule()
    def kill(self) -> None:
        self.look()
        self.world = self.world.restart()
        for known in self.readers:
            known.client, known.is_told = None, False
            if known.is_kept and known.qos == 1:  # what was done ahead of the position comes again
                for at in range(PARTITIONS):
                    known.done[at] = set(range(known.position(at, 0)))

    # ------------------------------------------------------------------ what must hold

    def look(self) -> None:
        """Compare what the readers got with the reference."""
        for known in self.readers:
            if known.client is None:
                continue
            packets = publishes(known.client.received())
            assert len(packets) + len(known.open) <= WINDOW or known.qos == 0
            for packet in packets:
                end = dict(packet.properties.user_properties).get("stream-end", "")
                if end:
                    self.look_at_end(known, packet, end)
                    continue
                ((partition, offset),) = places([packet])
                assert packet.payload.decode() == self.log[partition][offset], "another message is at this offset"
                assert not packet.dup
                expected = known.next[partition]
                while expected in known.done[partition]:
                    expected += 1
                assert offset >= expected, "it comes again"
                assert all(self.may_be_gone(partition, at) for at in range(expected, offset)), "a message is missing"
                known.done[partition].update(range(expected, offset))  # they were removed
                known.next[partition] = offset + 1
                if known.qos:
                    known.open.append((packet, partition, offset))
                else:
                    known.done[partition].add(offset)

    def look_at_end(self, known: Known, packet: Publish, end: str) -> None:
        assert known.asked is not None, "nobody asked"
        assert not known.is_told, "it is told once on a connection"
        for at, pair in enumerate(end.split(",")):
            partition, offset = map(int, pair.split(":"))
            assert partition == at
            assert self.following(known, at) >= offset >= known.asked[at], "a message before the end is missing"
        if known.qos:
            known.is_told = True
            known.open.append((packet, -1, 0))
        else:
            known.asked = None

    def following(self, known: Known, partition: int) -> int:
        """The offset of the next message that it is to get."""
        following = known.next[partition]
        while following in known.done[partition] or following < self.world.streams.partition("s", partition).first:
            following += 1
        return following

    @invariant()
    def nothing_is_forgotten(self) -> None:
        if not hasattr(self, "world"):
            return
        self.look()
        for known in self.readers:
            if known.client is None or len(known.open) >= WINDOW:
                continue
            for at, log in enumerate(self.log):
                following = self.following(known, at)
                assert following >= len(log), f"{known.name} waits for {following} of partition {at}"
            assert known.asked is None or known.is_told, f"{known.name} waits to be told the end"

    @invariant()
    def the_size_is_limited(self) -> None:
        if hasattr(self, "world"):
            assert self.world.streams.state("s").size_bytes <= KEEP_BYTES

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()


class PagedStreamMachine(StreamMachine):
    """Most messages are only in the store."""

    pages = True


class MemoryStreamMachine(StreamMachine):
    """All messages are in memory."""

    pages = False


class LastValueMachine(StreamMachine):
    """Of old messages, the newest of each key stays."""

    more: Final = {"last_value": True, "keep_tombstones_s": TOMBSTONE_S}

    @rule(count=st.integers(1, 8), key=st.sampled_from("klmnop"), size=st.sampled_from([0, 0, 500]))
    def publish(self, count: int, key: str, size: int) -> None:
        for _ in range(count):
            payload = f"{self.count}".ljust(size)
            self.count += 1
            self.put(key, payload)
        self.look()

    @rule(key=st.sampled_from("klmnop"))
    def remove_key(self, key: str) -> None:
        self.put(key, "")
        self.look()

    @rule()
    def publish_without_key(self) -> None:
        assert self.world.publish("$stream/s", "x", 1) == POLICY_REFUSES

    def put(self, key: str, payload: str) -> None:
        ends = self.ends()
        code = self.world.publish("a", payload, 1, user_properties=[("ordering-key", key)])
        changed = [at for at, end in enumerate(self.ends()) if end != ends[at]]
        assert (code, len(changed)) in ((0, 1), (QUOTA_EXCEEDED, 0))
        for at in changed:
            self.note(at, payload, key)

    def may_be_gone(self, partition: int, offset: int) -> bool:
        key, time = self.keys[partition][offset]
        if not self.is_old(time):
            return False
        if any(each == key for each, _ in self.keys[partition][offset + 1 :]):
            return True
        return not self.log[partition][offset] and self.world.now - time >= TOMBSTONE_S

    def is_old(self, time: float) -> bool:
        """Whether a message may be compacted. Where room is short, the age does not matter."""
        return self.world.now - time > KEEP_S or sum(map(len, self.log)) * LARGE_BYTES > KEEP_BYTES // 2

    @rule(steps=st.integers(0, 12), seconds=st.sampled_from([0.0, 900.0, 2.0 * KEEP_S]))
    def kill_between_steps(self, steps: int, seconds: float) -> None:
        """What is read of the store comes late, so that the broker ends in the middle."""
        self.look()
        for known in self.readers:
            if known.client is not None:
                known.client.lose()
        self.world.late_pages = []
        self.world.now += seconds
        self.world.broker.tick(self.world.now)
        self.world.settle()
        for _ in range(steps):
            late, self.world.late_pages = self.world.late_pages, []
            for page in late:
                self.world.broker.answer(page.id, self.world.read(page), self.world.now)
            self.world.settle()
        self.kill()

    @rule()
    def read_the_table(self) -> None:
        client = self.world.connect("table")
        client.subscribe("$stream/s@earliest", qos=0)
        found: dict[str, str] = {}
        for packet in publishes(client.received()):
            ((partition, offset),) = places([packet])
            found[self.keys[partition][offset][0]] = packet.payload.decode()
        client.disconnect()
        for at in range(PARTITIONS):
            newest = {key: offset for offset, (key, _) in enumerate(self.keys[at])}
            for key, offset in newest.items():
                assert found.get(key, "") == self.log[at][offset], key


class PagedLastValueMachine(LastValueMachine):
    pages = True


class MemoryLastValueMachine(LastValueMachine):
    pages = False


@pytest.fixture(autouse=True)
def steps_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COMPACTED_AT_ONCE", 4)


@pytest.mark.long
@pytest.mark.parametrize(
    "machine", [PagedStreamMachine, MemoryStreamMachine, PagedLastValueMachine, MemoryLastValueMachine]
)
def test_readers_get_each_message_once_in_order(machine: type[StreamMachine]) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine, settings=settings(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True)
    )
