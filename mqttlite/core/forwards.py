"""What the workers of one broker say to each other: connections that move, messages, and what became of them.

How it travels is the business of a room above, which delivers it in order, once.
"""

from typing import Final, final

from mqttlite.core.message import Message
from mqttlite.wire.constants import V5

NOWHERE: Final = -1
"""No worker."""


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
    """A connection that goes on at another worker, beginning with these bytes.

    Without a traveller it is yet to be let in, where its client's session is; with one it follows its messages.
    """

    __slots__ = ("data", "number", "traveller", "worker")

    def __init__(self, number: int, worker: int, data: bytes, traveller: "Traveller | None" = None) -> None:
        self.number: Final = number
        self.worker: Final = worker
        self.data: Final = data
        self.traveller: Final = traveller


@final
class Traveller:
    """A client that only publishes, and follows its messages to the one worker that has all their receivers: what was
    agreed at CONNECT, and what it did before it came."""

    __slots__ = (
        "backpressure_count",
        "backpressure_s",
        "broker_id",
        "bytes_received",
        "bytes_sent",
        "clean_start",
        "client_id",
        "connected_at",
        "high_water_bytes",
        "keep_alive_s",
        "max_packet_bytes",
        "number",
        "opened_at",
        "problem_information",
        "received",
        "received_qos0",
        "received_qos1",
        "received_qos2",
        "session_present",
        "topic_alias_maximum",
        "username",
        "version",
        "window",
    )

    def __init__(self, number: int, client_id: str, username: str | None) -> None:
        self.number: Final = number
        """Of its connection, which keeps it."""
        self.client_id: Final = client_id
        self.username: Final = username
        self.broker_id = ""
        """Of the worker where it came in, under which telemetry tells of it; empty: of this one."""
        self.version = 0
        self.clean_start = True
        self.session_present = False
        self.keep_alive_s = 0
        self.problem_information = True
        self.max_packet_bytes = 0
        self.topic_alias_maximum = 0
        self.window = 0
        """How many QoS 1 and 2 messages it takes at a time."""
        self.received: list[int] = []
        """The identifiers of its QoS 2 messages that it has yet to release."""
        self.opened_at = 0.0
        self.connected_at = 0.0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.received_qos0 = 0
        self.received_qos1 = 0
        self.received_qos2 = 0
        self.backpressure_s = 0.0
        self.backpressure_count = 0
        self.high_water_bytes = 0


STAYED: Final = Traveller(0, "", None)
"""What a connection did elsewhere that is where it came in: nothing."""

ASK: Final = 0
COME: Final = 1
STAY: Final = 2


@final
class Passage:
    """A worker asks the others whether a connection may go to one of them. Each answers once it has seen to all that it
    was sent before, so that whatever the connection sends from then on comes behind that."""

    __slots__ = ("number", "what", "worker")

    def __init__(self, worker: int, number: int, what: int) -> None:
        self.worker: Final = worker
        self.number: Final = number
        self.what: Final = what
        """`ASK`, `COME` or `STAY`."""


@final
class Arrival:
    """A client that was at home with worker `former` is at home where it went: that is told to the keeper of its
    identifier, who tells both of them when he knows."""

    __slots__ = ("client_id", "former", "is_known", "worker")

    def __init__(self, worker: int, client_id: bytes, former: int, is_known: bool) -> None:
        self.worker: Final = worker
        self.client_id: Final = client_id
        self.former: Final = former
        self.is_known: Final = is_known


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
    """PUBLISH packets of one topic, all of QoS 1 or all of QoS 2, of `size` bytes each, the payload `head` bytes in;
    for these workers.

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
        """What the outcome is to be told under."""
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
        return self.packets[topic_end_in(self.packets) + 2 : self.head]


@final
class Stream:
    """QoS 0 PUBLISH packets of whatever topics, as they came and one behind the other.

    On the way out `worker` is their receiver; for that it is the sender.
    """

    __slots__ = ("came_at", "pieces", "size", "version", "worker")

    def __init__(self, worker: int, version: int, came_at: float, packets: bytes) -> None:
        self.worker: Final = worker
        self.version: Final = version
        self.came_at: Final = came_at
        """When the first of them did; the last came `STREAM_S` later at most."""
        self.pieces: Final = [packets]
        self.size = len(packets)
        """Bytes of all pieces."""

    def add(self, packets: bytes) -> None:
        self.pieces.append(packets)
        self.size += len(packets)

    def packets(self) -> bytes:
        """All of them."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


@final
class Forward:
    """A message for another worker. On the way out `worker` is its receiver; for that it is the sender."""

    __slots__ = ("hops", "message", "plain", "retain", "shares", "stamp", "tag", "worker")

    def __init__(
        self,
        worker: int,
        tag: int,
        message: Message,
        plain: bool,
        retain: bool,
        stamp: float,
        shares: list[bytes],
        hops: int = 0,
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
        self.hops: Final = hops
        """How many workers had no such member any more, one after the other."""


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


Outgoing = Batch | Stream | Forward | Outcome | Claim | Located | Release | Passage | Arrival
