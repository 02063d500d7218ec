"""Logins that a server over HTTP decides: what it is asked, what its answers mean, and what happens when it is away."""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.core.authentication import Verdict
from mqttlite.security import http_authenticator
from mqttlite.security.authenticator import Credentials, TooBusy
from mqttlite.security.http_authenticator import MAX_REQUESTS, HttpAuthenticator, HttpAuthOptions
from mqttlite.security.http_client import MAX_INTERIM, MAX_PIECES, MAX_RESPONSE_BYTES, PIECES_AT_ONCE, Url
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.tls import TlsOptions, server_context
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connack
from tests.integration.conftest import Rig
from tests.support.auth_server import Answer, AuthServer, response
from tests.support.device import until
from tests.support.inside import core_of

ANN = Credentials("c", "ann", b"secret", None, "127.0.0.1:4000", "mqtt")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])


class Desk:
    """Servers and authenticators of one test."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.now = 0.0

    async def server(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> AuthServer:
        """A server that gives these answers in turn, the last one for ever."""
        left = [*answers]

        async def answer(question: dict[str, Any]) -> Answer:
            return left.pop(0) if len(left) > 1 else left[0]

        return await self.stack.enter_async_context(AuthServer(answer, tls))

    def authenticator(self, url: str, **options: Any) -> HttpAuthenticator:
        made = HttpAuthenticator(HttpAuthOptions(url=url, **options), loop_time=lambda: self.now)
        self.stack.push_async_callback(made.close)
        return made


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.stack:
        yield desk


async def verdict_of(authenticator: HttpAuthenticator, credentials: Credentials = ANN) -> Verdict:
    verdict = await authenticator.authenticate(credentials)
    assert verdict is not None
    return verdict


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


# ── questions and answers ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_server_is_told_all_about_the_login(desk: Desk) -> None:
    server = await desk.server((200, b""))
    device = Credentials("c", "ann", "pässword".encode(), "cn", "192.0.2.1:4000", "mqtt")
    assert (await verdict_of(desk.authenticator(server.url), device)).reason_code == 0
    assert server.questions == [
        {
            "client_id": "c",
            "username": "ann",
            "password": "pässword",
            "identity": "cn",
            "peer": "192.0.2.1:4000",
            "listener": "mqtt",
        }
    ]
    (head,) = server.heads
    assert head.startswith("POST /login?from=mqtt HTTP/1.1\r\n")
    assert f"host: localhost:{server.port}\r\n" in head.lower()
    assert "content-type: application/json\r\n" in head.lower()


@pytest.mark.parametrize(
    ("status", "code"),
    [(200, 0), (400, 0x86), (401, 0x86), (403, 0x86), (404, 0x86), (204, 0x88), (302, 0x88), (500, 0x88), (503, 0x88)],
)
async def test_only_200_lets_in_and_4xx_refuses(desk: Desk, status: int, code: int) -> None:
    server = await desk.server((status, b""))
    assert (await verdict_of(desk.authenticator(server.url))).reason_code == code


async def test_a_redirect_is_not_followed(desk: Desk) -> None:
    other = await desk.server((200, b""))
    server = await desk.server(response(307, b"", f"Location: {other.url}"))
    assert (await verdict_of(desk.authenticator(server.url))).reason_code == 0x88
    assert other.questions == []


async def test_the_answer_may_say_who_the_client_is_and_what_it_may(desk: Desk) -> None:
    answer = body(username="bob", groups=["staff"], publish=["a/#"], subscribe=[], expires_in_s=60, other={"x": 1})
    server = await desk.server((200, answer))
    desk.now = 1_000.0
    verdict = await verdict_of(desk.authenticator(server.url))
    assert (verdict.reason_code, verdict.username) == (0, "bob")
    assert verdict.grants.groups == {"staff"}
    assert (verdict.grants.publish, verdict.grants.subscribe) == ((b"a/#",), ())
    assert verdict.grants.expires_at == 1_060.0


async def test_an_answer_without_a_body_limits_nothing(desk: Desk) -> None:
    server = await desk.server((200, b""))
    grants = (await verdict_of(desk.authenticator(server.url))).grants
    assert (grants.publish, grants.subscribe, grants.expires_at) == (None, None, float("inf"))


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"{"),
        (200, b"[]"),
        (200, b"true"),
        (200, b"[" * 50_000),
        (200, b'{"publish": ["a/#/b"]}'),
        (200, b'{"publish": ["a\\u0000/b"]}'),
        (200, b'{"subscribe": ["a/\\u0000"]}'),
        (200, b'{"publish": "a"}'),
        (200, b'{"username": ""}'),
        (200, b'{"username": "a\\nb"}'),
        (200, b'{"username": 7}'),
        (200, b'{"expires_in_s": -1}'),
        (200, b'{"expires_in_s": NaN}'),
        (200, b"{}" + b" " * MAX_RESPONSE_BYTES),
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"not HTTP at all\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_INTERIM + 1) + response(200, b"{}"),
        b"HTTP/1.1 102 Processing\r\n\r\n" * 100_000,
        CHUNKED + b"1\r\n \r\n" * 20_000 + b"2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        None,
    ],
    ids=lambda answer: str(answer)[:50],
)
async def test_an_invalid_answer_lets_no_client_in(desk: Desk, answer: Answer) -> None:
    async def cut(question: dict[str, Any]) -> Answer:
        asyncio.get_running_loop().call_soon(server.hang_up)
        return answer

    server = await desk.stack.enter_async_context(AuthServer(cut))
    assert (await verdict_of(desk.authenticator(server.url))).reason_code == 0x88


async def test_as_many_interim_answers_as_allowed_are_read(desk: Desk) -> None:
    server = await desk.server(b"HTTP/1.1 102 Processing\r\n\r\n" * MAX_INTERIM + response(200, b"{}"))
    assert (await verdict_of(desk.authenticator(server.url))).reason_code == 0


async def test_an_answer_in_some_hundred_pieces_is_read(desk: Desk) -> None:
    server = await desk.server(CHUNKED + b"1\r\n \r\n" * 900 + b"2\r\n{}\r\n0\r\n\r\n")
    assert (await verdict_of(desk.authenticator(server.url))).reason_code == 0


async def test_a_body_as_large_as_allowed_is_read(desk: Desk) -> None:
    server = await desk.server((200, b"{}" + b" " * (MAX_RESPONSE_BYTES - 2)))
    assert (await verdict_of(desk.authenticator(server.url))).reason_code == 0


@pytest.mark.parametrize(
    "credentials",
    [Credentials("c", None, None, None, "p", "mqtt"), Credentials("c", "ann", b"\xff", None, "p", "mqtt")],
    ids=["anonymous", "not UTF-8"],
)
async def test_a_login_that_this_source_cannot_judge_is_passed_on(desk: Desk, credentials: Credentials) -> None:
    server = await desk.server((200, b""))
    assert await desk.authenticator(server.url).authenticate(credentials) is None
    assert server.questions == []


# ── answers that are kept ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_good_login_is_kept_for_a_while(desk: Desk) -> None:
    server = await desk.server((200, body(expires_in_s=100)))
    authenticator = desk.authenticator(server.url, cache_s=30)
    other_port = Credentials("c", "ann", b"secret", None, "127.0.0.1:4001", "mqtt")
    first = await verdict_of(authenticator)
    assert await verdict_of(authenticator, other_port) is first
    desk.now = 29.9
    assert await verdict_of(authenticator) is first
    desk.now = 30.0
    assert await verdict_of(authenticator) is not first
    assert len(server.questions) == 2
    authenticator.forget()
    await verdict_of(authenticator)
    assert len(server.questions) == 3


@pytest.mark.parametrize(
    "other",
    [
        Credentials("d", "ann", b"secret", None, "127.0.0.1:4000", "mqtt"),
        Credentials("c", "bob", b"secret", None, "127.0.0.1:4000", "mqtt"),
        Credentials("c", "ann", b"wrong", None, "127.0.0.1:4000", "mqtt"),
        Credentials("c", "ann", None, None, "127.0.0.1:4000", "mqtt"),
        Credentials("c", "ann", b"secret", "cn", "127.0.0.1:4000", "mqtt"),
        Credentials("c", "ann", b"secret", None, "127.0.0.2:4000", "mqtt"),
        Credentials("c", "ann", b"secret", None, "127.0.0.1:4000", "other"),
    ],
    ids=["client id", "user", "password", "no password", "certificate", "address", "listener"],
)
async def test_another_login_is_another_question(desk: Desk, other: Credentials) -> None:
    server = await desk.server((200, b""), (403, b""))
    authenticator = desk.authenticator(server.url)
    assert (await verdict_of(authenticator)).reason_code == 0
    assert (await verdict_of(authenticator, other)).reason_code == 0x86


async def test_neither_refusals_nor_failures_are_kept(desk: Desk) -> None:
    server = await desk.server((403, b""), (500, b""), (200, b""))
    authenticator = desk.authenticator(server.url)
    assert [(await verdict_of(authenticator)).reason_code for _ in range(4)] == [0x86, 0x88, 0, 0]
    assert len(server.questions) == 3


async def test_an_answer_is_kept_no_longer_than_it_says(desk: Desk) -> None:
    server = await desk.server((200, body(expires_in_s=5)))
    authenticator = desk.authenticator(server.url, cache_s=30)
    await verdict_of(authenticator)
    desk.now = 5.0
    assert (await verdict_of(authenticator)).grants.expires_at == 10.0


async def test_without_a_cache_every_login_is_asked(desk: Desk) -> None:
    server = await desk.server((200, b""))
    authenticator = desk.authenticator(server.url, cache_s=0)
    for _ in range(3):
        await verdict_of(authenticator)
    assert len(server.questions) == 3
    assert server.connections == 1, "the connection is kept"


async def test_the_oldest_answer_makes_room(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_authenticator, "MAX_KEPT_ANSWERS", 2)
    server = await desk.server((200, b""))
    authenticator = desk.authenticator(server.url)
    users = [Credentials("c", name, None, None, "p:1", "mqtt") for name in ("a", "b", "c")]
    for user in (*users, users[1], users[2], users[0]):
        await verdict_of(authenticator, user)
    assert [each["username"] for each in server.questions] == ["a", "b", "c", "a"]


async def test_the_cached_answers_together_have_a_limit_in_bytes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    long = body(publish=["a"] * 100)
    monkeypatch.setattr(http_authenticator, "MAX_KEPT_BYTES", 2 * len(long))
    server = await desk.server((200, long))
    authenticator = desk.authenticator(server.url)
    users = [Credentials("c", name, None, None, "p:1", "mqtt") for name in ("a", "b", "c")]
    for user in (*users, users[1], users[2], users[0]):
        await verdict_of(authenticator, user)
    assert [each["username"] for each in server.questions] == ["a", "b", "c", "a"]


async def test_the_cached_bytes_are_counted_anew_after_an_expiry_and_a_reload(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = body(publish=["a"] * 100)
    monkeypatch.setattr(http_authenticator, "MAX_KEPT_BYTES", len(long))
    server = await desk.server((200, long))
    authenticator = desk.authenticator(server.url, cache_s=30)
    for number in range(3):
        await verdict_of(authenticator)
        await verdict_of(authenticator)
        assert len(server.questions) == number + 1
        desk.now += 31
    authenticator.forget()
    await verdict_of(authenticator)
    await verdict_of(authenticator)
    assert len(server.questions) == 4


async def test_a_reload_makes_room_for_as_many_bytes_as_at_the_start(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = body(publish=["a"] * 100)
    monkeypatch.setattr(http_authenticator, "MAX_KEPT_BYTES", 2 * len(long))
    server = await desk.server((200, long))
    authenticator = desk.authenticator(server.url)
    users = [Credentials("c", name, None, None, "p:1", "mqtt") for name in ("a", "b")]
    for _ in range(2):
        for user in users * 2:
            await verdict_of(authenticator, user)
        authenticator.forget()
    assert [each["username"] for each in server.questions] == ["a", "b", "a", "b"]


async def test_an_unasked_answer_does_not_answer_the_next_login(desk: Desk) -> None:
    server = await desk.server(response(200, b"{}") + response(200, b"{}"), response(401, b""))
    authenticator = desk.authenticator(server.url, cache_s=0)
    assert (await verdict_of(authenticator)).reason_code == 0
    assert (await verdict_of(authenticator)).reason_code == 0x86


@pytest.mark.parametrize("line", [b"\x01" * 15_000, b"HTTP/1.1 200 OK\r\n" + b"\x01" * 15_000])
async def test_a_long_wrong_line_of_an_answer_is_cut_in_the_log(
    desk: Desk, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    server = await desk.server(line + b"\r\n\r\n")
    assert (await verdict_of(desk.authenticator(server.url))).reason_code == 0x88
    (record,) = [each for each in caplog.records if each.name == "mqttlite.security"]
    assert len(record.getMessage()) < 1_200


# ── many at once, and a server that is away ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("waiting", [0, 3])
async def test_so_many_are_asked_about_at_once_and_so_many_wait(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    monkeypatch.setattr(http_authenticator, "MAX_WAITING", waiting)
    free = asyncio.Event()

    async def slow(question: dict[str, Any]) -> Answer:
        await free.wait()
        return (200, b"")

    server = await desk.stack.enter_async_context(AuthServer(slow))
    authenticator = desk.authenticator(server.url)
    users = [Credentials("c", f"u{number}", None, None, "p:1", "mqtt") for number in range(MAX_REQUESTS + waiting)]
    asked = [asyncio.create_task(verdict_of(authenticator, each)) for each in users]
    await until(lambda: len(server.questions) == MAX_REQUESTS)
    with pytest.raises(TooBusy, match=f"{waiting} clients wait"):
        await authenticator.authenticate(ANN)
    free.set()
    assert {(await each).reason_code for each in asked} == {0}
    assert server.most_busy == MAX_REQUESTS
    assert (await verdict_of(authenticator)).reason_code == 0


async def test_429_is_busy(desk: Desk) -> None:
    server = await desk.server((429, b""))
    with pytest.raises(TooBusy):
        await desk.authenticator(server.url).authenticate(ANN)


async def test_a_server_that_is_silent_is_not_waited_for(desk: Desk) -> None:
    async def silent(question: dict[str, Any]) -> Answer:
        await asyncio.sleep(60)
        return None

    server = await desk.stack.enter_async_context(AuthServer(silent))
    authenticator = desk.authenticator(server.url, timeout_s=0.1)
    assert (await verdict_of(authenticator)).reason_code == 0x88


@pytest.mark.slow
async def test_answers_in_many_pieces_are_read_in_turn(desk: Desk) -> None:
    server = await desk.server(CHUNKED + b"1\r\n \r\n" * 20_000)
    authenticator = desk.authenticator(server.url, timeout_s=30)
    users = [Credentials("c", f"u{number}", None, None, "p:1", "mqtt") for number in range(MAX_REQUESTS)]
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    verdicts = await asyncio.gather(*[verdict_of(authenticator, each) for each in users])
    counting.cancel()
    assert {each.reason_code for each in verdicts} == {0x88}
    assert turns > 0.9 * MAX_REQUESTS * MAX_PIECES / PIECES_AT_ONCE


@pytest.mark.slow
async def test_a_login_that_waits_for_others_waits_no_longer_than_they(desk: Desk) -> None:
    async def silent(question: dict[str, Any]) -> Answer:
        await asyncio.sleep(60)
        return None

    server = await desk.stack.enter_async_context(AuthServer(silent))
    authenticator = desk.authenticator(server.url, timeout_s=0.5)
    users = [Credentials("c", f"u{number}", None, None, "p:1", "mqtt") for number in range(MAX_REQUESTS * 12)]
    begin = time.monotonic()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(verdict_of(authenticator, each)) for each in users]
    assert {each.result().reason_code for each in asked} == {0x88}
    assert time.monotonic() - begin < 4, "they waited for each other"


async def test_a_server_that_is_away_and_back_is_in_the_log_once(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = await desk.server((500, b""), (500, b""), (200, b""))
    authenticator = desk.authenticator(server.url)
    assert [(await verdict_of(authenticator)).reason_code for _ in range(3)] == [0x88, 0x88, 0]
    lines = [each.getMessage().split(": ")[0] for each in caplog.records if each.name == "mqttlite.security"]
    assert lines == ["clients cannot log in", f"localhost:{server.port} answers again"]


async def test_a_port_without_a_listener_is_reported(desk: Desk) -> None:
    async with AuthServer(lambda question: None) as server:  # type: ignore[arg-type,return-value]
        url = server.url
    assert (await verdict_of(desk.authenticator(url))).reason_code == 0x88


async def test_a_name_that_no_host_has(desk: Desk) -> None:
    assert (await verdict_of(desk.authenticator("http://a..b/"))).reason_code == 0x88


async def test_a_kept_connection_that_the_server_closed_is_replaced(desk: Desk) -> None:
    server = await desk.server((200, b""))
    authenticator = desk.authenticator(server.url, cache_s=0)
    for _ in range(3):
        assert (await verdict_of(authenticator)).reason_code == 0
        server.hang_up()
    assert server.connections == 3


async def test_a_server_may_close_after_each_answer(desk: Desk) -> None:
    server = await desk.server(response(200, b"{}", "Connection: close"))
    authenticator = desk.authenticator(server.url, cache_s=0)
    for _ in range(2):
        assert (await verdict_of(authenticator)).reason_code == 0
    assert server.connections == 2


# ── TLS ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def context_of(certs: Path) -> ssl.SSLContext:
    return server_context(TlsOptions(str(certs / "server.crt"), str(certs / "server.key")))


@pytest.mark.long
async def test_the_servers_certificate_is_verified(desk: Desk, certs: Path) -> None:
    server = await desk.server((200, b""), tls=context_of(certs))
    trusting = desk.authenticator(server.url, ca_file=str(certs / "ca.crt"))
    assert (await verdict_of(trusting)).reason_code == 0
    assert (await verdict_of(desk.authenticator(server.url))).reason_code == 0x88
    elsewhere = server.url.replace("localhost", "127.0.0.2")
    assert (await verdict_of(desk.authenticator(elsewhere, ca_file=str(certs / "ca.crt")))).reason_code == 0x88
    assert len(server.questions) == 1


# ── with a broker ──────────────────────────────────────────────────────────────────────────────────────────────────


async def broker_with(rig: Rig, url: str, *listeners: ListenerOptions, **options: Any) -> Broker:
    return await rig.broker(
        Config(listeners=listeners or (ListenerOptions(port=0),), http_auth=HttpAuthOptions(url=url), **options)
    )


@pytest.mark.parametrize(("version", "refused", "away"), [(V311, 4, 3), (V5, 0x86, 0x88)])
async def test_a_broker_asks_about_each_login(rig: Rig, desk: Desk, version: int, refused: int, away: int) -> None:
    server = await desk.server((200, body(username="bob")), (403, b""), (500, b""))
    broker = await broker_with(rig, server.url)
    device = await rig.device(broker.port, "device", version, username="ann")
    await device.ping()
    assert [each.username for each in core_of(broker).connections.values()] == ["bob"]
    for code in (refused, away):
        stranger = await rig.dial(broker.port, version)
        stranger.hello("stranger", username="eve")
        assert (await stranger.expect(Connack)).reason_code == code


async def test_a_reload_asks_about_everybody_again(rig: Rig, desk: Desk) -> None:
    server = await desk.server((200, b""), (403, b""))
    broker = await broker_with(rig, server.url)
    await rig.device(broker.port, "device", username="ann")
    await rig.device(broker.port, "device", username="ann")
    await broker.reload()
    device = await rig.dial(broker.port)
    device.hello("device", username="ann")
    assert (await device.expect(Connack)).reason_code == 0x86


async def test_users_of_the_file_are_not_asked_about(rig: Rig, desk: Desk, tmp_path: Path) -> None:
    set_user(tmp_path / "users", "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    server = await desk.server((200, b""))
    broker = await broker_with(rig, server.url, password_file=str(tmp_path / "users"))
    await rig.device(broker.port, "ann", username="ann")
    wrong = await rig.dial(broker.port)
    wrong.hello("ann2", username="ann", password=b"wrong")
    assert (await wrong.expect(Connack)).reason_code == 0x86
    await rig.device(broker.port, "bob", username="bob")
    assert [each["username"] for each in server.questions] == ["bob"]


@asyncio_only
async def test_a_client_is_disconnected_when_the_answer_expires(
    rig: Rig, desk: Desk, jump: Callable[[float], None]
) -> None:
    server = await desk.server((200, body(expires_in_s=60)))
    broker = await broker_with(rig, server.url)
    device = await rig.device(broker.port, "device", username="ann")
    jump(61)
    assert await device.goodbye() == 0x87


async def test_a_client_that_leaves_leaves_no_request(rig: Rig, desk: Desk) -> None:
    async def silent(question: dict[str, Any]) -> Answer:
        await asyncio.sleep(60)
        return None

    server = await desk.stack.enter_async_context(AuthServer(silent))
    broker = await broker_with(rig, server.url)
    device = await rig.dial(broker.port)
    device.hello("device", username="ann")
    await until(lambda: len(server.questions) == 1)
    device.drop()
    await until(lambda: not core_of(broker).connections)


# ── options ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "localhost:80"}, "has to begin with https"),
        ({"url": "ftp://localhost"}, "has to begin with https"),
        ({"url": "http://"}, "names no host"),
        ({"url": "http://ann:secret@localhost/"}, "user name or password"),
        ({"url": "http://localhost/#top"}, "fragment"),
        ({"url": "http://localhost/a b"}, "cannot have"),
        ({"url": "http://localhost/\r\nX: y"}, "cannot have"),
        ({"url": "http://localhost:port/"}, "url is"),
        ({"url": "http://localhost/", "ca_file": "ca.crt"}, "ca_file is 'ca.crt': it needs"),
        ({"url": "http://localhost/", "timeout_s": 0}, "timeout_s is 0"),
        ({"url": "http://localhost/", "timeout_s": 61}, "timeout_s is 61"),
        ({"url": "http://localhost/", "cache_s": -1}, "cache_s is -1"),
        ({"url": "http://localhost/", "cache_s": 3_601}, "cache_s is 3601"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HttpAuthOptions(**options)


def test_a_url_may_have_an_ipv6_address_and_no_path() -> None:
    url = Url.parse("https://[::1]?a=b")
    assert (url.authority, url.target) == ("[::1]:443", "/?a=b")
    assert Url.parse("http://example.org").authority == "example.org:80"


@pytest.mark.parametrize(
    ("url", "is_private"),
    [
        ("http://localhost/", True),
        ("http://127.0.0.5/", True),
        ("http://[::1]/", True),
        ("https://example.org/", True),
        ("http://example.org/", False),
    ],
)
def test_passwords_should_not_cross_the_network_unencrypted(url: str, is_private: bool) -> None:
    assert HttpAuthOptions(url=url).is_private == is_private


async def test_a_ca_file_that_is_none_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    options = HttpAuthOptions(url="https://localhost/", ca_file=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"http_auth\.ca_file: .*missing: no such file"):
        await Broker(Config(listeners=(ListenerOptions(port=0),), http_auth=options)).start()
