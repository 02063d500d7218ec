"""Tokens as passwords over real sockets: devices, paho, certificates beside them, and the end of a token."""

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.core.authentication import Grants, Verdict
from mqttlite.core.limits import Limits
from mqttlite.security.authenticator import Credentials
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.security.token_options import TokenOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Connack
from tests.integration.conftest import Rig
from tests.support.device import Device
from tests.support.inside import core_of

SECRET = b"0123456789abcdef0123456789abcdef"
asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])


def token(**claims: object) -> bytes:
    """A token that is good for an hour, unless `claims` say otherwise."""
    return jwt.encode({"sub": "token-user", "exp": time.time() + 3_600, **claims}, SECRET, "HS256").encode()


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return str(path)


@pytest.fixture
def users(tmp_path: Path) -> str:
    path = tmp_path / "users"
    set_user(path, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    return str(path)


async def broker_with(
    rig: Rig, secret: str, *listeners: ListenerOptions, token_options: dict[str, Any] | None = None, **options: Any
) -> Broker:
    tokens = TokenOptions(algorithms=("HS256",), secret_file=secret, **(token_options or {}))
    return await rig.broker(Config(listeners=listeners or (ListenerOptions(port=0),), jwt=tokens, **options))


async def refused(rig: Rig, port: int, version: int = V5, **hello: Any) -> int:
    """The code with which a client is refused."""
    device = await rig.dial(port, version, **({"tls": hello.pop("tls")} if "tls" in hello else {}))
    device.hello("refused", **hello)
    code = (await device.expect(Connack)).reason_code
    assert await device.goodbye() is None
    return code


def names(broker: Broker) -> dict[str, str | None]:
    return {each.client_id: each.username for each in core_of(broker).connections.values()}


async def puback(device: Device, topic: str) -> int:
    device.publish(topic, b"x", 1)
    return (await device.expect(Ack)).reason_code


@pytest.mark.parametrize(("version", "code"), [(V311, 4), (V5, 0x86)])
async def test_a_token_lets_in_as_its_user(rig: Rig, secret: str, version: int, code: int) -> None:
    broker = await broker_with(rig, secret)
    device = await rig.device(broker.port, "device", version, username="ignored", password=token())
    await device.ping()
    assert names(broker) == {"device": "token-user"}
    for password in (b"secret", token(exp=time.time() - 60), token()[:-2]):
        assert await refused(rig, broker.port, version, username="ann", password=password) == code
    assert await refused(rig, broker.port, version) == code


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
@pytest.mark.parametrize(("lasts_s", "accepted"), [(3_600, True), (-3_600, False)])
async def test_paho_sends_a_token_as_password(
    rig: Rig, secret: str, version: MQTTProtocolVersion, lasts_s: int, accepted: bool
) -> None:
    broker = await broker_with(rig, secret)
    answers: list[bool] = []
    payloads: list[bytes] = []

    def visit() -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, "paho", protocol=version)
        client.username_pw_set("token", token(exp=time.time() + lasts_s).decode())
        client.on_connect = lambda *arguments: answers.append(arguments[3].is_failure)
        client.on_message = lambda client, data, message: payloads.append(message.payload)
        client.connect("127.0.0.1", broker.port)
        while not answers:
            client.loop(0.1)
        if accepted:
            client.subscribe("t", 1)
            client.publish("t", "hello", 1)
            while not payloads:
                client.loop(0.1)
        client.disconnect()
        client.loop(0.1)

    await asyncio.to_thread(visit)
    assert answers == [not accepted]
    assert payloads == [b"hello"] * accepted


@asyncio_only
@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_is_disconnected_when_its_token_expires(
    rig: Rig, secret: str, jump: Callable[[float], None], version: int
) -> None:
    broker = await broker_with(rig, secret, token_options={"leeway_s": 5})
    short = await rig.device(broker.port, "short", version, username="u", password=token(exp=time.time() + 60))
    long = await rig.device(broker.port, "long", version, username="u", password=token())
    jump(55)
    await short.ping()
    jump(11)
    assert await short.goodbye() == (0x87 if version == V5 else None)
    await long.ping()


async def test_a_token_keeps_its_client_to_the_topics_it_names(rig: Rig, secret: str) -> None:
    broker = await broker_with(rig, secret, token_options={"publish_claim": "pub", "subscribe_claim": "listen"})
    one = token(pub=["from/one/#"], listen=["to/one/#", "to/all"])
    device = await rig.device(broker.port, "one", username="u", password=one)
    assert await device.subscribe("to/one/+") == b"\0"
    assert await device.subscribe("$share/g/to/all") == b"\0"
    for forbidden in ("#", "to/+", "to/two/x", "from/one/x"):
        assert await device.subscribe(forbidden) == b"\x87"
    assert await puback(device, "from/one/x") == 0x10
    assert await puback(device, "from/two/x") == 0x87
    other = await rig.device(broker.port, "two", username="u", password=token(pub=["from/two/x"]))
    assert await puback(other, "from/two/x") == 0x10
    assert await puback(other, "from/one/x") == 0x87
    assert await other.subscribe("to/all") == b"\x87", "its token names nothing to subscribe to"


async def test_permissions_granted_by_a_program_hold_too(rig: Rig) -> None:
    class Door:
        async def authenticate(self, credentials: Credentials) -> Verdict:
            return Verdict(0, None, credentials.username, Grants(publish=(b"mine",)))

    broker = await rig.broker(authenticator=Door())
    device = await rig.device(broker.port, "one", username="ann")
    assert await device.subscribe("other/#") == b"\0"
    assert await puback(device, "mine") == 0x10
    assert await puback(device, "yours") == 0x87


# ── several methods ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_users_and_tokens_come_in_side_by_side(rig: Rig, secret: str, users: str) -> None:
    broker = await broker_with(rig, secret, password_file=users)
    await rig.device(broker.port, "by password", username="ann")
    await rig.device(broker.port, "by token", username="ann", password=token())
    assert names(broker) == {"by password": "ann", "by token": "token-user"}
    assert await refused(rig, broker.port, username="ann", password=b"wrong") == 0x86
    assert await refused(rig, broker.port, username="bob") == 0x86
    assert await refused(rig, broker.port) == 0x86


async def test_each_listener_has_its_own_methods(rig: Rig, secret: str, users: str) -> None:
    methods: list[dict[str, Any]] = [
        {},
        {"authentication": ("password",)},
        {"authentication": ("jwt",)},
        {"authentication": ("jwt",), "allow_anonymous": True},
        {"authentication": (), "allow_anonymous": True},
    ]
    listeners = [ListenerOptions(port=0, **each) for each in methods]
    broker = await broker_with(rig, secret, *listeners, password_file=users)
    logins: list[dict[str, Any]] = [{"username": "ann"}, {"username": "ann", "password": token()}, {}]
    accepted = []
    for listener in broker.listeners:
        codes = []
        for login in logins:
            device = await rig.dial(listener.port)
            device.hello("device", **login)
            codes.append((await device.expect(Connack)).reason_code)
        accepted.append([code == 0 for code in codes])
    assert accepted == [
        [True, True, False],
        [True, False, False],
        [False, True, False],
        [False, True, True],
        [True, True, True],
    ]


def tls(certs: Path) -> TlsOptions:
    return TlsOptions(str(certs / "server.crt"), str(certs / "server.key"), str(certs / "ca.crt"))


def client(certs: Path, name: str | None) -> ssl.SSLContext:
    cert, key = (str(certs / f"{name}.crt"), str(certs / f"{name}.key")) if name else (None, None)
    return client_context(str(certs / "ca.crt"), cert, key)


@pytest.mark.long
async def test_a_certificate_may_be_enough(rig: Rig, secret: str, users: str, certs: Path) -> None:
    listener = ListenerOptions(port=0, tls=tls(certs), authentication=("jwt", "certificate", "password"))
    broker = await broker_with(rig, secret, listener, password_file=users)
    with_certificate, without = client(certs, "thermometer"), client(certs, None)
    await rig.device(broker.port, "certificate", tls=with_certificate)
    await rig.device(broker.port, "certificate and any password", tls=with_certificate, username="ann", password=b"?")
    await rig.device(broker.port, "certificate and token", tls=with_certificate, username="ann", password=token())
    await rig.device(broker.port, "password", tls=without, username="ann")
    assert names(broker) == {
        "certificate": "thermometer",
        "certificate and any password": "thermometer",
        "certificate and token": "token-user",
        "password": "ann",
    }
    assert await refused(rig, broker.port, tls=without) == 0x86
    assert await refused(rig, broker.port, tls=without, username="ann", password=b"wrong") == 0x86


async def test_without_being_a_method_a_certificate_is_not_enough(rig: Rig, secret: str, certs: Path) -> None:
    broker = await broker_with(rig, secret, ListenerOptions(port=0, tls=tls(certs)))
    assert await refused(rig, broker.port, tls=client(certs, "thermometer")) == 0x86


async def test_an_alternative_name_is_the_identity_where_the_listener_says_so(rig: Rig, certs: Path) -> None:
    listener = ListenerOptions(port=0, tls=tls(certs), authentication=("certificate",), identity_from="san_dns")
    broker = await rig.broker(Config(listeners=(listener,)))
    assert await refused(rig, broker.port, tls=client(certs, "thermometer")) == 0x86, "it has no alternative name"


# ── configuration ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_reload_reads_the_keys_again(rig: Rig, secret: str) -> None:
    broker = await broker_with(rig, secret)
    await asyncio.to_thread(Path(secret).write_bytes, b"another secret, which is as long as it has to be")
    await broker.reload()
    assert await refused(rig, broker.port, username="u", password=token()) == 0x86


async def test_keys_that_cannot_be_used_keep_the_broker_from_starting(tmp_path: Path) -> None:
    tokens = TokenOptions(algorithms=("HS256",), secret_file=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"jwt\.secret_file: .*missing cannot be read"):
        await Broker(Config(listeners=(ListenerOptions(port=0),), jwt=tokens)).start()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"authentication": ("password",)}, 'has "password": set password_file'),
        ({"authentication": ("jwt",)}, r'has "jwt": add a section \[jwt\]'),
        ({"authentication": ("http",)}, r'has "http": add a section \[http_auth\]'),
        ({"authentication": ("certificate",)}, 'has "certificate": give it a section tls with a ca_file'),
        ({"authentication": ()}, "is empty: nobody could log in"),
        ({"authentication": ("password", "password"), "password_file": "u"}, "has a method twice"),
        ({"identity_from": "san_uri"}, 'identity_from is "san_uri": it needs a section tls'),
    ],
)
def test_methods_that_are_not_set_up_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Broker(Config(listeners=(ListenerOptions(port=0, **options),)))


@pytest.mark.long
async def test_strangers_with_tokens_do_not_stop_the_loop(rig: Rig, secret: str) -> None:
    """A hundred bad tokens of full size are refused while a client that is in gets its answers."""
    broker = await broker_with(rig, secret, limits=Limits())
    good = await rig.device(broker.port, "good", username="u", password=token())
    bad = b"eyJhbGciOiJIUzI1NiJ9." + b"A" * 8_100 + b".AAAA"

    async def attack() -> None:
        for _ in range(10):
            assert await refused(rig, broker.port, username="u", password=bad) == 0x86

    attacks = [asyncio.create_task(attack()) for _ in range(10)]
    longest_s = 0.0
    while not all(each.done() for each in attacks):
        began = asyncio.get_running_loop().time()
        await good.ping()
        longest_s = max(longest_s, asyncio.get_running_loop().time() - began)
    await asyncio.gather(*attacks)
    assert longest_s < 1.0
