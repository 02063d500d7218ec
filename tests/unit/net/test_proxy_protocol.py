"""Headers of the PROXY protocol: what they say, what is none, and that the byte behind one stays in the socket."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from mqttlite.net.proxy_protocol import BODY_BYTES, LINE_BYTES, BadHeader, Proxies, ProxyOptions, read_header
from tests.support.packets import raw

SIGNATURE = "0d0a0d0a000d0a515549540a"
V4 = "cb007107 0a000001 d431 075b"
V6 = "20010db8000000000000000000000007 20010db8000000000000000000000001 d431 075b"

GOOD = [
    (b"PROXY TCP4 203.0.113.7 10.0.0.1 54321 1883\r\n", "203.0.113.7:54321"),
    (b"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n", "0.0.0.0:0"),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 54321 1883\r\n", "[2001:db8::7]:54321"),
    (b"PROXY TCP6 " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n", f"[{'ffff:' * 7}ffff]:65535"),
    (b"PROXY UNKNOWN\r\n", "nobody"),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "nobody"),
    (b"PROXY UNKNOWN " + b"x" * (LINE_BYTES - 16) + b"\r\n", "nobody"),
    (raw(f"{SIGNATURE} 21 11 000c {V4}"), "203.0.113.7:54321"),
    (raw(f"{SIGNATURE} 21 21 0024 {V6}"), "[2001:db8::7]:54321"),
    (raw(f"{SIGNATURE} 21 31 00d8 {'00' * 216}"), "unix"),
    (raw(f"{SIGNATURE} 21 11 0012 {V4} 02 0003 'a.b'"), "203.0.113.7:54321"),
    (raw(f"{SIGNATURE} 20 00 0000"), "nobody"),
    (raw(f"{SIGNATURE} 20 11 000c {V4}"), "nobody"),
    (raw(f"{SIGNATURE} 21 00 0003 040000"), "nobody"),
    (raw(f"{SIGNATURE} 21 11 1000 {V4}") + bytes(BODY_BYTES - 12), "203.0.113.7:54321"),
]

BAD = [
    (b"\x10\x10\0\x04MQTT\x04\x02\0\0\0\0", "no PROXY header"),
    (b"GET / HTTP/1.1\r\n\r\n", "no PROXY header"),
    (b"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n", "no PROXY header"),
    (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", "that is none"),
    (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "that is none"),
    (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n", "that is none"),
    (b"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n", "that is none"),
    (b"PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n", "address that is none"),
    (b"PROXY TCP4 localhost 1.2.3.4 1 2\r\n", "address that is none"),
    (b"PROXY TCP4 \xff.2.3.4 1.2.3.4 1 2\r\n", "address that is none"),
    (b"PROXY TCP6 fe80::1%x\n2026 ERROR forged ::2 1 2\r\n", "that is none"),
    (b"PROXY TCP6 fe80::1%\x1b[31m ::2 1 2\r\n", "address that is none"),
    (b"PROXY TCP4 ::1 1.2.3.4 1 2\r\n", "another family"),
    (b"PROXY TCP6 ::1 1.2.3.4 1 2\r\n", "another family"),
    (b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", "another family"),
    (b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n", "port that is none"),
    (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 -2\r\n", "port that is none"),
    (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n\r\n", "port that is none"),
    (b"PROXY UNKNOWN " + b"x" * LINE_BYTES + b"\r\n", "more than 107 bytes"),
    (b"PROXY TCP4 1.2.3.4", "closed before the end"),
    (b"", "closed before the end"),
    (raw(f"{SIGNATURE} 21"), "closed before the end"),
    (raw(f"{SIGNATURE} 11 11 000c {V4}"), "version and command 0x11"),
    (raw(f"{SIGNATURE} 22 11 000c {V4}"), "version and command 0x22"),
    (raw(f"{SIGNATURE} 21 12 000c {V4}"), "kind 0x12"),
    (raw(f"{SIGNATURE} 21 11 000b {V4}"), "11 bytes for addresses of 12"),
    (raw(f"{SIGNATURE} 21 21 000c {V4}"), "12 bytes for addresses of 36"),
    (raw(f"{SIGNATURE} 21 11 1001"), "of 4097 bytes, at most 4096"),
]


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(("header", "address"), GOOD)
async def test_a_header_says_whose_connection_it_is_and_no_byte_more_is_read(
    header: bytes, address: str | None
) -> None:
    with pair() as (ours, theirs):
        theirs.sendall(header + b"\r\nwhat follows")
        assert ((await read_header(ours)).address or "nobody") == address
        assert ours.recv(100) == b"\r\nwhat follows"


@pytest.mark.parametrize(("header", "address"), [GOOD[0], GOOD[7]])
async def test_a_header_may_come_byte_by_byte(header: bytes, address: str) -> None:
    with pair() as (ours, theirs):
        reading = asyncio.create_task(read_header(ours))
        for number in range(len(header)):
            assert not reading.done()
            theirs.sendall(header[number : number + 1])
            await asyncio.sleep(0)
        assert (await reading).address == address


VERSION = "21 0007 'TLSv1.3'"
NAME = "22 0006 'pump-7'"
CIPHER = "23 0003 'AES'"


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (f"20 0021 05 00000000 {VERSION} {NAME} {CIPHER} 24 0000", ("TLSv1.3", "AES", "pump-7", True)),
        (f"20 0018 07 00000001 {VERSION} {NAME}", ("TLSv1.3", None, "pump-7", False)),
        (f"20 000f 01 00000000 {VERSION}", ("TLSv1.3", None, None, False)),
        (f"02 0003 'a.b' 20 000f 01 00000000 {VERSION}", ("TLSv1.3", None, None, False)),
        ("20 0005 01 00000000", ("TLS", None, None, False)),
        ("20 000a 03 00000000 22 0002 0a1b", ("TLS", None, "\ufffd\ufffd", True)),
        (f"20 000f 00 00000000 {VERSION}", None),
        ("20 0004 01 000000", None),
        (f"20 00ff 01 00000000 {VERSION}", None),
    ],
)
async def test_a_header_of_version_2_tells_the_tls_of_the_client(
    field: str, expected: tuple[str, str | None, str | None, bool] | None
) -> None:
    body = raw(f"{V4} {field}")
    with pair() as (ours, theirs):
        theirs.sendall(raw(f"{SIGNATURE} 21 11") + len(body).to_bytes(2, "big") + body)
        origin = await read_header(ours)
    tls = origin.tls
    facts = None if tls is None else (tls.version, tls.cipher, tls.certificate_name, tls.is_verified)
    assert (origin.address, facts) == ("203.0.113.7:54321", expected)


@pytest.mark.parametrize(("header", "says"), BAD)
async def test_an_invalid_header_is_refused(header: bytes, says: str) -> None:
    with pair() as (ours, theirs):
        theirs.sendall(header)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(BadHeader, match=says):
            await read_header(ours)


@pytest.mark.parametrize(
    ("trusted", "peername", "is_trusted"),
    [
        (("10.0.0.5",), ("10.0.0.5", 1), True),
        (("10.0.0.5",), ("10.0.0.6", 1), False),
        (("10.0.0.0/8",), ("10.255.0.1", 1), True),
        (("10.0.0.0/8",), ("11.0.0.1", 1), False),
        (("10.0.0.0/8",), ("::ffff:10.0.0.1", 1, 0, 0), True),
        (("10.0.0.0/8",), ("2001:db8::1", 1, 0, 0), False),
        (("fe80::/10", "127.0.0.1"), ("fe80::1%eth0", 1, 0, 2), True),
        (("fe80::/10", "127.0.0.1"), ("127.0.0.1", 1), True),
        ((), ("127.0.0.1", 1), False),
        ((), "", True),
    ],
)
def test_trusted_peers(trusted: tuple[str, ...], peername: object, is_trusted: bool) -> None:
    assert Proxies(ProxyOptions(trusted=trusted)).trusts(peername) is is_trusted


@pytest.mark.parametrize("network", ["localhost", "10.0.0.1/8", "10.0.0.0/33", ""])
def test_a_network_that_is_none_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match="trusted has"):
        ProxyOptions(trusted=(network,))
