"""A client with an authentication method, against servers that do it right, wrong, or not at all (5.0 §4.12)."""

import asyncio

import pytest

from mqttlite.client import (
    AnswerTimeout,
    AuthenticationFailed,
    Client,
    ClientClosed,
    ConnectError,
    ConnectionLost,
    ConnectRefused,
    DisconnectedByServer,
    Properties,
)
from mqttlite.wire.packets import Auth, Connack, Connect, Disconnect

from .fake_broker import Peer, broker, client, message, until


class Word:
    """A method in which both sides say a word, and the server says it last."""

    method = "WORD"

    def begin(self) -> "Word":
        return self

    def first(self) -> bytes:
        return b"first"

    async def reply(self, data: bytes) -> bytes:
        if data == b"slow":
            await asyncio.get_running_loop().create_future()
        if data != b"word?":
            raise ValueError(f"{data!r} is no question")
        return b"word"

    def finish(self, data: bytes) -> None:
        if data != b"word!":
            raise ValueError(f"{data!r} is not the word")


def said(data: bytes | None = None, method: str | None = "WORD") -> Properties:
    return Properties(authentication_method=method, authentication_data=data)


def auth(code: int, data: bytes | None = None, method: str = "WORD") -> Auth:
    return Auth(code, said(data, method))


async def let_in(peer: Peer) -> None:
    connect = await peer.expect(Connect)
    assert connect.properties == said(b"first")
    peer.send(auth(0x18, b"word?"))
    assert await peer.next() == auth(0x18, b"word")
    peer.send(Connack(False, 0, said(b"word!")))


def with_word(port: int, **options: object) -> Client:
    return client(port, authentication=Word(), **options)


# ── at CONNECT ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_mqtt_4_12_0_3_the_client_answers_with_auth_0x18() -> None:
    async def script(peer: Peer) -> None:
        await let_in(peer)
        await peer.goodbye()

    async with broker(script) as port, with_word(port) as talking:
        assert talking.connected


@pytest.mark.parametrize(
    ("connack", "why"),
    [
        (Connack(False, 0, said(b"WORD!")), "is not the word"),
        (Connack(False, 0, said()), "is not the word"),
        (Connack(False), "its method is None"),
        (Connack(False, 0, said(b"word!", "OTHER")), "its method is 'OTHER'"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
async def test_mqtt_4_12_0_5_a_server_that_does_not_prove_itself_is_left(
    connack: Connack, why: str, asked: bool
) -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        if asked:
            peer.send(auth(0x18, b"word?"))
            await peer.expect(Auth)
        peer.send(connack)
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(AuthenticationFailed, match=why):
            await with_word(port).__aenter__()


@pytest.mark.parametrize(
    "answer", [auth(0x18, b"?"), auth(0x18), auth(0x18, b"word?", "OTHER"), auth(0x19, b"word?"), Auth(0)]
)
async def test_a_question_that_is_none_gets_no_answer(answer: Auth) -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(answer)
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(AuthenticationFailed, match="did not authenticate itself by WORD"):
            await with_word(port).__aenter__()


async def test_a_refusal_half_way_is_a_refusal() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(auth(0x18, b"word?"))
        await peer.expect(Auth)
        peer.send(Connack(False, 0x87))
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(ConnectRefused) as error:
            await with_word(port).__aenter__()
        assert error.value.permanent


async def test_mqtt_4_12_0_6_auth_to_a_client_without_a_method_is_wrong() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(auth(0x18))
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(ConnectError, match="answered CONNECT with AUTH"):
            await client(port).__aenter__()


async def test_a_connection_lost_during_the_exchange_is_an_attempt_that_failed() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(auth(0x18, b"word?"))
        await peer.expect(Auth)
        peer.drop()

    async def hasty(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(auth(0x18, b"word?"), Disconnect(0x8B))
        await peer.goodbye()

    async with broker(script, hasty) as port:
        for _ in range(2):
            with pytest.raises(ConnectError):
                await with_word(port).__aenter__()


async def test_the_timeout_holds_for_the_whole_exchange() -> None:
    async def script(peer: Peer) -> None:
        await peer.expect(Connect)
        peer.send(auth(0x18, b"slow"))
        await peer.goodbye()

    async with broker(script) as port:
        with pytest.raises(ConnectError, match="did not answer within"):
            await with_word(port, timeout=0.05).__aenter__()


async def test_every_connection_has_its_exchange() -> None:
    async def cut(peer: Peer) -> None:
        await let_in(peer)
        peer.drop()

    async def script(peer: Peer) -> None:
        await let_in(peer)
        await peer.goodbye()

    back = asyncio.Event()
    async with broker(cut, script) as port, with_word(port, on_reconnected=lambda _present: back.set()):
        async with asyncio.timeout(60):
            await back.wait()


def test_before_5_0_there_are_no_methods() -> None:
    with pytest.raises(ValueError, match=r"authentication exists in MQTT 5\.0 only"):
        Client("localhost", version="3.1.1", authentication=Word())


class Pondering(Word):
    """It thinks about its word until the connection is long gone."""

    def __init__(self) -> None:
        self.thought = asyncio.Event()

    async def reply(self, data: bytes) -> bytes:
        if data == b"ponder":
            await self.thought.wait()
        return await super().reply(b"word?")

    async def leave_meanwhile(self, peer: Peer) -> None:
        peer.send(auth(0x18, b"ponder"))
        await peer.writer.drain()
        peer.writer.close()
        await peer.goodbye()
        for _ in range(20):
            await asyncio.sleep(0)  # the client hears of it
        self.thought.set()


@pytest.mark.parametrize("again", [False, True])
async def test_a_connection_that_is_gone_when_the_answer_is_ready_is_no_surprise(again: bool) -> None:
    pondering = Pondering()

    async def script(peer: Peer) -> None:
        if again:
            await let_in(peer)
            await peer.expect(Auth)
        else:
            await peer.expect(Connect)
        await pondering.leave_meanwhile(peer)

    async with broker(script) as port:
        if again:
            async with client(port, authentication=pondering, reconnect=False) as talking:
                with pytest.raises(ConnectionLost):
                    await talking.reauthenticate()
        else:
            with pytest.raises(ConnectError):
                await client(port, authentication=pondering).__aenter__()


# ── again ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_mqtt_4_12_1_1_the_client_begins_again_with_0x19() -> None:
    async def script(peer: Peer) -> None:
        await let_in(peer)
        for _ in range(2):
            assert await peer.next() == auth(0x19, b"first")
            peer.send(message("t", b"meanwhile"), auth(0x18, b"word?"))
            assert await peer.next() == auth(0x18, b"word")
            peer.send(auth(0, b"word!"))
        await peer.goodbye()

    async with broker(script) as port, with_word(port) as talking:
        await talking.reauthenticate()
        await talking.reauthenticate(timeout=1)
        assert len(talking.messages) == 2


@pytest.mark.parametrize("answer", [auth(0, b"WORD!"), auth(0x18, b"?"), auth(0x19), auth(0, b"word!", "OTHER")])
async def test_mqtt_4_12_1_2_a_server_that_fails_is_left(answer: Auth) -> None:
    async def script(peer: Peer) -> None:
        await let_in(peer)
        await peer.expect(Auth)
        peer.send(answer)
        assert (await peer.expect(Disconnect)).reason_code == 0x80

    async with broker(script) as port, with_word(port, reconnect=False) as talking:
        with pytest.raises(AuthenticationFailed):
            await talking.reauthenticate()
        with pytest.raises(AuthenticationFailed):
            await anext(talking.messages)


async def test_a_server_that_refuses_says_so_and_the_client_ends() -> None:
    async def script(peer: Peer) -> None:
        await let_in(peer)
        await peer.expect(Auth)
        peer.send(Disconnect(0x87))
        await peer.goodbye()

    async with broker(script) as port, with_word(port) as talking:
        with pytest.raises(DisconnectedByServer):
            await talking.reauthenticate()


async def test_a_line_that_is_cut_ends_the_exchange() -> None:
    async def script(peer: Peer) -> None:
        await let_in(peer)
        await peer.expect(Auth)
        peer.drop()

    async with broker(script) as port, with_word(port, reconnect=False) as talking:
        with pytest.raises(ConnectionLost):
            await talking.reauthenticate()


async def test_a_server_that_is_silent_is_left_and_the_next_connection_is_new() -> None:
    async def silent(peer: Peer) -> None:
        await let_in(peer)
        await peer.expect(Auth)
        assert (await peer.expect(Disconnect)).reason_code == 0x80

    async def script(peer: Peer) -> None:
        await let_in(peer)
        await peer.goodbye()

    back = asyncio.Event()
    async with broker(silent, script) as port, with_word(port, on_reconnected=lambda _present: back.set()) as talking:
        with pytest.raises(AnswerTimeout, match=r"The authentication was not done within 0\.05 s"):
            await talking.reauthenticate(timeout=0.05)
        async with asyncio.timeout(60):
            await back.wait()


async def test_auth_that_answers_nothing_is_a_protocol_error() -> None:
    async def script(peer: Peer) -> None:
        await let_in(peer)
        peer.send(auth(0x18, b"word?"))
        assert (await peer.expect(Disconnect)).reason_code == 0x82

    async with broker(script) as port, with_word(port, reconnect=False) as talking:
        with pytest.raises(ConnectionLost, match="AUTH that answers nothing"):
            await anext(talking.messages)


async def test_the_answer_may_stand_behind_messages_that_are_not_taken() -> None:
    async def script(peer: Peer) -> None:
        await let_in(peer)
        peer.send(message("t", b"1"), message("t", b"2"))
        await peer.expect(Auth)
        peer.send(auth(0, b"word!"))
        await peer.goodbye()

    async with broker(script) as port, with_word(port, max_queued_messages=1) as talking:
        await until(lambda: len(talking.messages) == 1)
        await talking.reauthenticate()
        assert len(talking.messages) == 2


async def test_a_client_that_is_closed_does_not_authenticate() -> None:
    async def script(peer: Peer) -> None:
        await let_in(peer)
        await peer.goodbye()

    async with broker(script) as port:
        async with with_word(port) as talking:
            pass
        with pytest.raises(ClientClosed):
            await talking.reauthenticate()
