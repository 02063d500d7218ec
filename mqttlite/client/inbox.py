"""Messages that arrived and wait for the program, and how the program takes them: `async for`.

When to stop reading the socket is the connection's question; here is only the answer. Invariant: nothing is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from mqttlite.client.errors import MqttError
from mqttlite.client.message import Message

MAX_QUEUED_MESSAGES: Final = 10_000
"""Enough to ride out a second of a busy subscription; at 100 bytes each it is a few megabytes."""


@final
class Inbox:
    """An async iterator over messages. It ends when the client is closed, and raises when the connection is lost
    for good; what arrived before comes first.
    """

    def __init__(self, limit: int, on_room: Callable[[], None]) -> None:
        self.limit: Final = limit
        self._on_room: Final = on_room
        self._low: Final = limit // 2
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._error: MqttError | None = None
        self._wants_room = False

    def __len__(self) -> int:
        return len(self._messages)

    def is_full(self, *, awaiting_answer: bool) -> bool:
        """Whether the next message must wait.

        An answer that the program awaits may stand behind messages on the wire. The program may await it in the very
        loop that takes the messages, so then twice as many may queue before the answer, too, must wait.
        """
        limit = self.limit * 2 if awaiting_answer else self.limit
        self._wants_room = len(self._messages) >= limit
        return self._wants_room

    def put(self, message: Message) -> None:
        self._messages.append(message)
        if not self._arrived.is_set():
            self._arrived.set()

    def end(self, error: MqttError | None) -> None:
        """No more will come; the first end counts."""
        if not self._ended:
            self._ended, self._error = True, error
            self._arrived.set()

    def __aiter__(self) -> "Inbox":
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        if self._wants_room and len(self._messages) <= self._low:
            self._wants_room = False
            self._on_room()
        return message
