"""`mqttlite serve`: run the broker until a signal ends it.

`config` and `serve_flags` hold the settings; here errors become sentences and an exit code.
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

from mqttlite.cli.check import check_config, read_config
from mqttlite.cli.main import build
from mqttlite.cli.serve_flags import Flags, config_flags
from mqttlite.config import Config, ConfigError, changed_options, load_config
from mqttlite.config.checks import warnings
from mqttlite.core.ports import Store
from mqttlite.extensions.built_in import resolve, turned_on
from mqttlite.net.service_manager import ServiceManager
from mqttlite.operations.surroundings import RunningBroker, Serving, Surroundings
from mqttlite.server import Broker
from mqttlite.telemetry.log import Calm, LogQueue, writing_log

_LEVELS = ("debug", "info", "warning", "error")

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

KEPT_BYTES = 32 * 1_048_576
"""Free memory that the process may keep; glibc takes no larger threshold for what is mapped by itself."""

FILES_AT_ONCE = 65_536
"""Open files that the kernel has room for from the beginning: 8 bytes of its memory for each. Room that doubles while
clients come makes a process of several threads wait each time until no processor looks at the old table (RCU), some
milliseconds in which the loop stands still, and a third of the time that the first 5000 clients take."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the store's thread may hold Python's lock while the loop waits for it: 5 ms by default."""

COLLECTED_AFTER: Final = (1_000, 4, 50_000)
"""How many new objects, and how many times that, are looked through for garbage. What is new is looked through in parts
of 5,000 objects, which take a millisecond or two; 25,000 took ten while thousands of clients came at once. All objects
are hardly ever looked through: a machine of a cluster that follows spent half of its time on that."""

_LAST_STEPS_S: Final = 10.0
"""How long the steps of a stop that have no option of their own may take together, at the most."""

_RELOADED: Final = ("acl_file", "groups", "topic_policies")
"""The sections of a configuration file that SIGHUP applies without a restart."""

_EPILOG = """\b
Exit codes:
  0  stopped by SIGTERM, SIGINT or SIGQUIT, or, after sending its clients away, by SIGUSR1; --check: nothing is wrong
  1  cannot listen: port or socket in use, address unknown, not permitted
  2  a flag or the config file is wrong
"""


@click.command(epilog=_EPILOG)
@click.option("-c", "--config", "config_path", metavar="FILE.toml", help="Read the configuration from a file.")
@config_flags
@click.option("--insecure-debug", is_flag=True, help="Allow flags that give secrets away, such as --tls-keylog.")
@click.option(
    "--tls-keylog",
    metavar="FILE",
    help="Write the keys of all TLS connections into this file, for Wireshark; needs --insecure-debug.",
)
@click.option("--check", is_flag=True, help="Say what is wrong with the flags and the file, and run no broker.")
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
    insecure_debug: bool,
    tls_keylog: str | None,
    check: bool,
    log_level: str,
    log_format: str,
    **given: Any,
) -> None:
    """Run the broker: with no flags at all, MQTT 3.1.1 and 5.0 on 127.0.0.1:1883."""
    flags = Flags(**given)
    if tls_keylog is not None and not insecure_debug:
        _fail(2, "with the file of --tls-keylog all traffic can be read; add --insecure-debug if that is meant")
    if check:
        sys.exit(check_config(config_path, flags))
    _begin_log(log_level, log_format)
    try:
        config, file = read_config(config_path, flags)
        source = None if config_path is None or file is None else _Source(config_path, file)
        _allow_many_files()
        _keep_memory()
        if config.data_dir is not None:
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        _run(config, tls_keylog, source)
    except ConfigError as error:
        _fail(2, *error.problems)
    except OSError as error:
        _fail(1, str(error))


def _begin_log(level: str, form: str) -> None:
    lines = LogQueue(form == "json" or (form == "auto" and not sys.stderr.isatty()))
    lines.addFilter(Calm())
    logging.basicConfig(level=level.upper(), handlers=[lines])
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # no line names them, nor
    logging._srcfile = None  # the place in the code ("Optimization" in the logging howto)
    setattr(logging, "logAsyncioTasks", False)  # noqa: B010 unknown to Python 3.11


class _Source(NamedTuple):
    """The config file, and what it held when the broker began."""

    path: str
    config: Config


def _run(config: Config, tls_keylog: str | None, source: _Source | None) -> None:
    _make_room_for_files()
    with writing_log(sys.stderr), asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(config, tls_keylog, source))


async def _serve(config: Config, tls_keylog: str | None, source: _Source | None) -> None:
    loop = asyncio.get_running_loop()
    log = logging.getLogger("mqttlite")
    process = _Process(source)
    process.listen_to_signals()
    log.info("%s on %s", build(), type(loop).__module__.partition(".")[0])
    gc.set_threshold(*COLLECTED_AFTER)

    async def run(
        store: Store | None,
        around: Surroundings | None,
        until: asyncio.Event,
        leave: Callable[[RunningBroker], Awaitable[None]],
    ) -> None:
        broker = Broker(config, store=store)
        broker.surroundings = around
        if tls_keylog is not None:
            broker.tls_keylog = tls_keylog
        async with contextlib.AsyncExitStack() as running:
            running.callback(gc.enable)
            running.callback(gc.unfreeze)  # the next turn has another broker
            gc.collect()
            gc.disable()
            await running.enter_async_context(broker)
            for sentence in warnings(config):
                log.warning("%s", sentence)
            # What a broker makes for a client lives as long as the client: looking through all of it again and again
            # for garbage stops the loop for a second at 100 000 clients, and finds none.
            gc.freeze()
            gc.enable()
            process.service_manager.ready()
            process.begin(broker)
            await _first_of(process.ended, until)
            await process.finish(broker)
            if until.is_set():
                await leave(broker)

    serving: Serving | None = next((resolve(each.serving) for each in turned_on(config) if each.serving), None)
    if serving is None:
        await run(None, None, asyncio.Event(), lambda broker: broker.stop())
    else:
        process.service_manager.starting()
        await serving(config, run, process.ended, process.service_manager.ready)


class _Process:
    """The signals to this process: those that end it, and requests to the broker that runs. Requests are done one after
    the other, each at most once more while one is done."""

    def __init__(self, source: _Source | None) -> None:
        self._source: Final = source
        self.service_manager: Final = ServiceManager(os.environ)
        self.ended: Final = asyncio.Event()
        """Set when it must end."""
        self._stop: Final = asyncio.Event()
        self._leave: Final = asyncio.Event()
        self._asked: Final[dict[str, Callable[[Broker], Awaitable[None]]]] = {}
        self._wake: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name, react in (
            ("SIGTERM", self._on_stop),
            ("SIGINT", self._on_stop),
            ("SIGQUIT", self._on_stop),
            ("SIGUSR1", self._on_leave),
            ("SIGHUP", self._on_reload),
            ("SIGUSR2", self._on_status),
        ):
            with contextlib.suppress(NotImplementedError, AttributeError):  # Windows: Ctrl-C is a KeyboardInterrupt
                loop.add_signal_handler(getattr(signal, name), react)

    def begin(self, broker: Broker) -> None:
        """The broker runs: do what was asked for, also before."""
        broker.on_reload = self._on_reload
        self._task = asyncio.get_running_loop().create_task(self._work(broker))

    async def finish(self, broker: Broker) -> None:
        """The broker is to stop, and the process too if that was asked for: do nothing else any more, and send its
        clients away if that was."""
        drains = self._leave.is_set() and not self._stop.is_set()
        if self.ended.is_set():
            self.service_manager.stopping(_stop_s(broker.config, drains))
        if drains:
            drain = asyncio.get_running_loop().create_task(broker.drain())
            drain.add_done_callback(lambda _task: self._stop.set())
            await self._stop.wait()  # a SIGTERM meanwhile cuts it short
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None  # it keeps the broker
        logging.getLogger("mqttlite").info("stopping")

    def _on_stop(self) -> None:
        self._stop.set()
        self.ended.set()

    def _on_leave(self) -> None:
        self._leave.set()
        self.ended.set()

    def _on_reload(self) -> None:
        self._ask("reload", self._reload)

    def _on_status(self) -> None:
        self._ask("status", Broker.log_status)

    def _ask(self, name: str, act: Callable[[Broker], Awaitable[None]]) -> None:
        self._asked[name] = act
        self._wake.set()

    async def _work(self, broker: Broker) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._asked:
                act = self._asked.pop(next(iter(self._asked)))
                try:
                    await act(broker)
                except Exception:  # the broker goes on
                    logging.getLogger("mqttlite").exception("what a signal asked for failed")

    async def _reload(self, broker: Broker) -> None:
        log = logging.getLogger("mqttlite")
        log.info("reload: the password files, the rules and the TLS files are read again")
        self.service_manager.reloading()
        config = None
        if self._source is not None:
            try:
                config = load_config(self._source.path)
                changed = [
                    option
                    for option in changed_options(self._source.config, config)
                    if not option.startswith(_RELOADED)
                ]
            except ConfigError as error:
                for problem in error.problems:
                    log.error("the configuration stays as it was: %s", problem)
            else:
                if changed:
                    log.warning("%s: changed, but needs a restart: %s", self._source.path, ", ".join(changed))
        try:
            await broker.reload(config)
        finally:
            self.service_manager.ready()


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


def _fail(code: int, *sentences: str) -> NoReturn:
    for sentence in sentences:
        click.echo(f"mqttlite serve: {sentence}", err=True)
    sys.exit(code)
