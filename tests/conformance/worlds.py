"""Where a script is played: on the core alone, where time is a number, or over a socket against a whole broker."""

import asyncio
import re
from typing import Protocol

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.authentication import Verdict
from mqttlite.core.connect.capabilities import EVERYTHING, Capabilities
from mqttlite.core.connect.connection import Peer
from mqttlite.core.limits import Limits
from mqttlite.core.question import Authenticate
from mqttlite.security.authenticator import Credentials
from mqttlite.server import Broker
from tests.conformance.script import Row, check, cut, hello, on_the_wire
from tests.support.core_driver import Client, World

PATIENCE_S = 60.0
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
CONNECT, AUTH = 0x10, 0xF0

STEP = re.compile(r"(\w+)\s*(<\*|>\||[><.!-])\s*(.*)")


class AuthChain:
    """Authenticates the clients of gated rows: by the password `p`, or by the word `in` with the method `M`.

    After the word `more` the client is asked for another; all other words are refused. The core calls `verdict`, a
    whole broker the other methods.
    """

    methods = frozenset({"M"})

    def verdict(self, question: Authenticate) -> Verdict:
        if question.method:
            return self._verdict(question.data)
        return Verdict(0 if question.password == b"p" else 0x86)

    async def authenticate(self, credentials: Credentials) -> bool:
        return credentials.password == b"p"

    def begin(self, method: str, credentials: Credentials) -> "AuthChain":
        assert method in self.methods
        return self

    async def step(self, data: bytes | None) -> Verdict:
        return self._verdict(data)

    def _verdict(self, data: bytes | None) -> Verdict:
        return {b"in": Verdict(0, b"welcome", "u"), b"more": Verdict(0x18, b"go on")}.get(data or b"", Verdict(0x87))


class Stage(Protocol):
    """What a script needs of the world."""

    async def send(self, link: str, data: bytes, *, whole: bool = True) -> None:
        """`whole`: a packet ends with these bytes."""

    async def receive(self, link: str) -> bytes | None:
        """The next frame, None where the broker closed the link."""

    async def left(self, link: str) -> list[bytes]:
        """What else has come by now."""

    async def drop(self, link: str) -> None: ...
    async def wait(self, seconds: float) -> None: ...


async def play(row: Row, version: int, stage: Stage) -> None:
    """Play a script, step by step; a step that goes wrong says which."""
    for line in row.script.splitlines():
        line = line.split("--")[0].strip()
        if line:
            try:
                await _step(line, version, stage)
            except AssertionError as error:
                raise AssertionError(f"{line}\n{error}") from error


async def _step(line: str, version: int, stage: Stage) -> None:
    if line.startswith("+"):
        await stage.wait(float(line[1:]))
        return
    word, *links = line.split()
    if word in ("hello", "stay", "back"):
        for link in [link for link in links if link != "new"]:
            text = hello(link, version, clean=word != "back", stay=word != "hello")
            await stage.send(link, on_the_wire(text, version))
            present = int(word == "back" and "new" not in links)
            await _expect(stage, link, f"connack {present} 00", version)
        return
    match = STEP.fullmatch(line)
    assert match, "no such step"
    link, verb, rest = match.groups()
    if verb == ">":
        text, _, answer = rest.partition("=>")
        await stage.send(link, on_the_wire(text, version))
        if answer:
            await _expect(stage, link, answer, version)
    elif verb == ">|":
        await stage.send(link, on_the_wire(rest, version), whole=False)
    elif verb == "<":
        await _expect(stage, link, rest, version)
    elif verb == "<*":
        wanted = [on_the_wire(each, version) for each in rest.split(";")]
        got = [await stage.receive(link) for _ in wanted]
        assert sorted(frame or b"" for frame in got) == sorted(wanted), f"got {got}"
    elif verb == ".":
        rest_of_it = await stage.left(link)
        assert rest_of_it == [], f"got {rest_of_it}"
    elif verb == "!":
        if rest and version == 5:
            await _expect(stage, link, f"disconnect {rest}", version)
        frame = await stage.receive(link)
        assert frame is None, f"not closed, but got {frame!r}"
    else:
        await stage.drop(link)


async def _expect(stage: Stage, link: str, wanted: str, version: int) -> None:
    frame = await stage.receive(link)
    assert frame is not None, f"{link} was closed"
    check(frame, wanted, version)


class RawClient(Client):
    """A client of the core driver that keeps frames as they come."""

    def __init__(self, world: World, version: int, peer: Peer) -> None:
        super().__init__(world, world.broker.open(peer, world.now), version)
        self.auto_ack = False
        self.frames: list[bytes] = []
        self._rest = b""
        world.clients[self.connection.number] = self

    def take(self, data: bytes) -> bytes:
        frames, self._rest = cut(self._rest + data)
        self.frames += frames
        return b""


class CoreStage:
    """The core, fed directly."""

    def __init__(
        self, limits: Limits, version: int, capabilities: Capabilities = EVERYTHING, auth_chain: AuthChain | None = None
    ) -> None:
        self._world = World(limits)
        methods = frozenset() if auth_chain is None else auth_chain.methods
        self._peer = Peer(must_authenticate=auth_chain is not None, capabilities=capabilities, methods=methods)
        self._auth_chain = auth_chain
        self._version = version
        self._clients: dict[str, RawClient] = {}

    async def send(self, link: str, data: bytes, *, whole: bool = True) -> None:
        client = self._clients.get(link)
        if client is None or client.closed:
            client = self._clients[link] = RawClient(self._world, self._version, self._peer)
            self._world.settle()
        client.send_bytes(data)
        while self._auth_chain is not None and self._world.questions:
            question = self._world.questions.pop(0)
            self._world.broker.answer(question.id, self._auth_chain.verdict(question), self._world.now)
            self._world.settle()

    async def receive(self, link: str) -> bytes | None:
        client = self._clients[link]
        if client.frames:
            return client.frames.pop(0)
        assert client.closed, "nothing came"
        return None

    async def left(self, link: str) -> list[bytes]:
        frames = self._clients[link].frames
        return [*frames, b"closed"] if self._clients[link].closed else frames

    async def drop(self, link: str) -> None:
        self._clients.pop(link).lose()

    async def wait(self, seconds: float) -> None:
        self._world.advance(seconds)


class Wire(asyncio.Protocol):
    """A socket's end: what came, and whether the other side closed it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.frames: list[bytes] = []
        self.closed = False
        self._rest = b""
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        frames, self._rest = cut(self._rest + data)
        self.frames += frames
        self._news.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._news.set()

    async def news(self) -> None:
        """Wait for a frame or the end, whichever comes next."""
        self._news.clear()
        await asyncio.wait_for(self._news.wait(), PATIENCE_S)

    async def catch_up(self, *, pinged: bool = False) -> None:
        """Read until the answer to a PINGREQ, or until the broker closes. `pinged`: the script has sent one itself."""
        if self.closed:
            return
        before = self.frames.count(PINGRESP)
        if not pinged:
            self.transport.write(PINGREQ)
        while not self.closed and self.frames.count(PINGRESP) == before:
            await self.news()
        if not pinged and self.frames.count(PINGRESP) > before:
            self.frames.remove(PINGRESP)


class SocketStage:
    """A broker in process, and a socket for each link.

    What a step causes has happened when the step is over: a PINGREQ goes behind the bytes, and its answer comes behind
    theirs. Not behind a CONNECT or AUTH where somebody is asked: there it would not be welcome, and an answer comes.
    """

    def __init__(self, port: int, *, gated: bool = False) -> None:
        self._port = port
        self._gated = gated
        self._links: dict[str, Wire] = {}

    async def send(self, link: str, data: bytes, *, whole: bool = True) -> None:
        wire = self._links.get(link)
        if wire is None or wire.closed:
            wire = self._links[link] = await self._open()
        wire.transport.write(data)
        if self._gated and data[0] in (CONNECT, AUTH):
            await wire.news()
        elif whole:
            await wire.catch_up(pinged=data.endswith(PINGREQ))

    async def receive(self, link: str) -> bytes | None:
        wire = self._links[link]
        if not wire.frames:
            await wire.catch_up()
        if wire.frames:
            return wire.frames.pop(0)
        assert wire.closed, "nothing came"
        return None

    async def left(self, link: str) -> list[bytes]:
        wire = self._links[link]
        await wire.catch_up()
        return [*wire.frames, b"closed"] if wire.closed else wire.frames

    async def drop(self, link: str) -> None:
        """Close a socket, and see by another that the broker has come to it."""
        self._links.pop(link).transport.close()
        tracer = await self._open()
        tracer.transport.write(on_the_wire('10 ~ "MQTT" 04 c2 0000 "tracer" "u" "p"', 4))
        await tracer.catch_up()
        tracer.transport.write(b"\xe0\x00")
        tracer.transport.close()

    async def wait(self, seconds: float) -> None:
        raise AssertionError("time passes on the core only")

    async def end(self) -> None:
        for wire in self._links.values():
            wire.transport.abort()

    async def _open(self) -> Wire:
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(Wire, "127.0.0.1", self._port)
        return wire


def on_the_core(row: Row, version: int) -> None:
    """The core waits for nothing, and so needs no loop."""
    playing = play(row, version, CoreStage(row.limits, version, row.capabilities, AuthChain() if row.gated else None))
    try:
        playing.send(None)
    except StopIteration:
        return
    raise AssertionError("the core waits for something")


async def over_a_socket(row: Row, version: int) -> None:
    """A whole broker, and a socket for each link."""
    config = Config(listeners=(ListenerOptions(port=0, capabilities=row.capabilities),), limits=row.limits)
    auth_chain = AuthChain() if row.gated else None
    async with Broker(config, authenticator=auth_chain, method_authenticator=auth_chain) as broker:
        stage = SocketStage(broker.port, gated=row.gated)
        try:
            await play(row, version, stage)
        finally:
            await stage.end()
