"""Requests to the NATS servers, over a `LastingConnection`.

A request that was under way when its connection broke fails at once with `EngineUnavailable`. All answers come to one
inbox; a token in their subject says whose they are.
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

from mqttlite.engine.nats.lasting_connection import PING_TIMEOUT_S, TOO_MANY, LastingConnection
from mqttlite.engine.nats.servers import NatsLogin, NatsOptions
from mqttlite.engine.port import EngineUnavailable, EngineUnfit

T = TypeVar("T")

Receiver: TypeAlias = Callable[[Msg | None], None]
"""Gets each message to one reply subject; None when the connection is lost, after which nothing comes any more."""

logger: Final = logging.getLogger("mqttlite.cluster")

ANSWER_TIMEOUT_S: Final = 3.0
"""How long a request waits. Longer than a busy disk; after a leader's death requests are asked again anyway."""


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
        self._lasting: Final = LastingConnection(options, login, self._begin, self._lose, self._complain)
        self._receivers: dict[str, Receiver] = {}
        self._tokens = count()
        self._inbox = ""
        self._last_error = "no server was asked yet"
        self._is_refused = False

    @property
    def is_connected(self) -> bool:
        return self._lasting.client is not None

    @property
    def is_closed(self) -> bool:
        return self._lasting.is_closed

    async def open(self) -> None:
        """Connect to one of the servers, and stay connected. A login that is refused raises `EngineUnfit`."""
        await self._lasting.open("connection to the engine")
        if self._lasting.client is None:
            if self._is_refused:
                raise EngineUnfit(f"the NATS servers refuse our login ({self._last_error}): correct user and password")
            raise self.unavailable(self._last_error)

    def use_another(self) -> None:
        """Give up the present connection: the next one is to the server behind it in the list."""
        self._lasting.use_another()

    async def wait_connected(self) -> bool:
        """Wait for a connection. False if this one is closed."""
        await self._lasting.connected.wait()
        return not self._lasting.is_closed

    async def close(self) -> None:
        """End the connection and everything that waits for it."""
        await self._lasting.close()
        self._lose()

    async def ask(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> Msg:
        """Send a request and return its answer. Requests leave in the order of the calls."""
        answer: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()

        def receive(message: Msg | None) -> None:
            if not answer.done():
                answer.set_result(message)

        with self.receiving(receive) as reply:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self.send(subject, payload, reply, headers)
                    message = await answer
            except TimeoutError:
                raise self.unavailable(f"no answer within {ANSWER_TIMEOUT_S:g} s") from None
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
        client = self._lasting.client
        if client is None:
            raise self.unavailable("no server is connected")
        try:
            await client.publish(subject, payload, reply, headers)
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

        client = self._lasting.client
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

    async def _begin(self, client: Client) -> None:
        inbox = client.new_inbox()
        await client.subscribe(f"{inbox}.*", cb=self._receive, pending_bytes_limit=TOO_MANY)
        await client.flush(PING_TIMEOUT_S)  # type: ignore[arg-type]
        self._inbox = inbox

    def _complain(self, why: str) -> None:
        self._last_error = why
        self._is_refused |= "authorization" in why.lower()
        logger.debug("no connection to the engine at %s", why)

    async def _receive(self, message: Msg) -> None:
        receiver = self._receivers.get(message.subject.rpartition(".")[2])
        if receiver is not None:
            receiver(message)

    def _lose(self) -> None:
        receivers = list(self._receivers.values())
        self._receivers.clear()
        for receiver in receivers:
            receiver(None)


def status_of(message: Msg) -> int:
    """The status that a message without content has in its headers; 0 for an ordinary message."""
    return int((message.headers or {}).get("Status", "0"))


async def connect(options: NatsOptions, login: NatsLogin) -> NatsConnection:
    """Open a connection. It raises as `NatsConnection.open` does."""
    connection = NatsConnection(options, login)
    try:
        await connection.open()
    except BaseException:
        await connection.close()
        raise
    return connection
