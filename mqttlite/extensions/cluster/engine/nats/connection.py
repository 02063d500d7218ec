"""One connection to whichever NATS server answers, made again for ever.

nats-py moves the bytes of one connection. It neither reconnects nor keeps what could not be sent: a request that was
under way when its connection broke fails at once with `EngineUnavailable`, and nothing is sent again behind our back.
All answers come to one inbox; a token in their subject says whose they are.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from typing import Final, TypeAlias, TypeVar, final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from mqttlite.extensions.cluster.engine.nats.servers import NatsLogin, NatsOptions
from mqttlite.extensions.cluster.engine.port import EngineUnavailable, EngineUnfit
from mqttlite.extensions.cluster.options import shown

T = TypeVar("T")

Receiver: TypeAlias = Callable[[Msg | None], None]
"""Gets each message to one reply subject; None when the connection is lost, after which nothing comes any more."""

logger: Final = logging.getLogger("mqttlite.cluster")

CONNECT_TIMEOUT_S: Final = 2.0
"""A server that does not answer for so long is passed over: the next one may."""

RECONNECT_S: Final = 0.1
"""The pause after each server has been tried. A planned restart of one server costs no more than this."""

PING_S: Final = 1.0
PING_TIMEOUT_S: Final = 2.0
"""A server that is stopped or cut off closes nothing. After a ping without answer we go to another one."""

ANSWER_TIMEOUT_S: Final = 3.0
"""How long a request waits. Longer than a busy disk; after a leader's death requests are asked again anyway."""

CLOSE_TIMEOUT_S: Final = 1.0

TOO_MANY: Final = 0
"""nats-py drops messages at a limit of bytes; ours are bounded by what we ask for. 0 switches the limit off."""


class ApiError(Exception):
    """JetStream refused a request."""

    def __init__(self, failure: "ApiFailure") -> None:
        super().__init__(failure.description)
        self.code: int = failure.code
        self.number: int = failure.err_code


class ApiFailure(msgspec.Struct):
    """The `error` of an answer. `err_code` is JetStream's own number of it."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Refusal(msgspec.Struct):
    error: ApiFailure | None = None


class Ack(msgspec.Struct):
    """JetStream has stored a message."""

    seq: int


NUMBERS_OF_UNAVAILABLE: Final = frozenset({10008, 10009, 10118})
"""The system, the consumer's or the stream's leader is not there at the moment."""


@final
class NatsConnection:
    """One connection at a time, to the next server that answers."""

    def __init__(self, options: NatsOptions, login: NatsLogin) -> None:
        self._options = options
        self._login = login
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._is_closed = False
        self._receivers: dict[str, Receiver] = {}
        self._tokens = count()
        self._inbox = ""
        self._keeper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._last_error = "no server was asked yet"
        self._is_refused = False
        self._tried = asyncio.Event()
        self._broken: asyncio.Event | None = None
        """Of the present connection."""

    @property
    def is_connected(self) -> bool:
        return self._client is not None

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def open(self) -> None:
        """Connect to one of the servers, and stay connected. A login that is refused raises `EngineUnfit`."""
        self._keeper = asyncio.create_task(self._keep_connected(), name="connection to the engine")
        await self._tried.wait()
        if self._client is None:
            if self._is_refused:
                raise EngineUnfit(f"the NATS servers refuse our login ({self._last_error}): correct user and password")
            raise self.unavailable(self._last_error)

    def use_another(self) -> None:
        """Give up the present connection: the next one is to the server behind it in the list."""
        if self._broken is not None:
            self._broken.set()

    async def wait_connected(self) -> bool:
        """Wait for a connection. False if this one is closed."""
        await self._connected.wait()
        return not self._is_closed

    async def close(self) -> None:
        """End the connection and everything that waits for it."""
        self._is_closed = True
        while self._keeper is not None and not self._keeper.done():
            self._keeper.cancel()
            await asyncio.wait({self._keeper}, timeout=CLOSE_TIMEOUT_S)
        self._lose()
        self._connected.set()
        if self._closing:
            await asyncio.wait(self._closing)

    async def ask(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Msg:
        """Send a request and return its answer. Requests leave in the order of the calls."""
        answer: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()

        def receive(message: Msg | None) -> None:
            if not answer.done():
                answer.set_result(message)

        with self.receiving(receive) as reply:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.send(subject, payload, reply, headers)
                    message = await answer
            except TimeoutError:
                raise self.unavailable(f"no answer within {timeout_s:g} s") from None
        if message is None:
            raise self.unavailable("the connection was lost before the answer came")
        if status_of(message) == 503 and not message.data:
            raise self.unavailable("no server leads the log at the moment")
        return message

    async def ask_api(self, verb: str, request: object, answer: type[T]) -> T:
        """Ask JetStream's API."""
        message = await self.ask(f"$JS.API.{verb}", msgspec.json.encode(request))
        return self._decode(message, answer)

    async def store(self, subject: str, payload: bytes, headers: dict[str, str]) -> int:
        """Store a message in the stream of this subject, and return its sequence there."""
        return self._decode(await self.ask(subject, payload, headers), Ack).seq

    async def send(self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None = None) -> None:
        """Send a message."""
        if self._client is None:
            raise self.unavailable("no server is connected")
        try:
            await self._client.publish(subject, payload, reply, headers)
        except NatsError as error:
            raise self.unavailable(str(error)) from error

    @contextmanager
    def receiving(self, receiver: Receiver) -> Generator[str, None, None]:
        """Give a reply subject whose messages go to the receiver."""
        token = f"{next(self._tokens):x}"
        self._receivers[token] = receiver
        try:
            yield f"{self._inbox}.{token}"
        finally:
            self._receivers.pop(token, None)

    @asynccontextmanager
    async def subscribed(self, receiver: Receiver) -> AsyncIterator[str]:
        """As `receiving`, for messages that keep their own subject: they need a subscription of their own."""

        async def receive(message: Msg) -> None:
            receiver(message)

        client = self._client
        if client is None:
            raise self.unavailable("no server is connected")
        with self.receiving(receiver):  # to learn that the connection is lost
            inbox = client.new_inbox()
            try:
                subscription = await client.subscribe(inbox, cb=receive, pending_bytes_limit=TOO_MANY)
            except NatsError as error:
                raise self.unavailable(str(error)) from error
            try:
                yield inbox
            finally:
                with suppress(NatsError):
                    await subscription.unsubscribe()

    def unavailable(self, reason: str) -> EngineUnavailable:
        """The error for a request without answer."""
        return EngineUnavailable(f"the engine is not available: {reason}")

    def _decode(self, message: Msg, answer: type[T]) -> T:
        failure = msgspec.json.decode(message.data, type=_Refusal).error
        if failure is None:
            return msgspec.json.decode(message.data, type=answer)
        if failure.err_code in NUMBERS_OF_UNAVAILABLE:
            raise self.unavailable(failure.description)
        raise ApiError(failure)

    async def _keep_connected(self) -> None:
        while not self._is_ending():
            self._is_refused = False
            for url in self._options.servers:
                broken = self._broken = asyncio.Event()
                try:
                    client = await connect_to(self._options, self._login, url, broken)
                    try:
                        await self._use(client, broken)
                    finally:
                        self._lose()
                        self._close_later(client)
                except Exception as error:  # whatever nats-py raises: without this task nothing would ever connect
                    self._last_error = f"{shown(url)}: {str(error) or type(error).__name__}"
                    self._is_refused |= "authorization" in self._last_error.lower()
                    logger.debug("no connection to the engine at %s", self._last_error)
            self._tried.set()
            await asyncio.sleep(RECONNECT_S)

    async def _use(self, client: Client, broken: asyncio.Event) -> None:
        """Use a connection until it breaks. A server that does not answer a ping raises."""
        inbox = client.new_inbox()
        await client.subscribe(f"{inbox}.*", cb=self._receive, pending_bytes_limit=TOO_MANY)
        await client.flush(PING_TIMEOUT_S)  # type: ignore[arg-type]
        self._inbox = inbox
        self._client = client
        self._connected.set()
        self._tried.set()
        while not broken.is_set() and not self._is_ending():
            try:
                async with asyncio.timeout(PING_S):
                    await broken.wait()
            except TimeoutError:
                await client.flush(PING_TIMEOUT_S)  # type: ignore[arg-type]

    def _is_ending(self) -> bool:
        """Whether this task was cancelled. nats-py swallows a cancellation at some places, so we look ourselves."""
        task = asyncio.current_task()
        return self._is_closed or (task is not None and task.cancelling() > 0)

    async def _receive(self, message: Msg) -> None:
        receiver = self._receivers.get(message.subject.rpartition(".")[2])
        if receiver is not None:
            receiver(message)

    def _lose(self) -> None:
        self._client = None
        self._connected.clear()
        receivers = list(self._receivers.values())
        self._receivers.clear()
        for receiver in receivers:
            receiver(None)

    def _close_later(self, client: Client) -> None:
        """Close what is left of a connection. It may hang at a server that is stopped, so nobody waits for it."""
        closing = asyncio.create_task(close(client))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def status_of(message: Msg) -> int:
    """The status that a message without content has in its headers; 0 for an ordinary message."""
    return int((message.headers or {}).get("Status", "0"))


async def connect_to(options: NatsOptions, login: NatsLogin, url: str, broken: asyncio.Event) -> Client:
    """Connect to one server; `broken` is set when the connection is lost."""

    async def lost() -> None:
        broken.set()

    async def note(error: Exception) -> None:
        logger.debug("connection to the engine: %s", error)

    client = Client()
    try:
        async with asyncio.timeout(2 * CONNECT_TIMEOUT_S):
            await client.connect(
                servers=[url],
                name=f"mqttlite {options.cluster}",
                allow_reconnect=False,
                connect_timeout=CONNECT_TIMEOUT_S,  # type: ignore[arg-type]
                reconnect_time_wait=0,
                max_reconnect_attempts=1,
                pending_size=0,  # keep nothing that cannot be sent, and never wait until it can
                disconnected_cb=lost,
                closed_cb=lost,
                error_cb=note,
                tls=options.tls,
                user=login.user or None,
                password=login.password or None,
                token=login.token or None,
                user_credentials=str(login.credentials) if login.credentials else None,
            )
    except BaseException:
        await close(client)
        raise
    return client


async def connect(options: NatsOptions, login: NatsLogin) -> NatsConnection:
    """Open a connection. It raises as `NatsConnection.open` does."""
    connection = NatsConnection(options, login)
    try:
        await connection.open()
    except BaseException:
        await connection.close()
        raise
    return connection


async def close(client: Client) -> None:
    with suppress(TimeoutError, NatsError, OSError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await client.close()
