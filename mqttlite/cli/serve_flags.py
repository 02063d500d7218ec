"""The flags of `mqttlite serve`, and how they change a configuration.

Flags for listeners replace the listeners of the file; the others change one option each. Invariant: everything that is
wrong with the flags is said at once, in their names.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
import msgspec

from mqttlite.config import ClusterOptions, Config, ConfigError, ListenerOptions
from mqttlite.config.data_dir import default_data_dir
from mqttlite.config.file import Reading
from mqttlite.config.http import HttpOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.config.options import TelemetryOptions
from mqttlite.config.shape import Problem
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.net.upgrade import WebSocketOptions
from mqttlite.security.tls import TlsOptions

F = TypeVar("F", bound=Callable[..., Any])


def _port(value: str) -> int:
    """A port; 0 lets the system choose."""
    port = int(value) if value.isdecimal() else -1
    if not 0 <= port <= 65_535:
        raise click.BadParameter(f"{value!r} must be a whole number from 0 to 65535.")
    return port


_OPTIONS: Final = (
    click.option("--host", metavar="HOST", help="Address to listen on.  [default: 127.0.0.1]"),
    click.option("--port", type=_port, metavar="PORT", help="MQTT over TCP; 0: the system chooses.  [default: 1883]"),
    click.option("--tls-port", type=_port, metavar="PORT", help="MQTT over TLS; needs --cert and --key."),
    click.option("--ws-port", type=_port, metavar="PORT", help="MQTT over WebSocket, at /mqtt."),
    click.option("--wss-port", type=_port, metavar="PORT", help="The same over TLS; needs --cert and --key."),
    click.option(
        "--ws-origin",
        "origins",
        metavar="ORIGIN",
        multiple=True,
        help="Let pages of this site use WebSocket, such as https://app.example, or * for all; repeatable.",
    ),
    click.option("--socket", "socket_path", metavar="PATH", help="MQTT over a Unix socket."),
    click.option("--cafile", metavar="FILE", help="CA whose client certificates are accepted."),
    click.option("--crl", metavar="FILE", help="Revoked client certificates, in a list that this CA has signed."),
    click.option("--cert", metavar="FILE", help="The server's certificate, with its chain."),
    click.option("--key", metavar="FILE", help="The private key of --cert."),
    click.option("--require-client-cert", is_flag=True, help="Accept TLS clients only with a certificate of --cafile."),
    click.option("--password-file", metavar="FILE", help="Let in who is in this file; see 'mqttlite passwd'."),
    click.option(
        "--allow-anonymous",
        is_flag=True,
        help="Let clients in without user name and password, also where the network reaches the broker.",
    ),
    click.option(
        "--data-dir",
        metavar="DIR",
        help="Keep sessions, queued and retained messages in this folder.  [default: the user's folder for such data]",
    ),
    click.option("--no-persistence", is_flag=True, help="Keep them in memory: a restart loses them."),
    click.option(
        "--metrics-port",
        type=_port,
        metavar="PORT",
        help="Serve metrics, health and status over HTTP here; 0: the system chooses.",
    ),
    click.option(
        "--http-port",
        type=_port,
        metavar="PORT",
        help="Publish, subscribe and administer over HTTP here; 0: the system chooses.",
    ),
)


_OF_EXTENSIONS: Final = {
    "cluster": click.option(
        "--cluster",
        metavar="URL,URL,…",
        help="Be one machine of several, of which one serves, with these servers of NATS: nats://10.0.0.1:4222,…",
    ),
    "dataset": click.option("--telemetry", metavar="DIR", help="Write telemetry into this folder."),
}
"""Each is there if the extension is."""


def config_flags(function: F) -> F:
    """Give a command the flags, in their order."""
    for option in reversed((*_OPTIONS, *(option for name, option in _OF_EXTENSIONS.items() if name in BUILT_IN))):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags as they were given."""

    host: str | None = None
    port: int | None = None
    tls_port: int | None = None
    ws_port: int | None = None
    wss_port: int | None = None
    origins: tuple[str, ...] = ()
    socket_path: str | None = None
    cafile: str | None = None
    crl: str | None = None
    cert: str | None = None
    key: str | None = None
    require_client_cert: bool = False
    password_file: str | None = None
    allow_anonymous: bool = False
    data_dir: str | None = None
    no_persistence: bool = False
    cluster: str | None = None
    telemetry: str | None = None
    metrics_port: int | None = None
    http_port: int | None = None

    def apply(self, config: Config) -> Config:
        """The config with what the flags say. Raises `ConfigError`."""
        problems = list(self._problems())
        if problems:
            raise ConfigError(*problems)
        changes: dict[str, Any] = {}
        try:
            if listeners := [options for options, _ in self._listeners()]:
                changes["listeners"] = tuple(listeners)
            if self.cluster is not None:
                servers = tuple(each.strip() for each in self.cluster.split(","))
                changes["cluster"] = _replaced(config.cluster, ClusterOptions, servers=servers)
            if self.telemetry is not None:
                changes["telemetry"] = _replaced(config.telemetry, TelemetryOptions, directory=self.telemetry)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if self.password_file is not None:
            changes["password_file"] = self.password_file
        if self.allow_anonymous:
            changes["allow_anonymous"] = True
        changes["data_dir"] = self._data_dir(config)
        if self.metrics_port is not None:
            changes["metrics"] = _replaced(config.metrics, MetricsOptions, port=self.metrics_port)
        if self.http_port is not None:
            changes["http"] = _replaced(config.http, HttpOptions, port=self.http_port)
        return msgspec.structs.replace(config, **changes)

    def _data_dir(self, config: Config) -> str:
        """Where `mqttlite serve` keeps what outlives it; empty where nothing does."""
        if self.no_persistence:
            return ""
        if self.data_dir is not None:
            return self.data_dir
        return str(default_data_dir(os.environ)) if config.data_dir is None else config.data_dir

    def named(self, problems: Iterable[Problem], reading: Reading | None) -> Iterator[str]:
        """Problems in sentences: with a flag in place of each option that one sets, or with the option's line."""
        flags = self._flags_by_option()
        for problem in problems:
            text = re.sub(r"[\w.\[\]]+", lambda found: flags.get(found[0], found[0]), problem.text)
            if problem.path in flags:
                yield f"{flags[problem.path]}{text}"
            elif reading is None:
                yield str(Problem(problem.path, text))
            else:
                yield reading.located(Problem(problem.path, text))

    def _problems(self) -> Iterator[str]:
        if self.no_persistence and self.data_dir is not None:
            yield "--data-dir and --no-persistence contradict each other"
        if self.data_dir == "":
            yield "--data-dir names no folder; --no-persistence keeps everything in memory"
        if self.tls_port is None and self.wss_port is None:
            if self.cafile or self.crl or self.cert or self.key or self.require_client_cert:
                yield (
                    "--cafile, --crl, --cert, --key and --require-client-cert belong to --tls-port, which is missing, "
                    "or to --wss-port"
                )
        elif self.cert is None or self.key is None:
            option = "--wss-port" if self.tls_port is None else "--tls-port"
            yield f"{option} needs --cert and --key; 'mqttlite certs init' makes a set for development"
        if self.origins and self.ws_port is None and self.wss_port is None:
            yield "--ws-origin belongs to --ws-port or --wss-port, which is missing"
        try:
            WebSocketOptions(origins=self.origins)
        except ValueError as error:
            yield f"--ws-origin: {error}"
        if self.socket_path is not None:
            try:
                ListenerOptions(path=self.socket_path)
            except ValueError as error:
                yield f"--socket: {error}"
        if self.telemetry == "":
            yield "--telemetry is empty: it names the folder of the dataset"

    def _listeners(self) -> list[tuple[ListenerOptions, str]]:
        """The listeners that the flags ask for, each with the flag that does; none without one."""
        tls = None
        if self.cert is not None and self.key is not None:
            tls = TlsOptions(self.cert, self.key, self.cafile, self.require_client_cert, crl_file=self.crl)
        web = WebSocketOptions(origins=self.origins)
        host = "127.0.0.1" if self.host is None else self.host
        port = self.port
        if port is None and self.host is not None and not self._has_other_listeners():
            port = 1883
        found = []
        if port is not None:
            found.append((ListenerOptions(host=host, port=port), "--port"))
        if self.tls_port is not None:
            found.append((ListenerOptions(host=host, port=self.tls_port, tls=tls), "--tls-port"))
        if self.ws_port is not None:
            found.append((ListenerOptions(host=host, port=self.ws_port, websocket=web), "--ws-port"))
        if self.wss_port is not None:
            found.append((ListenerOptions(host=host, port=self.wss_port, tls=tls, websocket=web), "--wss-port"))
        if self.socket_path is not None:
            found.append((ListenerOptions(path=self.socket_path), "--socket"))
        return found

    def _has_other_listeners(self) -> bool:
        return any(each is not None for each in (self.tls_port, self.ws_port, self.wss_port, self.socket_path))

    def _flags_by_option(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for number, (_, flag) in enumerate(self._listeners()):
            path = f"listeners[{number}]"
            found |= {
                path: flag,
                f"{path}.port": flag,
                f"{path}.path": flag,
                f"{path}.host": "--host",
                f"{path}.tls.cert_file": "--cert",
                f"{path}.tls.key_file": "--key",
                f"{path}.tls.ca_file": "--cafile",
                f"{path}.tls.crl_file": "--crl",
            }
        for option, flag, value in (
            ("password_file", "--password-file", self.password_file),
            ("cluster.servers", "--cluster", self.cluster),
            ("telemetry.directory", "--telemetry", self.telemetry),
            ("metrics.port", "--metrics-port", self.metrics_port),
            ("http.port", "--http-port", self.http_port),
        ):
            if value is not None:
                found[option] = flag
        return found


S = TypeVar("S", bound=msgspec.Struct)


def _replaced(options: S | None, kind: type[S], **changes: Any) -> S:
    """The file's options with some changed, or these alone where the file has none."""
    return kind(**changes) if options is None else msgspec.structs.replace(options, **changes)
