"""A broker in a thread of its own, a wire to it that can be cut, and the clients with their callbacks as queues.

Invariant: every wait ends, with what it waited for or with an error after `PATIENCE_S`.
"""

import asyncio
import contextlib
import dataclasses
import os
import queue
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from mqttlite import Broker, Config, ListenerOptions, TlsOptions
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.security.authenticator import Authenticator
from tests.support.loops import new_event_loop

PATIENCE_S: Final = 60.0
HOST: Final = "localhost"
JS: Final = Path(__file__).parent / "js"

V311: Final = MQTTProtocolVersion.MQTTv311
V5: Final = MQTTProtocolVersion.MQTTv5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """A way to the broker: TCP, or TLS with the files that it needs; on it MQTT, or WebSocket and MQTT on that."""

    port: int
    certificates: Path | None = None
    websocket: bool = False

    def context(self, client: str | None = None) -> ssl.SSLContext | None:
        """What a Python client needs for TLS, with the certificate of that client."""
        if self.certificates is None:
            return None
        context = ssl.create_default_context(cafile=self.certificates / "ca.crt")
        if client is not None:
            context.load_cert_chain(self.certificates / f"{client}.crt", self.certificates / f"{client}.key")
        return context

    def arguments(self, client: str | None = None) -> list[str]:
        """The same for the mosquitto clients."""
        arguments = ["-h", HOST, "-p", str(self.port)]
        if self.certificates is not None:
            arguments += ["--cafile", str(self.certificates / "ca.crt")]
            if client is not None:
                arguments += ["--cert", str(self.certificates / f"{client}.crt")]
                arguments += ["--key", str(self.certificates / f"{client}.key")]
        return arguments


class RunningBroker:
    """Our broker on four ports that the system chose, in a thread with its own loop, as `mqttlite serve` has it."""

    def __init__(
        self,
        certificates: Path,
        *,
        authenticator: Authenticator | None = None,
        telemetry: Path | None = None,
        queues: tuple[QueueOptions, ...] = (),
    ) -> None:
        tls = TlsOptions(*(str(certificates / name) for name in ("server.crt", "server.key", "ca.crt")))
        listeners = (
            ListenerOptions(name="tcp", port=0),
            ListenerOptions(name="tls", port=0, tls=tls),
            ListenerOptions(name="ws", port=0, websocket=True),
            ListenerOptions(name="wss", port=0, tls=tls, websocket=True),
        )
        dump = None if telemetry is None else TelemetryOptions(directory=str(telemetry), format="jsonl")
        self._config: Final = Config(listeners=listeners, telemetry=dump, queues=queues)
        self._authenticator: Final = authenticator
        self._certificates: Final = certificates
        self._thread: Final = threading.Thread(target=self._run, name="broker")
        self._ports: Final[Future[list[int]]] = Future()
        self._stop: asyncio.Event
        self.loop: asyncio.AbstractEventLoop
        self.broker: Broker
        """To be used in its loop, by `do`."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ports.result(PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the broker did not stop"

    @property
    def tcp(self) -> Line:
        return Line(self._ports.result()[0])

    @property
    def tls(self) -> Line:
        return Line(self._ports.result()[1], self._certificates)

    @property
    def ws(self) -> Line:
        return Line(self._ports.result()[2], websocket=True)

    @property
    def wss(self) -> Line:
        return Line(self._ports.result()[3], self._certificates, websocket=True)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the broker's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with Broker(self._config, authenticator=self._authenticator) as broker:
                self.broker = broker
                self._ports.set_result([listener.port for listener in broker.listeners])
                await self._stop.wait()
        except BaseException as error:
            if not self._ports.done():
                self._ports.set_exception(error)
            raise


class Wire:
    """A port that forwards to another, and whose connections can be cut in the middle of whatever they carry."""

    def __init__(self, broker: RunningBroker, to: Line) -> None:
        self._broker: Final = broker
        self._to: Final = to
        self._ends: Final[set[asyncio.StreamWriter]] = set()
        self._server: asyncio.Server
        self.cuts = 0
        """Connections that were cut."""

    @property
    def line(self) -> Line:
        return dataclasses.replace(self._to, port=self._server.sockets[0].getsockname()[1])

    def __enter__(self) -> Self:
        self._server = self._broker.do(asyncio.start_server(self._forward, "127.0.0.1", 0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.do(self._close())

    def cut(self) -> None:
        """Cut what is connected now; new connections are welcome."""
        self._broker.do(self._cut())

    async def _cut(self) -> None:
        self.cuts += len(self._ends) // 2
        for end in self._ends:
            end.transport.abort()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, away = await asyncio.open_connection("127.0.0.1", self._to.port)
        self._ends.update((writer, away))
        try:
            await asyncio.gather(self._pump(reader, away), self._pump(there, writer))
        finally:
            self._ends.difference_update((writer, away))
            writer.transport.abort()
            away.transport.abort()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@dataclass(frozen=True, slots=True)
class Welcome:
    """What CONNACK said."""

    session_present: bool
    properties: PahoProperties | None


def at_once(client: paho.Client, userdata: object, connection: Any) -> None:
    """Have paho's packets go out as they are written; else each that follows an acknowledgement waits for 40 ms."""
    connection = getattr(connection, "_socket", connection)  # under paho's WebSocket
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Paho:
    """paho-mqtt with its own network thread. Leaving it disconnects."""

    def __init__(
        self,
        line: Line,
        client_id: str,
        version: MQTTProtocolVersion = V5,
        *,
        keep_session: bool = False,
        will: tuple[str, bytes, int, bool] | None = None,
        certificate: str | None = None,
        username: str | None = None,
        max_inflight: int = 20,
        topic_alias_maximum: int = 0,
    ) -> None:
        self.messages: Final[queue.Queue[paho.MQTTMessage]] = queue.Queue()
        self._welcomes: Final[queue.Queue[Welcome | PahoReasonCode]] = queue.Queue()
        self._answers: Final[queue.Queue[list[int]]] = queue.Queue()
        self._line: Final = line
        self._version: Final = version
        self._keep_session: Final = keep_session
        self._topic_alias_maximum: Final = topic_alias_maximum
        clean = {} if version == V5 else {"clean_session": not keep_session}
        transport = "websockets" if line.websocket else "tcp"
        self.client: Final = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport, **clean
        )
        self.client.reconnect_delay_set(0.05, 0.05)  # type: ignore[arg-type]
        self.client.max_inflight_messages_set(max_inflight)
        context = line.context(certificate)
        if context is not None:
            self.client.tls_set_context(context)
        if will is not None:
            self.client.will_set(*will)
        if username is not None:
            self.client.username_pw_set(username, "secret")
        self.client.on_socket_open = at_once
        self.client.on_connect = self._on_connect
        self.client.on_message = lambda client, userdata, message: self.messages.put(message)
        self.client.on_subscribe = lambda client, userdata, mid, codes, properties: self._answers.put(
            [code.value for code in codes]
        )

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """For a client that has connected already: leaving disconnects."""
        try:
            yield
        finally:
            self.__exit__(None, None, None)

    def connect(self) -> Welcome:
        """Connect and start the network thread; what the broker welcomed us with."""
        self.begin()
        return self.welcome()

    def begin(self) -> None:
        """Send CONNECT and start the network thread."""
        if self._version == V5:
            properties = PahoProperties(paho.PacketTypes.CONNECT)
            if self._keep_session:
                properties.SessionExpiryInterval = 3600
            if self._topic_alias_maximum:
                properties.TopicAliasMaximum = self._topic_alias_maximum
            self.client.connect(HOST, self._line.port, clean_start=not self._keep_session, properties=properties)
        else:
            self.client.connect(HOST, self._line.port)
        self.client.loop_start()

    def welcome(self) -> Welcome:
        """The next CONNACK, which must be one that accepts."""
        answer = self._welcomes.get(timeout=PATIENCE_S)
        assert isinstance(answer, Welcome), f"the broker refused: {answer}"
        return answer

    def refusal(self) -> int:
        """The reason code of the next CONNACK, which must be one that refuses; paho translates those of 3.1.1."""
        answer = self._welcomes.get(timeout=PATIENCE_S)
        assert not isinstance(answer, Welcome), "the broker accepted"
        return answer.value

    def subscribe(self, topic_filter: str, qos: int = 0, options: SubscribeOptions | None = None) -> list[int]:
        """The reason codes of SUBACK."""
        if self._version == V5:
            self.client.subscribe(topic_filter, options=options or SubscribeOptions(qos))
        else:
            self.client.subscribe(topic_filter, qos)
        return self._answers.get(timeout=PATIENCE_S)

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: PahoProperties | None = None
    ) -> None:
        """Publish and wait until it is sent, at QoS 1 and 2 acknowledged."""
        sent = self.client.publish(topic, payload, qos, retain, properties)
        sent.wait_for_publish(PATIENCE_S)
        assert sent.is_published(), f"{topic} was not acknowledged"

    def next(self) -> paho.MQTTMessage:
        """The next message."""
        return self.messages.get(timeout=PATIENCE_S)

    def take(self, count: int) -> list[bytes]:
        """The payloads of the next messages."""
        return [self.next().payload for _ in range(count)]

    def until(self, last: bytes) -> list[bytes]:
        """The payloads that come before the last one, which shows that nothing else came."""
        return list(iter(lambda: self.next().payload, last))

    def _on_connect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        code: PahoReasonCode,
        properties: PahoProperties | None,
    ) -> None:
        self._welcomes.put(code if code.is_failure else Welcome(flags.session_present, properties))


def tool(*names: str, package: str) -> str:
    """Where a program is; skips the test where it is not."""
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"{names[0]} is not installed; tools/test installs it where it may (Debian: {package})")


# mosquitto


@contextlib.contextmanager
def mosquitto_broker(folder: Path, port: int, *lines: str) -> Iterator[int]:
    """Mosquitto on a port, with further lines of its configuration."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    program = shutil.which("mosquitto", path=path) or tool("mosquitto", package="mosquitto")
    config = folder / "mosquitto.conf"
    config.write_text("\n".join([f"listener {port} 127.0.0.1", "allow_anonymous true", *lines, ""]))
    with (folder / "mosquitto.log").open("wb") as log:
        process = subprocess.Popen([program, "-v", "-c", str(config)], stdout=log, stderr=log)
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait()


READY: Final = "ready"
"""A retained topic: a client that receives it has its subscriptions."""


def mosquitto(name: str) -> str:
    """Where mosquitto_pub, mosquitto_sub or mosquitto_rr is; skips the test where it is not."""
    return tool(name, package="mosquitto-clients")


def mosquitto_pub(line: Line, *arguments: str, client: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run mosquitto_pub to its end."""
    command = [mosquitto("mosquitto_pub"), *line.arguments(client), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def published(line: Line, *arguments: str, client: str | None = None) -> None:
    """Run mosquitto_pub, which must succeed."""
    done = mosquitto_pub(line, *arguments, client=client)
    assert done.returncode == 0, done.stderr


class MosquittoSub:
    """mosquitto_sub with its lines as a queue; `format` is its -F. It is there once it has the retained `READY`."""

    def __init__(
        self, line: Line, topic_filter: str, *arguments: str, format: str = "%p", client: str | None = None
    ) -> None:
        self._lines: Final[queue.Queue[str]] = queue.Queue()
        self._ready: Final = threading.Event()
        topics = ["-t", topic_filter, "-t", READY, "-F", f"%t\t{format}"]
        self._process: Final = subprocess.Popen(
            [mosquitto("mosquitto_sub"), *line.arguments(client), *topics, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._output: Final = self._process.stdout
        self._reader: Final = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        assert self._ready.wait(PATIENCE_S), f"mosquitto_sub did not subscribe; exit code {self._process.poll()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._output.close()

    def next(self) -> str:
        """The next line."""
        return self._lines.get(timeout=PATIENCE_S)

    def take(self, count: int) -> list[str]:
        return [self.next() for _ in range(count)]

    def rest(self) -> list[str]:
        """The lines that nobody took."""
        return [self._lines.get_nowait() for _ in range(self._lines.qsize())]

    def kill(self) -> None:
        """End without a goodbye."""
        self._process.kill()

    def _read(self) -> None:
        for line in self._output:
            topic, _, rest = line.rstrip("\n").partition("\t")
            if topic == READY:
                self._ready.set()
            else:
                self._lines.put(rest)


def eventually(ask: Callable[[], T], *, is_so: Callable[[T], bool] = bool) -> T:
    """Ask again and again until it is so."""
    clock = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        answer = ask()
        if is_so(answer):
            return answer
        clock.wait(0.02)
    raise AssertionError(f"still {ask()!r}")
