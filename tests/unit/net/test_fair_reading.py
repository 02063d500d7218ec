"""Links with more packets than an iteration of the loop has room for continue in turn."""

import asyncio
from typing import Any

import pytest

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import CLOSED, Connection, Peer
from mqttlite.core.limits import (
    CONNECT_WORK,
    ITERATION_WORK,
    LEAST_SHARE,
    LIGHT_BYTES,
    OVERLOADED_BYTES,
    PACKET_WORK,
    Limits,
)
from mqttlite.core.reasons import HoldReason
from mqttlite.net.link import Link
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.net.reading_turns import READ_BYTES, SHORT_READ_BYTES
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Pingreq, Publish

CLIENTS = 5
PINGS = 20_000


class Transport:
    """Takes every byte and keeps none."""

    def write(self, data: bytes) -> None:
        pass

    def __init__(self) -> None:
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _name: str) -> None:
        return None

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Bench:
    """A broker with a loop driver, and links without sockets."""

    def __init__(self) -> None:
        self.broker = Broker(Limits())
        self.driver = LoopDriver(
            self.broker,
            MemoryStore(),
            on_connected=lambda _: None,
            on_closed=lambda _: None,
            on_question=lambda *_: None,
            on_memory_short=lambda *_: None,
        )

    def link(self, client_id: str = "") -> Link:
        """The link of a client; with an identifier, of one that is connected."""
        link = Link("test", "tcp", self.broker, self.driver, self._open, lambda _: None)
        self.transport = Transport()
        transport: Any = self.transport
        link.connection_made(transport)
        if client_id:
            link.data_received(encode(Connect(client_id), V5))
        return link

    def _open(self, _link: Link) -> Connection:
        return self.broker.open(Peer(), asyncio.get_running_loop().time())


@pytest.mark.long
async def test_every_client_has_its_part_of_the_budget() -> None:
    bench = Bench()
    driver = bench.driver
    links = [bench.link(f"c{number}") for number in range(CLIENTS)]
    await asyncio.sleep(0)
    for link in links:
        link.data_received(encode(Pingreq(), V5) * PINGS)
    slice_of_one = ITERATION_WORK // PACKET_WORK + 1
    iterations = 0
    answers = [0] * CLIENTS
    while min(answers) < PINGS:
        await asyncio.sleep(0)
        iterations += 1
        before, answers = answers, [link.connection.outbox.answers - 1 for link in links]
        assert sum(answers) - sum(before) <= 2 * slice_of_one, "an iteration does not exceed its budget"
        assert max(answers) - min(answers) <= 2 * slice_of_one, "no client has a third part before all have had one"
    assert iterations >= CLIENTS * PINGS // slice_of_one
    await driver.stop()


@pytest.mark.long
async def test_clients_that_connect_do_not_stand_before_those_that_are_connected() -> None:
    bench = Bench()
    client = bench.link("client")
    await asyncio.sleep(0)
    many = ITERATION_WORK // CONNECT_WORK * 4
    for link in [bench.link() for _ in range(many)]:
        link.data_received(encode(Connect("same"), V5))
    answers = client.connection.outbox.answers
    client.data_received(encode(Pingreq(), V5))
    assert client.connection.outbox.answers == answers, "the iteration has no room for it"
    while client.connection.deferred:
        await asyncio.sleep(0)
    assert client.connection.outbox.answers == answers + 1
    waiting = sum(link.connection.deferred for link in bench.driver.links.values() if isinstance(link, Link))
    assert waiting > many // 2, "it was the first after the iteration in which all of them came"
    await bench.driver.stop()


async def test_clients_that_are_connected_leave_room_for_those_that_connect() -> None:
    bench = Bench()
    links = [bench.link(f"c{number}") for number in range(CLIENTS)]
    await asyncio.sleep(0)
    for link in links:
        link.data_received(encode(Pingreq(), V5) * PINGS)
    late = bench.link()
    late.data_received(encode(Connect("late"), V5))
    iterations = 0
    while not late.connection.accepted:
        await asyncio.sleep(0)
        iterations += 1
    assert iterations <= 3
    assert all(link.connection.deferred for link in links)
    await bench.driver.stop()


@pytest.mark.long
async def test_a_client_that_sends_much_leaves_the_next_budget_to_those_that_are_read_before_it() -> None:
    bench = Bench()
    much, other = bench.link("much"), bench.link("other")
    await asyncio.sleep(0)
    much.data_received(encode(Pingreq(), V5) * PINGS)
    await asyncio.sleep(0)
    iterations = 0
    while much.connection.deferred:
        answers = other.connection.outbox.answers
        other.data_received(encode(Pingreq(), V5))
        assert other.connection.outbox.answers == answers + 1
        await asyncio.sleep(0)
        iterations += 1
    assert iterations >= PINGS * PACKET_WORK // ITERATION_WORK
    await bench.driver.stop()


@pytest.mark.long
async def test_reading_leaves_busy_senders_their_earlier_share() -> None:
    bench = Bench()
    much = bench.link("much")
    await asyncio.sleep(0)
    much.data_received(encode(Pingreq(), V5) * PINGS)
    iterations = 0
    while much.connection.deferred:
        answers = much.connection.outbox.answers
        bench.broker.effects.work = 2 * ITERATION_WORK
        await asyncio.sleep(0)
        assert answers < much.connection.outbox.answers <= answers + LEAST_SHARE // PACKET_WORK + 1
        iterations += 1
    assert iterations > 1
    await bench.driver.stop()


@pytest.mark.long
async def test_while_iterations_are_short_clients_with_little_to_do_go_first() -> None:
    bench = Bench()
    links = [bench.link(f"c{number}") for number in range(CLIENTS)]
    light = bench.link("light")
    await asyncio.sleep(0)
    effects = bench.broker.effects
    effects.shorten(True)
    bench.driver.wake()
    await asyncio.sleep(0)
    for link in links:
        link.data_received(encode(Pingreq(), V5) * PINGS)
    answers = light.connection.outbox.answers
    light.data_received(encode(Pingreq(), V5))
    assert light.connection.outbox.answers == answers, "the others have used the budget"
    await asyncio.sleep(0)
    assert light.connection.outbox.answers == answers + 1
    assert effects.work == effects.work_at_start > 0
    done = sum(link.connection.outbox.answers - 1 for link in links)
    assert done <= 3 * (ITERATION_WORK - effects.work_at_start) // PACKET_WORK + 3, "and little of theirs is done"
    effects.shorten(False)
    while any(link.connection.deferred for link in links):
        await asyncio.sleep(0)
    await bench.driver.stop()


@pytest.mark.slow
@pytest.mark.parametrize("is_short", [False, True])
async def test_clients_with_one_packet_pass_hundreds_with_some(is_short: bool) -> None:
    bench = Bench()
    effects = bench.broker.effects
    many = [bench.link(f"c{number}") for number in range(300)]
    polite = bench.link("polite")
    while any(link.connection.deferred for link in [*many, polite]):
        await asyncio.sleep(0)
    effects.shorten(is_short)
    bench.driver.wake()
    await asyncio.sleep(0)
    for link in many:
        link.data_received(encode(Pingreq(), V5) * 1_000)
    answers = polite.connection.outbox.answers
    polite.data_received(encode(Pingreq(), V5))
    assert polite.connection.outbox.answers == answers, "the others have used the budget"
    await asyncio.sleep(0)
    assert polite.connection.outbox.answers == answers + 1
    assert sum(link.connection.deferred for link in many) > 200
    effects.shorten(False)
    while any(link.connection.deferred for link in many):
        await asyncio.sleep(0)
    await bench.driver.stop()


@pytest.mark.long
async def test_in_an_overload_a_link_whose_bytes_wait_is_not_read_until_they_are_handled() -> None:
    bench = Bench()
    first, second = bench.link("first"), bench.link("second")
    await asyncio.sleep(0)
    bench.broker.effects.shorten(True)
    first.data_received(encode(Pingreq(), V5) * 10_000)
    second.data_received(encode(Pingreq(), V5) * (OVERLOADED_BYTES // 2 + 1))
    await asyncio.sleep(0)
    assert second.connection.hold_reasons & HoldReason.DEFERRED
    while second.connection.deferred:
        await asyncio.sleep(0)
    assert not second.connection.hold_reasons
    await bench.driver.stop()


async def test_bytes_behind_the_end_are_discarded_with_pauses() -> None:
    bench = Bench()
    link = bench.link("rude")
    transport = bench.transport
    await asyncio.sleep(0)
    link.data_received(b"\xf0\xff\xff\xff\x7f")  # longer than any packet may be
    while link.connection.state != CLOSED or bench.driver.links:
        await asyncio.sleep(0)
    assert transport.is_read, "it must see the client leave"
    link.data_received(bytes(65_536))
    assert not transport.is_read
    while not transport.is_read:
        await asyncio.sleep(0.001)
    link.connection_lost(None)
    await bench.driver.stop()


@pytest.mark.parametrize("is_short", [False, True])
async def test_links_that_send_much_are_read_in_turn(is_short: bool) -> None:
    bench = Bench()
    bench.broker.effects.shorten(is_short)
    links = [bench.link(f"c{number}") for number in range(100)]
    light = bench.link("light")
    await asyncio.sleep(0)
    chunk = encode(Publish(b"nobody", bytes(8_192)), V5)
    reads = [0] * len(links)
    for _ in range(3):
        for number, link in enumerate(links):
            if not link.connection.hold_reasons:
                link.data_received(chunk)
                reads[number] += 1
        light.data_received(encode(Pingreq(), V5))
        assert not light.connection.hold_reasons
        await asyncio.sleep(0)
    most = (SHORT_READ_BYTES if is_short else READ_BYTES) // len(chunk) + 1
    assert sum(reads) <= len(links) + 3 * most, "each once when they begin, and then some in turn"
    for _ in range(10_000):
        for number, link in enumerate(links):
            if not link.connection.hold_reasons and reads[number] < 3:
                link.data_received(chunk)
                reads[number] += 1
        if min(reads) == 3 and not any(link.connection.hold_reasons for link in links):
            break
        await asyncio.sleep(0)
    assert reads == [3] * len(links)
    while any(link.connection.deferred for link in links):
        await asyncio.sleep(0)
    await bench.driver.stop()


async def test_a_costly_client_takes_turns_however_small_its_chunks_are() -> None:
    bench = Bench()
    link = bench.link("many small ones")
    await asyncio.sleep(0)
    link.connection.much_bytes = 0
    link.data_received(encode(Pingreq(), V5))
    assert not link.connection.hold_reasons
    assert link.connection.much_bytes == LIGHT_BYTES, "nobody looks at what it costs any more"
    bench.broker.effects.shorten(True)
    bench.broker.effects.meters_senders = True
    link.connection.much_bytes = 0
    link.data_received(encode(Pingreq(), V5))
    assert link.connection.hold_reasons == HoldReason.TURN
    for _ in range(3):
        await asyncio.sleep(0)
    assert not link.connection.hold_reasons
    await bench.driver.stop()


async def test_one_that_is_held_for_something_else_waits_for_its_turn_after_that() -> None:
    bench = Bench()
    link = bench.link("heavy")
    await asyncio.sleep(0)
    bench.broker.effects.shorten(True)
    link.data_received(encode(Pingreq(), V5) * 4_096)
    link.hold(HoldReason.OVERLOAD)
    for _ in range(5):
        await asyncio.sleep(0)
    assert link.connection.hold_reasons & ~HoldReason.DEFERRED == HoldReason.OVERLOAD | HoldReason.TURN
    link.release(HoldReason.OVERLOAD)
    assert link.connection.hold_reasons & HoldReason.TURN
    while link.connection.deferred or link.connection.hold_reasons:
        await asyncio.sleep(0)
    assert not link.connection.hold_reasons
    await bench.driver.stop()
