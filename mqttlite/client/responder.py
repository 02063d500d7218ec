"""Answering requests: `@client.responder("calc/+")` has a function called for each, and its result published.

How a client asks is in `requests`. Invariants: a request of QoS 1 or 2 is acknowledged once the server has its answer;
while `concurrency` requests are being answered and as many wait as the client queues, the socket is not read.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, final

from mqttlite.client.errors import ClientClosed, MqttError, RequestFailed
from mqttlite.client.inbox import Inbox
from mqttlite.client.inflight import Outgoing
from mqttlite.client.message import Message, PublishOutcome, payload_bytes
from mqttlite.client.queue_handlers import MAX_CONCURRENCY, is_async
from mqttlite.client.requests import ERROR, Publisher
from mqttlite.client.session import Session
from mqttlite.client.topics import check_filter, check_name
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.properties import NONE, Properties

CONCURRENCY: Final = 100
"""Requests that a responder answers at a time unless told otherwise."""

Handler: TypeAlias = Callable[[Message], Any]
"""Takes a request and returns the payload of the answer. A coroutine function, or one that may block, which runs in a
thread."""

ReplyTo: TypeAlias = Callable[[Message], str]
"""Names the topic for the answer to a request that names none."""

_log: Final = logging.getLogger("mqttlite.client")


@final
class Responder:
    """One handler and the requests for it."""

    def __init__(
        self,
        client: Publisher,
        session: Session,
        inbox: Inbox,
        topic_filter: str,
        handler: Handler,
        qos: int,
        concurrency: int,
        reply_to: ReplyTo | None,
        version: int,
    ) -> None:
        check_filter(topic_filter)
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency is {concurrency}: it may be 1 to {MAX_CONCURRENCY}")
        self.inbox: Final = inbox
        self.topic_filter: Final = topic_filter
        self.qos: Final = qos
        self._client: Final = client
        self._session: Final = session
        self._handler: Final = handler
        self._concurrency: Final = concurrency
        self._reply_to: Final = reply_to
        self._version: Final = version
        self._threads: Final = (
            None if is_async(handler) else ThreadPoolExecutor(concurrency, f"responder-{topic_filter}")
        )
        self._running: Final[set[asyncio.Task[None]]] = set()
        self._taking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Answer what comes."""
        self._taking = asyncio.create_task(self._take())

    async def stop(self) -> None:
        """Answer no more. Requests that are being answered are cancelled; a server that kept the session sends those of
        QoS 1 and 2 again."""
        tasks = [*self._running, *([] if self._taking is None else [self._taking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _take(self) -> None:
        room = asyncio.Semaphore(self._concurrency)

        def on_done(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            room.release()

        while True:
            await room.acquire()
            try:
                request = await anext(self.inbox)
            except (StopAsyncIteration, MqttError):  # whoever asks the client hears why
                return
            task = asyncio.create_task(self._answer(request))
            self._running.add(task)
            task.add_done_callback(on_done)

    async def _answer(self, request: Message) -> None:
        """Call the handler and publish what it returns, or that it failed."""
        try:
            payload, error = payload_bytes(await self._call(request)), ""
        except RequestFailed as failure:
            payload, error = b"", str(failure)
        except Exception:
            _log.exception("A request at %s was not answered", request.topic)
            payload, error = b"", "the responder failed"
        answered = _Answered(request)
        try:
            await self._publish(request, payload, error, answered)
        except Exception as failure:  # of `reply_to`, too
            answered.set_exception(failure)

    async def _call(self, request: Message) -> Any:
        if self._threads is None:
            return await self._handler(request)
        result = await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, request)
        return await result if inspect.isawaitable(result) else result

    async def _publish(self, request: Message, payload: bytes, error: str, answered: "_Answered") -> None:
        given = request.properties
        topic = given.response_topic or (self._reply_to(request) if self._reply_to is not None else "")
        properties = NONE
        if topic and self._version == V5:
            told = [(ERROR, error)] if error else []
            properties = Properties(correlation_data=given.correlation_data, user_properties=told)
        elif topic and error:
            _log.warning("A request at %s has no answer, for with 3.1.1 none can say: %s", request.topic, error)
            topic = ""
        if not topic:
            request.ack()
        elif request.qos == 0:
            await self._client.publish(topic, payload, 0, properties=properties)
        else:
            # Room in the client's window may be behind requests that are not read: it is not waited for. Requests
            # without an acknowledgement are bounded, and so are their answers.
            head, tail = publish_parts(check_name(topic), payload, request.qos, False, properties, self._version)
            outgoing = Outgoing(topic, head, tail, request.qos, False, answered, holds_room=False)
            self._session.window.place(outgoing)


@final
class _Answered:
    """As `Waiter`: a request whose answer is at the server is acknowledged."""

    def __init__(self, request: Message) -> None:
        self._request: Final = request

    def done(self) -> bool:
        return False

    def set_result(self, result: PublishOutcome, /) -> None:
        self._request.ack()

    def set_exception(self, error: Exception, /) -> None:
        if not isinstance(error, ClientClosed):
            _log.warning("The answer to a request at %s was not sent: %s", self._request.topic, error)
            self._request.ack()
