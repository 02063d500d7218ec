"""The options that `pub` and `sub` share, with mosquitto's letters and meanings, and how they become a `Client`.

The rest of the two lives in their files. Invariant: a message that cannot be sent is refused before a socket is opened,
with exit code 2.
"""

import os
import ssl
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import click

from mqttlite.cli.property_options import GivenProperties, gather_properties, read_properties
from mqttlite.client import Client, MqttError, Will
from mqttlite.client.dial import is_distrust
from mqttlite.client.options import Version
from mqttlite.wire.constants import NEVER_EXPIRES

PLAIN_PORT: Final = 1883
TLS_PORT: Final = 8883

VERSIONS: Final[dict[str, Version]] = {
    **dict.fromkeys(("31", "3.1", "mqttv31"), "3.1"),
    **dict.fromkeys(("311", "3.1.1", "mqttv311"), "3.1.1"),
    **dict.fromkeys(("5", "5.0", "mqttv5"), "5.0"),
}

TLS_VERSIONS: Final = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_TIMEOUT: Final = 27
"""mosquitto_sub's code for -W."""
EXIT_INTERRUPTED: Final = 130

F = TypeVar("F", bound=Callable[..., Any])


class WrongUsage(click.ClickException):
    """The command cannot be carried out, whatever the broker answers."""

    exit_code = EXIT_USAGE


class MqttCommand(click.Command):
    """A command with mosquitto's -D COMMAND NAME VALUE [VALUE], whose number of words depends on the second."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, gather_properties(args, self.params))


def _version(value: str) -> Version:
    if value.lower() not in VERSIONS:
        raise click.BadParameter(f"{value!r} is no version of MQTT; there are {', '.join(VERSIONS)}.")
    return VERSIONS[value.lower()]


def _expiry(value: str) -> int:
    if value in ("-1", "∞"):
        return NEVER_EXPIRES
    seconds = int(value) if value.isdecimal() else -1
    if not 0 <= seconds <= NEVER_EXPIRES:
        raise click.BadParameter(f"{value!r} is no number of seconds from 0 to {NEVER_EXPIRES}, nor -1 for never.")
    return seconds


_SHARED: Final = (
    click.option("-h", "--host", metavar="HOST", help="Where the broker is.  [default: localhost]"),
    click.option("-p", "--port", type=click.IntRange(1, 65535), help="[default: 1883, with TLS 8883]"),
    click.option("--unix", "unix_path", metavar="PATH", help="The Unix socket of the broker, in place of -h and -p."),
    click.option("-L", "--url", metavar="URL", help="mqtt(s)://[user[:password]@]host[:port]/topic, all in one."),
    click.option("-u", "--username", metavar="NAME", help="User name."),
    click.option("-P", "--pw", "password", metavar="PASSWORD", help="Password."),
    click.option("-i", "--id", "client_id", metavar="ID", help="Client identifier.  [default: the broker chooses]"),
    click.option("-I", "--id-prefix", metavar="PREFIX", help="Client identifier: this and the process number."),
    click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="Quality of service."),
    click.option(
        "-k", "--keepalive", type=click.IntRange(0, 65535), default=60, show_default=True, help="Keep-alive in seconds."
    ),
    click.option("-c", "--disable-clean-session", "keep_session", is_flag=True, help="Keep the session; needs -i."),
    click.option(
        "-x",
        "--session-expiry-interval",
        "session_expiry",
        type=_expiry,
        metavar="SECONDS",
        help="How long the broker keeps the session, -1 for good.  [default: with -c -1]",
    ),
    click.option(
        "-V",
        "--protocol-version",
        "version",
        type=_version,
        metavar="VERSION",
        default="5",
        show_default=True,
        help="31, 311 or 5.",
    ),
    click.option(
        "-D",
        "--property",
        "properties",
        multiple=True,
        metavar="COMMAND NAME VALUE [VALUE]",
        help="A property of MQTT 5.0, as in: -D publish user-property key value. Repeatable.",
    ),
    click.option("--will-topic", metavar="TOPIC", help="Where the broker publishes when it loses us."),
    click.option("--will-payload", metavar="TEXT", help="The payload of the will.  [default: nothing]"),
    click.option("--will-qos", type=click.IntRange(0, 2), help="[default: 0]"),
    click.option("--will-retain", is_flag=True, help="Retain the will."),
    click.option("--cafile", metavar="FILE", help="The authority that signed the broker's certificate; TLS."),
    click.option("--cert", metavar="FILE", help="Our certificate; TLS."),
    click.option("--key", metavar="FILE", help="The key of our certificate."),
    click.option("--insecure", is_flag=True, help="Do not compare the broker's name with its certificate; TLS."),
    click.option("--tls-use-os-certs", is_flag=True, help="Trust the system's authorities; TLS."),
    click.option("--tls-version", type=click.Choice(tuple(TLS_VERSIONS)), help="Speak just this version; TLS."),
    click.option("-d", "--debug", is_flag=True, help="Show each packet on standard error."),
    click.option("--quiet", is_flag=True, help="Print no errors; the exit code tells."),
)


def shared_options(function: F) -> F:
    """Give a command the options of `_SHARED`, in their order."""
    for option in reversed(_SHARED):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Shared:
    """The shared options as they were given, in the words of `_SHARED`."""

    host: str | None
    port: int | None
    unix_path: str | None
    url: str | None
    username: str | None
    password: str | None
    client_id: str | None
    id_prefix: str | None
    qos: int
    keepalive: int
    keep_session: bool
    session_expiry: int | None
    version: Version
    properties: tuple[str, ...]
    will_topic: str | None
    will_payload: str | None
    will_qos: int | None
    will_retain: bool
    cafile: str | None
    cert: str | None
    key: str | None
    insecure: bool
    tls_use_os_certs: bool
    tls_version: str | None
    debug: bool
    quiet: bool

    def given_properties(self, commands: Sequence[str]) -> GivenProperties:
        """The -D options by command. Raises `click.UsageError` for what is none of those commands or no property."""
        if self.properties and self.version != "5.0":
            raise click.UsageError(f"Properties exist in MQTT 5.0 only: use -V 5 instead of {self.version}.")
        return read_properties(self.properties, commands)

    def url_topic(self) -> str | None:
        """The topic in -L."""
        if self.url is None:
            return None
        return unquote(urlsplit(self.url).path[1:]) or None

    def client(self, given: GivenProperties, **more: Any) -> Client:
        """The client; `more` are parameters of `Client`. Raises `WrongUsage` or `click.UsageError`."""
        host, port, username, password, tls = self._place()
        if self.unix_path is not None:
            if self.host is not None or self.port is not None or self.url is not None:
                raise click.UsageError("--unix names the broker's socket: leave -h, -p and -L out.")
            host = self.unix_path
        if self.client_id is not None and self.id_prefix is not None:
            raise click.UsageError("-i and -I exclude each other.")
        if self.keep_session and self.client_id is None:
            raise click.UsageError("-c keeps a session for a client identifier: name it with -i.")
        prefixed = None if self.id_prefix is None else f"{self.id_prefix}{os.getpid()}"
        expiry = self.session_expiry
        if expiry is None and self.keep_session and self.version == "5.0":
            expiry = NEVER_EXPIRES
        try:
            return Client(
                host,
                port,
                transport="tcp" if self.unix_path is None else "unix",
                client_id=self.client_id or prefixed or "",
                clean_start=not self.keep_session,
                session_expiry_interval=expiry,
                username=username,
                password=password,
                keep_alive=self.keepalive,
                version=self.version,
                will=self._will(given),
                tls=self._tls_context() if tls else None,
                properties=given["connect"],
                on_connection_lost=self._on_connection_lost,
                on_reconnected=self._on_reconnected,
                trace=self._trace if self.debug else None,
                **more,
            )
        except ValueError as error:
            raise WrongUsage(sentence(error)) from None

    def complain(self, message: str) -> None:
        """Say on standard error what is wrong, unless that is not wanted."""
        if not self.quiet:
            click.echo(message, err=True)

    def _place(self) -> tuple[str, int, str | None, str | None, bool]:
        """Host, port, user name, password, and whether TLS is spoken."""
        host, port, username, password = self.host, self.port, self.username, self.password
        tls = self.insecure or self.tls_use_os_certs or any((self.cafile, self.cert, self.key, self.tls_version))
        if self.url is not None:
            if host is not None:
                raise click.UsageError("-L names the host, too: leave -h out.")
            try:
                parts = urlsplit(self.url)
                url_port = parts.port
            except ValueError as error:
                raise click.UsageError(f"{self.url!r} is no URL: {error}.") from None
            if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
                raise click.UsageError(f"{self.url!r} is no URL like mqtt://host/topic or mqtts://host/topic.")
            host, port, tls = parts.hostname, port or url_port, tls or parts.scheme == "mqtts"
            username = unquote(parts.username) if parts.username is not None else username
            password = unquote(parts.password) if parts.password is not None else password
        tls = tls or port == TLS_PORT  # as mosquitto's: that port is TLS, and nothing else on it would answer
        return host or "localhost", port or (TLS_PORT if tls else PLAIN_PORT), username, password, tls

    def _tls_context(self) -> ssl.SSLContext:
        from mqttlite.security.tls import client_context  # here, so that plain connections start without it

        context = client_context(self.cafile, self.cert, self.key, self.insecure)
        if self.tls_version is not None:
            context.minimum_version = context.maximum_version = TLS_VERSIONS[self.tls_version]
        return context

    def _will(self, given: GivenProperties) -> Will | None:
        if self.will_topic is not None:
            return Will(self.will_topic, self.will_payload, self.will_qos or 0, self.will_retain, given["will"])
        if self.will_payload is not None or self.will_qos is not None or self.will_retain or "will" in given:
            raise click.UsageError("A will needs --will-topic.")
        return None

    def _on_connection_lost(self, error: MqttError, retry_in_s: float) -> None:
        self.complain(f"Warning: {error} Trying again in {retry_in_s:.1f} s.")

    def _on_reconnected(self, _session_present: bool) -> None:
        self.complain("Connected again.")

    def _trace(self, line: str) -> None:
        click.echo(f"Client {self.client_id or ''} {line}".replace("  ", " "), err=True)


def sentence(error: Exception) -> str:
    """An error's words with a capital and a full stop; a path or another name at the beginning stays unchanged."""
    words = str(error)
    if words.partition(" ")[0].isalpha():
        words = words[:1].upper() + words[1:]
    return words + ("" if words.endswith((".", "?", "!")) else ".")


def run(shared: Shared, work: Coroutine[Any, Any, int]) -> None:
    """Run a command to its end, on uvloop if it is there, and exit with its code."""
    import asyncio

    try:
        from uvloop import new_event_loop
    except ImportError:
        loop_factory = None
    else:
        loop_factory = new_event_loop
    code = EXIT_FAILED
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            code = runner.run(work)
    except MqttError as error:
        trusted = f" Trusted is {shared.cafile or 'what the system trusts'}." if is_distrust(error) else ""
        shared.complain(f"Error: {error}{trusted}")
    except BrokenPipeError:
        _forget_stdout()
        code = EXIT_OK
    except ValueError as error:
        shared.complain(f"Error: {sentence(error)}")
        code = EXIT_USAGE
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _forget_stdout() -> None:
    """The reader of our output has gone: let nothing at exit try to write there."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
