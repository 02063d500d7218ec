"""Programs that were written for aiomqtt find its names here."""

import ssl
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from mqttlite.client import Client, Message, ProtocolVersion, TLSParameters
from mqttlite.config import Config, ListenerOptions
from mqttlite.security.certificates import init
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker


@pytest.mark.parametrize("kind", [Client, aiomqtt.Client])
async def test_one_program_runs_with_both(kind: Any) -> None:
    protocol = ProtocolVersion.V5 if kind is Client else aiomqtt.ProtocolVersion.V5
    async with (
        Broker(port=0) as broker,
        kind("127.0.0.1", broker.port, identifier="me", keepalive=30, protocol=protocol) as client,
    ):
        assert client.identifier == "me"
        await client.subscribe("sensors/#", qos=1)
        await client.publish("sensors/kitchen", 21.5, qos=1)
        async for message in client.messages:
            assert message.topic.matches("sensors/+")
            assert not message.topic.matches("sensors")
            assert (message.topic.value, str(message.topic)) == ("sensors/kitchen", "sensors/kitchen")
            assert message.payload == b"21.5"
            break
        assert (await broker.admin.clients()).entries[0].protocol_version == "5.0"
        found = broker.admin.client("me")
        assert found is not None
        assert found.keep_alive_s == 30


@pytest.mark.parametrize(
    ("protocol", "version"), [(ProtocolVersion.V311, "3.1.1"), (aiomqtt.ProtocolVersion.V31, "3.1"), ("5.0", "5.0")]
)
async def test_a_protocol_is_a_version(protocol: Any, version: str) -> None:
    async with Broker(port=0) as broker, Client("127.0.0.1", broker.port, identifier="me", protocol=protocol):
        assert (await broker.admin.clients()).entries[0].protocol_version == version


async def test_tls_parameters_are_files(tmp_path: Path) -> None:
    init(tmp_path, clients=["device"])
    tls = TlsOptions(
        str(tmp_path / "server.crt"), str(tmp_path / "server.key"), str(tmp_path / "ca.crt"), require_client_cert=True
    )
    async with Broker(Config(listeners=(ListenerOptions(port=0, tls=tls),))) as broker:
        ours = TLSParameters(
            ca_certs=str(tmp_path / "ca.crt"),
            certfile=str(tmp_path / "device.crt"),
            keyfile=str(tmp_path / "device.key"),
            tls_version=ssl.TLSVersion.TLSv1_3,
            ciphers="HIGH",
        )
        async with Client("localhost", broker.port, tls_params=ours) as client:
            assert await client.publish("a", "b")
        async with Client("localhost", broker.port, tls_context=ours.context()):
            pass


@pytest.mark.long
def test_certificates_may_be_left_unverified() -> None:
    context = TLSParameters(cert_reqs=ssl.CERT_NONE).context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert TLSParameters(cert_reqs=ssl.CERT_REQUIRED).context().check_hostname


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"client_id": "a", "identifier": "b"}, "client_id and identifier are two names of one parameter"),
        ({"keep_alive": 5, "keepalive": 6}, "keep_alive and keepalive are two names"),
        ({"version": "3.1", "protocol": 4}, "version and protocol are two names"),
        ({"tls": ssl.create_default_context(), "tls_params": TLSParameters()}, "tls and tls_context are two names"),
        ({"protocol": 6}, "protocol is 6: it may be a ProtocolVersion, or 5.0, 3.1.1, 3.1"),
        ({"protocol": "4"}, "protocol is '4'"),
        ({"transport": "websockets"}, "transport is 'websockets': it may be 'tcp', 'unix' or 'websocket'"),
    ],
)
def test_impossible_values_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Client("localhost", **arguments)


def test_a_topic_is_text() -> None:
    message = Message("a/b", b"")
    assert message.topic == "a/b"
    assert {message.topic: 1}["a/b"] == 1
    assert message.matches("a/#")
