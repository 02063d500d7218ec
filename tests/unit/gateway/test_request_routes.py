"""Requests over HTTP: published to responders of MQTT, whose answers come back to the caller that asked."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqttlite.client import Client, Message, RequestFailed
from mqttlite.config import ListenerOptions
from mqttlite.gateway import request_routes
from tests.support.device import until
from tests.support.gateway import GatewayUnderTest, running_gateway

NEVER_ANSWERED: list[Message] = []
"""The requests to `never` that have come."""


@pytest.fixture
async def responder(gateway: GatewayUnderTest) -> AsyncIterator[Client]:
    us = Client("127.0.0.1", gateway.broker.port)

    @us.responder("echo/+")
    async def echo(request: Message) -> bytes:
        if request.payload == b"bad":
            raise RequestFailed("cannot do that")
        return request.payload + b" " + str(request.properties.content_type).encode()

    @us.responder("never")
    async def never(request: Message) -> None:
        NEVER_ANSWERED.append(request)
        await asyncio.Event().wait()

    NEVER_ANSWERED.clear()
    async with us:
        yield us


@pytest.mark.long
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_each_request_gets_its_own_answer(gateway: GatewayUnderTest, responder: Client, qos: int) -> None:
    client = gateway.client()
    asked = [client.post(f"/api/v1/requests/echo/{n}?qos={qos}", content=b"%d" % n, headers=TEXT) for n in range(30)]
    answers = await asyncio.gather(*asked)
    assert [each.status_code for each in answers] == [200] * 30
    assert [each.content for each in answers] == [b"%d text/plain" % n for n in range(30)]
    assert answers[0].headers["content-type"] == "application/octet-stream"


TEXT = {"content-type": "text/plain"}


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "detail"),
    [
        ("nobody", b"x", 404, "no_responder", "no client is subscribed to 'nobody'"),
        ("echo/a", b"bad", 502, "responder_failed", "cannot do that"),
        ("never?timeout_s=1", b"x", 504, "no_answer", "no answer came within 1 s"),
        ("never?timeout_s=61", b"x", 422, "invalid_value", "timeout_s is 61"),
        ("never?timeout_s=0", b"x", 422, "invalid_value", "timeout_s is 0"),
        ("never?qos=3", b"x", 422, "invalid_value", "qos is 3"),
        ("a/%23", b"x", 422, "invalid_topic", "wildcard"),
    ],
)
async def test_each_failure_is_said(
    gateway: GatewayUnderTest, responder: Client, path: str, body: bytes, status: int, code: str, detail: str
) -> None:
    answer = await gateway.client().post(f"/api/v1/requests/{path}", content=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code)
    assert detail in problem["detail"]


async def test_a_session_that_an_operator_ends_is_made_again(gateway: GatewayUnderTest, responder: Client) -> None:
    client = gateway.client()
    assert (await client.post("/api/v1/requests/echo/a", content=b"1")).status_code == 200
    admin = gateway.broker.admin
    (taking,) = [each.client_id for each in (await admin.clients()).entries if each.client_id != responder.client_id]
    assert admin.kick(taking)
    assert (await client.post("/api/v1/requests/echo/a", content=b"2")).status_code == 200


@pytest.mark.long
async def test_so_many_requests_wait_at_a_time(
    gateway: GatewayUnderTest, responder: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_routes, "MAX_WAITING", 1)
    client = gateway.client()
    waiting = asyncio.create_task(client.post("/api/v1/requests/never?timeout_s=2", content=b"x"))
    await until(lambda: bool(NEVER_ANSWERED))
    answer = await client.post("/api/v1/requests/echo/a", content=b"x")
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "busy", "1")
    monkeypatch.setattr(request_routes, "MAX_WAITING", 100)
    monkeypatch.setattr(request_routes, "MAX_WAITING_OF_CALLER", 1)
    answer = await client.post("/api/v1/requests/echo/a", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
    assert (await waiting).status_code == 504
    assert (await client.post("/api/v1/requests/echo/a", content=b"x")).status_code == 200


@pytest.mark.long
async def test_a_caller_that_hangs_up_and_a_session_that_ends_leave_nothing_behind(
    gateway: GatewayUnderTest, responder: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_routes, "MAX_WAITING", 1)
    client = gateway.client()
    _reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.port)
    writer.write(b"POST /api/v1/requests/never?timeout_s=60 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    await until(lambda: bool(NEVER_ANSWERED))
    writer.close()
    async with asyncio.timeout(30):
        while (await client.post("/api/v1/requests/echo/a", content=b"x")).status_code != 200:
            await asyncio.sleep(0.01)
    NEVER_ANSWERED.clear()
    waiting = asyncio.create_task(client.post("/api/v1/requests/never?timeout_s=60", content=b"x"))
    await until(lambda: bool(NEVER_ANSWERED))
    admin = gateway.broker.admin
    (taking,) = [each.client_id for each in (await admin.clients()).entries if each.client_id != responder.client_id]
    assert admin.kick(taking)
    answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")


@pytest.mark.long
async def test_requests_and_answers_stay_below_a_mount_point(tmp_path: Path) -> None:
    listeners = (ListenerOptions(port=0, mount_point="shop/"),)
    async with running_gateway(tmp_path, http={"mount_point": "shop/"}, listeners=listeners) as gateway:
        us = Client("127.0.0.1", gateway.broker.port)
        us.responder("echo")(lambda request: request.payload)
        async with us, gateway.broker.subscribe("#") as everything:
            answer = await gateway.client().post("/api/v1/requests/echo", content=b"x")
            assert (answer.status_code, answer.content) == (200, b"x")
            request, answered = await anext(everything), await anext(everything)
        assert request.topic == "shop/echo"
        assert answered.topic.startswith("shop/reply/")
