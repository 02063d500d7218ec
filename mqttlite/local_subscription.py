"""Subscriptions of the program that embeds the broker: `Broker.subscribe` makes a `LocalSubscription`.

Each is a client of the core on a `LocalLink`, with the same limits, back-pressure and telemetry as any client.
Invariant: a QoS 1 or 2 message is acknowledged only after the program has handled it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeAlias

from mqttlite.client.errors import SubscribeRefused
from mqttlite.client.message import Message
from mqttlite.core.broker import Broker as Core
from mqttlite.core.reasons import NACKED, CloseReason
from mqttlite.net.link import LinkDriver
from mqttlite.net.local_link import LocalLink
from mqttlite.topics.names import check_filter
from mqttlite.topics.namespaces import parse_filter
from mqttlite.wire.constants import MAX_STRING_BYTES, PUBACK, PUBCOMP, PUBREC, PUBREL
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.reason_codes import SUBACK_FAILURE

Callback: TypeAlias = Callable[[Message], Awaitable[None] | None]

MESSAGES_AT_ONCE: Final = 64
"""How many messages a program gets before other tasks run, if it does not await anything: less than a millisecond."""

_UNSPECIFIED_ERROR: Final = 0x80
_THE_PROGRAM_LEFT: Final = (CloseReason.CLIENT_DISCONNECTED, CloseReason.SERVER_SHUTDOWN)

_log = logging.getLogger("mqttlite")


class LocalSubscription:
    """One subscription of the program: an async iterator of its messages, or with a callback the task that calls it.

    The iterator acknowledges a message when the next one is asked for. It ends after `unsubscribe` and when the broker
    stops; it raises `ConnectionAbortedError` if the broker closes the connection for another reason.
    """

    def __init__(
        self,
        core: Core,
        loop_driver: LinkDriver,
        topic_filter: str,
        qos: int,
        receive_maximum: int,
        where: str | None = None,
    ) -> None:
        name = topic_filter.encode()
        if len(name) > MAX_STRING_BYTES or b"\0" in name:
            raise TopicFilterInvalid("a topic filter has at most 65535 bytes, and no U+0000 [MQTT-4.7.3-2]")
        check_filter(name)
        refusal = parse_filter(name).filter_refusal
        if refusal:
            raise TopicFilterInvalid(refusal)
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS is {qos}: it may be 0, 1 or 2")
        if not 1 <= receive_maximum <= 65_535:
            raise ValueError(f"receive_maximum is {receive_maximum}: 1 to 65535")
        self.topic_filter: Final = topic_filter
        self.nacked: int = 0
        """Messages whose callback raised an exception."""
        self._unacknowledged: Publish | None = None
        self._readable: Final = asyncio.Event()
        self._since_pause = 0
        self._link: Final = LocalLink(core, loop_driver, self._readable.set)
        self._link.connect(receive_maximum)
        answer = self._link.subscribe(name, qos, where)
        code = answer.reason_codes[0]
        if code >= SUBACK_FAILURE:
            self._link.leave()
            raise SubscribeRefused({topic_filter: code}, (code,), answer.properties.reason_string or "")

    @property
    def client_id(self) -> str:
        """The client identifier under which metrics, telemetry and `mqttlite why` know it; the broker assigned it."""
        return self._link.connection.client_id

    def unsubscribe(self) -> None:
        """End the subscription. Messages that the program has not handled are dropped; a second call is harmless."""
        self._unacknowledged = None
        self._link.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unsubscribe()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._acknowledge()
        packet = await self._next()
        if packet is None:
            connection = self._link.connection
            if connection.close_reason not in _THE_PROGRAM_LEFT:
                raise ConnectionAbortedError(f"{connection.close_reason}: {connection.close_detail}")
            raise StopAsyncIteration
        self._unacknowledged = packet
        return _message(packet)

    async def call(self, callback: Callback) -> None:
        """Call back for each message until the subscription ends. An exception refuses the message, and is logged."""
        while (packet := await self._next()) is not None:
            self._unacknowledged = packet
            try:
                result = callback(_message(packet))
                if inspect.isawaitable(result):
                    await result
            except Exception:
                _log.exception("subscription to %r: the callback failed", self.topic_filter)
                self._refuse()
            else:
                self._acknowledge()

    async def _next(self) -> Publish | None:
        """The next message; None after the end of the subscription."""
        while True:
            packet = self._link.receive()
            if isinstance(packet, Publish):
                self._since_pause += 1
                if self._since_pause >= MESSAGES_AT_ONCE:
                    self._since_pause = 0
                    await asyncio.sleep(0)
                return packet
            if isinstance(packet, Ack) and packet.packet_type == PUBREL:
                self._link.send(Ack(PUBCOMP, packet.packet_id))
            elif packet is None:
                if self._link.gone:
                    return None
                self._readable.clear()
                self._since_pause = 0
                await self._readable.wait()

    def _acknowledge(self, reason_code: int = 0) -> None:
        packet, self._unacknowledged = self._unacknowledged, None
        if packet is not None and packet.qos:
            self._link.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id, reason_code))

    def _refuse(self) -> None:
        packet, session = self._unacknowledged, self._link.connection.session
        self.nacked += 1
        if packet is not None and packet.qos == 0 and session is not None:  # otherwise PUBACK or PUBREC rejects it
            session.drop(NACKED, 1, packet.topic)
        self._acknowledge(_UNSPECIFIED_ERROR)


class LocalSubscriptions:
    """The tasks that call the callbacks of one broker."""

    def __init__(self) -> None:
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def begin(self, subscription: LocalSubscription, callback: Callback | None) -> LocalSubscription:
        """Start to call the callback for its messages, if there is one."""
        if callback is not None:
            task = asyncio.get_running_loop().create_task(subscription.call(callback))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return subscription

    async def emptied(self) -> None:
        """Wait until the callbacks have returned, after the end of their subscriptions."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def abort(self) -> None:
        """Cancel the callbacks that have not returned."""
        for task in self._tasks:
            task.cancel()
        await self.emptied()


def _message(packet: Publish) -> Message:
    return Message(packet.topic.decode(), packet.payload, packet.qos, packet.retain, False, 0, packet.properties)
