"""What is measured: a broker behind a port, started by its spec or running already, and TCP without a broker.

A broker we start is a process group of its own, so that stopping and holding it reaches it and its children and
nothing else. Held (SIGSTOP) it costs no CPU while others are measured.
"""

import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench import machine
from bench.cases import Case

LOOPBACK: Final = "127.0.0.1"
START_LIMIT_S: Final = 30.0
STOP_LIMIT_S: Final = 10.0
NAME: Final = re.compile(r"[\w.+-]+")


class BrokerError(Exception):
    """A broker's spec is wrong, or it did not come up; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Spec:
    """How to reach a broker and, unless it runs already, how to start it."""

    name: str
    host: str
    port: int
    command: tuple[str, ...] = ()
    tls_port: int | None = None
    version_command: tuple[str, ...] = ()
    folder: Path | None = None
    """Where the command runs; the current folder if None."""
    environment: Mapping[str, str] | None = None
    data: Path | None = None
    """The folder of what it keeps on disk."""
    groups: frozenset[str] = frozenset()
    """The groups of cases that it is measured in; all if there are none here."""


def parse(text: str) -> Spec:
    """Read NAME=PORT, NAME=HOST:PORT or either with =COMMAND.

    Port 0 takes a free one, which {port} in COMMAND names; {tls_port} there is another, where it must speak TLS.
    """
    name, _, rest = text.partition("=")
    address, _, command = rest.partition("=")
    host, _, digits = address.rpartition(":")
    if not NAME.fullmatch(name) or not digits.isascii() or not digits.isdigit() or int(digits) > 65535:
        raise BrokerError(f"{text!r} is not NAME=[HOST:]PORT or NAME=[HOST:]PORT=COMMAND")
    port = int(digits)
    if port == 0 and "{port}" not in command:
        raise BrokerError(f"{text!r}: port 0 means a free one, which its command must take as {{port}}")
    port = port or free_port()
    try:
        resolved = socket.gethostbyname(host or LOOPBACK)
        words = shlex.split(command)
    except (OSError, ValueError) as error:
        raise BrokerError(f"{text!r}: {error}") from error
    tls_port = free_port() if "{tls_port}" in command else None
    told = [word.replace("{port}", str(port)).replace("{tls_port}", str(tls_port)) for word in words]
    return Spec(name, resolved, port, tuple(told), tls_port)


def free_port() -> int:
    """A port nobody listens on, below those the kernel gives to the load generator's own connections."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise BrokerError("found no free port between 20000 and 32000")


class Contender(Protocol):
    """What a case is run against."""

    @property
    def name(self) -> str: ...

    def arguments(self, case: Case) -> tuple[str, ...]:
        """Tell the load generator where to go with that case."""

    def pids(self) -> tuple[int, ...]:
        """The processes whose CPU and memory are its."""

    def carries(self, case: Case) -> bool:
        """Whether the case makes sense for it."""

    def ready(self) -> None:
        """Be up and running."""

    def hold(self) -> None:
        """Rest while others are measured."""

    def stop(self) -> None:
        """End, if it is ours to end; `ready` starts it afresh."""

    def forget(self) -> None:
        """Lose what it keeps on disk; only when it is stopped."""

    def disk_bytes(self) -> int | None:
        """What it keeps on disk; None if that is not known."""

    def restart(self) -> tuple[str, ...]:
        """Stop and start, without a wait for the start; tell the load generator when that was."""


class Raw:
    """No broker: the load generator's own child, which passes bytes on; the limit that TCP sets."""

    name = "raw"

    def arguments(self, case: Case) -> tuple[str, ...]:
        return ("--raw",)

    def pids(self) -> tuple[int, ...]:
        return ()

    def carries(self, case: Case) -> bool:
        return case.raw

    def ready(self) -> None: ...

    def hold(self) -> None: ...

    def stop(self) -> None: ...

    def forget(self) -> None: ...

    def disk_bytes(self) -> int | None:
        return None

    def restart(self) -> tuple[str, ...]:
        return ()


class Broker:
    """A broker behind a port; if its spec has a command, one that we start, hold and stop."""

    def __init__(self, spec: Spec, home: Path) -> None:
        self.spec = spec
        self.name = spec.name
        self._complaints = home / f"{spec.name}.stderr"
        self._process: subprocess.Popen[bytes] | None = None

    def arguments(self, case: Case) -> tuple[str, ...]:
        pids = ",".join(map(str, self.pids()))
        port = self.spec.tls_port if case.tls else self.spec.port
        return ("--host", self.spec.host, "--port", str(port), *(("--pid", pids) if pids else ()))

    def pids(self) -> tuple[int, ...]:
        listening = machine.serving(self.spec.port)
        return listening or ((self._process.pid,) if self._process is not None and self._runs() else ())

    def carries(self, case: Case) -> bool:
        spec = self.spec
        is_meant = not spec.groups or case.group in spec.groups
        return is_meant and (spec.tls_port is not None or not case.tls) and (spec.data is not None or not case.before)

    def ready(self) -> None:
        if self.spec.command and not self._runs():
            self._start()
        self._signal(signal.SIGCONT)

    def hold(self) -> None:
        self._signal(signal.SIGSTOP)

    def stop(self) -> None:
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def forget(self) -> None:
        if self.spec.data is not None:
            shutil.rmtree(self.spec.data, ignore_errors=True)

    def disk_bytes(self) -> int | None:
        if self.spec.data is None:
            return None
        return sum(path.stat().st_size for path in self.spec.data.rglob("*") if path.is_file())

    def restart(self) -> tuple[str, ...]:
        if not self.spec.command:
            raise BrokerError(f"{self.name} was not started here, and cannot be started again")
        self.stop()
        began = time.monotonic_ns()
        self._launch()
        return ("--since", str(began))

    def version(self) -> str:
        """What the broker says it is; what was asked for, if it cannot be asked."""
        if not self.spec.version_command:
            return shlex.join(self.spec.command) or f"at {self.spec.host}:{self.spec.port}"
        done = subprocess.run(
            self.spec.version_command,
            cwd=self.spec.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=30,
        )
        said = (done.stdout or done.stderr).strip().splitlines() or ["unknown version"]
        return said[0 if done.stdout else -1]

    def _launch(self) -> subprocess.Popen[bytes]:
        if self.spec.data is not None:
            self.spec.data.mkdir(parents=True, exist_ok=True)
        with self._complaints.open("wb") as complaints:
            try:
                self._process = subprocess.Popen(
                    self.spec.command,
                    cwd=self.spec.folder,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,
                    start_new_session=True,
                )
            except OSError as error:
                raise BrokerError(f"{self.name}: {error}") from error
        return self._process

    def _start(self) -> None:
        process = self._launch()
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end:
            listens = self._listens()
            if not self._runs():
                raise BrokerError(f"{self.name} ended at once (exit {process.returncode}): {self._last_words()}")
            if listens:
                return
            time.sleep(0.05)
        self.stop()
        raise BrokerError(f"{self.name} did not listen on port {self.spec.port} within {START_LIMIT_S:.0f} s")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **(self.spec.environment or {})}

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _listens(self) -> bool:
        try:
            socket.create_connection((self.spec.host, self.spec.port), 1).close()
        except OSError:
            return False
        return True

    def _last_words(self) -> str:
        lines = self._complaints.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._runs():
            os.killpg(self._process.pid, number)
