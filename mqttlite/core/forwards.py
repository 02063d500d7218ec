"""What the workers of one broker say to each other: connections that move, messages, and what became of them.

How it travels is the business of a room above, which delivers it in order, once.
"""

from typing import Final, final

from mqttlite.core.message import Message
from mqttlite.wire.constants import V5


@final
class Interest:
    """How many subscriptions there are here of a filter (0 or 1: some), or how many members of a shared subscription,
    and how many of them are connected."""

    __slots__ = ("members", "online", "topic_filter")

    def __init__(self, topic_filter: bytes, members: int, online: int) -> None:
        self.topic_filter: Final = topic_filter
        self.members: Final = members
        self.online: Final = online


@final
class Move:
    """A connection that goes on where its client's session is, beginning with these bytes."""

    __slots__ = ("data", "number", "worker")

    def __init__(self, number: int, worker: int, data: bytes) -> None:
        self.number: Final = number
        self.worker: Final = worker
        self.data: Final = data


@final
class Claim:
    """A client is here, says a worker to the keeper of its identifier: whose is it?"""

    __slots__ = ("client_id", "worker")

    def __init__(self, worker: int, client_id: bytes) -> None:
        self.worker: Final = worker
        self.client_id: Final = client_id


@final
class Located:
    """The keeper's answer: the client is at home with that worker, which may be the one that asked."""

    __slots__ = ("client_id", "home", "worker")

    def __init__(self, worker: int, client_id: bytes, home: int) -> None:
        self.worker: Final = worker
        self.client_id: Final = client_id
        self.home: Final = home


@final
class Release:
    """A client whose home was with this worker is at home nowhere, says that to the keeper."""

    __slots__ = ("client_id", "worker")

    def __init__(self, worker: int, client_id: bytes) -> None:
        self.worker: Final = worker
        self.client_id: Final = client_id


@final
class Batch:
    """PUBLISH packets of one topic and QoS, of `size` bytes each, the payload `head` bytes in; for these workers.

    On the way out `workers` are its receivers; for those it is the sender alone. `expires_at` is that of each message.
    """

    __slots__ = ("expires_at", "head", "packets", "qos", "size", "tag", "version", "workers")

    def __init__(
        self,
        workers: list[int],
        tag: int,
        qos: int,
        version: int,
        head: int,
        size: int,
        packets: bytes,
        expires_at: float,
    ) -> None:
        self.workers: Final = workers
        self.tag: Final = tag
        """What the outcome is to be told under, at QoS 1 and 2; 0 at QoS 0, where nobody asks."""
        self.qos: Final = qos
        self.version: Final = version
        self.head: Final = head
        self.size: Final = size
        self.packets: Final = packets
        self.expires_at: Final = expires_at

    def topic(self) -> bytes:
        """As the first packet has it."""
        return topic_in(self.packets)

    def block(self) -> bytes:
        """What the properties of each packet are on the wire; none of a 3.1.1 publisher's is `b"\\0"` too."""
        if self.version != V5:
            return b"\0"
        return self.packets[topic_end_in(self.packets) + (2 if self.qos else 0) : self.head]


@final
class Forward:
    """A message for another worker. On the way out `worker` is its receiver; for that it is the sender."""

    __slots__ = ("message", "plain", "retain", "shares", "stamp", "tag", "worker")

    def __init__(
        self, worker: int, tag: int, message: Message, plain: bool, retain: bool, stamp: float, shares: list[bytes]
    ) -> None:
        self.worker: Final = worker
        self.tag: Final = tag
        """What the outcome is to be told under; 0: nobody asks."""
        self.message: Final = message
        self.plain: Final = plain
        """For those who subscribe by themselves."""
        self.retain: Final = retain
        """To be kept as the retained message of its topic."""
        self.stamp: Final = stamp
        """When it was retained: the latest wins, at every worker."""
        self.shares: Final = shares
        """For a member of each of these shared subscriptions."""


@final
class Outcome:
    """What became of a `Forward` or `Batch` with a tag, told to the worker that it came from."""

    __slots__ = ("awaits_commit", "code", "dropped", "queued", "refused", "sent", "tag", "untaken", "worker")

    def __init__(
        self, worker: int, tag: int, code: int, dropped: int, queued: int, sent: int, untaken: list[bytes]
    ) -> None:
        self.worker: Final = worker
        self.tag: Final = tag
        self.code: Final = code
        """0, or 0x97 where a queue was full."""
        self.dropped: Final = dropped
        self.queued: Final = queued
        self.sent: Final = sent
        self.untaken: Final = untaken
        """Shared subscriptions whose members had left."""
        self.refused: list[int] = []
        """The places in a batch of those for which a queue was full."""
        self.awaits_commit = False
        """Whether the message is in changes that come before this: who is told could acknowledge it."""


def topic_in(packets: bytes) -> bytes:
    """The topic of the first of these PUBLISH packets."""
    at = _topic_at(packets)
    return packets[at : topic_end_in(packets)]


def topic_end_in(packets: bytes) -> int:
    """Where that topic ends."""
    at = _topic_at(packets)
    return at + (packets[at - 2] << 8 | packets[at - 1])


def _topic_at(packets: bytes) -> int:
    at = 1
    while packets[at] > 127:
        at += 1
    return at + 3


Outgoing = Batch | Forward | Outcome | Claim | Located | Release
