"""Very many subscribers over HTTP: what an idle one costs, how soon the last has a message, and who holds up whom.

`python -m bench streams` starts a broker with a gateway and is all its clients, in one process that only polls sockets:
event streams (SSE) and WebSockets in JSON. Invariant: each subscriber counts every message that it gets, and one that
is missing is an error.
"""

import base64
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

OPENING: Final = 200
"""Connections that are being opened at once: fewer than a backlog of the kernel has."""

FROZEN_BUFFER_BYTES: Final = 4_096
"""What the kernel keeps for a reader that never reads, so that the broker has the rest."""

LIMIT_S: Final = 120.0
"""How long anything may take."""

MARK: Final = b"bench-mark-"
"""Begins each payload; eight digits follow."""

PING: Final = b"\x89"
PONG: Final = b"\x8a\x80\0\0\0\0"
"""Of WebSocket; masked, with nothing in it."""

_SSE: Final = (
    b"GET /events?filter=%b&qos=%d HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) "
    b"AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\nAccept: text/event-stream\r\n"
    b"Accept-Encoding: gzip, deflate, br\r\nAccept-Language: en-GB,en;q=0.9\r\nCache-Control: no-cache\r\n\r\n"
)
_SOCKET: Final = (
    b"GET /ws/subscribe HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % base64.b64encode(b"bench-of-streams")
)


class StreamsError(RuntimeError):
    """The broker did not do what is measured."""


class Figures(msgspec.Struct, kw_only=True):
    """What was measured. Times in seconds."""

    streams: int
    sockets: int
    opened_per_s: float
    bytes_per_stream: int
    bytes_per_socket: int
    to_the_last_s: list[float]
    p99_without_s: list[float]
    p99_with_s: list[float]
    frozen: int
    frozen_cut: int
    rss_after_rounds: list[int]


class Subscriber:
    """One connection, seen from outside."""

    __slots__ = ("kernel", "ready", "tail", "to_send")

    def __init__(self, kernel: socket.socket) -> None:
        self.kernel: Final = kernel
        self.ready: bool = False
        self.to_send = b""
        """What follows the answer to the handshake."""
        self.tail = b""


class Crowd:
    """The subscribers of one measurement. `on_mark` gets the number of each message that one of them sees."""

    def __init__(self, port: int) -> None:
        self._port: Final = port
        self._poll: Final = select.epoll()
        self.members: Final[dict[int, Subscriber]] = {}
        self.on_mark: Callable[[int], None] = lambda _: None
        self.cut: int = 0

    def open(self, kind: str, count: int, topic: bytes, qos: int = 1) -> float:
        """So many more, each subscribed; how many were opened in a second."""
        began = time.perf_counter()
        waiting: set[Subscriber] = set()
        left = count
        while left or waiting:
            while left and len(waiting) < OPENING:
                waiting.add(self._connect(kind, topic, qos))
                left -= 1
            self.poll(0.1)
            waiting = {each for each in waiting if not each.ready}
            if time.perf_counter() - began > LIMIT_S:
                raise StreamsError(f"{len(waiting) + left} of {count} subscribers ({kind}) were not opened")
        return count / (time.perf_counter() - began)

    def _connect(self, kind: str, topic: bytes, qos: int) -> Subscriber:
        kernel = socket.create_connection(("127.0.0.1", self._port), timeout=LIMIT_S)
        kernel.setblocking(False)
        subscriber = self.members[kernel.fileno()] = Subscriber(kernel)
        kernel.send(_SSE % (topic, qos) if kind == "sse" else _SOCKET)
        subscriber.to_send = b"" if kind == "sse" else _frame(_subscribing(topic, qos))
        self._poll.register(kernel.fileno(), select.EPOLLIN)
        return subscriber

    def poll(self, timeout_s: float) -> None:
        """Read what has come."""
        for number, _ in self._poll.poll(timeout_s):
            member = self.members[number]
            try:
                data = member.kernel.recv(262_144)
            except (BlockingIOError, ConnectionError) as error:
                data = b"" if isinstance(error, ConnectionError) else b" "
            if not data:
                self.cut += 1
                self._close(member)
                continue
            if data.startswith(PING):
                member.kernel.send(PONG)
            self._on_data(member, data)

    def _on_data(self, member: Subscriber, data: bytes) -> None:
        if not member.ready:
            self._on_answer(member, data)
            return
        data = member.tail + data
        at = end = 0
        while (at := data.find(MARK, end)) >= 0 and len(data) >= at + len(MARK) + 8:
            end = at + len(MARK) + 8
            self.on_mark(int(data[at + len(MARK) : end]))
        member.tail = data[end:][-(len(MARK) + 8) :]

    def _on_answer(self, member: Subscriber, data: bytes) -> None:
        if member.to_send:
            if b" 101 " not in data:
                raise StreamsError(f"a WebSocket was refused: {data[:200]!r}")
            member.kernel.send(member.to_send)
            member.to_send = b""
        elif b"retry: " in data or b'"subscribed"' in data:
            member.ready = True
        elif b"HTTP/1.1 200" not in data:
            raise StreamsError(f"a subscriber was refused: {data[:200]!r}")

    def _close(self, member: Subscriber) -> None:
        number = member.kernel.fileno()
        self._poll.unregister(number)
        del self.members[number]
        member.kernel.close()

    def close(self) -> None:
        """All of them leave."""
        for member in list(self.members.values()):
            self._close(member)


class Broker:
    """One that runs for the measurement."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, mqtt_port: int) -> None:
        self._process: Final = process
        self.port: Final = port
        """Of its gateway."""
        self.mqtt_port: Final = mqtt_port
        self._publisher: socket.socket | None = None

    def rss(self) -> int:
        """Bytes of memory that it has now."""
        status = Path(f"/proc/{self._process.pid}/statm").read_text()
        return int(status.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def connect(self) -> None:
        """Connect who publishes: an idle connection is closed after some seconds."""
        self.close()
        self._publisher = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)

    def close(self) -> None:
        """Disconnect who publishes."""
        if self._publisher is not None:
            self._publisher.close()

    def cpu_s(self) -> float:
        """What it has used of processors."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def publish(self, topic: bytes, number: int, size: int = 0) -> None:
        """A message over HTTP; its answer is read later."""
        assert self._publisher is not None
        body = (MARK + b"%08d" % number).ljust(size, b".")
        self._publisher.sendall(
            b"PUT /topics/%b?qos=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b"
            % (topic, len(body), body)
        )

    def answered(self) -> None:
        """Read the answers to what was published."""
        assert self._publisher is not None
        if b"HTTP/1.1 200" not in self._publisher.recv(65_536):
            raise StreamsError("a message was not published")

    def frozen(self, count: int, topic: bytes) -> list[socket.socket]:
        """Streams whose clients read their heads and nothing more."""
        found = []
        for _ in range(count):
            kernel = socket.socket()
            kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FROZEN_BUFFER_BYTES)
            kernel.settimeout(LIMIT_S)
            kernel.connect(("127.0.0.1", self.port))
            kernel.sendall(_SSE % (topic, 1))
            head = b""
            while b"retry: " not in head:
                head += kernel.recv(1_024)
            found.append(kernel)
        return found


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How many of what."""

    streams: int = 10_000
    sockets: int = 1_000
    frozen: int = 100
    rounds: int = 10
    messages: int = 200
    """To each reader beside the frozen ones, each time."""
    settle_s: float = 2.0
    """How long nothing happens before memory is read."""


def measure(source: Path, plan: Plan, say: Callable[[str], None]) -> Figures:
    """All of it, with the build that lies in a folder."""
    with broker(source) as running:
        return _measured(running, plan, say)


def _measured(running: Broker, plan: Plan, say: Callable[[str], None]) -> Figures:
    streams, sockets, frozen = plan.streams, plan.sockets, plan.frozen
    crowd = Crowd(running.port)
    crowd.open("sse", 10, b"warm")
    crowd.open("ws", 10, b"warm")
    crowd.close()
    time.sleep(plan.settle_s)
    empty = running.rss()
    opened = crowd.open("sse", streams, b"all")
    time.sleep(plan.settle_s)
    with_streams = running.rss()
    say(f"{streams} event streams: {opened:.0f}/s opened, {(with_streams - empty) / streams:.0f} bytes for each")
    crowd.open("ws", sockets, b"all")
    time.sleep(plan.settle_s)
    with_sockets = running.rss()
    say(f"{sockets} WebSockets: {(with_sockets - with_streams) / sockets:.0f} bytes for each")
    to_the_last = [_until_the_last(running, crowd, number) for number in range(10)]
    say("to the last: " + " ".join(f"{each * 1e3:.0f}" for each in to_the_last) + " ms")
    crowd.close()
    without, beside, cut = _beside_frozen(running, frozen, plan.messages)
    say(f"p99 without {_ms(without)}, beside {frozen} that do not read {_ms(beside)} ms; {cut} cut off")
    after = []
    for number in range(plan.rounds):
        crowd.open("sse", streams, b"all")
        crowd.close()
        time.sleep(plan.settle_s)
        after.append(running.rss())
        say(f"round {number + 1}: {after[-1] / 1e6:.1f} MB when all are gone")
    return Figures(
        streams=streams,
        sockets=sockets,
        opened_per_s=opened,
        bytes_per_stream=(with_streams - empty) // streams,
        bytes_per_socket=(with_sockets - with_streams) // sockets,
        to_the_last_s=to_the_last,
        p99_without_s=without,
        p99_with_s=beside,
        frozen=frozen,
        frozen_cut=cut,
        rss_after_rounds=after,
    )


def _ms(times: Sequence[float]) -> str:
    return " ".join(f"{each * 1e3:.1f}" for each in times)


def _until_the_last(running: Broker, crowd: Crowd, number: int) -> float:
    """Seconds from publishing until the last subscriber has it."""
    missing = len(crowd.members)

    def on_mark(_: int) -> None:
        nonlocal missing
        missing -= 1

    crowd.on_mark = on_mark
    running.connect()
    began = time.perf_counter()
    running.publish(b"all", number)
    while missing:
        crowd.poll(0.5)
        if time.perf_counter() - began > LIMIT_S:
            raise StreamsError(f"{missing} of {len(crowd.members)} subscribers did not get a message")
    took = time.perf_counter() - began
    running.answered()
    return took


READERS: Final = 200
RATE: Final = 20.0
"""Messages a second to all of them: what a core does with ease, so that it is not the waiting which is measured."""
SIZE: Final = 1_024
PAIRS: Final = 4
"""How often the times without and beside are taken."""


def _beside_frozen(running: Broker, frozen: int, messages: int) -> tuple[list[float], list[float], int]:
    """The 99th percentile of the time to each of the readers, in turns without and beside clients that never read."""
    found: dict[bool, list[float]] = {False: [], True: []}
    crowd = Crowd(running.port)
    crowd.open("sse", READERS, b"busy", 0)
    _p99(running, crowd, messages)
    cut = 0
    for turn in range(PAIRS * 2):
        beside = turn % 4 in (1, 2)
        held = running.frozen(frozen, b"busy") if beside else []
        found[beside].append(_p99(running, crowd, messages))
        for kernel in held:
            cut += _is_cut(kernel)
            kernel.close()
        time.sleep(0.5)
    crowd.close()
    return found[False], found[True], cut


def _is_cut(kernel: socket.socket) -> bool:
    """Whether the broker has ended the connection; TCP_INFO begins with its state, and 1 is ESTABLISHED."""
    return kernel.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1


def _p99(running: Broker, crowd: Crowd, messages: int) -> float:
    """Of the time from publishing to each reader."""
    sent: list[float] = []
    took: list[float] = []
    crowd.on_mark = lambda number: took.append(time.perf_counter() - sent[number])
    running.connect()
    began = time.perf_counter()
    while len(sent) < messages or len(took) < messages * len(crowd.members):
        now = time.perf_counter()
        due = began + len(sent) / RATE
        if len(sent) < messages and now >= due:
            sent.append(now)
            running.publish(b"busy", len(sent) - 1, SIZE)
            if len(sent) % 50 == 0:
                running.answered()
        crowd.poll(max(0.0, min(0.1, due - time.perf_counter())))
        if now - began > LIMIT_S:
            raise StreamsError(f"{messages * len(crowd.members) - len(took)} messages are missing")
    running.answered()
    return statistics.quantiles(took, n=100)[98]


def _anybody(_: Path) -> tuple[str, str]:
    return "", 'allow_anonymous = true\nanonymous_role = "user"\n'


@contextmanager
def broker(source: Path, who: Callable[[Path], tuple[str, str]] = _anybody) -> Iterator[Broker]:
    """One with a gateway for this machine alone, without a limit on requests.

    `who` says who may use it: it gets the broker's folder, in which `data` is the data directory, and returns lines of
    the configuration: the first ones, and those of `[http]`.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        config = Path(name, "config.toml")
        port, mqtt_port = _free_port(), _free_port()
        first, http = who(Path(name))
        config.write_text(
            f'data_dir = "{name}/data"\n{first}[[listeners]]\nport = {mqtt_port}\n'
            f"[http]\nport = {port}\nrequests_per_s = 0\n{http}"
        )
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mqttlite", "serve", "--config", str(config)],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            running = Broker(process, _await(process, port), mqtt_port)
            try:
                yield running
            finally:
                running.close()
        finally:
            process.terminate()
            process.communicate()


def _free_port() -> int:
    with socket.socket() as kernel:
        kernel.bind(("127.0.0.1", 0))
        port: int = kernel.getsockname()[1]
        return port


def _await(process: "subprocess.Popen[bytes]", port: int) -> int:
    began = time.perf_counter()
    while time.perf_counter() - began < 30:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return port
        except OSError:
            if process.poll() is not None:
                raise StreamsError(f"the broker ended: {(process.communicate()[1] or b'')[-500:]!r}") from None
            time.sleep(0.05)
    raise StreamsError("the broker does not listen")


def _subscribing(topic: bytes, qos: int) -> bytes:
    return b'{"type":"subscribe","topic":"%b","qos":%d}' % (topic, qos)


def _frame(text: bytes) -> bytes:
    """A WebSocket frame of a client: masked with zeros."""
    assert len(text) < 126
    return struct.pack("!BB", 0x81, 0x80 | len(text)) + b"\0\0\0\0" + text
