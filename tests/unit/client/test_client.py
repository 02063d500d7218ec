"""What a program sees of one connection: connecting, publishing, subscribing, receiving, leaving."""

import asyncio
import socket

import pytest

from mqttlite.client import (
    AnswerTimeout,
    Client,
    ClientClosed,
    ConnectError,
    ConnectionLost,
    ConnectRefused,
    DisconnectedByServer,
    FilterError,
    Properties,
    PublishRefused,
    PublishTimeout,
    ReasonCode,
    SubscribeRefused,
    Will,
)
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V31, V311
from mqttlite.wire.packets import Ack, Connack, Connect, Disconnect, Publish, Suback, Subscribe, Unsuback, Unsubscribe

from .fake_broker import Peer, broker, client, message, until

# connecting


async def test_connect_carries_the_given_values() -> None:
    seen: list[Connect] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.welcome())
        assert await peer.next() == Disconnect()

    will = Will("w", "gone", qos=1, retain=True)
    async with (
        broker(script) as port,
        client(port, client_id="me", username="u", password="p", keep_alive=7, will=will, receive_maximum=9),
    ):
        pass
    connect = seen[0]
    assert (connect.client_id, connect.username, connect.password, connect.keep_alive) == ("me", "u", b"p", 7)
    assert connect.will is not None
    assert (connect.will.topic, connect.will.payload, connect.will.qos, connect.will.retain) == (b"w", b"gone", 1, True)
    assert connect.properties == Properties(receive_maximum=9)


@pytest.mark.parametrize(("version", "level"), [("3.1.1", V311), ("3.1", V31)])
async def test_older_versions_are_spoken(version: str, level: int) -> None:
    async def script(peer: Peer) -> None:
        assert (await peer.welcome()).version == level
        subscribe = await peer.grant()
        peer.send(message("a", b"x", 1, 5), Unsuback(1))
        assert subscribe.requests[0].qos == 1
        assert await peer.ack(PUBACK) == Ack(PUBACK, 5)
        peer.send(Unsuback((await peer.expect(Unsubscribe)).packet_id))
        await peer.goodbye()

    async with broker(script) as port, client(port, version=version) as us:
        assert await us.subscribe("a", 1) == (1,)
        assert (await anext(us.messages)).payload == b"x"
        assert await us.unsubscribe("a") == ()


async def test_an_assigned_identifier_is_ours() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(properties=Properties(assigned_client_identifier="yours"))
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        assert us.client_id == "yours"


async def test_a_missing_listener_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ConnectError, match=rf"127\.0\.0\.1:{port} .*is a broker running there\?"):
        await client(port).__aenter__()


async def test_a_host_that_does_not_exist_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_found(*_host: object, **_hints: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", not_found)
    with pytest.raises(ConnectError, match=r"'nowhere\.invalid' was not found"):
        await Client("nowhere.invalid", timeout=5).__aenter__()


async def test_a_refusal_says_why() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(Connack(False, ReasonCode.NOT_AUTHORIZED, Properties(reason_string="ask Ann.")))
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(ConnectRefused, match=r"not authorized \(0x87\), ask Ann\.$") as caught:
            await client(port).__aenter__()
    assert caught.value.reason_code == ReasonCode.NOT_AUTHORIZED


async def test_a_refusal_of_3_1_1_is_said_in_words() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(Connack(False, 4))
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(ConnectRefused, match="bad user name or password"):
            await client(port, version="3.1.1").__aenter__()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def script(peer: Peer) -> None:
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(ConnectError, match=r"did not answer within 0\.3 s"):
            await client(port, timeout=0.3).__aenter__()


async def test_a_server_that_hangs_up_on_connect_gets_a_hint() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)

    async with broker(script) as port:
        with pytest.raises(ConnectError, match="does it expect TLS or another version"):
            await client(port).__aenter__()


async def test_an_answer_that_is_no_connack_is_refused() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(Suback(1, b"\0"))
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(ConnectError, match="answered CONNECT with SUBACK"):
            await client(port).__aenter__()


async def test_messages_right_behind_connack_are_received() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(Connack(True), message("a", b"1"), message("a", b"2", 1, 1))
        await peer.ack(PUBACK)
        await peer.goodbye()

    async with broker(script) as port, client(port, clean_start=False) as us:
        assert us.session_present
        assert [(await anext(us.messages)).payload for _ in range(2)] == [b"1", b"2"]


async def test_a_client_is_used_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.goodbye()

    async with broker(script) as port:
        us = client(port)
        with pytest.raises(ClientClosed, match="async with"):
            await us.publish("a", qos=1)
        async with us:
            pass
        with pytest.raises(RuntimeError, match="used once"):
            await us.__aenter__()
        with pytest.raises(ClientClosed):
            await us.publish("a")
        assert [message async for message in us.messages] == []


# publishing


async def test_messages_of_every_qos_arrive_and_are_acknowledged() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.next() == message("a", b"zero")
        assert await peer.next() == message("a", b"one", 1, 1)
        peer.send(Ack(PUBACK, 1, ReasonCode.NO_MATCHING_SUBSCRIBERS))
        assert await peer.next() == message("a", b"two", 2, 2)
        peer.send(Ack(PUBREC, 2))
        assert await peer.next() == Ack(PUBREL, 2)
        peer.send(Ack(PUBCOMP, 2))
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        assert (await us.publish("a", "zero")).reason_code == 0
        assert (await us.publish("a", b"one", 1)).reason_code == ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert (await us.publish("a", "two", qos=2)).reason_code == 0


async def test_submitted_messages_are_in_flight_together_up_to_the_limit() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        for packet_id in (1, 2):
            assert await peer.next() == message("a", b"", 1, packet_id)
        peer.send(Ack(PUBACK, 2))
        assert await peer.next() == message("a", b"", 1, 3)
        peer.send(Ack(PUBACK, 1), Ack(PUBACK, 3))
        await peer.goodbye()

    async with broker(script) as port, client(port, max_inflight=2) as us:
        outcomes = [await us.submit("a", None, 1) for _ in range(3)]
        assert [(await outcome).reason_code for outcome in outcomes] == [0, 0, 0]
        assert (await us.submit("a")).done()


async def test_a_refused_message_raises_code_and_reason() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.expect(Publish)
        peer.send(Ack(PUBACK, 1, ReasonCode.NOT_AUTHORIZED, Properties(reason_string="not yours")))
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        with pytest.raises(PublishRefused, match=r"to 'a' was refused: not authorized \(0x87\), not yours\.$"):
            await us.publish("a", b"", 1)


async def test_a_message_the_server_announced_not_to_take_is_refused_here() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(properties=Properties(maximum_qos=0, retain_available=0, maximum_packet_size=30))
        assert await peer.next() == Disconnect()

    async with broker(script) as port, client(port) as us:
        for qos, retain, payload in ((1, False, b""), (0, True, b""), (0, False, b"x" * 30)):
            with pytest.raises(PublishRefused):
                await us.publish("a", payload, qos, retain)
        with pytest.raises(Exception, match="at most 30 bytes"):
            await us.subscribe("x" * 30)


async def test_an_acknowledgement_that_does_not_come_times_out_and_its_identifier_stays_taken() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.next() == message("a", b"", 1, 1)
        assert await peer.next() == message("a", b"", 1, 2)
        peer.send(Ack(PUBACK, 1), Ack(PUBACK, 2))
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        with pytest.raises(PublishTimeout, match=r"'a' was not acknowledged within 0\.01 s by 127"):
            await us.publish("a", b"", 1, timeout=0.01)
        await us.publish("a", b"", 1)


async def test_a_message_that_waits_for_room_can_time_out() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.expect(Publish)
        assert await peer.next() == Disconnect()

    async with broker(script) as port, client(port, max_inflight=1) as us:
        outcome = await us.submit("a", b"", 1)
        with pytest.raises(PublishTimeout):
            await us.publish("a", b"", 1, timeout=0.01)
        await us.disconnect()
        with pytest.raises(ClientClosed):
            await outcome


async def test_the_end_of_the_client_reaches_callers_that_wait_for_room() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.goodbye()

    async with broker(script) as port, client(port, max_inflight=1) as us:
        waiting = [asyncio.create_task(us.publish("a", b"", 1)) for _ in range(5)]
        await asyncio.sleep(0)
        await us.disconnect()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ClientClosed] * 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a/#",), "wildcard"),
        (("a", b"", 3), "qos is 3"),
        (("a", b"", 0, False, Properties(topic_alias=1)), "topic_alias"),
        (("a", b"", 0, False, Properties(will_delay_interval=1)), "may not be in this packet"),
    ],
)
async def test_an_invalid_message_is_a_value_error(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        await Client("h").publish(*arguments)  # type: ignore[arg-type]


async def test_a_server_that_does_not_read_holds_publishers_back() -> None:
    resume = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await resume.wait()
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        payload = b"x" * 100_000

        async def publish_for_ever() -> None:
            while True:
                await us.publish("a", payload, timeout=0.05)

        with pytest.raises(PublishTimeout, match="could not be sent"):
            await publish_for_ever()
        resume.set()
        await us.publish("a", payload)


# subscribing


async def test_subscriptions_carry_their_options_and_return_their_codes() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        subscribe = await peer.expect(Subscribe)
        assert [(r.topic_filter, r.qos, r.no_local, r.retain_handling) for r in subscribe.requests] == [
            (b"a/#", 2, True, 1),
            (b"b", 0, True, 1),
        ]
        assert subscribe.properties == Properties(subscription_identifiers=[7])
        peer.send(Suback(subscribe.packet_id, bytes([1, 0])))
        unsubscribe = await peer.expect(Unsubscribe)
        assert unsubscribe.topic_filters == (b"a/#", b"c")
        peer.send(Unsuback(unsubscribe.packet_id, bytes([0, 0x11])))
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        properties = Properties(subscription_identifiers=[7])
        granted = await us.subscribe([("a/#", 2), ("b", 0)], no_local=True, retain_handling=1, properties=properties)
        assert granted == (1, 0)
        assert await us.unsubscribe(["a/#", "c"]) == (0, 0x11)


async def test_a_filter_is_a_property_of_the_subscription() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        subscribe = await peer.grant()
        expected = Properties(subscription_identifiers=[7], user_properties=[("a", "b"), ("filter", "payload > 1")])
        assert subscribe.properties == expected
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        given = Properties(subscription_identifiers=[7], user_properties=[("a", "b")])
        assert await us.subscribe("a", where="payload > 1", properties=given) == (0,)
        assert given.user_properties == [("a", "b")]
        with pytest.raises(FilterError, match="position 10"):
            await us.subscribe("a", where="payload == 1")


async def test_before_5_0_the_broker_is_told_of_no_filter() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.goodbye()

    async with broker(script) as port, client(port, version="3.1.1") as us:
        with pytest.raises(ValueError, match=r"where exists in MQTT 5\.0 only"):
            await us.subscribe("a", where="payload > 1")


async def test_a_refused_subscription_raises_unless_it_may_be_refused() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        for _ in range(2):
            subscribe = await peer.expect(Subscribe)
            peer.send(Suback(subscribe.packet_id, bytes([0, ReasonCode.NOT_AUTHORIZED])))
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        filters = [("a", 0), ("b", 0)]
        with pytest.raises(SubscribeRefused, match="'b': not authorized") as caught:
            await us.subscribe(filters)
        assert caught.value.refused == {"b": ReasonCode.NOT_AUTHORIZED}
        assert await us.subscribe(filters, allow_refusal=True) == (0, ReasonCode.NOT_AUTHORIZED)


async def test_questions_without_answer_time_out() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.goodbye()

    async with broker(script) as port, client(port, timeout=0.5) as us:
        with pytest.raises(AnswerTimeout, match="SUBSCRIBE was not answered"):
            await us.subscribe("a")
        with pytest.raises(AnswerTimeout, match="UNSUBSCRIBE was not answered"):
            await us.unsubscribe("a")


@pytest.mark.parametrize("options", [{"no_local": True}, {"retain_handling": 1}, {"properties": Properties()}])
async def test_options_of_5_0_are_refused_in_3_1_1(options: dict[str, object]) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.goodbye()

    async with broker(script) as port, client(port, version="3.1.1") as us:
        with pytest.raises(ValueError, match=r"5\.0 only"):
            await us.subscribe("a", **options)  # type: ignore[arg-type]


# receiving


async def test_a_qos_2_message_that_comes_twice_is_received_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(message("a", b"1", 2, 9), message("a", b"1", 2, 9, dup=True))
        assert [await peer.next(), await peer.next()] == [Ack(PUBREC, 9)] * 2
        peer.send(Ack(PUBREL, 9), Ack(PUBREL, 9))
        assert await peer.next() == Ack(PUBCOMP, 9)
        assert await peer.next() == Ack(PUBCOMP, 9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        peer.send(message("a", b"2", 2, 9))
        await peer.ack(PUBREC)
        await peer.goodbye()

    async with broker(script) as port, client(port) as us:
        assert [(await anext(us.messages)).payload for _ in range(2)] == [b"1", b"2"]
        assert len(us.messages) == 0


async def test_a_full_queue_stops_the_reading_and_nothing_is_dropped_or_acknowledged_early() -> None:
    limit, total = 4, 50
    acknowledged = 0

    async def script(peer: Peer) -> None:
        nonlocal acknowledged
        await peer.welcome()
        peer.send(*[message("a", str(n).encode(), 1, n) for n in range(1, total + 1)])
        for n in range(1, total + 1):
            assert await peer.ack(PUBACK) == Ack(PUBACK, n)
            acknowledged = n
        await peer.goodbye()

    async with broker(script) as port, client(port, max_queued_messages=limit) as us:
        got = []
        async for received in us.messages:
            got.append(int(received.payload))
            assert len(us.messages) <= limit
            await asyncio.sleep(0)
            assert acknowledged <= len(got) + limit
            if len(got) == total:
                break
        assert got == list(range(1, total + 1))


async def test_an_answer_behind_messages_is_found_although_the_queue_is_full() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(*[message("a", b"x") for _ in range(6)])
        await peer.expect(Publish)
        peer.send(Ack(PUBACK, 1))
        await peer.goodbye()

    async with broker(script) as port, client(port, max_queued_messages=4) as us:
        await until(lambda: len(us.messages) == 4)
        await us.publish("b", b"", 1)
        assert len(us.messages) == 6


async def test_an_answer_behind_too_many_messages_times_out_and_says_why() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(*[message("a", b"x") for _ in range(20)])
        await peer.expect(Publish)
        peer.send(Ack(PUBACK, 1))
        await peer.goodbye()

    async with broker(script) as port, client(port, max_queued_messages=4) as us:
        with pytest.raises(PublishTimeout, match=r"8 messages wait unread in client\.messages"):
            await us.publish("b", b"", 1, timeout=0.03)


async def test_a_topic_alias_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(Publish(b"a", b"", properties=Properties(topic_alias=1)))
        assert await peer.next() == Disconnect(ReasonCode.TOPIC_ALIAS_INVALID)
        await peer.goodbye()

    async with broker(script) as port, client(port, reconnect=False) as us:
        with pytest.raises(ConnectionLost, match="topic alias"):
            await anext(us.messages)


async def test_more_messages_than_the_receive_maximum_end_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(*[message("a", b"", 2, n) for n in (1, 2, 3)])
        assert [await peer.next(), await peer.next()] == [Ack(PUBREC, 1), Ack(PUBREC, 2)]
        assert await peer.next() == Disconnect(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
        await peer.goodbye()

    async with broker(script) as port, client(port, reconnect=False, receive_maximum=2) as us:
        assert [await anext(us.messages) for _ in range(2)]
        with pytest.raises(ConnectionLost, match="more than 2 messages"):
            await anext(us.messages)


async def test_a_packet_above_our_maximum_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(message("a", b"x" * 100))
        assert await peer.next() == Disconnect(ReasonCode.PACKET_TOO_LARGE)
        await peer.goodbye()

    async with broker(script) as port, client(port, reconnect=False, max_packet_size=100) as us:
        with pytest.raises(ConnectionLost, match="at most 100 accepted"):
            await anext(us.messages)


# leaving


async def test_iteration_ends_when_the_client_is_closed_and_not_before_the_last_message() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(message("a", b"1"), message("a", b"2"))
        assert await peer.next() == Disconnect(ReasonCode.DISCONNECT_WITH_WILL)

    async with broker(script) as port, client(port) as us:
        await until(lambda: len(us.messages) == 2)
        await us.disconnect(ReasonCode.DISCONNECT_WITH_WILL)
        await us.disconnect()
        assert [received.payload async for received in us.messages] == [b"1", b"2"]


async def test_without_reconnection_a_lost_connection_ends_everything_with_its_reason() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.expect(Publish)
        peer.send(Disconnect(ReasonCode.SERVER_SHUTTING_DOWN, Properties(reason_string="back at noon")))

    async with broker(script) as port, client(port, reconnect=False) as us:
        with pytest.raises(DisconnectedByServer, match=r"server shutting down \(0x8B\), back at noon"):
            await us.publish("a", b"", 1)
        with pytest.raises(DisconnectedByServer):
            await anext(us.messages)
        assert "ended" in repr(us)


async def test_packets_can_be_traced() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.goodbye()

    lines: list[str] = []
    async with broker(script) as port, client(port, trace=lines.append) as us:
        await us.publish("a", b"b")
    assert [line.partition(" (")[0] for line in lines] == [
        "sending CONNECT",
        "received CONNACK",
        "sending PUBLISH",
        "sending DISCONNECT",
    ]
