"""Client certificates as logins over HTTP: whom they name, and when they count."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as connect_socket

from mqttlite.config import Config
from mqttlite.config.checks import conflicts
from mqttlite.config.http import HttpOptions
from mqttlite.gateway.caller import Role
from mqttlite.security.authority import revoke
from mqttlite.security.certificates import CRL, init
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.tls import TlsOptions
from mqttlite.security.topic_policies import TopicPolicyOptions
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway

CARL = keys_of("secret", b"0123456789abcdef", 4_096)

OTHER_SITE = "https://app.example"


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    init(tmp_path / "certs", clients=["ann", "bob"])
    return tmp_path / "certs"


def client(certs: Path, name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certs / "ca.crt"))
    if name is not None:
        context.load_cert_chain(certs / f"{name}.crt", certs / f"{name}.key")
    return context


@asynccontextmanager
async def serving(certs: Path, tmp_path: Path, **http: Any) -> AsyncIterator[GatewayUnderTest]:
    """A gateway on which somebody has to log in, and `plant` is ann's."""
    tls = TlsOptions(
        *(str(certs / "server.crt"), str(certs / "server.key"), str(certs / "ca.crt")), crl_file=str(certs / CRL)
    )
    http = {"authentication": ("certificate", "password"), "roles": {"operator": ["ann"]}, **http}
    users = nobody_without_credentials(tmp_path)
    policies = (TopicPolicyOptions(prefix="plant", access="PRIVATE", owner="ann"),)
    async with running_gateway(
        tmp_path / "data", http={"tls": tls, **http}, topic_policies=policies, **users
    ) as gateway:
        yield gateway


async def ask(gateway: GatewayUnderTest, context: ssl.SSLContext, **headers: str) -> tuple[int, Any]:
    async with httpx.AsyncClient(verify=context) as caller:
        answer = await caller.get(f"https://localhost:{gateway.gateway.port}/api/v1/me", headers=headers)
    return answer.status_code, answer.json()


@pytest.mark.long
async def test_a_certificate_names_its_caller(certs: Path, tmp_path: Path) -> None:
    async with serving(certs, tmp_path) as gateway:
        status, me = await ask(gateway, client(certs, "ann"))
        assert (status, me["username"], me["role"], me["how"]) == (200, "ann", "operator", "certificate")
        status, me = await ask(gateway, client(certs, "bob"))
        assert (status, me["username"], me["role"]) == (200, "bob", "user")
        assert (await ask(gateway, client(certs)))[0] == 401
        status, me = await ask(gateway, client(certs, "ann"), Authorization=f"Bearer {gateway.keys[Role.USER]}")
        assert (status, me["username"]) == (200, "key-user")


@pytest.mark.long
async def test_the_rules_hold_for_clients_with_a_certificate(certs: Path, tmp_path: Path) -> None:
    async with serving(certs, tmp_path) as gateway:
        port = gateway.gateway.port
        for name, publishes, subscribed in (("ann", 200, "subscribed"), ("bob", 403, "error")):
            async with httpx.AsyncClient(verify=client(certs, name)) as caller:
                answer = await caller.put(f"https://localhost:{port}/topics/plant/1", content=b"1")
            assert answer.status_code == publishes
            address = f"wss://localhost:{port}/ws/subscribe"
            async with connect_socket(address, ssl=client(certs, name)) as socket:
                await socket.send('{"type": "subscribe", "topic": "plant/1"}')
                assert json.loads(await socket.recv())["type"] == subscribed


@pytest.mark.long
async def test_with_a_password_the_certificate_names_the_user(certs: Path, tmp_path: Path) -> None:
    async with serving(certs, tmp_path) as gateway:
        set_user(tmp_path / "users", "carl", CARL, create=False)
        await asyncio.sleep(1.1)  # until the file is read again
        basic = base64.b64encode(b"carl:secret").decode()
        status, me = await ask(gateway, client(certs, "ann"), Authorization=f"Basic {basic}")
        assert (status, me["username"], me["how"]) == (200, "ann", "login")
        status, me = await ask(gateway, client(certs), Authorization=f"Basic {basic}")
        assert (status, me["username"]) == (200, "carl")


@pytest.mark.long
async def test_pages_of_other_sites_do_not_use_the_certificate_of_a_browser(certs: Path, tmp_path: Path) -> None:
    async with serving(certs, tmp_path, allowed_origins=(OTHER_SITE,)) as gateway:
        assert (await ask(gateway, client(certs, "ann"), Origin=OTHER_SITE))[0] == 401
        own = f"https://localhost:{gateway.gateway.port}"
        assert (await ask(gateway, client(certs, "ann"), Origin=own))[0] == 200


@pytest.mark.long
async def test_where_certificates_alone_are_not_enough_a_client_has_to_log_in(certs: Path, tmp_path: Path) -> None:
    async with serving(certs, tmp_path, authentication=("password",)) as gateway:
        status, problem = await ask(gateway, client(certs, "ann"))
        assert (status, 'http.authentication has "certificate"' in problem["detail"]) == (401, True)
    async with serving(certs, tmp_path, authentication=("password",), allow_anonymous=True) as gateway:
        assert (await ask(gateway, client(certs, "ann")))[1]["username"] == "ann"


@pytest.mark.long
async def test_a_certificate_that_is_revoked_ends_its_streams_and_is_refused(certs: Path, tmp_path: Path) -> None:
    async with serving(certs, tmp_path) as gateway:
        address = f"https://localhost:{gateway.gateway.port}"
        async with (
            httpx.AsyncClient(verify=client(certs, "ann")) as reader,
            httpx.AsyncClient(verify=client(certs, "ann")) as caller,
            reader.stream("GET", f"{address}/events?filter=plant/%23") as stream,
        ):
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith("retry:")
            assert (await caller.get(f"{address}/api/v1/me")).status_code == 200
            await asyncio.to_thread(revoke, certs, "ann")
            async with asyncio.timeout(60):
                rest = [line async for line in lines]
            assert any("certificate" in line and "revoked" in line for line in rest), rest
            answer = await caller.get(f"{address}/api/v1/me")
            assert (answer.status_code, "revoked" in answer.json()["detail"]) == (401, True)
        assert (await ask(gateway, client(certs, "bob")))[0] == 200


def test_certificates_need_an_authority() -> None:
    [found] = [str(each) for each in conflicts(Config(http=HttpOptions(authentication=("certificate",))))]
    assert found == 'http.authentication has "certificate": give it a section tls with a ca_file, or leave it out'
