"""Messages of a kept session for a stream or queue that is not read yet, or not any more."""

import asyncio
import gc

import pytest

from mqttlite.client import ClientClosed, MqttError, session
from mqttlite.client.session import FIRST_READER_IDENTIFIER
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Publish, Suback, Subscribe, Unsuback, Unsubscribe
from mqttlite.wire.properties import Properties
from tests.unit.client.fake_broker import Peer, broker, client, message, until


def of_reader(identifier: int, packet_id: int, offset: int) -> Publish:
    place = [("stream-partition", "0"), ("stream-offset", str(offset))]
    properties = Properties(subscription_identifiers=[identifier], user_properties=place)
    return Publish(b"t", b"", 1, packet_id=packet_id, properties=properties)


async def test_messages_before_suback_are_of_a_former_reading_and_move_no_position() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(session_present=True)
        asked = await peer.expect(Subscribe)
        (identifier,) = asked.properties.subscription_identifiers
        peer.send(of_reader(identifier, 1, 8), Suback(asked.packet_id, b"\1"), of_reader(identifier, 2, 5))
        assert [(await peer.ack(PUBACK)).packet_id for _ in range(2)] == [1, 2]
        await peer.goodbye()

    async with broker(script) as port, client(port) as us, us.stream("s").read({0: 5}, follow=True) as reading:
        assert (await anext(reading)).offset == 5
        assert reading.positions == {0: 6}


async def test_the_identifier_of_a_filter_is_the_same_in_each_life() -> None:
    found: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.welcome()
        for _ in range(3):
            found.extend((await peer.grant()).properties.subscription_identifiers)
        await peer.goodbye()

    async with broker(script, script) as port:
        for names in ("abc", "cab"):
            async with client(port) as us:
                for name in names:
                    await us.group("g", name).__aenter__()
    assert min(found) >= FIRST_READER_IDENTIFIER
    assert len(set(found)) == 3
    assert found[3:] == [found[2], found[0], found[1]]


async def test_filters_with_one_identifier_get_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_identifier_of", lambda topic_filter: 0xFFF_FFFF)
    found: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.welcome()
        for _ in range(3):
            found.extend((await peer.grant()).properties.subscription_identifiers)
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        for name in "abc":
            await us.group("g", name).__aenter__()
    assert found == [0xFFF_FFFF, FIRST_READER_IDENTIFIER, FIRST_READER_IDENTIFIER + 1]


async def test_a_program_may_not_take_the_identifier_of_a_reader() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        lowest = FIRST_READER_IDENTIFIER
        with pytest.raises(ValueError, match="251658240 is a reader's; take one up to 251,658,239"):
            await us.subscribe("t", 1, properties=Properties(subscription_identifiers=[lowest]))
        await us.subscribe("t", 1, properties=Properties(subscription_identifiers=[lowest - 1]))


async def test_a_server_may_not_exceed_the_receive_maximum_with_unread_messages() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(session_present=True)
        peer.send(*[of_reader(FIRST_READER_IDENTIFIER, each, each) for each in (1, 2, 3)])
        await peer.goodbye()

    async with broker(script) as port, client(port, receive_maximum=2, reconnect=False) as us:
        with pytest.raises(MqttError, match="more than 2 messages"):
            await anext(us.messages)


async def test_a_reader_that_subscribes_again_before_unsuback_stays() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        first = await peer.grant()
        left = await peer.expect(Unsubscribe)
        second = await peer.expect(Subscribe)
        assert first.properties.subscription_identifiers == second.properties.subscription_identifiers
        (identifier,) = second.properties.subscription_identifiers
        peer.send(of_reader(identifier, 1, 1), Unsuback(left.packet_id, b"\0"))
        assert (await peer.ack(PUBACK)).packet_id == 1
        peer.send(Suback(second.packet_id, b"\1"), of_reader(identifier, 2, 7))
        assert (await peer.ack(PUBACK)).packet_id == 2
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        async with us.stream("s").read(follow=True):
            pass
        async with us.stream("s").read(follow=True) as reading:
            assert (await anext(reading)).offset == 7
            assert len(us._line.session._readers) == 1


@pytest.mark.long
async def test_breaking_out_of_a_reading_ends_it() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        asked = await peer.grant()
        (identifier,) = asked.properties.subscription_identifiers
        peer.send(*[of_reader(identifier, each, each) for each in (1, 2, 3)])
        await peer.ack(PUBACK)
        left = await peer.expect(Unsubscribe)
        assert [(await peer.ack(PUBACK)).packet_id for _ in range(2)] == [2, 3]
        peer.send(Unsuback(left.packet_id, b"\0"), message("t", qos=1, packet_id=4))
        assert (await peer.ack(PUBACK)).packet_id == 4
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        async for each in us.stream("s").read(follow=True):
            assert each.offset == 1
            break
        assert (await anext(us.messages)).packet_id == 4
        await until(lambda: not us._line.session._readers)


async def test_a_reading_that_the_program_keeps_goes_on_after_a_break() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        (identifier,) = (await peer.grant()).properties.subscription_identifiers
        peer.send(*[of_reader(identifier, each, each) for each in (1, 2)])
        assert [(await peer.ack(PUBACK)).packet_id for _ in range(2)] == [1, 2]
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        reading = us.stream("s").read(follow=True)
        for offset in (1, 2):
            async for each in reading:
                assert each.offset == offset
                break


@pytest.mark.long
async def test_a_reading_that_is_dropped_without_or_behind_its_loop_does_nothing() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        us.stream("s").read()
        reading = us.stream("s").read(follow=True)
        await reading.__aenter__()
        feed = reading._feed
    del reading
    gc.collect()
    feed.abandon()
    assert feed.is_over


async def test_a_reading_ends_with_its_client_even_while_it_subscribes() -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.expect(Subscribe)
        await peer.expect(Subscribe)
        asked.set()  # and nothing is granted
        await peer.goodbye()

    async with broker(script) as port:
        async with client(port) as us:
            of_stream = asyncio.create_task(anext(us.stream("s").read(), None))  # type: ignore[arg-type]
            of_queue = asyncio.create_task(anext(us.queue("q"), None))  # type: ignore[arg-type]
            await asked.wait()
        assert await of_stream is None
        assert await of_queue is None


async def test_a_client_that_was_never_connected_is_named_to_a_reading() -> None:
    us = client(1)
    for reading in (us.stream("s").read(), us.queue("q")):
        with pytest.raises(ClientClosed, match="not connected"):
            await anext(reading)
