"""The errors of the client, each one sentence that says what is wrong, where, and what to do.

How errors of sockets and TLS become these lives in `dial`. Invariant: everything the client raises for the world's
sake is an `MqttError`; a wrong argument is a `ValueError`.
"""

from typing import Final

from mqttlite.wire.constants import V5
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import RETURN_CODE_TEXTS, ReasonCode, describe


class MqttError(Exception):
    """Everything that can happen between a client and its server."""


class ConnectError(MqttError):
    """No connection was made: the name, the network, TLS, or no answer."""


class ConnectRefused(ConnectError):
    """The server answered CONNECT with a refusal; `reason_code` is of the version that was spoken."""

    def __init__(self, where: str, reason_code: int, version: int, properties: Properties = NONE) -> None:
        self.reason_code: Final = reason_code
        self.properties: Final = properties
        self.permanent: Final = reason_code in (_PERMANENT if version == V5 else _PERMANENT_RETURN_CODES)
        super().__init__(f"{where} refused the connection: {_refusal(reason_code, version, properties)}.")


class AuthenticationFailed(ConnectError):
    """The server did its part of the authentication wrongly: it may not be the one that knows our password."""


class ConnectionLost(MqttError):
    """The connection ended without our wish."""


class DisconnectedByServer(ConnectionLost):
    """The server sent DISCONNECT and said why."""

    def __init__(self, where: str, reason_code: int, properties: Properties = NONE) -> None:
        self.reason_code: Final = reason_code
        self.properties: Final = properties
        self.permanent: Final = reason_code in _PERMANENT or reason_code == ReasonCode.SESSION_TAKEN_OVER
        super().__init__(f"{where} ended the connection: {_refusal(reason_code, V5, properties)}.")


class AnswerTimeout(MqttError):
    """The server did not answer in time; what was asked may still happen."""


class PublishTimeout(AnswerTimeout):
    """A message was not handed over or not acknowledged in time; one that was sent may still arrive."""


class PublishRefused(MqttError):
    """A message was not accepted, by the server or because of a limit that it announced."""

    def __init__(self, topic: str, reason_code: int, reason_string: str = "", properties: Properties = NONE) -> None:
        self.reason_code: Final = reason_code
        self.reason_string: Final = reason_string
        self.properties: Final = properties
        super().__init__(f"The message to {topic!r} was refused: {_words(reason_code, reason_string)}.")


class SubscribeRefused(MqttError):
    """The server refused topic filters; `reason_codes` has one code per filter asked for."""

    def __init__(self, refused: dict[str, int], reason_codes: tuple[int, ...], reason_string: str = "") -> None:
        self.refused: Final = refused
        self.reason_codes: Final = reason_codes
        self.reason_string: Final = reason_string
        which = ", ".join(f"{topic_filter!r}: {describe(code)}" for topic_filter, code in refused.items())
        super().__init__(f"The subscription was refused ({_words_of(which, reason_string)}).")


class RequestFailed(MqttError):
    """The responder says that it cannot answer, and why. A responder's handler raises it to say so."""


class NoResponder(RequestFailed):
    """The server says that nobody would receive the request (0x10)."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"Nobody is subscribed to {topic!r}, so nobody answers the request.")


class ClientClosed(MqttError):
    """The client was closed while, or before, something was asked of it."""


_PERMANENT: Final = frozenset(
    {
        ReasonCode.MALFORMED_PACKET,
        ReasonCode.PROTOCOL_ERROR,
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
        ReasonCode.TOPIC_FILTER_INVALID,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
        ReasonCode.RETAIN_NOT_SUPPORTED,
        ReasonCode.QOS_NOT_SUPPORTED,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
    }
)
"""Codes that will be the same next time: trying again would only make noise."""

_PERMANENT_RETURN_CODES: Final = frozenset({1, 2, 4, 5})
"""The same of 3.1.1; only 3, server unavailable, may pass (3.1.1 §3.2.2.3)."""


def _refusal(code: int, version: int, properties: Properties) -> str:
    if version != V5:
        return RETURN_CODE_TEXTS[code] if code < len(RETURN_CODE_TEXTS) else f"return code {code}"
    words = _words(code, properties.reason_string or "")
    return f"{words}; it names {properties.server_reference!r}" if properties.server_reference else words


def _words(code: int, reason_string: str) -> str:
    return _words_of(describe(code), reason_string)


def _words_of(what: str, reason_string: str) -> str:
    return f"{what}, {reason_string.rstrip('.')}" if reason_string else what


class UpgradeRefused(ConnectionError):
    """The server's answer to the HTTP request of a WebSocket is not one for MQTT."""
