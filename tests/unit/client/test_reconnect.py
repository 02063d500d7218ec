"""What a program does not see of a connection that is lost and comes back."""

import asyncio

import pytest

from mqttlite.client import (
    ConnectionLost,
    ConnectRefused,
    DisconnectedByServer,
    MqttError,
    Properties,
    PublishTimeout,
    ReasonCode,
    SubscribeRefused,
)
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Connack, Connect, Disconnect, Publish, Suback, Subscribe

from .fake_broker import Peer, broker, client, message


async def welcome_and_drop(peer: Peer) -> None:
    await peer.welcome()
    peer.drop()


async def test_subscriptions_come_back_where_the_server_lost_the_session() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome(properties=Properties(assigned_client_identifier="yours"))
        await peer.grant()
        await peer.grant()
        peer.drop()

    async def second(peer: Peer) -> None:
        connect = await peer.welcome()
        assert (connect.client_id, connect.clean_start) == ("yours", False)
        subscribe = await peer.grant()
        assert [(r.topic_filter, r.qos) for r in subscribe.requests] == [(b"a", 1), (b"b", 0), (b"c", 2)]
        peer.send(message("a", b"x"))
        await peer.goodbye()

    told: list[object] = []
    async with (
        broker(first, second) as port,
        client(port, on_connection_lost=lambda *said: told.append(said), on_reconnected=told.append) as us,
    ):
        await us.subscribe([("a", 1), ("b", 0)])
        await us.subscribe("c", 2)
        assert (await anext(us.messages)).payload == b"x"
    lost, found = told
    assert isinstance(lost, tuple)
    assert isinstance(lost[0], ConnectionLost)
    assert found is False


async def test_subscriptions_are_not_repeated_where_the_server_kept_the_session() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome(session_present=True)
        assert await peer.next() == message("b", b"")
        await peer.goodbye()

    reconnected = asyncio.Event()
    async with (
        broker(first, second) as port,
        client(port, session_expiry_interval=60, on_reconnected=lambda _present: reconnected.set()) as us,
    ):
        await us.subscribe("a")
        await reconnected.wait()
        await us.publish("b")


async def test_removed_subscriptions_do_not_come_back() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        await peer.next()
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome()
        assert type(await peer.next()).__name__ == "Unsubscribe"  # asked again: nobody had answered
        assert await peer.next() == Disconnect()

    async with broker(first, second) as port, client(port) as us:
        await us.subscribe("a")
        with pytest.raises(MqttError, match="UNSUBSCRIBE was not answered"):
            await us.unsubscribe("a", timeout=0.05)


async def test_a_subscription_that_is_refused_later_ends_the_client() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome()
        subscribe = await peer.expect(Subscribe)
        peer.send(Suback(subscribe.packet_id, bytes([ReasonCode.NOT_AUTHORIZED])))
        await peer.goodbye()

    async with broker(first, second) as port, client(port) as us:
        await us.subscribe("a")
        with pytest.raises(SubscribeRefused):
            await anext(us.messages)


async def test_a_question_that_was_not_answered_is_asked_again() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.expect(Subscribe)
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        assert await peer.next() == Disconnect()

    async with broker(first, second) as port, client(port) as us:
        assert await us.subscribe("a", 1) == (1,)


async def test_unacknowledged_messages_are_sent_again_to_a_kept_session() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        for _ in range(3):
            await peer.expect(Publish)
        peer.send(Ack(PUBREC, 2))
        await peer.ack(PUBREL)
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome(session_present=True)
        assert await peer.next() == Ack(PUBREL, 2)
        assert await peer.next() == message("a", b"one", 1, 1, dup=True)
        assert await peer.next() == message("a", b"three", 2, 3, dup=True)
        peer.send(Ack(PUBACK, 1), Ack(PUBCOMP, 2), Ack(PUBREC, 3))
        await peer.ack(PUBREL)
        peer.send(Ack(PUBCOMP, 3))
        await peer.goodbye()

    async with broker(first, second) as port, client(port, session_expiry_interval=60) as us:
        outcomes = [await us.submit("a", b"one", 1), await us.submit("a", b"two", 2), await us.submit("a", b"three", 2)]
        assert [(await outcome).reason_code for outcome in outcomes] == [0, 0, 0]


async def test_unacknowledged_messages_are_published_anew_where_the_session_is_gone() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.expect(Publish)
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.next() == message("a", b"one", 1, 1)
        peer.send(Ack(PUBACK, 1))
        await peer.goodbye()

    async with broker(first, second) as port, client(port) as us:
        await us.publish("a", b"one", 1)


async def test_a_message_without_a_waiter_does_not_end_each_connection_anew() -> None:
    given_up, lost = asyncio.Event(), asyncio.Event()

    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.expect(Publish)
        await given_up.wait()
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.next() == message("b", b"two", 1, 2)
        peer.send(Ack(PUBACK, 2))
        await peer.goodbye()

    async with (
        broker(first, second) as port,
        client(port, on_connection_lost=lambda _error, _delay: lost.set()) as us,
    ):
        with pytest.raises(PublishTimeout):
            await us.publish("a", b"one", 1, timeout=0.01)
        given_up.set()
        await lost.wait()
        await us.publish("b", b"two", 1)


@pytest.mark.parametrize(("session_present", "expected"), [(True, [b"1", b"3"]), (False, [b"1", b"2", b"3"])])
async def test_a_qos_2_message_is_received_once_across_connections_of_one_session(
    session_present: bool, expected: list[bytes]
) -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        peer.send(message("a", b"1", 2, 5))
        await peer.ack(PUBREC)
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome(session_present=session_present)
        peer.send(message("a", b"2", 2, 5, dup=session_present))
        await peer.ack(PUBREC)
        peer.send(Ack(PUBREL, 5))
        assert await peer.next() == Ack(PUBCOMP, 5)
        peer.send(message("a", b"3", 2, 5))
        await peer.ack(PUBREC)
        await peer.goodbye()

    async with broker(first, second) as port, client(port, session_expiry_interval=60) as us:
        assert [(await anext(us.messages)).payload for _ in expected] == expected


async def test_a_qos_0_message_waits_for_the_next_connection() -> None:
    async def second(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.next() == message("a", b"x")
        await peer.goodbye()

    lost = asyncio.Event()
    async with (
        broker(welcome_and_drop, second) as port,
        client(port, on_connection_lost=lambda _error, _delay: lost.set()) as us,
    ):
        await lost.wait()
        assert not us.connected
        await us.publish("a", b"x")


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_message_without_a_connection_times_out_and_is_forgotten(qos: int) -> None:
    async def second(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.next() == message("b", b"")
        await peer.goodbye()

    lost = asyncio.Event()
    async with (
        broker(welcome_and_drop, second) as port,
        client(
            port,
            on_connection_lost=lambda _error, _delay: lost.set(),
            min_reconnect_delay=0.1,
            max_reconnect_delay=0.1,
        ) as us,
    ):
        await lost.wait()
        with pytest.raises(PublishTimeout, match="there is no connection"):
            await us.publish("a", b"x", qos, timeout=0.01)
        await us.publish("b")


async def test_clean_sessions_of_3_1_1_stay_clean() -> None:
    async def second(peer: Peer) -> None:
        assert (await peer.welcome()).clean_start
        await peer.goodbye()

    reconnected = asyncio.Event()
    async with (
        broker(welcome_and_drop, second) as port,
        client(port, version="3.1.1", on_reconnected=lambda _present: reconnected.set()),
    ):
        await reconnected.wait()


async def test_a_busy_server_is_asked_again() -> None:
    async def busy(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(Connack(False, ReasonCode.SERVER_BUSY))

    async def third(peer: Peer) -> None:
        await peer.welcome()
        peer.send(message("a", b"x"))
        await peer.goodbye()

    async with broker(welcome_and_drop, busy, third) as port, client(port) as us:
        assert (await anext(us.messages)).payload == b"x"


async def test_a_permanent_refusal_after_a_loss_ends_iteration_and_publishing() -> None:
    async def banned(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(Connack(False, ReasonCode.BANNED))
        await peer.goodbye()

    async with broker(welcome_and_drop, banned) as port, client(port) as us:
        with pytest.raises(ConnectRefused, match="banned"):
            await anext(us.messages)
        with pytest.raises(ConnectRefused):
            await us.publish("a", b"", 1)


@pytest.mark.parametrize(
    ("code", "says"),
    [(ReasonCode.SESSION_TAKEN_OVER, "taken over"), (ReasonCode.TOPIC_FILTER_INVALID, "topic filter invalid")],
)
async def test_a_refusal_that_would_repeat_ends_the_client(code: ReasonCode, says: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(Disconnect(code))
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        with pytest.raises(DisconnectedByServer, match=says):
            await anext(us.messages)


async def test_leaving_while_there_is_no_connection_is_quick() -> None:
    lost = asyncio.Event()
    async with (
        broker(welcome_and_drop) as port,
        client(
            port,
            min_reconnect_delay=60.0,
            max_reconnect_delay=60.0,
            on_connection_lost=lambda _error, _delay: lost.set(),
        ),
    ):
        await lost.wait()


async def test_a_broken_stream_is_reconnected() -> None:
    async def broken(peer: Peer) -> None:
        await peer.welcome()
        peer.writer.write(encode(message("a", b"x"), V5) + b"\xf7\x00")
        await peer.goodbye()

    async def second(peer: Peer) -> None:
        await peer.welcome()
        peer.send(message("a", b"y"))
        await peer.goodbye()

    async with broker(broken, second) as port, client(port) as us:
        assert [(await anext(us.messages)).payload for _ in range(2)] == [b"x", b"y"]
