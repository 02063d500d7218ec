"""Messages that the program acknowledges itself: when PUBACK and PUBREC leave, and in which order."""

import asyncio

import pytest

from mqttlite.client import Client, Message, MqttError
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL
from mqttlite.wire.packets import Ack, Disconnect, Unsuback, Unsubscribe

from .fake_broker import Peer, broker, client, message


async def take(us: Client, count: int) -> list[Message]:
    return [await anext(us.messages) for _ in range(count)]


@pytest.mark.parametrize("version", ["5.0", "3.1.1"])
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
async def test_acknowledgements_leave_in_the_order_of_the_messages(version: str, qos: int, kind: int) -> None:
    """[MQTT-4.6.0-2] [MQTT-4.6.0-3], also of those between that the client acknowledges by itself."""

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        await peer.grant()
        peer.send(message("a/1", b"", qos, 11), message("b", b"", qos, 12), message("a/2", b"", qos, 13))
        for packet_id in (11, 12, 13):
            assert await peer.ack(kind) == Ack(kind, packet_id)
        peer.send(message("b", b"", qos, 14))
        assert await peer.ack(kind) == Ack(kind, 14)
        await peer.goodbye()

    async with broker(script) as port, client(port, version=version) as us:
        await us.subscribe("b", qos)
        await us.subscribe("a/+", qos, manual_ack=True)
        first, theirs, second = await take(us, 3)
        assert not theirs.ack(), "the client did it"
        assert second.ack()
        await asyncio.sleep(0.02)
        assert first.ack()
        assert not first.ack(), "once"
        await take(us, 1)


async def test_nothing_is_acknowledged_before_the_program_says_so() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("a", b"", 1, 1), message("a", b"", 0))
        assert await peer.next() == Disconnect()

    async with broker(script) as port, client(port) as us:
        await us.subscribe("a", 1, manual_ack=True)
        _first, without_qos = await take(us, 2)
        assert not without_qos.ack()


async def test_a_reason_code_refuses_a_message() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("a", b"", 2, 1))
        assert await peer.ack(PUBREC) == Ack(PUBREC, 1, 0x83)
        peer.send(message("a", b"again", 2, 1))  # a refused identifier is free [MQTT-4.3.3-9]
        assert await peer.ack(PUBREC) == Ack(PUBREC, 1)
        peer.send(Ack(PUBREL, 1))
        assert await peer.ack(PUBCOMP) == Ack(PUBCOMP, 1)
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        await us.subscribe("a", 2, manual_ack=True)
        [first] = await take(us, 1)
        with pytest.raises(ValueError, match="reason_code is 1"):
            first.ack(1)
        assert first.ack(0x83)
        [second] = await take(us, 1)
        assert second.payload == b"again"
        second.ack()
        await asyncio.sleep(0.02)


async def test_a_message_of_qos_1_is_acknowledged_on_its_own_connection() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("a", b"x", 1, 7))
        await asyncio.sleep(0.02)
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome(session_present=True)
        peer.send(message("a", b"x", 1, 7, dup=True))
        assert await peer.ack(PUBACK) == Ack(PUBACK, 7)
        await peer.goodbye()

    async with broker(first, second) as port, client(port, session_expiry_interval=60) as us:
        await us.subscribe("a", 1, manual_ack=True)
        lost, again = await take(us, 2)
        assert again.dup
        assert not lost.ack()
        assert again.ack()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("acknowledged", ["while there is no connection", "later"])
async def test_a_message_of_qos_2_comes_once_and_is_acknowledged_when_it_comes_again(acknowledged: str) -> None:
    gone = asyncio.Event()

    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("a", b"x", 2, 7))
        await asyncio.sleep(0.02)
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome(session_present=True)
        peer.send(message("a", b"x", 2, 7, dup=True))
        assert await peer.ack(PUBREC) == Ack(PUBREC, 7)
        peer.send(Ack(PUBREL, 7))
        assert await peer.ack(PUBCOMP) == Ack(PUBCOMP, 7)
        peer.send(message("a", b"last", 0))
        await peer.goodbye()

    def on_lost(_error: MqttError, _delay: float) -> None:
        gone.set()

    async with (
        broker(first, second) as port,
        client(port, session_expiry_interval=60, on_connection_lost=on_lost) as us,
    ):
        await us.subscribe("a", 2, manual_ack=True)
        [only] = await take(us, 1)
        await gone.wait()
        if acknowledged == "later":
            await asyncio.sleep(0.05)
        assert only.ack()
        [last] = await take(us, 1)
        assert last.payload == b"last"


async def test_more_messages_than_receive_maximum_end_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(*[message("a", b"", 1, packet_id) for packet_id in (1, 2, 3)])
        assert await peer.next() == Disconnect(0x93)

    async with broker(script) as port, client(port, receive_maximum=2, reconnect=False) as us:
        await us.subscribe("a", 1, manual_ack=True)
        await take(us, 2)
        with pytest.raises(MqttError, match=r"MQTT-3\.1\.2-27"):
            await take(us, 1)


async def test_queues_and_shares_are_told_by_their_filters() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("work/1", b"", 1, 1), message("shared", b"", 1, 2), message("other", b"", 1, 3))
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        await us.subscribe([("$queue/jobs/work/#", 1), ("$share/g/shared", 1)], manual_ack=True)
        mine, shared, other = await take(us, 3)
        assert (mine.ack(), shared.ack(), other.ack()) == (True, True, False)


async def test_after_unsubscribing_the_client_acknowledges_again() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        unsubscribe = await peer.expect(Unsubscribe)
        peer.send(message("a", b"", 1, 1), Unsuback(unsubscribe.packet_id, b"\0"))
        assert await peer.ack(PUBACK) == Ack(PUBACK, 1)
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        await us.subscribe("a", 1, manual_ack=True)
        await us.unsubscribe("a")
        await take(us, 1)
