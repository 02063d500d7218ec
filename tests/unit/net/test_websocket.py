"""The frames between a socket and a link, without either: every cut of the stream, and what happens out of turn."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong

from mqttlite.core.effects import Effects
from mqttlite.core.limits import ITERATION_WORK, LEAST_SHARE, OVERLOADED_BYTES
from mqttlite.core.reasons import CloseReason
from mqttlite.net.frame_queue import FRAME_WORK, PART_FRAMES, FrameQueue
from mqttlite.net.link import DISCARD_S, MAX_DEFERRED_BYTES, Link
from mqttlite.net.upgrade import WebSocketOptions
from mqttlite.net.websocket import MAX_EARLY_FRAMES, MAX_LATE_FRAMES, FrameTransport, WebSocket, in_frames
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish
from tests.support.web import request

PINGRESP = b"\xd0\x00"

EMPTY = bytes.fromhex("82 80 00000000")
PING = bytes.fromhex("89 80 00000000")
TEXT = bytes.fromhex("81 80 00000000")
CLOSE = bytes.fromhex("88 82 00000000 03e9")


class Socket(asyncio.Transport):
    """Keeps what is written, and who called."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.calls: list[str] = []
        self.writes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.writes += 1

    def is_closing(self) -> bool:
        return "close" in self.calls

    def can_write_eof(self) -> bool:
        return True

    def __getattribute__(self, name: str) -> Any:
        if name in ("close", "abort", "pause_reading", "resume_reading", "write_eof", "set_write_buffer_limits"):
            return lambda *args: self.calls.append(name)
        return super().__getattribute__(name)


class Mqtt:
    """Stands for the link, and keeps what it is told."""

    listener = "web"
    address = "client:1"

    def __init__(self) -> None:
        self.made = False
        self.received = b""
        self.awaits_connect = False
        self.failure: Exception | None = None
        self.on_data: Callable[[], object] = lambda: None
        self.calls: list[str] = []
        self.transport: FrameTransport
        self.connection = self
        self.close_reason = CloseReason.SERVER_SHUTDOWN
        self.transport_work = 0

    def connection_made(self, transport: FrameTransport) -> None:
        self.made = True
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert data, "nothing is no news"
        if self.failure is not None:
            raise self.failure
        self.received += data
        self.on_data()

    def pause_writing(self) -> None:
        self.calls.append("pause_writing")

    def resume_writing(self) -> None:
        self.calls.append("resume_writing")

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.append(f"lost: {error}")


class Budget:
    """The work of a loop iteration. As the loop driver does, it begins a new one behind what was scheduled before."""

    def __init__(self) -> None:
        self.effects = Effects()
        self.queue = FrameQueue(self.effects, self.wake)
        self.worked: list[int] = []
        """How much each iteration did that has ended."""
        self._loop = asyncio.get_running_loop()
        self._woken = False

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._end_iteration)

    def _end_iteration(self) -> None:
        self._woken = False
        self.worked.append(self.effects.work)
        self.effects.work = 0


class Bench:
    """A WebSocket between the two, and the client's frames."""

    def __init__(self, *, asked: bool = True, budget: "Budget | None" = None) -> None:
        self.budget = budget or Budget()
        self.socket = Socket()
        self.mqtt = Mqtt()
        self.ended: list[bool] = []
        self.web = WebSocket(
            cast(Link, self.mqtt),
            WebSocketOptions(),
            60,
            self.budget.queue,
            lambda _: None,
            lambda _, is_link: self.ended.append(is_link),
        )
        self.client = Connection(ConnectionType.CLIENT)
        self.web.connection_made(self.socket)
        if asked:
            self.web.data_received(request())
            self.socket.written = b""

    def frames(self, *events: Any) -> bytes:
        return b"".join(self.client.send(event) for event in events)

    def events(self) -> list[Any]:
        """What the client got since it last asked."""
        self.client.receive_data(self.socket.written)
        self.socket.written = b""
        return list(self.client.events())


@pytest.mark.long
async def test_cutting_the_stream_anywhere_changes_nothing() -> None:
    client = Connection(ConnectionType.CLIENT)
    events = [
        BytesMessage(b"short"),
        BytesMessage(b"x" * 200, message_finished=False),
        Ping(b"?"),
        BytesMessage(b"", message_finished=False),
        BytesMessage(b"the end"),
        Pong(b"unasked"),
        CloseConnection(1000),
    ]
    stream = request() + b"".join(client.send(event) for event in events)
    for cut in range(1, len(stream)):
        bench = Bench(asked=False)
        bench.web.data_received(stream[:cut])
        bench.web.data_received(stream[cut:])
        assert bench.ended == [True]
        assert bench.mqtt.received == b"short" + b"x" * 200 + b"the end"
        assert bench.socket.written.endswith(b"\x88\x02\x03\xe8")
        assert bench.socket.calls == ["close"]
        bench.web.connection_lost(None)
        assert bench.mqtt.calls == ["lost: None"]


async def test_a_frame_of_any_length_is_handed_on_as_it_comes() -> None:
    bench = Bench()
    bench.web.data_received(bytes.fromhex("82 ff 0000010000000000 00000000"))  # a terabyte
    for number in range(1, 100):
        bench.web.data_received(b"x" * 1_000)
        assert len(bench.mqtt.received) == number * 1_000


async def test_while_the_socket_is_full_only_the_last_ping_is_kept() -> None:
    bench = Bench()
    bench.web.pause_writing()
    bench.web.data_received(bench.frames(Ping(b"1")))
    bench.web.data_received(bench.frames(Ping(b"2")))
    assert bench.socket.written == b""
    bench.web.resume_writing()
    assert bench.events() == [Pong(b"2")]
    assert bench.mqtt.calls == ["pause_writing", "resume_writing"]


async def test_a_full_socket_before_the_request_has_no_effect() -> None:
    bench = Bench(asked=False)
    bench.web.pause_writing()
    bench.web.resume_writing()
    assert bench.mqtt.calls == []
    bench.web.connection_lost(None)
    assert bench.ended == [False]
    assert bench.mqtt.calls == []


async def test_after_our_close_nothing_is_written_and_nothing_read() -> None:
    bench = Bench()
    bench.mqtt.transport.write(PINGRESP)
    bench.mqtt.transport.close()
    bench.mqtt.transport.close()
    bench.mqtt.transport.write(PINGRESP)
    assert bench.mqtt.transport.is_closing()
    late = bench.frames(BytesMessage(b"late"), Ping(b"late"))
    assert bench.events() == [BytesMessage(PINGRESP), CloseConnection(1001, "server_shutdown")]
    bench.web.data_received(late)
    assert bench.mqtt.received == bench.socket.written == b""
    bench.web.data_received(bench.frames(CloseConnection(1001)))
    assert bench.socket.calls == ["pause_reading", "pause_reading", "close"]


async def test_a_ping_that_waits_is_not_answered_after_our_close() -> None:
    bench = Bench()
    bench.web.pause_writing()
    bench.web.data_received(bench.frames(Ping(b"1")))
    bench.mqtt.transport.close()
    bench.events()
    bench.web.resume_writing()
    assert bench.socket.written == b""


async def test_requests_of_a_link_to_its_transport_reach_the_socket() -> None:
    bench = Bench()
    transport = bench.mqtt.transport
    assert not transport.is_closing()
    assert not transport.can_write_eof()
    transport.set_write_buffer_limits(2, 1)
    transport.pause_reading()
    transport.resume_reading()
    transport.abort()
    assert transport.get_extra_info("peername", "nobody") == "nobody"
    assert bench.socket.calls == ["set_write_buffer_limits", "pause_reading", "resume_reading", "abort"]
    transport.write(b"")
    assert bench.socket.written == b""


def numbered(count: int) -> bytes:
    """Frames of four bytes each, which say their numbers."""
    return b"".join(b"\x82\x84\0\0\0\0%04d" % number for number in range(count))


@pytest.mark.long
async def test_many_frames_are_decoded_in_parts_as_far_as_an_iteration_has_room_for_them() -> None:
    bench = Bench()
    count = 3 * ITERATION_WORK // FRAME_WORK
    sent = b"".join(b"%04d" % number for number in range(count))
    bench.web.data_received(numbered(count))
    assert bench.mqtt.received == sent[: 4 * PART_FRAMES]
    while len(bench.mqtt.received) < 4 * count:
        await asyncio.sleep(0)
    assert len(bench.budget.worked) >= 2
    assert max(bench.budget.worked) < ITERATION_WORK + PART_FRAMES * FRAME_WORK
    await asyncio.sleep(0)
    bench.web.data_received(numbered(1))
    assert bench.mqtt.received == sent + b"0000"


@pytest.mark.parametrize(("used", "is_decoded"), [(-1, True), (0, False)])
async def test_a_frame_waits_when_others_have_used_up_the_budget(used: int, is_decoded: bool) -> None:
    bench = Bench()
    bench.budget.effects.work = ITERATION_WORK + used
    bench.web.data_received(numbered(1))
    assert (bench.mqtt.received == b"0000") == is_decoded
    await asyncio.sleep(0)
    assert bench.mqtt.received == b"0000", "there is a least share"


@pytest.mark.long
async def test_all_web_sockets_of_a_broker_share_the_budget_in_turn() -> None:
    budget = Budget()
    benches = [Bench(budget=budget) for _ in range(ITERATION_WORK // (PART_FRAMES * FRAME_WORK))]
    count = 1_000
    for bench in benches:
        bench.web.data_received(numbered(count))
    while any(len(bench.mqtt.received) < 4 * count for bench in benches):
        decoded = [len(bench.mqtt.received) // 4 for bench in benches]
        assert max(decoded) - min(decoded) <= PART_FRAMES
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert max(budget.worked) < ITERATION_WORK + PART_FRAMES * FRAME_WORK
    assert len(budget.worked) >= 10


async def test_web_sockets_leave_the_next_links_their_share() -> None:
    bench = Bench()
    effects = bench.budget.effects
    bench.web.data_received(numbered(2 * ITERATION_WORK // FRAME_WORK))
    follows = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: follows.set_result(None))
    bench.budget.wake()
    left: list[int] = []
    bench.mqtt.on_data = lambda: left.append(ITERATION_WORK - effects.work)
    await follows
    assert bench.budget.worked == [ITERATION_WORK - LEAST_SHARE]
    assert min(left) < LEAST_SHARE, "it used more than it says"


async def test_web_sockets_give_back_no_work_that_others_have_used() -> None:
    bench = Bench()
    bench.budget.effects.work = 2 * ITERATION_WORK
    bench.web.data_received(numbered(1))
    await asyncio.sleep(0)
    assert bench.budget.worked == [2 * ITERATION_WORK]


async def test_input_behind_waiting_frames_is_decoded_later_and_held_back_when_it_is_much() -> None:
    bench = Bench()
    bench.web.data_received(numbered(PART_FRAMES + 1))
    much = bench.frames(BytesMessage(b"x" * MAX_DEFERRED_BYTES))
    bench.web.data_received(much[:MAX_DEFERRED_BYTES])
    assert bench.socket.calls == []
    bench.web.data_received(much[MAX_DEFERRED_BYTES:])
    assert bench.socket.calls == ["pause_reading"]
    assert len(bench.mqtt.received) == 4 * PART_FRAMES
    await asyncio.sleep(0)
    assert bench.mqtt.received[4 * PART_FRAMES :] == b"%04d" % PART_FRAMES + b"x" * MAX_DEFERRED_BYTES
    assert bench.socket.calls == ["pause_reading", "resume_reading"]


async def test_in_short_iterations_less_may_wait_behind_frames() -> None:
    bench = Bench()
    bench.budget.effects.shorten(True)
    bench.web.data_received(numbered(PART_FRAMES + 1) + bytes.fromhex("82 ff 0000010000000000 00000000"))
    bench.web.data_received(b"x" * OVERLOADED_BYTES)
    assert bench.socket.calls == []
    bench.web.data_received(b"x")
    assert bench.socket.calls == ["pause_reading"]


async def test_in_short_iterations_one_part_at_a_time_is_decoded() -> None:
    bench = Bench()
    bench.budget.effects.shorten(True)
    bench.budget.effects.work = ITERATION_WORK
    bench.web.data_received(numbered(3 * PART_FRAMES))
    await asyncio.sleep(0)
    assert len(bench.mqtt.received) == 4 * PART_FRAMES


async def test_the_link_is_told_how_much_work_its_frames_were() -> None:
    bench = Bench()
    bench.web.data_received(numbered(3) + bench.frames(BytesMessage(b"x" * 10_240)))
    work = 4 * FRAME_WORK + 20
    assert bench.budget.effects.work == bench.mqtt.transport_work == work
    bench.web.data_received(EMPTY)
    assert bench.mqtt.transport_work == FRAME_WORK, "there is no overload"
    bench.budget.effects.meters_senders = True
    bench.web.data_received(EMPTY)
    assert bench.mqtt.transport_work == 2 * FRAME_WORK


@pytest.mark.parametrize("is_deaf", [True, False])
async def test_after_the_end_input_is_read_in_turns(is_deaf: bool) -> None:
    bench = Bench()
    if is_deaf:
        bench.web.data_received(CLOSE + EMPTY)
        bench.socket.calls.clear()
    else:
        bench.mqtt.transport.close()
    bench.web.data_received(numbered(1))
    assert bench.socket.calls == ["pause_reading"]
    assert bench.mqtt.received == b""
    await asyncio.sleep(2 * DISCARD_S)
    assert bench.socket.calls == ["pause_reading", "resume_reading"]


async def test_a_link_that_pauses_while_frames_wait_stays_paused() -> None:
    bench = Bench()
    bench.web.data_received(numbered(PART_FRAMES + 1) + bytes.fromhex("82 ff 0000010000000000 00000000"))
    bench.web.data_received(b"x" * (MAX_DEFERRED_BYTES + 1))
    bench.mqtt.transport.pause_reading()
    await asyncio.sleep(0)
    assert "resume_reading" not in bench.socket.calls
    assert len(bench.mqtt.received) == 4 * PART_FRAMES, "the frames wait as well"
    bench.mqtt.transport.resume_reading()
    await asyncio.sleep(0)
    assert bench.socket.calls[-1] == "resume_reading"
    assert len(bench.mqtt.received) > 4 * PART_FRAMES


@pytest.mark.parametrize("is_lost", [True, False])
async def test_frames_that_wait_for_a_link_are_decoded_at_the_end(is_lost: bool) -> None:
    bench = Bench()
    bench.web.data_received(numbered(PART_FRAMES + 1) + CLOSE)
    bench.mqtt.transport.pause_reading()
    await asyncio.sleep(0)
    assert len(bench.mqtt.received) == 4 * PART_FRAMES
    if is_lost:
        bench.web.connection_lost(None)
        await asyncio.sleep(0)
        assert len(bench.mqtt.received) == 4 * PART_FRAMES + 4
        assert bench.mqtt.calls == ["lost: the client closed its WebSocket with 1001"]
    else:
        bench.mqtt.transport.close()
        bench.mqtt.transport.resume_reading()
        await asyncio.sleep(0)
        assert bench.socket.calls[-1] == "close"


async def test_frames_after_our_close_are_searched_no_more_when_the_socket_is_lost() -> None:
    bench = Bench()
    bench.mqtt.transport.close()
    bench.web.data_received(2 * MAX_LATE_FRAMES * EMPTY)
    bench.web.connection_lost(None)
    while not bench.mqtt.calls:
        await asyncio.sleep(0)
    assert "write_eof" not in bench.socket.calls


async def test_after_our_close_few_frames_are_searched_for_the_clients() -> None:
    bench = Bench()
    bench.mqtt.transport.close()
    for _ in range(MAX_LATE_FRAMES):
        bench.web.data_received(EMPTY)
    await asyncio.sleep(0)
    assert "write_eof" not in bench.socket.calls
    bench.web.data_received(EMPTY)
    await asyncio.sleep(0)
    assert "write_eof" in bench.socket.calls


async def test_a_link_that_resumes_while_too_much_waits_is_read_once_that_is_decoded() -> None:
    bench = Bench()
    bench.web.data_received(numbered(PART_FRAMES + 1) + bytes.fromhex("82 ff 0000010000000000 00000000"))
    bench.web.data_received(b"x" * (MAX_DEFERRED_BYTES + 1))
    bench.mqtt.transport.pause_reading()
    bench.mqtt.transport.resume_reading()
    assert "resume_reading" not in bench.socket.calls
    await asyncio.sleep(0)
    assert bench.socket.calls[-1] == "resume_reading"


@pytest.mark.parametrize("last", [b"", CLOSE, PING, TEXT])
async def test_frames_that_wait_when_the_socket_is_lost_are_decoded_before_the_link_hears_of_it(last: bytes) -> None:
    bench = Bench()
    bench.web.data_received(numbered(2 * PART_FRAMES) + last)
    bench.web.connection_lost(None)
    bench.mqtt.transport.write(PINGRESP)
    bench.mqtt.transport.close()
    assert bench.mqtt.calls == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(bench.mqtt.received) == 8 * PART_FRAMES
    assert len(bench.mqtt.calls) == 1
    assert bench.socket.written == b"", "nobody reads it"


async def test_a_failure_of_the_link_in_a_later_part_closes_the_socket(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.web.data_received(numbered(PART_FRAMES + 1))
    bench.mqtt.failure = RuntimeError("planned")
    await asyncio.sleep(0)
    assert bench.socket.calls == ["abort"]
    assert "client:1: what it sent could not be looked at" in caplog.text


@pytest.mark.parametrize("frame", [EMPTY, PING, numbered(1)], ids=["empty", "ping", "short"])
async def test_too_many_frames_before_connect_close_the_connection(frame: bytes) -> None:
    bench = Bench()
    bench.mqtt.awaits_connect = True
    for _ in range(MAX_EARLY_FRAMES):
        bench.web.data_received(frame)
    await asyncio.sleep(0)
    assert not bench.mqtt.transport.is_closing()
    bench.web.data_received(frame)
    await asyncio.sleep(0)
    assert bench.mqtt.transport.is_closing()
    assert bench.events()[-1] == CloseConnection(1008, "more than 1024 frames came before CONNECT")
    bench.web.connection_lost(None)
    assert bench.mqtt.calls == ["lost: more than 1024 frames came before CONNECT"]


async def test_after_connect_frames_may_be_as_many_and_as_short_as_they_are() -> None:
    bench = Bench()
    for _ in range(MAX_EARLY_FRAMES + 1):
        bench.web.data_received(EMPTY)
    assert not bench.mqtt.transport.is_closing()


@pytest.mark.parametrize("size", [0, 118, 119, 65_525, 65_526, 100_000])
async def test_each_packet_is_a_frame_of_its_own_in_one_write(size: int) -> None:
    bench = Bench()
    bench.socket.writes = 0
    packets = [PINGRESP, encode(Publish(b"topic", bytes(size)), V5), PINGRESP]
    bench.mqtt.transport.write(b"".join(packets))
    assert bench.socket.writes == 1
    assert bench.events() == [BytesMessage(packet) for packet in packets]
    bench.mqtt.transport.write(packets[1])
    assert bench.events() == [BytesMessage(packets[1])]


@pytest.mark.parametrize(("size", "header"), [(125, "82 7d"), (126, "82 7e 007e"), (65_535, "82 7e ffff")])
def test_a_frame_s_length_is_as_short_as_it_can_be(size: int, header: str) -> None:
    body = size - 2 if size < 130 else size - 4
    packet = encode(Publish(b"", bytes(body - 3)), V5)
    assert len(packet) == size
    assert in_frames(packet) == bytes.fromhex(header) + packet
