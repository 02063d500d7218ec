"""The subscription of a queue or stream that a program reads: made at the first message that the program asks for.

Invariant: there is one SUBSCRIBE at a time, and another one only after the former has failed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, final

from mqttlite.client.errors import AnswerTimeout, ClientClosed, MqttError
from mqttlite.client.session import Reader, Session
from mqttlite.client.topics import check_filter
from mqttlite.wire.properties import Properties

_log: Final = logging.getLogger("mqttlite.client")


class Subscriber(Protocol):
    """The part of `Client` that subscribes."""

    @property
    def connack_properties(self) -> Properties: ...
    async def subscribe(
        self, topic: str, qos: int = 0, *, where: str | None = None, properties: Properties | None = None
    ) -> tuple[int, ...]: ...


@final
class Opening:
    """Its messages go to `reader`. `is_over` says that the program wants no more of them: then it does not subscribe.
    Raises `ValueError` for an invalid topic filter."""

    def __init__(
        self,
        client: Subscriber,
        session: Session,
        reader: Reader,
        topic_filter: str,
        user_properties: list[tuple[str, str]],
        is_over: Callable[[], bool],
        where: str | None = None,
    ) -> None:
        check_filter(topic_filter)
        self._client: Final = client
        self._session: Final = session
        self._reader: Final = reader
        self._topic_filter: Final = topic_filter
        self._user_properties: Final = user_properties
        self._is_over: Final = is_over
        self._where: Final = where
        self._subscribing: asyncio.Future[None] | None = None
        """None: it was not tried, or failed."""
        self._has_asked = False

    @property
    def has_begun(self) -> bool:
        """Whether it has subscribed, or tries to."""
        return self._subscribing is not None

    async def open(self) -> None:
        """Subscribe, unless that is done, or the program closed the client meanwhile: then reading ends. Raises as
        `Client.subscribe` does. Who is cancelled here leaves it to who comes next."""
        if self._subscribing is None:
            self._subscribing = asyncio.ensure_future(self._subscribe())
        try:
            await asyncio.shield(self._subscribing)
        except ClientClosed:
            self._subscribing = None
            if not self._is_over():
                raise  # the client was not connected yet
        except BaseException:
            if self._subscribing.done():
                self._subscribing = None  # it failed, and may be tried again
            raise

    def leave(self) -> None:
        """Unsubscribe, and give up an attempt to subscribe."""
        if self._subscribing is not None and not self._subscribing.done():
            self._subscribing.cancel()
        if self._has_asked:
            self._unsubscribe()

    async def _subscribe(self) -> None:
        if self._is_over():
            return
        if self._client.connack_properties.subscription_identifier_available == 0:
            raise MqttError("The server has no subscription identifiers, which say whose a message is.")
        identifier = self._session.read_with(self._reader, self._topic_filter.encode())
        self._has_asked = True
        properties = Properties(subscription_identifiers=[identifier], user_properties=self._user_properties)
        try:
            await self._client.subscribe(self._topic_filter, 1, where=self._where, properties=properties)
        except AnswerTimeout:
            self._unsubscribe()  # it may have been granted
            raise

    def _unsubscribe(self) -> None:
        try:
            self._session.leave(self._reader)
        except MqttError as error:  # all packet identifiers are in use
            _log.warning("%s was not unsubscribed: %s", self._topic_filter, error)
