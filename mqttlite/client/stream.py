"""Reading a stream of an mqttlite broker: `async for message in client.stream("orders").read()`, and the members of a
group: `async for message in client.group("billing", "orders")`.

The subscription is in `stream_feed`. Invariants: a reading gives each message once, also after a lost connection; a
message of a group that was not committed is given to a member again.
"""

import asyncio
import inspect
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, final

from mqttlite.client.message import Payload, PublishOutcome
from mqttlite.client.queue_handlers import is_async
from mqttlite.client.session import Session
from mqttlite.client.stream_feed import StreamClient, StreamFeed
from mqttlite.client.stream_message import StreamMessage
from mqttlite.wire.properties import NONE, Properties

Since: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""Where to begin: with the first message that is kept, with new ones, with those published at a time or later, or with
an offset of each partition. Partitions without one begin with the first message that is kept."""

_NO_OFFSETS: Final[Mapping[int, int]] = {}

StreamHandler: TypeAlias = Callable[[StreamMessage], Any]
"""Takes a message; what it returns is not used. A coroutine function, or one that may block, which runs in a thread."""


@final
class Stream:
    """A stream of an mqttlite broker. Nothing is sent before it is read."""

    def __init__(self, client: StreamClient, session: Session, name: str, topic_filter: str) -> None:
        self.name: Final = name
        self._client: Final = client
        self._session: Final = session
        self._topic_filter: Final = filter_of(name, topic_filter)

    def __repr__(self) -> str:
        return f"Stream({self._topic_filter!r})"

    def read(self, since: Since = "earliest", *, follow: bool = False, where: str | None = None) -> "StreamReading":
        """Read the messages from a place on: of one partition in order, and each once.

        It ends behind the last message that is there when it begins, or with `follow` goes on with new ones. With
        `where` the broker sends only messages that pass this filter. Raises `ValueError` for a place that is none.
        """
        return StreamReading(self._client, self._session, self.name, self._topic_filter, since, follow, where)

    async def append(
        self,
        payload: Payload,
        *,
        key: str = "",
        dedup_id: str = "",
        commits: Sequence[StreamMessage] = (),
        properties: Properties = NONE,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> PublishOutcome:
        """Append a message to the stream itself, at QoS 1, and wait until it is on disk.

        Messages with the same `key` are in one partition, in order. With the same `dedup_id` one is appended once: the
        broker remembers the latest ones of each stream.

        `commits` are messages of groups of this client: they, and those before them in their partitions, are committed
        together with this message, or neither is. Raises `PublishRefused` if they are of another member by now; then
        nothing is appended. Such a message gets a `dedup_id` if it has none, so that it is not appended twice when it
        is sent again in another connection. Raises also as `Client.publish` does: what was not answered may be there.
        """
        asked = acks_of(commits)
        if key:
            asked.append(("ordering-key", key))
        if dedup_id or commits:
            asked.append(("dedup-id", dedup_id or secrets.token_hex(16)))
        fields: dict[str, Any] = dict(properties.present())
        fields["user_properties"] = [*asked, *properties.user_properties]
        topic = f"$stream/{self.name}"
        outcome = await self._client.publish(topic, payload, 1, False, Properties(**fields), timeout)
        for message in commits:
            if message.member is not None:
                message.member.finish_to(message)
        return outcome


def acks_of(messages: Iterable[StreamMessage]) -> list[tuple[str, str]]:
    """The user properties that commit messages, and those before them in their partitions. Raises `ValueError` for
    messages of no group."""
    latest: dict[str, dict[int, int]] = {}
    for message in messages:
        if message.member is None or message.offset < 0:
            raise ValueError(f"{message!r} is of no group, or has no offset: it cannot be committed with a message")
        offsets = latest.setdefault(message.member.topic_filter, {})
        offsets[message.partition] = max(message.offset, offsets.get(message.partition, 0))
    return [
        ("acks", f"{topic_filter} " + ",".join(f"{partition}:{offset}" for partition, offset in offsets.items()))
        for topic_filter, offsets in latest.items()
    ]


@final
class StreamReading:
    """The messages of a stream from a place on, used once. Its first message subscribes, and it unsubscribes at the end
    and with `stop`; the end of `async with` stops it, too, and so does `break` where no variable has the reading."""

    def __init__(
        self,
        client: StreamClient,
        session: Session,
        stream: str,
        topic_filter: str,
        since: Since,
        follow: bool,
        where: str | None,
    ) -> None:
        asked = [("stream-offset", position_text(since)), ("stream-end", "")]
        self._since: Final = since
        self._follow: Final = follow
        self._next: Final[dict[int, int]] = dict(since) if isinstance(since, Mapping) else {}
        """By partition: the offset behind the last message that the program has."""
        self.has_missed: bool = False
        """Whether the removal of a key may have been missed: the broker forgot it while the reading was on its way. It
        is known at the end of what was there."""
        self._feed: Final = StreamFeed(client, session, stream, topic_filter, where, asked, self._on_lost, member=None)
        weakref.finalize(self, self._feed.abandon).atexit = False

    def __repr__(self) -> str:
        return f"StreamReading({self._feed.topic_filter!r}, next={self._next})"

    @property
    def positions(self) -> dict[int, int]:
        """By partition: the offset behind the last message that the program has. To go on from here, store it, and give
        it to `read` as `since`. A partition without messages is in it when the end was reached."""
        return dict(self._next)

    async def __aenter__(self) -> "StreamReading":
        """Subscribe. Raises as `Client.subscribe` does, and `ValueError` if the client reads this stream already."""
        await self._feed.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.stop()

    def __aiter__(self) -> "StreamReading":
        return self

    async def __anext__(self) -> StreamMessage:
        """The next message. Raises as `Client.subscribe` does, and what ended the client."""
        while True:
            message = await self.step()
            if message is not None:
                return message
            if not self._follow:
                self.stop()
                raise StopAsyncIteration

    async def step(self) -> StreamMessage | None:
        """The next message; None behind the last one that was there when the reading began. Raises as `__anext__`
        does."""
        while True:
            message = await self._feed.next()
            message.ack()
            end = end_of(message)
            if end:
                self._pass(end)
                self.has_missed = bool(message.told("stream-missed"))
                return None
            if message.offset < 0 or message.offset >= self._next.get(message.partition, 0):
                if message.offset >= 0:
                    self._next[message.partition] = message.offset + 1
                return message

    def stop(self) -> None:
        """Take no more messages. Harmless when repeated."""
        self._feed.leave()

    def _pass(self, end: dict[int, int]) -> None:
        """All before these offsets came."""
        for partition, offset in end.items():
            self._next[partition] = max(offset, self._next.get(partition, 0))

    def _on_lost(self) -> None:
        """The connection is gone, and perhaps the session: go on behind what the program has, in all partitions."""
        begins = dict(self._next)
        for message in self._feed.waiting:
            end = end_of(message)
            if message.partition >= 0:
                end = {message.partition: message.offset}
            for partition, offset in end.items():
                begins.setdefault(partition, offset)
        self._feed.begin_again_at(position_text(self._since, begins))


@final
class Group:
    """A member of a group that shares the partitions of a stream, used once. Its first message subscribes; `stop` and
    the end of `async with` leave the group."""

    def __init__(
        self,
        client: StreamClient,
        session: Session,
        name: str,
        stream: str,
        topic_filter: str,
        since: Since,
        where: str | None,
    ) -> None:
        self.name: Final = name
        self.stream: Final = stream
        self._in_hand: Final[dict[StreamMessage, None]] = {}
        """Those that the program has and did not commit; the broker's window bounds them."""
        asked = [("stream-offset", position_text(since))]
        topic = f"$share/{name}/{filter_of(stream, topic_filter)}"
        self._feed: Final = StreamFeed(client, session, stream, topic, where, asked, self._on_lost, self)

    def __repr__(self) -> str:
        return f"Group({self.name!r}, {self.stream!r}, {len(self._in_hand)} messages in hand)"

    async def __aenter__(self) -> "Group":
        """Join the group. Raises as `Client.subscribe` does, and `ValueError` if the client is a member already."""
        await self._feed.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._leave()

    def __aiter__(self) -> "Group":
        return self

    async def __anext__(self) -> StreamMessage:
        """The next message. Raises as `Client.subscribe` does, and what ended the client."""
        message = await self._feed.next()
        if message.is_open:
            self._in_hand[message] = None
        return message

    async def consume(self, handler: StreamHandler) -> None:
        """Have `handler` handle messages, one after the other, and commit each when it returned; until `stop` is called
        or the client ends.

        A coroutine function runs in the event loop, another in a thread. What it raises ends this and is raised; the
        message is not committed, and a member that is left gets it.
        """
        runs_here = is_async(handler)
        async with self:
            async for message in self:
                result = handler(message) if runs_here else await asyncio.to_thread(handler, message)
                if inspect.isawaitable(result):
                    await result
                message.commit()

    def stop(self) -> None:
        """Take no more messages, and leave the group when those are committed that the program has. Harmless when
        repeated."""
        self._feed.end()
        if not self._in_hand:
            self._leave()

    # ------------------------------------------------------------------ as `MemberOfGroup`

    @property
    def topic_filter(self) -> str:
        """The topic filter to which it subscribes."""
        return self._feed.topic_filter

    def finish_to(self, message: StreamMessage) -> None:
        """As `MemberOfGroup`."""
        for each in [each for each in self._in_hand if each.partition == message.partition]:
            if each.offset <= message.offset:
                each.ack()

    def forget(self, message: StreamMessage) -> None:
        """As `MemberOfGroup`."""
        self._in_hand.pop(message, None)
        if self._feed.is_over and not self._in_hand:
            self._leave()

    # ------------------------------------------------------------------ inside

    def _leave(self) -> None:
        """Other members get what is not committed."""
        self._feed.leave()
        for message in list(self._in_hand):
            message.ack()

    def _on_lost(self) -> None:
        """Members get these again."""
        self._in_hand.clear()
        if self._feed.is_over:
            self._feed.leave()


def filter_of(stream: str, topic_filter: str) -> str:
    """The topic filter of a stream. Raises `ValueError` for a name that no stream has."""
    if not stream or any(each in stream for each in "/@+#"):
        raise ValueError(f"{stream!r} is no name of a stream: it has none of / @ + #; see `since` for where to begin")
    return f"$stream/{stream}/{topic_filter}" if topic_filter else f"$stream/{stream}"


def position_text(since: Since, begins: Mapping[int, int] = _NO_OFFSETS) -> str:
    """A place as the user property `stream-offset` has it, but for the partitions that have an offset in `begins`.
    Raises `ValueError` for what is none."""
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise ValueError(f"since is {since}, without a time zone: use datetime.now(UTC), or give it a tzinfo")
        others = since.astimezone(UTC).isoformat()
    elif isinstance(since, Mapping):
        if any(number < 0 for pair in since.items() for number in pair):
            raise ValueError(f"since is {since}: it maps partitions to offsets, from 0")
        begins = {**since, **begins}
        others = "earliest"
    elif since in ("earliest", "latest"):
        others = since
    else:
        raise ValueError(f"since is {since!r}: it is earliest, latest, a datetime, or offsets by partition")
    if not begins:
        return others
    offsets = ",".join(f"{partition}:{offset}" for partition, offset in begins.items())
    return offsets if others == "latest" else f"{others},{offsets}"


def end_of(message: StreamMessage) -> dict[int, int]:
    """The ends of the partitions, if this is the message that tells them."""
    text = message.told("stream-end")
    if not text or message.partition >= 0:
        return {}
    pairs = [each.split(":") for each in text.split(",")]
    return {int(partition): int(offset) for partition, offset in pairs}
