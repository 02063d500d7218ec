"""How addresses and failed handshakes are said."""

import ssl

import pytest

from mqttlite.net.link import format_address
from mqttlite.net.listeners import explain_handshake


@pytest.mark.parametrize(
    ("peername", "said"),
    [
        (("127.0.0.1", 1883), "127.0.0.1:1883"),
        (("::1", 1883, 0, 0), "[::1]:1883"),
        (None, "?"),
        ("", "unix"),
        ("/run/mqttlite.sock", "/run/mqttlite.sock"),
    ],
)
def test_an_address_is_said_as_it_is_written(peername: object, said: str) -> None:
    assert format_address(peername) == said


def test_a_failed_handshake_is_explained_where_openssl_does_not() -> None:
    error = ssl.SSLError(1, "[SSL: HTTP_REQUEST] http request")
    error.reason = "HTTP_REQUEST"
    assert explain_handshake(error) == "the client sent an HTTP request (HTTP_REQUEST)"
    error.reason = "EXCESSIVE_MESSAGE_SIZE"
    assert "more than 100 KiB" in explain_handshake(error)
    assert explain_handshake(ConnectionResetError(104, "Connection reset by peer")).endswith("reset by peer")
    assert explain_handshake(ConnectionResetError()).startswith("the client hung up; does it trust")
    assert explain_handshake(TimeoutError()) == "TimeoutError"
