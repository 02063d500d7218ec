"""The request for a WebSocket: what is answered with 101, with what headers, and what options are none."""

import pytest

from mqttlite.net.upgrade import Refused, WebSocketOptions, upgrade
from tests.support.web import request


def test_the_answer_is_the_one_of_the_standard_s_example() -> None:
    assert upgrade(request(), WebSocketOptions(), secure=False) == (
        b"HTTP/1.1 101 Switching Protocols\r\n"
        b"Upgrade: websocket\r\n"
        b"Connection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\n"
        b"\r\n"
    )


@pytest.mark.parametrize(
    "data",
    [
        request("/mqtt?token=1"),
        request(Upgrade="WebSocket", Connection="upgrade"),
        request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"),
        request(protocols="chat")[:-2] + b"Sec-WebSocket-Protocol: mqtt\r\n\r\n",
    ],
)
def test_these_are_requests_for_mqtt(data: bytes) -> None:
    assert upgrade(data, WebSocketOptions(), secure=False).startswith(b"HTTP/1.1 101 ")
    assert b"Extensions" not in upgrade(data, WebSocketOptions(), secure=False)


@pytest.mark.parametrize(
    ("data", "status", "says"),
    [
        (request("/MQTT"), 404, "/mqtt"),
        (request("/mqtt/"), 404, "/mqtt"),
        (request("http://localhost/mqtt"), 404, "/mqtt"),
        (request(without="Upgrade"), 426, "MQTT over WebSocket"),
        (request(without="Connection"), 426, "MQTT over WebSocket"),
        (request(Upgrade="h2c"), 426, "MQTT over WebSocket"),
        (request(without="Sec-WebSocket-Version"), 426, "13"),
        (request(without="Host"), 400, "Host"),
        (request(Sec_WebSocket_Key="dG9vIHNob3J0"), 400, "16 bytes"),
        (request(Sec_WebSocket_Key="no base64 at all, no"), 400, "16 bytes"),
        (request(Sec_WebSocket_Key="\u00e9"), 400, "16 bytes"),
        (request(origin="null"), 403, "null"),
        (request(origin="http://\u009b1m" + "x" * 1_000), 403, r"of http://\\xc2\\x9b1mx{189} may"),
        (request(origin="http://a")[:-2] + b"Origin: http://b\r\n\r\n", 400, "origin came twice"),
        (b"GET /mqtt\r\n\r\n", 400, "not HTTP"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not HTTP"),
        (b"GET /mqtt HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400, "not HTTP"),
        (b"\r\n\r\n", 400, "not"),
    ],
)
def test_these_are_refused(data: bytes, status: int, says: str) -> None:
    with pytest.raises(Refused, match=says) as caught:
        upgrade(data, WebSocketOptions(), secure=True)
    assert caught.value.response.startswith(b"HTTP/1.1 %d " % status)


def test_the_origins_that_are_listed_decide() -> None:
    options = WebSocketOptions(origins=("https://app.example",))
    assert upgrade(request(origin="https://app.example"), options, secure=False).startswith(b"HTTP/1.1 101 ")
    with pytest.raises(Refused, match=r"https://other\.example may not connect"):
        upgrade(request(origin="https://other.example"), options, secure=False)


@pytest.mark.parametrize(
    ("origin", "host", "plain", "over_tls"),
    [
        ("http://127.0.0.1:8083", "127.0.0.1:8083", True, True),
        ("http://[::1]:8083", "[::1]:8083", True, True),
        ("http://10.0.0.5", "10.0.0.5", True, True),
        ("http://LOCALHOST:8083", "localhost:8083", True, True),
        ("https://broker.example", "broker.example", False, True),
        ("http://localhost.example:8083", "localhost.example:8083", False, True),
        ("http://127.0.0.1:8080", "127.0.0.1:8083", False, False),
        ("http://127.0.0.1", "127.0.0.1:8083", False, False),
        ("http://[::1", "[::1", False, True),
        ("null", "null", False, False),
        ("http://", "", False, True),
    ],
)
def test_a_page_of_our_own_may_connect_if_it_must_be_one(origin: str, host: str, plain: bool, over_tls: bool) -> None:
    data = request(origin=origin, Host=host)
    for secure, may_connect in ((False, plain), (True, over_tls)):
        if may_connect:
            assert upgrade(data, WebSocketOptions(), secure=secure).startswith(b"HTTP/1.1 101 ")
        else:
            with pytest.raises(Refused, match="may not connect"):
                upgrade(data, WebSocketOptions(), secure=secure)


@pytest.mark.parametrize("path", ["mqtt", "", "/a?b", "/a#b", "/a b", "/\u00e4"])
def test_a_path_is_one(path: str) -> None:
    with pytest.raises(ValueError, match="path is"):
        WebSocketOptions(path=path)


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://app.example/x", "https://", ""])
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(ValueError, match="an origin is like"):
        WebSocketOptions(origins=(origin,))
