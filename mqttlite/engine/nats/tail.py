"""Reads a stream from a sequence on, for ever: what is there, then what comes.

It reads with a consumer that one server keeps in memory for it, in requests of bounded size. Whenever something is odd
— the connection or that server is lost, a message is missing, nothing is heard — it makes a new consumer that begins
after the last message that it yielded. So there is neither a gap nor a repetition.

To make a consumer takes the leader of all servers. While there is none, some seconds after its server is lost, the
stream is read without one.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, final

import msgspec
from nats.aio.msg import Msg

from mqttlite.engine.nats.connection import ApiError, NatsConnection, status_of
from mqttlite.engine.port import MAX_READ_BYTES, EngineUnavailable

BATCH: Final = 256
"""Messages of one request, of at most `MAX_READ_BYTES` together."""

REQUEST_S: Final = 10.0
"""A request without messages ends after this time, and is made again."""

HEARTBEAT_S: Final = 1.0
SILENCE_S: Final = 2.5
"""After more than two missed heartbeats the consumer is given up."""

PATIENCE_S: Final = 0.2
"""How long a new consumer may take before the stream is read without one, again and again."""

PAUSE_S: Final = 0.1
"""Before the next consumer."""

FORGET_S: Final = 30
"""The server forgets a consumer that nobody asks, after so many seconds."""

NANOSECONDS: Final = 1_000_000_000


REQUEST: Final = msgspec.json.encode(
    {
        "batch": BATCH,
        "max_bytes": MAX_READ_BYTES,
        "expires": int(REQUEST_S * NANOSECONDS),
        "idle_heartbeat": int(HEARTBEAT_S * NANOSECONDS),
    }
)

HEARTBEAT: Final = 100
"""The status of a message that says that the consumer is there and has nothing new."""


class TailMessage(NamedTuple):
    """One message of a stream. `pending` is the number of messages after it."""

    sequence: int
    subject: str
    headers: dict[str, str]
    data: bytes
    pending: int


class Waiting(NamedTuple):
    """A new consumer has so many messages to read. It comes before the first message, and after each interruption."""

    pending: int


class _Created(msgspec.Struct):
    name: str
    num_pending: int = 0


@final
class Tail:
    """One reader. `subject` chooses among the stream's messages; with wildcards or without. `read` returns some
    messages from a sequence on, if the stream can be read without a consumer."""

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        subject: str,
        first: int,
        read: Callable[[int], Awaitable[list[TailMessage]]] | None = None,
    ) -> None:
        self._connection = connection
        self._read_directly = read
        self._stream = stream
        self._subject = subject
        self._next = first

    async def messages(self) -> AsyncGenerator[TailMessage | Waiting, None]:
        """Each message in order, once. It ends when the connection is closed."""
        while await self._connection.wait_connected():
            received: asyncio.Queue[Msg | None] = asyncio.Queue()
            creating = asyncio.get_running_loop().create_task(self._create())
            try:
                async for message in self._meanwhile(creating):
                    self._next = message.sequence + 1
                    yield message
                consumer = await creating
                yield Waiting(consumer.num_pending)
                async with self._connection.subscribed(received.put_nowait) as reply:
                    try:
                        async for message in self._read(consumer.name, reply, received):
                            if message.sequence >= self._next:  # others were read before it was there
                                self._next = message.sequence + 1
                                yield message
                    finally:
                        await self._forget(consumer.name)
            except (ApiError, EngineUnavailable):
                pass
            finally:
                creating.cancel()
            if not self._connection.is_closed:
                await asyncio.sleep(PAUSE_S)

    async def _meanwhile(self, creating: "asyncio.Task[_Created]") -> AsyncGenerator[TailMessage, None]:
        """What is there until the consumer is."""
        while self._read_directly is not None:
            await asyncio.wait({creating}, timeout=PATIENCE_S)
            if creating.done():
                return
            for message in await self._read_directly(self._next):
                yield message

    async def _create(self) -> _Created:
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._next,
            "ack_policy": "none",
            "max_deliver": 1,
            "filter_subject": self._subject,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": FORGET_S * NANOSECONDS,
        }
        request = {"stream_name": self._stream, "config": config}
        return await self._connection.ask_api(f"CONSUMER.CREATE.{self._stream}", request, _Created)

    async def _forget(self, consumer: str) -> None:
        """Tell the server to forget the consumer, without waiting for an answer; it would also forget it by itself."""
        with suppress(EngineUnavailable):
            await self._connection.send(f"$JS.API.CONSUMER.DELETE.{self._stream}.{consumer}", b"", "")

    async def _read(
        self, consumer: str, reply: str, received: asyncio.Queue[Msg | None]
    ) -> AsyncGenerator[TailMessage, None]:
        """The messages of one consumer, until something is odd."""
        delivered = 0
        left = 0
        while True:
            if left == 0:
                await self._connection.send(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}", REQUEST, reply)
                left = BATCH
            try:
                async with asyncio.timeout(SILENCE_S):
                    message = await received.get()
            except TimeoutError:
                return
            if message is None:
                return
            status = status_of(message)
            if status == HEARTBEAT:
                continue
            if status:
                if not _is_end_of_request(status, message):
                    return
                left = 0
                continue
            found = message.metadata
            delivered += 1
            if found.sequence.consumer != delivered:
                return
            left -= 1
            yield TailMessage(
                found.sequence.stream, message.subject, message.headers or {}, message.data, found.num_pending
            )


def _is_end_of_request(status: int, message: Msg) -> bool:
    """Whether the consumer stands, and only the request has ended: in time, or because of its limit of bytes."""
    return status in (404, 408) or (message.headers or {}).get("Description", "") in (
        "Message Size Exceeds MaxBytes",
        "Batch Completed",
    )
