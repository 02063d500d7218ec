"""Client certificates of real clients, and what a TLS listener must survive."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from mqttlite.security.authenticator import Credentials
from tests.interop.support import HOST, PATIENCE_S, V5, V311, Paho, RunningBroker

BAD_USER_NAME_OR_PASSWORD = 0x86


class OnlyDevice:
    """Lets in who shows the certificate of `device`."""

    def __init__(self) -> None:
        self.asked: list[Credentials] = []

    async def authenticate(self, credentials: Credentials) -> bool:
        self.asked.append(credentials)
        return credentials.identity == "device"


@pytest.fixture
def doorman() -> OnlyDevice:
    return OnlyDevice()


@pytest.fixture
def guarded(certificate_files: Path, doorman: OnlyDevice) -> Iterator[RunningBroker]:
    with RunningBroker(certificate_files, authenticator=doorman) as running:
        yield running


@pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
def test_paho_is_who_its_certificate_says(
    guarded: RunningBroker, doorman: OnlyDevice, version: MQTTProtocolVersion
) -> None:
    with Paho(guarded.tls, "certified", version, certificate="device", username="somebody else") as client:
        client.subscribe("a", 1)
        client.publish("a", b"in", 1)
        assert client.next().payload == b"in"
    assert [(asked.identity, asked.username, asked.password) for asked in doorman.asked] == [
        ("device", "somebody else", b"secret")
    ]


@pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("certificate", ["sensor", None])
def test_paho_with_another_certificate_or_none_is_refused(
    guarded: RunningBroker, version: MQTTProtocolVersion, certificate: str | None
) -> None:
    client = Paho(guarded.tls, "stranger", version, certificate=certificate)
    client.begin()
    with client.connected():
        assert client.refusal() == BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLS 1.2", "TLS 1.3"])
def test_a_resumed_tls_session_is_still_who_its_certificate_said(
    guarded: RunningBroker, doorman: OnlyDevice, version: ssl.TLSVersion
) -> None:
    context = guarded.tls.context("device")
    assert context is not None
    context.maximum_version = version
    connect = bytes.fromhex("10 0d 0004 4d515454 04 02 003c 0001 61")
    session = None
    for resumed in (False, True):
        plain = socket.create_connection((HOST, guarded.tls.port), PATIENCE_S)
        with context.wrap_socket(plain, server_hostname=HOST, session=session) as tls:
            tls.sendall(connect)
            assert tls.recv(4) == bytes.fromhex("20 02 00 00")
            assert tls.session_reused is resumed
            session = tls.session
    assert [asked.identity for asked in doorman.asked] == ["device", "device"]


def test_a_handshake_that_begins_with_the_connection_is_not_lost(broker: RunningBroker) -> None:
    """The client's first bytes are there before the broker has so much as accepted."""

    async def be_busy() -> None:
        for socket_ in sockets:
            socket_.connect((HOST, broker.tls.port))
            socket_.sendall(hello)

    context = broker.tls.context()
    assert context is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=HOST).do_handshake()
    hello = outgoing.read()
    sockets = [socket.socket() for _ in range(5)]
    try:
        broker.do(be_busy())
        for socket_ in sockets:
            socket_.settimeout(PATIENCE_S)
            assert socket_.recv(1) == b"\x16", "no ServerHello"
    finally:
        for socket_ in sockets:
            socket_.close()
