"""Whatever a client or a proxy sends around MQTT is answered, refused or closed with a code; nothing else happens."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from mqttlite.net.proxy_protocol import BadHeader, parse_body, parse_line, parse_tls
from mqttlite.net.upgrade import Refused, WebSocketOptions, upgrade
from tests.support.web import request
from tests.unit.net.test_websocket import Bench

messages = st.one_of(
    st.builds(BytesMessage, data=st.binary(max_size=200), message_finished=st.booleans()),
    st.builds(Ping, payload=st.binary(max_size=125)),
    st.builds(TextMessage, data=st.text(max_size=20)),
    st.builds(CloseConnection, code=st.sampled_from([1000, 1001, 3000, 4999]), reason=st.text(max_size=20)),
)
damage = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=4)
cuts = st.lists(st.integers(0, 2_000), max_size=5)


def damaged(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for place, value in changes:
        if place < len(changed):
            changed[place] = value
    return bytes(changed)


@pytest.mark.long
@given(st.lists(messages, max_size=6), damage, cuts)
async def test_a_websocket_swallows_what_it_cannot_read(
    events: list[BytesMessage | Ping | TextMessage | CloseConnection], changes: list[tuple[int, int]], at: list[int]
) -> None:
    client = Connection(ConnectionType.CLIENT)
    frames = b""
    for event in events:
        with contextlib.suppress(Exception):  # not every order of events can be sent
            frames += client.send(event)
    stream = damaged(request() + frames, changes)
    bench = Bench(asked=False)
    last = 0
    for cut in [*sorted(at), len(stream)]:
        bench.web.data_received(stream[last : max(cut, last)])
        last = max(cut, last)
    bench.web.connection_lost(None)
    assert bench.mqtt.made == (bench.ended == [True])
    assert len(bench.mqtt.received) <= len(stream)


@given(damage)
def test_a_request_is_answered_or_refused(changes: list[tuple[int, int]]) -> None:
    head = damaged(request(origin="http://localhost"), changes).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    with contextlib.suppress(Refused):
        assert upgrade(head, WebSocketOptions(), secure=False).startswith(b"HTTP/1.1 101 ")


@given(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=240))
def test_a_header_of_version_2_is_an_address_or_refused(command: int, family: int, body: bytes) -> None:
    with contextlib.suppress(BadHeader):
        assert parse_body(command, family, body) != ""
    tls = parse_tls(command, family, body)
    assert tls is None or all(each is None or each.isprintable() for each in (tls.version, tls.cipher))


@given(st.binary(max_size=60), damage)
def test_a_header_of_version_1_is_an_address_or_refused(noise: bytes, changes: list[tuple[int, int]]) -> None:
    for line in (damaged(b"PROXY TCP4 203.0.113.7 10.0.0.1 54321 1883\r\n", changes), b"PROXY " + noise + b"\r\n"):
        with contextlib.suppress(BadHeader):
            assert parse_line(line) != ""
