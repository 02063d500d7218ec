"""Who a caller is, by key, password or nothing; and whom the gateway refuses."""

import base64
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqttlite.config import Config, ConfigError
from mqttlite.config.http import HttpOptions
from mqttlite.gateway.caller import Role
from mqttlite.security.api_keys import FILE_NAME, add
from mqttlite.security.jail import JailOptions
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.server import Broker
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def users(folder: Path) -> str:
    path = folder / "users"
    set_user(path, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    return str(path)


async def test_without_credentials_a_caller_on_this_machine_looks_and_changes_nothing(
    gateway: GatewayUnderTest,
) -> None:
    answer = await gateway.client().get("/api/v1/me")
    assert answer.json() == {"username": None, "role": "viewer", "how": "anonymous", "expires_at": None}


async def test_a_name_that_leads_here_is_not_this_machine(gateway: GatewayUnderTest) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "127.evil.example", "localhost.evil.example", "192.0.2.1"):
        answer = await gateway.client(host=host).get("/api/v1/me")
        assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host"), host
    for host in ("LocalHost", "127.0.0.1", "127.1.2.3", "[::1]"):
        assert (await gateway.client(host=host).get("/api/v1/me")).status_code == 200, host


async def test_a_key_has_its_role_and_user(gateway: GatewayUnderTest) -> None:
    me = (await gateway.client(Role.OPERATOR).get("/api/v1/me")).json()
    assert (me["username"], me["role"], me["how"][:4]) == ("key-operator", "operator", "key ")


@pytest.mark.parametrize("given", ["Bearer", "Bearer mqk_x", "Digest x", "Basic x", "Basic " + "A" * 13_000])
async def test_wrong_credentials_are_no_credentials(gateway: GatewayUnderTest, given: str) -> None:
    answer = await gateway.client().get("/api/v1/me", headers={"Authorization": given})
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Bearer" in answer.headers["www-authenticate"]


async def test_a_user_of_mqtt_logs_in_with_its_password_and_has_the_role_of_the_options(tmp_path: Path) -> None:
    http = {"roles": {"operator": ("ann",)}}
    async with running_gateway(tmp_path / "data", http=http, password_file=users(tmp_path)) as gateway:
        client = gateway.client()
        me = (await client.get("/api/v1/me", headers=basic("ann", "secret"))).json()
        assert (me["username"], me["role"], me["how"]) == ("ann", "operator", "login")
        assert (await client.get("/api/v1/me", headers=basic("ann", "wrong"))).status_code == 401
        assert (await client.get("/api/v1/me")).status_code == 401


@pytest.mark.long
async def test_a_caller_that_fails_too_often_is_jailed_as_over_mqtt(tmp_path: Path) -> None:
    jail = JailOptions(client_failures=2, address_failures=2, delay_s=0.0)
    async with running_gateway(tmp_path / "data", password_file=users(tmp_path), login_jail=jail) as gateway:
        client = gateway.client(peer="192.0.2.1")
        codes = [
            (await client.get("/api/v1/me", headers={"Authorization": f"Bearer mqk_{number}"})).status_code
            for number in range(3)
        ]
        assert codes == [401, 401, 429]
        answer = await client.get("/api/v1/me", headers=basic("ann", "secret"))
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_failed_logins")


async def test_a_key_expires(tmp_path: Path) -> None:
    key, _ = add(tmp_path / FILE_NAME, "viewer", None, int(time.time()) - 1)
    async with running_gateway(tmp_path) as gateway:
        assert (await gateway.client(key=key).get("/api/v1/me")).status_code == 401


async def test_a_caller_that_asks_too_often_waits(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"requests_per_s": 2.0}) as gateway:
        client = gateway.client()
        answers = [await client.get("/api/v1/me") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert (answers[2].json()["code"], answers[2].headers["retry-after"]) == ("too_many_requests", "1")
        assert (await gateway.client(Role.VIEWER).get("/api/v1/me")).status_code == 200


@pytest.mark.parametrize(
    ("http", "config", "sentence"),
    [
        ({"host": "0.0.0.0"}, {}, "http.host is '0.0.0.0', where the network reaches it, and callers need not say"),
        ({"api_key_file": "{}/broken"}, {}, "http.api_key_file: "),
    ],
)
async def test_a_gateway_that_cannot_be_meant_keeps_the_broker_from_starting(
    tmp_path: Path, http: dict[str, str], config: dict[str, str], sentence: str
) -> None:
    (tmp_path / "broken").write_text("{")
    options = HttpOptions(port=0, **{name: value.format(tmp_path) for name, value in http.items()})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=sentence):
        async with Broker(Config(http=options, **config)):  # type: ignore[arg-type]
            pass


async def test_on_the_network_keys_are_enough_and_needed(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"host": "0.0.0.0"}) as gateway:
        assert (await gateway.client().get("/api/v1/me")).status_code == 401
        assert (await gateway.client(Role.USER).get("/api/v1/me")).status_code == 200


async def test_on_this_machine_too_the_config_can_ask_for_credentials(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"allow_anonymous": False}) as gateway:
        for path in ("/api/v1/me", "/api/v1/clients", "/topics/a", "/events?filter=a"):
            assert (await gateway.client().get(path)).status_code == 401
        assert (await gateway.client().put("/topics/a", content=b"1")).status_code == 401
        assert (await gateway.client(Role.USER).get("/api/v1/me")).status_code == 200


async def test_an_open_gateway_on_the_network_is_asked_for_twice(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"host": "0.0.0.0", "allow_anonymous": True}) as gateway:
        assert (await gateway.client(host="mine.example").get("/api/v1/me")).json()["role"] == "user"


async def test_logins_are_required_here_too(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        assert (await gateway.client().get("/api/v1/me")).status_code == 401


NO_EXTRA = """
import asyncio, sys
sys.modules[sys.argv[1]] = None
from mqttlite import Broker, Config, ListenerOptions
from mqttlite.config.http import HttpOptions
asyncio.run(Broker(Config(listeners=(ListenerOptions(port=0),), http=HttpOptions(port=0))).start())
"""


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["jinja2", "starlette", "uvicorn"])
def test_without_the_extra_a_sentence_says_what_to_install(missing: str) -> None:
    found = _run(NO_EXTRA, missing)
    assert f"http: {missing} is missing, which the gateway needs: pip install 'mqttlite[gateway]'" in found.stderr


STARTED = """
import asyncio, sys
from mqttlite import Broker, Config, ListenerOptions
from mqttlite.config.http import HttpOptions
async def main():
    async with Broker(Config(listeners=(ListenerOptions(port=0),), http=HttpOptions(port=0))):
        print(*sys.modules)
asyncio.run(main())
"""


@pytest.mark.slow
def test_a_gateway_starts_without_what_only_some_requests_need() -> None:
    imported = _run(STARTED).stdout.split()
    assert "starlette.responses" in imported
    assert not {"jinja2", "scramp", "importlib.metadata", "aiohttp", "cryptography"} & set(imported)


def _run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
