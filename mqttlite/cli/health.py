"""`mqttlite health`: whether a broker is well, as a sentence and an exit code; for containers and supervisors.

Invariant: it waits for no answer longer than it was told.
"""

import socket
import ssl
import sys
from typing import Final
from urllib.parse import unquote, urlsplit

import click

from mqttlite.cli.ask import EXIT_FAILED, ask, options, place
from mqttlite.cli.ask_options import is_from_environment
from mqttlite.cli.asker import Unreachable, WrongUsage
from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import PeerError
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Connack, Connect, Disconnect, Packet, Pingreq, Pingresp
from mqttlite.wire.reason_codes import ReasonCode, describe

MQTT_URL: Final = "mqtt://localhost:1883"

_ANSWER_BYTES: Final = 65_536
"""More than a CONNACK with all its properties."""

_STRANGERS: Final = (
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
    ReasonCode.BAD_AUTHENTICATION_METHOD,
)
"""Answers of a healthy broker that refuses this client."""


@click.command(
    epilog="Exit codes: 0, it is well; 1, it is not, or does not answer; 2, wrong usage.",
)
@options
@click.option(
    "--mqtt",
    "mqtt_url",
    is_flag=False,
    flag_value=MQTT_URL,
    metavar="[URL]",
    help=f"Connect by MQTT and ping instead: mqtt(s)://[user:password@]host[:port].  [default without URL: {MQTT_URL}]",
)
@click.option("--insecure", is_flag=True, help="With mqtts: do not verify the certificate.")
def command(
    *,
    url: str | None,
    token: str | None,
    ca_file: str | None,
    config_path: str | None,
    data_dir: str | None,
    node: str | None,
    timeout_s: float,
    mqtt_url: str | None,
    insecure: bool,
) -> None:
    """Say whether a broker is well: ready for clients, and able to keep what it is given.

    Asks the admin socket of the broker, its metrics port or its gateway; with --mqtt, it connects as a client.
    """
    try:
        if mqtt_url is not None:
            if config_path is not None or data_dir is not None or (url is not None and not is_from_environment("url")):
                raise WrongUsage("--mqtt goes with none of --url, --config and --data-dir.")
            click.echo(_by_mqtt(mqtt_url, _context(mqtt_url, ca_file, insecure), timeout_s))
            return
        if insecure:
            raise WrongUsage("--insecure belongs to --mqtt.")
        where = place(url, config_path, data_dir, token, ca_file, node)
        answer = ask(where, "/readyz", timeout_s)
        if answer.is_problem:
            raise Unreachable(answer.sentence)
        if answer.status not in (200, 503):
            raise Unreachable(f"{where} answers {answer.status}; is that the metrics port or the gateway of a broker?")
        if answer.status != 200:
            raise Unreachable(answer.sentence)
        click.echo(answer.sentence)
    except Unreachable as error:
        click.echo(error, err=True)
        sys.exit(EXIT_FAILED)


def _context(url: str, cafile: str | None, insecure: bool) -> ssl.SSLContext | None:
    if urlsplit(url).scheme != "mqtts":
        if cafile is not None or insecure:
            raise WrongUsage("--cafile and --insecure belong to mqtts://.")
        return None
    from mqttlite.security.tls import TlsConfigError, client_context  # here, for most ask without TLS

    try:
        return client_context(cafile, None, None, insecure)
    except TlsConfigError as error:
        raise WrongUsage(str(error)) from None


def _by_mqtt(url: str, context: ssl.SSLContext | None, timeout_s: float) -> str:
    """Connect, ping, and leave; what that says. Raises `Unreachable`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (1883 if context is None else 8883)
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("mqtt", "mqtts"):
        raise WrongUsage(f"{url!r} is no URL like {MQTT_URL}.")
    username = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password).encode()
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), timeout_s) as plain:
            stream = plain if context is None else context.wrap_socket(plain, server_hostname=host)
            with stream:
                return _talk(stream, Connect("", username=username, password=password), where)
    except TimeoutError:
        raise Unreachable(f"{where} does not answer within {timeout_s:g} s.") from None
    except ConnectionRefusedError:
        raise Unreachable(f"Nobody listens on {where}; is a broker running there?") from None
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message.rstrip(".")
        raise Unreachable(f"The certificate of {where} was not accepted ({why}); name its CA with --cafile.") from None
    except ssl.SSLError as error:
        raise Unreachable(f"TLS with {where} failed ({error.reason}); does it speak TLS there?") from None
    except ConnectionResetError:
        raise _closed(where) from None
    except OSError as error:
        raise Unreachable(f"{where} cannot be reached: {error.strerror or error}.") from None
    except PeerError as error:
        raise Unreachable(f"{where} does not answer as MQTT does: {error}.") from None


def _talk(stream: socket.socket, connect: Connect, where: str) -> str:
    stream.sendall(encode(connect, V5))
    connack = _receive(stream, where)
    if not isinstance(connack, Connack):
        raise Unreachable(f"{where} answers CONNECT with {type(connack).__name__.upper()}.")
    if connack.reason_code in _STRANGERS:
        return f"The broker is well, but refuses this client: {describe(connack.reason_code)}."
    if connack.reason_code:
        raise Unreachable(f"The broker refuses clients: {describe(connack.reason_code)}.")
    stream.sendall(encode(Pingreq(), V5))
    if not isinstance(_receive(stream, where), Pingresp):
        raise Unreachable(f"{where} does not answer a ping.")
    stream.sendall(encode(Disconnect(), V5))
    return "The broker is well: it accepted this client and answered a ping."


def _receive(stream: socket.socket, where: str) -> Packet:
    """The next packet; there is never a second one behind it, for none was asked for."""
    framer = Framer(_ANSWER_BYTES)
    while piece := stream.recv(_ANSWER_BYTES):
        for first, body in framer.split(piece):
            return decode(first, body, V5)
    raise _closed(where)


def _closed(where: str) -> Unreachable:
    return Unreachable(f"{where} closed the connection; does it expect TLS, or does it not speak MQTT?")
