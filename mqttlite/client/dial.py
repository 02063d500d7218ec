"""From a host name to a connection that has its CONNACK, and what can go wrong on the way, in sentences.

Invariant: either a connection that was accepted is returned, or no socket is left and an `MqttError` is raised.
"""

import asyncio
import errno
import socket
import ssl
from typing import Final, cast

from mqttlite.client.authentication import Exchange
from mqttlite.client.connection import Connection
from mqttlite.client.errors import (
    AuthenticationFailed,
    ConnectError,
    ConnectionLost,
    ConnectRefused,
    DisconnectedByServer,
    MqttError,
    UpgradeRefused,
)
from mqttlite.client.limits import LARGEST_PACKET_BYTES
from mqttlite.client.options import Options
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Auth, Connack
from mqttlite.wire.reason_codes import ReasonCode

_PLAIN_ANSWERS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""OpenSSL's reasons where the other side's first bytes are not TLS."""
_OUT_OF_DATE: Final = frozenset({9, 10})
"""OpenSSL's codes for a certificate that is not yet valid and one that has expired."""
_ELSEWHERE: Final = frozenset({ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED})
_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a host name and an address that are not in the certificate."""


async def dial(options: Options, client_id: str, *, clean_start: bool) -> tuple[Connection, Connack]:
    """Connect to the first server that takes us, and introduce ourselves. Raises `ConnectRefused` for a refusal,
    `ConnectError` for everything else: what the last server said, or one whose answer would be everybody's."""
    found: ConnectError | None = None
    for server in options.servers():
        try:
            return await _dial(server, client_id, clean_start=clean_start)
        except ConnectError as error:
            if is_permanent(error, options):
                raise
            found = error
    assert found is not None, "there is a server"
    raise found


async def _dial(options: Options, client_id: str, *, clean_start: bool) -> tuple[Connection, Connack]:
    exchange = None if options.authentication is None else Exchange(options.authentication, options.where)
    data = None if exchange is None else exchange.first()
    packet = options.connect_packet(client_id, clean_start, data)
    connection: Connection | None = None
    try:
        async with asyncio.timeout(options.timeout):
            connection = await _open(options)
            connection.write(encode(packet, packet.version))
            answer = await connection.connack
            while exchange is not None and isinstance(answer, Auth):
                connection.write(await exchange.reply(answer))
                answer = await connection.expect()
    except TimeoutError:
        error = ConnectError(f"{options.where} did not answer within {options.timeout:g} s.")
        await _give_up(connection, error)
        raise error from None
    except (OSError, ConnectionLost) as cause:
        error = ConnectError(_explain(cause, options))
        await _give_up(connection, error)
        raise error from cause
    except BaseException:
        await _give_up(connection, ConnectError("The attempt to connect was given up."))
        raise
    refusal = _refusal(answer, options, exchange)
    if refusal is not None:
        await _give_up(connection, refusal)
        raise refusal
    assert isinstance(answer, Connack), "anything else is a refusal"
    return connection, answer


async def _open(options: Options) -> Connection:
    """The socket, with TLS and WebSocket if they are wished."""
    loop = asyncio.get_running_loop()
    size = options.max_packet_size or LARGEST_PACKET_BYTES
    connection = Connection(options.where, options.wire_version, size, options.trace)
    protocol = cast(asyncio.Protocol, connection)
    if options.transport == "unix":
        name = None if options.tls is None else options.server_hostname or "localhost"
        await loop.create_unix_connection(lambda: protocol, options.hostname, ssl=options.tls, server_hostname=name)
        return connection
    name = None if options.tls is None else options.server_hostname or options.hostname
    if options.transport == "websocket":
        await _open_websocket(options, protocol, name)
    else:
        await loop.create_connection(
            lambda: protocol, options.hostname, options.port, ssl=options.tls, server_hostname=name
        )
    return connection


async def _open_websocket(options: Options, protocol: asyncio.Protocol, name: str | None) -> None:
    from mqttlite.client.websocket import WebSocket  # imported here: other clients do not need wsproto

    transport, web = await asyncio.get_running_loop().create_connection(
        lambda: WebSocket(protocol, options.address, options.path),
        *(options.hostname, options.port),
        ssl=options.tls,
        server_hostname=name,
    )
    try:
        await web.opened
    except BaseException:
        transport.abort()
        raise


async def _give_up(connection: Connection | None, reason: MqttError) -> None:
    if connection is not None:
        connection.abort(reason)
        await asyncio.wait({connection.closed})


def _refusal(answer: object, options: Options, exchange: Exchange | None) -> ConnectError | None:
    """The error for an answer to CONNECT; None for a CONNACK that accepts the client."""
    if not isinstance(answer, Connack):
        return ConnectError(f"{options.where} answered CONNECT with {type(answer).__name__.upper()}.")
    if answer.reason_code:
        return ConnectRefused(options.where, answer.reason_code, options.wire_version, answer.properties)
    if answer.session_present and options.clean_start and options.wire_version != V5:
        return ConnectError(f"{options.where} kept a session that was to be clean [3.1.1 MQTT-3.2.2-1].")
    if exchange is not None:
        try:
            exchange.finish(answer)
        except AuthenticationFailed as error:
            return error
    return None


def _explain(cause: OSError | MqttError, options: Options) -> str:
    """One sentence for what the socket, TLS or the server's silence means."""
    where = options.where
    if options.transport == "unix" and (sentence := _explain_socket(cause, where)):
        return sentence
    if isinstance(cause, DisconnectedByServer):
        return str(cause)
    if isinstance(cause, socket.gaierror):
        return f"The host {options.hostname!r} was not found ({cause.strerror}); is the name right?"
    if isinstance(cause, ssl.SSLCertVerificationError):
        why = cause.verify_message.rstrip(".")
        return f"The certificate of {where} was not accepted ({why}); {_hint(cause)}"
    if isinstance(cause, ssl.SSLError):
        return _explain_tls(cause, where)
    if isinstance(cause, UpgradeRefused):
        return f"{where} does not take MQTT over WebSocket: {cause}; are port and path right?"
    if _is(cause, errno.ECONNREFUSED):
        return f"Nobody listens on {where} (connection refused); is a broker running there?"
    if isinstance(cause, ConnectionLost | ConnectionError):
        if options.tls is not None:
            said = f"{where} closed the connection during the TLS handshake or at once after; "
            return said + "is it a TLS port, and does it want a client certificate?"
        return f"{where} closed the connection instead of answering CONNECT; does it expect TLS or another version?"
    return f"{where} cannot be reached: {getattr(cause, 'strerror', None) or cause}."


def _explain_socket(cause: OSError | MqttError, path: str) -> str:
    """The problem with a Unix socket, in words; empty for errors behind it."""
    if isinstance(cause, FileNotFoundError):
        return f"There is no Unix socket {path}; does a broker run with 'mqttlite serve --socket {path}'?"
    if isinstance(cause, PermissionError):
        return f"This user may not connect to {path}; its mode, and those of its folders, say who may."
    if _is(cause, errno.ECONNREFUSED) or _is(cause, errno.ENOTSOCK):
        return f"Nobody listens on {path}; did its broker end without removing it, or is it another kind of file?"
    return ""


def _hint(cause: ssl.SSLCertVerificationError) -> str:
    if cause.verify_code in _OTHER_NAME:
        return "dial a name that it has, or have one made with this name."
    if cause.verify_code in _OUT_OF_DATE:
        return "is the clock right?"
    return "is this the CA that signed it?"


def is_distrust(error: MqttError) -> bool:
    """Whether the server's certificate is of no authority that is trusted."""
    cause = error.__cause__
    return isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code not in _OTHER_NAME | _OUT_OF_DATE


_ALERTS: Final = {
    "CERTIFICATE_REVOKED": "this client's certificate is revoked",
    "CERTIFICATE_EXPIRED": "this client's certificate has expired, as the server's clock says",
    "PROTOCOL_VERSION": "it does not speak a version of TLS that this client speaks",
}
"""What the ends of OpenSSL's names of alerts mean, where that is certain."""


def _explain_tls(cause: ssl.SSLError, where: str) -> str:
    reason = cause.reason or str(cause)
    if reason in _PLAIN_ANSWERS:
        return f"{where} does not speak TLS; is it the port for plain MQTT?"
    if "CERTIFICATE_REQUIRED" in reason or reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return f"{where} ended the TLS handshake ({reason}); does it require a client certificate?"
    for end, said in _ALERTS.items():
        if "ALERT" in reason and reason.endswith(end):
            return f"{where} ended the TLS handshake ({reason}): {said}."
    if "ALERT" in reason:
        return f"{where} ended the TLS handshake ({reason}); does it know the CA of this client's certificate?"
    return f"TLS with {where} failed ({reason})."


def _is(cause: OSError | MqttError, number: int) -> bool:
    """Whether an error has that number; asyncio makes one error without a number of several addresses' errors."""
    return getattr(cause, "errno", None) == number or f"[Errno {number}]" in str(cause)


def is_permanent(error: MqttError, options: Options) -> bool:
    """Whether trying again would end the same way."""
    if not isinstance(error, ConnectRefused | DisconnectedByServer):
        return False
    return error.permanent and not (options.further and error.reason_code in _ELSEWHERE)
