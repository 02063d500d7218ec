"""`mqttlite serve`: run the broker until a signal ends it.

What is set lives in `config`; here flags override it, and errors become one sentence and an exit code.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, NoReturn

import click
import msgspec

from mqttlite.cli.main import build
from mqttlite.config import Config, ConfigError, ListenerOptions, changed_options, load_config
from mqttlite.net.http import Options as MetricsOptions
from mqttlite.net.service_manager import ServiceManager
from mqttlite.net.upgrade import Options as WebSocketOptions
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker, open_listeners
from mqttlite.telemetry.log import Calm, LogQueue, writing_log
from mqttlite.telemetry.options import Options as TelemetryOptions

_LEVELS = ("debug", "info", "warning", "error")

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

KEPT_BYTES = 32 * 1_048_576
"""Free memory that the process may keep; glibc takes no larger threshold for what is mapped by itself."""

FILES_AT_ONCE = 65_536
"""Open files that the kernel has room for from the beginning: 8 bytes of its memory for each. Room that doubles while
clients come makes a process of several threads wait each time until no processor looks at the old table (RCU), some
milliseconds in which the loop stands still, and a third of the time that the first 5000 clients take."""

_LAST_STEPS_S: Final = 10.0
"""How long the steps of a stop that have no option of their own may take together, at the most."""

_EPILOG = """\b
Exit codes:
  0  stopped by SIGTERM, SIGINT or SIGQUIT, or, after sending its clients away, by SIGUSR1
  1  cannot listen: port or socket in use, address unknown, not permitted
  2  a flag or the config file is wrong
"""


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["--help"]})
@click.option("-c", "--config", "config_path", metavar="FILE.toml", help="Read the configuration from a file.")
@click.option("--host", metavar="HOST", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="MQTT over TCP; 0: the system chooses.  [default: 1883]")
@click.option("--tls-port", type=click.IntRange(0, 65_535), help="MQTT over TLS; needs --cert and --key.")
@click.option("--ws-port", type=click.IntRange(0, 65_535), help="MQTT over WebSocket, at /mqtt.")
@click.option("--wss-port", type=click.IntRange(0, 65_535), help="The same over TLS; needs --cert and --key.")
@click.option(
    "--ws-origin",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    help="Let pages of this site use WebSocket, such as https://app.example, or * for all; repeatable.",
)
@click.option("--socket", "socket_path", metavar="PATH", help="MQTT over a Unix socket.")
@click.option("--cafile", metavar="FILE", help="CA whose client certificates are accepted.")
@click.option("--cert", metavar="FILE", help="The server's certificate, with its chain.")
@click.option("--key", metavar="FILE", help="The private key of --cert.")
@click.option("--require-client-cert", is_flag=True, help="Let nobody in over TLS without a certificate of --cafile.")
@click.option("--password-file", metavar="FILE", help="Let in who is in this file; see 'mqttlite passwd'.")
@click.option("--telemetry", metavar="DIR", help="Write telemetry into this folder.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve metrics, health and status over HTTP here; 0: the system chooses.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
@click.option(
    "--log-format",
    type=click.Choice(("auto", "json", "text")),
    default="auto",
    show_default=True,
    help="auto: text on a terminal, else JSON.",
)
def command(
    config_path: str | None,
    host: str | None,
    port: int | None,
    tls_port: int | None,
    ws_port: int | None,
    wss_port: int | None,
    origins: tuple[str, ...],
    socket_path: str | None,
    cafile: str | None,
    cert: str | None,
    key: str | None,
    require_client_cert: bool,
    password_file: str | None,
    telemetry: str | None,
    metrics_port: int | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the broker: with no flags at all, MQTT 3.1.1 and 5.0 on 127.0.0.1:1883."""
    lines = LogQueue(log_format == "json" or (log_format == "auto" and not sys.stderr.isatty()))
    lines.addFilter(Calm())
    logging.basicConfig(level=log_level.upper(), handlers=[lines])
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # no line names them, nor
    logging._srcfile = None  # the place in the code ("Optimization" in the logging howto)
    setattr(logging, "logAsyncioTasks", False)  # noqa: B010 unknown to Python 3.11
    try:
        config = Config() if config_path is None else load_config(config_path)
        source = None if config_path is None else _Source(config_path, config)
        ports = _Ports(port, tls_port, ws_port, wss_port, socket_path)
        flags = _listeners(host, ports, origins, _tls(ports, cafile, cert, key, require_client_cert))
        if flags:
            config = _replace(config, listeners=flags)
        if password_file is not None:
            config = _replace(config, password_file=password_file)
        if telemetry is not None:
            config = _replace(config, telemetry=TelemetryOptions(directory=telemetry))
        if metrics_port is not None:
            config = _replace(config, metrics=_metrics(config, metrics_port))
        _allow_many_files()
        _keep_memory()
        _run(Broker(config), source)
    except ConfigError as error:
        _fail(2, str(error))
    except OSError as error:
        _fail(1, str(error))


class _Source(NamedTuple):
    """The config file, and what it held when the broker began."""

    path: str
    config: Config


class _Ports(NamedTuple):
    """Where the flags ask to listen."""

    tcp: int | None
    tls: int | None
    ws: int | None
    wss: int | None
    socket: str | None


def _tls(
    ports: _Ports, cafile: str | None, cert: str | None, key: str | None, require_client_cert: bool
) -> TlsOptions | None:
    """What the flags say of TLS; None where no port has it."""
    if ports.tls is None and ports.wss is None:
        if cafile or cert or key or require_client_cert:
            raise ConfigError(
                "--cafile, --cert, --key and --require-client-cert "
                "belong to --tls-port, which is missing, or to --wss-port"
            )
        return None
    if cert is None or key is None:
        option = "--wss-port" if ports.tls is None else "--tls-port"
        raise ConfigError(f"{option} needs --cert and --key; 'mqttlite certs init' makes a set for development")
    return TlsOptions(cert, key, cafile, require_client_cert)


def _listeners(
    host: str | None, ports: _Ports, origins: tuple[str, ...], tls: TlsOptions | None
) -> tuple[ListenerOptions, ...]:
    """The listeners that the flags ask for; none where there are no such flags."""
    if origins and ports.ws is None and ports.wss is None:
        raise ConfigError("--ws-origin belongs to --ws-port or --wss-port, which is missing")
    try:
        web = WebSocketOptions(origins=origins)
    except ValueError as error:
        raise ConfigError(f"--ws-origin: {error}") from None
    address = "127.0.0.1" if host is None else host
    listeners = []
    if ports.tcp is not None or (host is not None and all(port is None for port in ports)):
        listeners.append(ListenerOptions(host=address, port=1883 if ports.tcp is None else ports.tcp))
    if ports.tls is not None:
        listeners.append(ListenerOptions(host=address, port=ports.tls, tls=tls))
    if ports.ws is not None:
        listeners.append(ListenerOptions(host=address, port=ports.ws, websocket=web))
    if ports.wss is not None:
        listeners.append(ListenerOptions(host=address, port=ports.wss, tls=tls, websocket=web))
    if ports.socket is not None:
        listeners.append(ListenerOptions(path=ports.socket))
    return tuple(listeners)


def _metrics(config: Config, port: int) -> MetricsOptions:
    """The file's, but for the port."""
    return MetricsOptions(port=port) if config.metrics is None else msgspec.structs.replace(config.metrics, port=port)


def _run(broker: Broker, source: _Source | None = None) -> None:
    _make_room_for_files()
    with writing_log(sys.stderr), asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(broker, source))


async def _serve(broker: Broker, source: _Source | None) -> None:
    loop = asyncio.get_running_loop()
    log = logging.getLogger("mqttlite")
    stop, leave = asyncio.Event(), asyncio.Event()
    service_manager = ServiceManager(os.environ)
    requests = _Requests(broker, source, service_manager)
    for name, react in (
        ("SIGTERM", stop.set),
        ("SIGINT", stop.set),
        ("SIGQUIT", stop.set),
        ("SIGUSR1", leave.set),
        ("SIGHUP", requests.reload),
        ("SIGUSR2", requests.status),
    ):
        with contextlib.suppress(NotImplementedError, AttributeError):  # Windows: Ctrl-C is a KeyboardInterrupt
            loop.add_signal_handler(getattr(signal, name), react)
    log.info("%s on %s", build(), type(loop).__module__.partition(".")[0])
    async with broker:
        for options in open_listeners(broker.config):
            log.warning(
                "listener %s on %s is open to the network: everybody who reaches it may publish and subscribe",
                *(options.title(), options.host),
            )
        # What a broker makes for a client lives as long as the client: looking through all of it again and again for
        # garbage stops the loop for a second at 100 000 clients, and finds none.
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)
        service_manager.ready()
        requests.begin()
        await _first_of(stop, leave)
        drains = leave.is_set() and not stop.is_set()
        service_manager.stopping(_stop_s(broker.config, drains))
        if drains:
            drain = loop.create_task(broker.drain())
            drain.add_done_callback(lambda _task: stop.set())
            await stop.wait()  # a SIGTERM meanwhile cuts it short
        await requests.end()
        log.info("stopping")


class _Requests:
    """What signals ask of a running broker: done one after the other, each at most once more while one is done."""

    def __init__(self, broker: Broker, source: _Source | None, service_manager: ServiceManager) -> None:
        self._broker: Final = broker
        self._source: Final = source
        self._service_manager: Final = service_manager
        self._asked: Final[dict[str, Callable[[], Awaitable[None]]]] = {}
        self._wake: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def reload(self) -> None:
        """SIGHUP."""
        self._ask("reload", self._reload)

    def status(self) -> None:
        """SIGUSR2."""
        self._ask("status", self._broker.log_status)

    def begin(self) -> None:
        """The broker runs: do what was asked for, also before."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def end(self) -> None:
        """Do nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _ask(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        self._asked[name] = act
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._asked:
                act = self._asked.pop(next(iter(self._asked)))
                try:
                    await act()
                except Exception:  # the broker goes on
                    logging.getLogger("mqttlite").exception("what a signal asked for failed")

    async def _reload(self) -> None:
        log = logging.getLogger("mqttlite")
        log.info("SIGHUP: the password files and the TLS files are read again")
        self._service_manager.reloading()
        if self._source is not None:
            try:
                changed = changed_options(self._source.config, load_config(self._source.path))
            except ConfigError as error:
                log.error("the configuration stays as it was: %s", error)
            else:
                if changed:
                    log.warning("%s: changed, but needs a restart: %s", self._source.path, ", ".join(changed))
        try:
            await self._broker.reload()
        finally:
            self._service_manager.ready()


def _stop_s(config: Config, drains: bool) -> float:
    """How long an end may take: of clients, then of telemetry, and then the log and what else is short."""
    return (config.lame_duck.deadline_s if drains else 0.0) + 2 * config.stop_timeout_s + _LAST_STEPS_S


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _allow_many_files() -> None:
    """Raise the soft limit on open files, often 1024, to the hard one: each connection is a file."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS says that there is no limit, and takes less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _make_room_for_files() -> None:
    """Let the kernel make room for many open files at once: it does that for a file of a high number."""
    try:
        import fcntl
        import resource
    except ImportError:  # Windows has no such table
        return
    highest = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], FILES_AT_ONCE) - 1
    with contextlib.suppress(OSError), open(os.devnull, "rb") as file:  # the kernel may have no memory for it now
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, highest))


def _keep_memory() -> None:
    """Let glibc keep what is freed, up to a limit: else it gives every large read and write back to the system, and
    asks for it again, which costs more than the copying."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, or Windows
        return
    for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        mallopt(parameter, KEPT_BYTES)


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where there is one; asyncio's own works too."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _replace(config: Config, **changes: Any) -> Config:
    return msgspec.structs.replace(config, **changes)


def _fail(code: int, sentence: str) -> NoReturn:
    click.echo(f"mqttlite serve: {sentence}", err=True)
    sys.exit(code)
