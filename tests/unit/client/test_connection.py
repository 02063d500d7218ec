"""One connection's bytes: when they are written and read, and when it is given up. The transport keeps a diary."""

import asyncio

from mqttlite.client import ConnectionLost
from mqttlite.client.connection import FLUSH_BYTES, MAX_UNREAD_ANSWERS_BYTES, Connection
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import PINGREQ_FRAME, PINGRESP_FRAME, encode
from mqttlite.wire.packets import Connack, Packet, Publish

from .fake_broker import until

PUBLISH_FRAME = encode(Publish(b"a", b"b"), V5)


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.buffered = 0
        self.reading = True
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


class Receiver:
    def __init__(self) -> None:
        self.full = False
        self.packets: list[Packet] = []

    def on_packet(self, packet: Packet, /) -> None:
        self.packets.append(packet)


def connected(keep_alive_s: float = 0, response_timeout_s: float = 1) -> tuple[Connection, Transport, Receiver]:
    transport, receiver = Transport(), Receiver()
    connection = Connection("here:1", V5, 1_000_000, None)
    connection.connection_made(transport)
    connection.data_received(encode(Connack(False), V5))
    connection.start(receiver, lambda: None, keep_alive_s, response_timeout_s)
    return connection, transport, receiver


async def test_frames_of_one_loop_pass_are_one_write() -> None:
    connection, transport, _receiver = connected()
    assert not connection.write(b"one")
    assert not connection.write(b"two")
    assert transport.written == []
    await asyncio.sleep(0)
    assert transport.written == [b"onetwo"]


async def test_a_publisher_that_never_waits_does_not_hoard() -> None:
    connection, transport, _receiver = connected()
    assert not connection.write(b"x" * (FLUSH_BYTES - 1))
    assert connection.write(b"x")
    assert [len(data) for data in transport.written] == [FLUSH_BYTES]
    await asyncio.sleep(0)
    assert len(transport.written) == 1


async def test_packets_wait_while_the_receiver_is_full_and_keep_their_order() -> None:
    connection, transport, receiver = connected()
    receiver.full = True
    connection.data_received(PUBLISH_FRAME)
    connection.data_received(PUBLISH_FRAME)
    assert (receiver.packets, transport.reading, connection.holding) == ([], False, True)
    connection.take_held()
    assert (receiver.packets, transport.reading) == ([], False)
    receiver.full = False
    connection.take_held()
    assert (len(receiver.packets), transport.reading, connection.holding) == (2, True, False)


async def test_a_server_that_does_not_read_is_not_read() -> None:
    connection, transport, receiver = connected()
    connection.pause_writing()
    transport.buffered = MAX_UNREAD_ANSWERS_BYTES
    connection.data_received(PUBLISH_FRAME)
    assert transport.reading
    transport.buffered += 1
    connection.data_received(PUBLISH_FRAME)
    assert (transport.reading, len(receiver.packets)) == (False, 2)
    connection.resume_writing()
    assert transport.reading


async def test_a_quiet_line_is_pinged_and_given_up_without_an_answer() -> None:
    connection, transport, _receiver = connected(keep_alive_s=0.01, response_timeout_s=0.01)
    await until(lambda: transport.written == [PINGREQ_FRAME])
    connection.data_received(PINGRESP_FRAME)
    await until(lambda: transport.aborted)
    assert transport.written == [PINGREQ_FRAME] * 2
    connection.connection_lost(None)
    reason = connection.closed.result()
    assert isinstance(reason, ConnectionLost)
    assert "no answer to PINGREQ" in str(reason)


async def test_a_loss_has_the_words_of_the_network() -> None:
    connection, _transport, _receiver = connected()
    connection.connection_lost(ConnectionResetError("reset by peer"))
    assert str(connection.closed.result()) == "The connection to here:1 was lost (reset by peer)."
    assert not connection.writable
