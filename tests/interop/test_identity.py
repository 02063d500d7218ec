"""Client certificates of real clients, and what a TLS listener must survive."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from mqttlite.security.authenticator import Credentials
from tests.interop.support import HOST, PATIENCE_S, V5, V311, Paho, RunningBroker, mosquitto_pub

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


def test_mosquitto_is_who_its_certificate_says(guarded: RunningBroker) -> None:
    message = ("-t", "a", "-m", "x", "-q", "1", "-V", "mqttv5")
    assert mosquitto_pub(guarded.tls, *message, client="device").returncode == 0
    refused = mosquitto_pub(guarded.tls, *message, client="sensor")
    assert refused.returncode != 0
    assert "Bad User Name or Password" in refused.stderr


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


def test_what_comes_with_the_end_of_the_handshake_is_not_lost(broker: RunningBroker) -> None:
    """CONNECT in the same bytes as the client's Finished."""
    context = broker.tls.context()
    assert context is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
    with socket.create_connection((HOST, broker.tls.port), PATIENCE_S) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(65_536))
        tls.write(bytes.fromhex("10 0d 0004 4d515454 04 02 003c 0001 61"))
        plain.sendall(outgoing.read())
        answer = b""
        while not answer:
            try:
                answer = tls.read(4)
            except ssl.SSLWantReadError:
                incoming.write(plain.recv(65_536))
        assert answer == bytes.fromhex("20 02 00 00")


def test_a_client_that_leaves_in_the_middle_of_a_handshake_harms_nobody(broker: RunningBroker) -> None:
    for beginning in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection((HOST, broker.tls.port), PATIENCE_S) as plain:
            plain.sendall(beginning)
    with Paho(broker.tls, "next") as client:
        client.subscribe("a", 1)
        client.publish("a", b"in", 1)
        assert client.next().payload == b"in"


def test_the_broker_stops_while_a_handshake_hangs(certificate_files: Path) -> None:
    with RunningBroker(certificate_files) as running:
        plain = socket.create_connection((HOST, running.tls.port), PATIENCE_S)
        plain.sendall(b"\x16\x03\x01")
        running.do(asyncio.sleep(0))
    with plain:
        plain.settimeout(PATIENCE_S)
        try:
            assert plain.recv(1) == b""
        except ConnectionResetError:
            pass
