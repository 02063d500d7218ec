"""A table of last values: `async with client.table("prices") as prices`, then `prices["price/copper"].payload`.

It follows a last-value stream of an mqttlite broker. Invariant: what is in it was the newest message of each key at one
time that does not go back; a key whose removal may have been missed is not there.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final, final

from mqttlite.client.errors import MqttError
from mqttlite.client.session import Session
from mqttlite.client.stream import StreamReading, filter_of
from mqttlite.client.stream_feed import StreamClient
from mqttlite.client.stream_message import StreamMessage

MAX_KEYS: Final = 1_000_000
"""The most keys of a table, unless the program gives another number: with small values they take a gigabyte."""


@final
class Table(Mapping[str, StreamMessage]):
    """The newest message of each key of a stream, used once. `async with` subscribes and waits until all is there that
    is in the stream; until its end the table follows. A message with an empty payload removes its key."""

    def __init__(
        self, client: StreamClient, session: Session, stream: str, topic_filter: str, max_keys: int = MAX_KEYS
    ) -> None:
        self.stream: Final = stream
        self._topic_filter: Final = filter_of(stream, topic_filter)
        self._client: Final = client
        self._session: Final = session
        self._max_keys: Final = max_keys
        self._values: dict[str, StreamMessage] = {}
        self._watchers: Final[list[_Watcher]] = []
        self._following: asyncio.Task[None] | None = None
        self._is_loaded: Final = asyncio.Event()
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"Table({self._topic_filter!r}, {len(self._values)} keys)"

    async def __aenter__(self) -> "Table":
        """Read what is in the stream. Raises as `Client.subscribe` does, and `ValueError` if the client reads this
        stream already, or the table was used."""
        if self._following is not None:
            raise ValueError("a table is used once: make another one")
        self._following = asyncio.create_task(self._follow())
        loaded = asyncio.create_task(self._is_loaded.wait())
        try:
            await asyncio.wait((self._following, loaded), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._following.cancel()
            raise
        finally:
            loaded.cancel()
        if self._error is not None:
            raise self._error
        if not self._is_loaded.is_set():
            raise MqttError("The client ended before the table was read.")
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Follow no longer. The values stay as they are."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait((self._following,))

    # ------------------------------------------------------------------ as a mapping

    def __getitem__(self, key: str) -> StreamMessage:
        """The newest message of a key. Raises `KeyError`, and what ended the table if that was an error."""
        if self._error is not None:
            raise self._error
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        if self._error is not None:
            raise self._error
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    async def changes(self) -> AsyncIterator[str]:
        """The keys that change from now on; a removed one is not in the table any more. A key that changes again before
        it was given is given once: who is slow gets the latest values. It ends with the table."""
        watcher = _Watcher()
        self._watchers.append(watcher)
        try:
            while True:
                while watcher.keys:
                    key = next(iter(watcher.keys))
                    del watcher.keys[key]
                    yield key
                if self._following is None or self._following.done():
                    break
                watcher.arrived.clear()
                await watcher.arrived.wait()
        finally:
            self._watchers.remove(watcher)
        if self._error is not None:
            raise self._error

    # ------------------------------------------------------------------ inside

    async def _follow(self) -> None:
        try:
            with contextlib.suppress(StopAsyncIteration):  # the client was closed
                while True:
                    async with self._reading() as reading:
                        await self._read(reading)
        except Exception as error:  # whoever uses the table gets it
            self._error = error
        finally:
            for each in self._watchers:
                each.arrived.set()

    def _reading(self) -> StreamReading:
        return StreamReading(
            self._client, self._session, self.stream, self._topic_filter, "earliest", follow=True, where=None
        )

    async def _read(self, reading: StreamReading) -> None:
        """Read the table from the beginning, and follow it, until messages were removed before they came: the removal
        of a key may be among them. While it reads the broker says so, because gaps are usual there."""
        values: dict[str, StreamMessage] = {}
        while (message := await reading.step()) is not None:
            self._put(values, message)
        if reading.has_missed:
            return
        former, self._values = self._values, values
        self._tell([*(key for key in former if key not in values), *(key for key in values if key not in former)])
        self._tell([key for key in values if key in former and values[key].payload != former[key].payload])
        self._is_loaded.set()
        while True:
            change = await reading.step()
            if change is not None:
                if change.skipped:
                    return
                self._put(values, change)
                self._tell([change.key])

    def _put(self, values: dict[str, StreamMessage], message: StreamMessage) -> None:
        if not message.payload:
            values.pop(message.key, None)
            return
        values[message.key] = message
        if len(values) > self._max_keys:
            raise MqttError(
                f"The stream {self.stream} has more than {self._max_keys} keys: take a part of its topics with "
                "topic_filter, or give max_keys"
            )

    def _tell(self, keys: list[str]) -> None:
        for each in self._watchers:
            each.keys.update(dict.fromkeys(keys))
            if keys:
                each.arrived.set()


@final
class _Watcher:
    """One that goes through the changes. `keys` changed, and were not given to it yet: they are keys of the table, or
    were."""

    def __init__(self) -> None:
        self.keys: Final[dict[str, None]] = {}
        self.arrived: Final = asyncio.Event()
