"""Subscriptions of the program that embeds the broker: `Broker.subscribe` makes a `LocalSubscription`.

Each is a client of the core with a `LocalSession`, and the same limits, back-pressure and telemetry as any client.
Invariant: a QoS 1 or 2 message is acknowledged only after the program has handled it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from mqttlite.client.errors import SubscribeRefused
from mqttlite.client.message import Message
from mqttlite.core.broker import Broker as Core
from mqttlite.core.reasons import CloseReason
from mqttlite.net.link import LinkDriver
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession, encoded_filter
from mqttlite.topics.namespaces import split_share
from mqttlite.wire.constants import NEVER_EXPIRES
from mqttlite.wire.packets import Publish, SubscriptionRequest
from mqttlite.wire.reason_codes import SUBACK_FAILURE

Callback: TypeAlias = Callable[[Message], Awaitable[None] | None]

MESSAGES_AT_ONCE: Final = 64
"""How many messages a program gets before other tasks run, if it does not await anything: less than a millisecond."""

_THE_PROGRAM_LEFT: Final = (CloseReason.CLIENT_DISCONNECTED, CloseReason.SERVER_SHUTDOWN)

_log = logging.getLogger("mqttlite")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """What `Broker.subscribe` takes beside a topic filter and a callback. Raises `ValueError` for what cannot be."""

    qos: int = 0
    receive_maximum: int = 100
    where: str | None = None
    client_id: str = ""
    session_expiry_s: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0

    def __post_init__(self) -> None:
        if self.qos not in (0, 1, 2):
            raise ValueError(f"QoS is {self.qos}: it may be 0, 1 or 2")
        if not 1 <= self.receive_maximum <= 65_535:
            raise ValueError(f"receive_maximum is {self.receive_maximum}: 1 to 65535")
        if not 0 <= self.session_expiry_s <= NEVER_EXPIRES:
            raise ValueError(f"session_expiry_s is {self.session_expiry_s}: 0 to {NEVER_EXPIRES}, which is for ever")
        if self.session_expiry_s and not self.client_id:
            raise ValueError("session_expiry_s needs a client_id, by which the program finds the session again")
        if self.retain_handling not in (0, 1, 2):
            raise ValueError(f"retain_handling is {self.retain_handling}: it may be 0, 1 or 2")


class LocalSubscription:
    """One subscription of the program: an async iterator of its messages, or with a callback the task that calls it.

    The iterator acknowledges a message when the next one is asked for. It ends after `unsubscribe` or `close` and when
    the broker stops; it raises `ConnectionAbortedError` if the broker closes the connection for another reason.
    """

    def __init__(self, core: Core, loop_driver: LinkDriver, topic_filter: str, options: SubscribeOptions) -> None:
        name = encoded_filter(topic_filter, core.namespaces)
        if options.no_local and split_share(name)[0]:
            raise ValueError("no_local is not for a shared subscription [MQTT-3.8.3-4]")
        self.topic_filter: Final = topic_filter
        self.nacked: int = 0
        """Messages whose callback raised an exception."""
        self._unacknowledged: Publish | None = None
        self._readable: Final = asyncio.Event()
        self._since_pause = 0
        self._session: Final = LocalSession(core, loop_driver, self._readable.set)
        client = LocalClient(
            client_id=options.client_id,
            clean_start=not options.session_expiry_s,
            session_expiry_s=options.session_expiry_s,
            is_trusted=True,
        )
        self._session.connect(client, options.receive_maximum)
        former = [each for each in self._session.filters if each != name]
        request = SubscriptionRequest(
            name, options.qos, options.no_local, options.retain_as_published, options.retain_handling
        )
        try:
            answer = self._session.subscribe_at_once(request, options.where)
        except ValueError:  # `where` is no MQTT string
            self._give_up()
            raise
        code = answer.reason_codes[0]
        if code >= SUBACK_FAILURE:
            self._give_up()
            raise SubscribeRefused({topic_filter: code}, (code,), answer.properties.reason_string or "")
        if former:
            self._session.unsubscribe(former)

    def _give_up(self) -> None:
        """There is no subscription: end the session, unless it was there before."""
        if self._session.session_present:
            self._session.end()
        else:
            self._session.leave()

    @property
    def client_id(self) -> str:
        """The client identifier under which metrics, telemetry and `mqttlite why` know it. If the program gave none,
        the broker assigned it."""
        return self._session.client_id

    @property
    def session_present(self) -> bool:
        """Whether it goes on with a session that the broker had kept."""
        return self._session.session_present

    def unsubscribe(self) -> None:
        """End the subscription, and its session if that is kept. Messages that the program has not handled are dropped;
        a second call is harmless."""
        self._unacknowledged = None
        self._session.leave()

    def close(self) -> None:
        """Stop to receive. A kept session waits for the next `subscribe` with its client identifier, with the messages
        that the program has not handled; without one this is `unsubscribe`. A second call is harmless."""
        self._unacknowledged = None
        self._session.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._acknowledge()
        packet = await self._next()
        if packet is None:
            connection = self._session.link.connection
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
        session = self._session
        while True:
            packet = session.receive()
            if isinstance(packet, Publish):
                if packet.qos and session.is_over and session.is_durable:
                    continue  # it can no longer be acknowledged, and so it comes again
                self._since_pause += 1
                if self._since_pause >= MESSAGES_AT_ONCE:
                    self._since_pause = 0
                    await asyncio.sleep(0)
                return packet
            if packet is None:
                if session.is_over:
                    return None
                self._readable.clear()
                self._since_pause = 0
                await self._readable.wait()

    def _acknowledge(self) -> None:
        packet, self._unacknowledged = self._unacknowledged, None
        if packet is not None:
            self._session.acknowledge(packet)

    def _refuse(self) -> None:
        packet, self._unacknowledged = self._unacknowledged, None
        self.nacked += 1
        if packet is not None:
            self._session.refuse(packet)


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
    return Message(packet.topic.decode(), packet.payload, packet.qos, packet.retain, packet.dup, 0, packet.properties)
