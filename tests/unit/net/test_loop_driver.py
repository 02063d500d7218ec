"""One iteration of the loop writes a bounded part of what waits, in order, and never before it is true on disk."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import Connection, Peer
from mqttlite.core.limits import ITERATION_WORK, MAX_PENDING_BYTES, Limits
from mqttlite.core.ports import Store
from mqttlite.core.reasons import HoldReason
from mqttlite.net.link import UNWRITTEN_BYTES, Link
from mqttlite.net.loop_driver import CLOSES_PER_ITERATION, LoopDriver
from mqttlite.net.outbox_writer import BYTES_PER_ITERATION, NEW_WRITES, WRITES_PER_ITERATION
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import (
    Ack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    SubscriptionRequest,
)
from mqttlite.wire.properties import Properties
from tests.support.stores import SlowStore

MANY = 2 * WRITES_PER_ITERATION + 10


class Socket:
    """A transport that takes every byte, and remembers in which iteration of the loop it came."""

    def __init__(self, bench: "Bench") -> None:
        self._bench = bench
        self._framer = Framer(1 << 28)
        self.packets: list[Packet] = []
        self.written_at: list[int] = []
        self.reads = True
        self.closing = False

    def write(self, data: bytes) -> None:
        assert not self.closing, "a write after the last one"
        self._bench.writes[self._bench.iteration] += 1
        self._bench.bytes[self._bench.iteration] += len(data)
        self.written_at.append(self._bench.iteration)
        self.packets += [decode(first, body, V5) for first, body in self._framer.split(data)]

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closing = True

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_extra_info(self, _name: str) -> None:
        return None


class Bench:
    """A broker, its loop driver, and links over transports that are none."""

    def __init__(self, store: Store | None = None) -> None:
        self.broker = Broker(Limits(max_packet_bytes=8 << 20))
        self.driver = LoopDriver(
            self.broker,
            MemoryStore() if store is None else store,
            on_connected=lambda _: None,
            on_closed=lambda _: self.closes.update([self.iteration]),
            on_question=lambda *_: None,
            on_memory_short=lambda *_: None,
        )
        self.iteration = 0
        self.writes: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.closes: Counter[int] = Counter()
        """Links that were closed, by iteration."""
        self._loop = asyncio.get_running_loop()

    def _open(self, _link: Link) -> Connection:
        return self.broker.open(Peer(), self._loop.time())

    async def pass_by(self, iterations: int = 1) -> None:
        """Let that many iterations of the loop pass."""
        for _ in range(iterations):
            self.iteration += 1
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Let iterations pass until one writes nothing."""
        await self.pass_by(2)
        while self.writes[self.iteration]:
            await self.pass_by()

    async def client(self, client_id: str, *filters: bytes, qos: int = 0, expiry: int = 0) -> tuple[Link, Socket]:
        """A connected client that subscribed to the filters."""
        socket = Socket(self)
        link = Link("test", "tcp", self.broker, self.driver, self._open, lambda _: None)
        transport: Any = socket
        link.connection_made(transport)
        properties = Properties(session_expiry_interval=expiry or None)
        link.data_received(encode(Connect(client_id, V5, True, 0, properties=properties), V5))
        for topic_filter in filters:
            link.data_received(encode(Subscribe(1, (SubscriptionRequest(topic_filter, qos),)), V5))
        await self.pass_by(2)
        socket.packets.clear()
        return link, socket

    async def clients(
        self, count: int, *filters: bytes, qos: int = 0, expiry: int = 0
    ) -> tuple[list[Link], list[Socket]]:
        both = [await self.client(f"c{number}", *filters, qos=qos, expiry=expiry) for number in range(count)]
        await self.settle()
        self.writes.clear()
        self.bytes.clear()
        return [link for link, _ in both], [socket for _, socket in both]


def payloads(socket: Socket) -> list[bytes]:
    return [packet.payload for packet in socket.packets if isinstance(packet, Publish)]


@pytest.mark.long
async def test_a_message_for_many_is_written_in_parts_and_in_order() -> None:
    bench = Bench()
    _, sockets = await bench.clients(MANY, b"t")
    publisher, _ = await bench.client("publisher")
    publisher.data_received(encode(Publish(b"t", b"one"), V5))
    await bench.settle()
    assert [payloads(socket) for socket in sockets] == [[b"one"]] * MANY
    counts = [bench.writes[iteration] for iteration in sorted(bench.writes) if bench.writes[iteration] > 5]
    assert counts == [WRITES_PER_ITERATION, WRITES_PER_ITERATION, 10]
    written_at = [socket.written_at[-1] for socket in sockets]
    assert written_at == sorted(written_at)


async def test_the_bytes_of_one_iteration_are_bounded_as_well() -> None:
    bench = Bench()
    _, sockets = await bench.clients(20, b"t")
    publisher, _ = await bench.client("publisher")
    publisher.data_received(encode(Publish(b"t", bytes(1 << 20)), V5))
    await bench.settle()
    assert [len(payloads(socket)) for socket in sockets] == [1] * 20
    assert max(bench.bytes.values()) < BYTES_PER_ITERATION + (1 << 20) + 100


@pytest.mark.long
@pytest.mark.parametrize("size", [3, 1_000])
async def test_a_message_for_one_passes_a_message_for_many(size: int) -> None:
    bench = Bench()
    await bench.clients(MANY, b"t")
    publisher, _ = await bench.client("publisher")
    other, socket = await bench.client("other")
    publisher.data_received(encode(Publish(b"t", bytes(size)), V5))
    await bench.pass_by()
    begun = bench.iteration
    other.data_received(encode(Pingreq(), V5))
    await bench.settle()
    assert [type(packet) for packet in socket.packets] == [Pingresp]
    assert socket.written_at[-1] <= begun + 1 < bench.iteration - 1


@pytest.mark.long
async def test_long_new_messages_leave_room_for_those_that_wait() -> None:
    bench = Bench()
    old = [await bench.client(f"old{number}", b"old") for number in range(20)]
    new = [await bench.client(f"new{number}", b"new") for number in range(4)]
    publisher, _ = await bench.client("publisher")
    await bench.settle()
    publisher.data_received(encode(Publish(b"old", bytes(1 << 20)), V5))
    begun = bench.iteration
    while not all(payloads(socket) for _, socket in old):
        bench.broker.publish(b"new", bytes(1 << 20), 0, False, 0.0)
        bench.driver.wake()
        await bench.pass_by()
        assert bench.iteration < begun + 40
    await bench.settle()
    assert len({len(payloads(socket)) for _, socket in new}) == 1


@pytest.mark.long
async def test_new_messages_leave_room_for_those_that_wait() -> None:
    bench = Bench()
    _, old = await bench.clients(MANY, b"old")
    new = [await bench.client(f"new{number}", b"new") for number in range(MANY)]
    publisher, _ = await bench.client("publisher")
    await bench.settle()
    publisher.data_received(encode(Publish(b"old", b"x"), V5))
    await bench.pass_by()
    publisher.data_received(encode(Publish(b"new", b"x"), V5))
    await bench.pass_by()
    assert sum(1 for socket in old if bench.iteration in socket.written_at) == WRITES_PER_ITERATION - NEW_WRITES
    assert sum(1 for _, socket in new if bench.iteration in socket.written_at) == NEW_WRITES
    await bench.settle()
    assert [len(payloads(socket)) for socket in old] == [1] * MANY
    assert [len(payloads(socket)) for _, socket in new] == [1] * MANY


@pytest.mark.long
async def test_frames_that_come_while_an_outbox_waits_go_behind_its_others() -> None:
    bench = Bench()
    _, sockets = await bench.clients(MANY, b"t")
    publisher, _ = await bench.client("publisher")
    for number in range(5):
        publisher.data_received(encode(Publish(b"t", b"%d" % number), V5))
        await bench.pass_by()
    await bench.settle()
    assert [payloads(socket) for socket in sockets] == [[b"0", b"1", b"2", b"3", b"4"]] * MANY


@pytest.mark.long
async def test_links_that_wait_for_their_last_write_are_closed_after_it() -> None:
    bench = Bench()
    _, sockets = await bench.clients(MANY)
    bench.broker.shut_down(asyncio.get_running_loop().time())
    bench.driver.wake()
    await bench.pass_by()
    assert sum(1 for socket in sockets if socket.closing) == CLOSES_PER_ITERATION
    await bench.settle()
    await bench.pass_by(8)
    assert [[type(packet) for packet in socket.packets] for socket in sockets] == [[Disconnect]] * MANY
    assert all(socket.closing for socket in sockets)
    assert not bench.driver.links


async def test_links_are_closed_in_parts() -> None:
    bench = Bench()
    links = [link for link, _ in [await bench.client(f"c-{number}") for number in range(2 * CLOSES_PER_ITERATION + 1)]]
    await bench.settle()
    for link in links:
        link.connection_lost(None)
    await bench.pass_by(30)
    assert max(bench.closes.values()) <= CLOSES_PER_ITERATION
    assert bench.closes.total() == len(links)


async def test_a_driver_that_stops_closes_all_links_at_once() -> None:
    bench = Bench()
    links = [link for link, _ in [await bench.client(f"c-{number}") for number in range(2 * CLOSES_PER_ITERATION)]]
    await bench.settle()
    for link in links:
        bench.broker.effects.work = 0
        link.connection_lost(None)
    bench.driver.run()
    assert bench.closes.total() == CLOSES_PER_ITERATION
    await bench.driver.stop()
    assert bench.closes.total() == len(links)


async def test_a_driver_stops_beside_a_message_that_is_just_done() -> None:
    bench = Bench()
    await bench.client("reader", b"t")
    bench.broker.effects.work = ITERATION_WORK
    ticket = bench.broker.publish(b"t", b"x", 0, False, asyncio.get_running_loop().time())
    waiting = asyncio.create_task(bench.driver.finish(ticket))
    await asyncio.sleep(0)
    assert ticket.on_done is not None
    ticket.on_done()
    await bench.driver.stop()
    waiting.cancel()


@pytest.mark.long
async def test_an_outbox_that_waits_and_then_gets_a_change_waits_for_its_commit() -> None:
    store = SlowStore()
    store.patient = False
    bench = Bench(store)
    await bench.clients(MANY, b"t")
    _, durable = await bench.client("durable", b"t", b"kept", qos=1, expiry=100)
    publisher, _ = await bench.client("publisher")
    store.patient = True
    publisher.data_received(encode(Publish(b"t", b"passing"), V5))
    await bench.pass_by()
    assert durable.packets == []
    publisher.data_received(encode(Publish(b"kept", b"kept", 1, packet_id=1), V5))
    await bench.settle()
    assert store.busy
    assert b"kept" not in payloads(durable)
    store.finish()
    await bench.pass_by(4)
    assert payloads(durable) == [b"passing", b"kept"]


@pytest.mark.long
async def test_frames_that_waited_for_a_commit_are_written_in_parts_too() -> None:
    store = SlowStore()
    store.patient = False
    bench = Bench(store)
    _, sockets = await bench.clients(MANY, b"t", qos=1, expiry=100)
    publisher, _ = await bench.client("publisher")
    await bench.settle()
    bench.writes.clear()
    store.patient = True
    publisher.data_received(encode(Publish(b"t", b"first", 1, packet_id=1), V5))
    await bench.settle()
    publisher.data_received(encode(Publish(b"t", b"second", 1, packet_id=2), V5))
    await bench.settle()
    assert sum(bench.writes.values()) == 0
    store.finish()
    await bench.pass_by(6)
    assert [payloads(socket) for socket in sockets] == [[b"first"]] * MANY
    assert max(bench.writes.values()) == WRITES_PER_ITERATION
    store.finish()
    await bench.pass_by(6)
    assert [payloads(socket) for socket in sockets] == [[b"first", b"second"]] * MANY
    assert max(bench.writes.values()) == WRITES_PER_ITERATION


@pytest.mark.long
async def test_a_link_that_goes_while_its_frames_wait_for_their_iteration_disturbs_no_other() -> None:
    store = SlowStore()
    store.patient = False
    bench = Bench(store)
    links, sockets = await bench.clients(MANY, b"t", qos=1, expiry=100)
    publisher, _ = await bench.client("publisher")
    store.patient = True
    publisher.data_received(encode(Publish(b"t", b"x", 1, packet_id=1), V5))
    await bench.settle()
    store.finish()
    await bench.pass_by(1)
    links[-1].connection_lost(None)
    await bench.pass_by(6)
    assert [payloads(socket) for socket in sockets[:-1]] == [[b"x"]] * (MANY - 1)
    assert payloads(sockets[-1]) == []


@pytest.mark.parametrize("receivers", [UNWRITTEN_BYTES // (1 << 20), 3 * UNWRITTEN_BYTES // (1 << 20)])
async def test_a_link_that_publishes_more_than_can_be_written_is_read_again_when_it_is(receivers: int) -> None:
    bench = Bench()
    _, sockets = await bench.clients(receivers, b"t")
    publisher, socket = await bench.client("publisher")
    publisher.data_received(encode(Publish(b"t", bytes(1 << 20)), V5))
    is_held = receivers > UNWRITTEN_BYTES // (1 << 20)
    assert bool(publisher.connection.hold_reasons & HoldReason.UNWRITTEN) is is_held
    publisher.data_received(encode(Publish(b"t", b"what a layer below had already"), V5))
    await bench.settle()
    assert (publisher.connection.hold_reasons, socket.reads) == (0, True)
    assert [len(payloads(each)) for each in sockets] == [2] * receivers


@pytest.mark.long
async def test_packets_wait_where_very_much_waits_to_be_written() -> None:
    bench = Bench()
    await bench.clients(MAX_PENDING_BYTES // (1 << 20) + 12, b"t")
    first, _ = await bench.client("first")
    second, socket = await bench.client("second", b"single")
    first.data_received(encode(Publish(b"t", bytes(1 << 20)), V5))
    second.data_received(encode(Publish(b"single", b"x"), V5))
    assert second.connection.deferred
    await bench.settle()
    assert not second.connection.deferred
    assert payloads(socket) == [b"x"]
    assert [link.connection.hold_reasons for link in (first, second)] == [0, 0]


async def test_a_link_that_is_held_for_two_reasons_is_read_after_both() -> None:
    bench = Bench()
    link, socket = await bench.client("c")
    link.hold(HoldReason.COMMIT)
    link.hold(HoldReason.UNWRITTEN)
    assert not socket.reads
    link.release(HoldReason.COMMIT)
    link.release(HoldReason.COMMIT)
    assert not socket.reads
    assert not link.connection.outbox.blocked
    link.release(HoldReason.UNWRITTEN)
    assert socket.reads


async def test_an_acknowledgement_that_lets_nothing_go_wakes_no_writer() -> None:
    bench = Bench()
    reader, socket = await bench.client("reader", b"t", qos=1)
    publisher, _ = await bench.client("publisher")
    for packet_id in (1, 2):
        publisher.data_received(encode(Publish(b"t", b"x", 1, packet_id=packet_id), V5))
    await bench.settle()
    iterations = bench.driver.iterations
    reader.data_received(encode(Ack(PUBACK, 1), V5))
    await asyncio.sleep(0.01)
    assert bench.driver.iterations == iterations
    reader.data_received(encode(Pingreq(), V5))
    await bench.settle()
    assert bench.driver.iterations == iterations + 1
    assert len(socket.packets) == 3


async def test_the_work_of_an_iteration_is_counted_from_its_end() -> None:
    bench = Bench()
    link, _ = await bench.client("c")
    link.data_received(encode(Subscribe(1, (SubscriptionRequest(b"a"),)), V5))
    assert bench.broker.effects.work > 0
    bench.driver.run()
    assert bench.broker.effects.work > 0
    await bench.pass_by()
    assert bench.broker.effects.work == 0
