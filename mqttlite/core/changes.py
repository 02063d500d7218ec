"""The changes that a store makes durable: a list of these, in order, is one commit.

Only what must outlive the process is here: sessions with an expiry, retained and delayed messages. Times are in the
broker's seconds; a store that outlives the clock translates them.
"""

from typing import Final, final

from mqttlite.core.message import Delivery, Message
from mqttlite.core.subscription import Subscription
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Will

QUEUE_MARK: Final = "\0"
"""The first character of a queue's name where else a client identifier stands: no client identifier has U+0000
[MQTT-1.5.4-2]. `Enqueue`, `Stored`, `Sent`, `Settled` and `EndSession` are for queues too."""


@final
class SaveSession:
    """A session begins, or changes its expiry or whose it is.

    `expires_at` is 0.0 while it is connected or never expires. `username` (None: anonymous), protocol `version` and
    `mount_point` are those of its latest connection.
    """

    __slots__ = ("client_id", "expires_at", "expiry_interval", "mount_point", "username", "version")

    def __init__(
        self,
        client_id: str,
        expiry_interval: int,
        expires_at: float,
        username: str | None = None,
        version: int = V5,
        mount_point: bytes = b"",
    ) -> None:
        self.client_id: Final = client_id
        self.expiry_interval: Final = expiry_interval
        self.expires_at: Final = expires_at
        self.username: Final = username
        self.version: Final = version
        self.mount_point: Final = mount_point


@final
class EndSession:
    """A session is gone with all that belongs to it."""

    __slots__ = ("client_id",)

    def __init__(self, client_id: str) -> None:
        self.client_id: Final = client_id


@final
class SaveQueue:
    """A queue begins, or changes. What `data` says is its own business; `client_id` is its name with `QUEUE_MARK`."""

    __slots__ = ("client_id", "data")

    def __init__(self, client_id: str, data: bytes) -> None:
        self.client_id: Final = client_id
        self.data: Final = data


@final
class Due:
    """A message of a queue that was sent, and is not settled, is to be looked at again at that time."""

    __slots__ = ("client_id", "due_at", "sequence")

    def __init__(self, client_id: str, sequence: int, due_at: float) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence
        self.due_at: Final = due_at


@final
class Retain:
    """The messages of a queue stay in the store from that sequence on, also those that are settled: `Rewind` has them
    wait again. -1: none stays longer than it is needed.

    `size_bytes` is what those before the first that waits take, about: only `Store.load` says this.
    """

    __slots__ = ("client_id", "first", "size_bytes")

    def __init__(self, client_id: str, first: int, size_bytes: int = 0) -> None:
        self.client_id: Final = client_id
        self.first: Final = first
        self.size_bytes: Final = size_bytes


@final
class Rewind:
    """Move the beginning of a queue to that sequence, earlier or later than before: all messages from there on wait,
    those too that were sent or settled; those before it that wait are settled."""

    __slots__ = ("client_id", "first")

    def __init__(self, client_id: str, first: int) -> None:
        self.client_id: Final = client_id
        self.first: Final = first


@final
class SaveSubscription:
    __slots__ = ("client_id", "subscription")

    def __init__(self, client_id: str, subscription: Subscription) -> None:
        self.client_id: Final = client_id
        self.subscription: Final = subscription


@final
class RemoveSubscription:
    __slots__ = ("client_id", "topic_filter")

    def __init__(self, client_id: str, topic_filter: bytes) -> None:
        self.client_id: Final = client_id
        self.topic_filter: Final = topic_filter


@final
class SaveWill:
    """The client of a session is gone, and its will is due at that time."""

    __slots__ = ("client_id", "due_at", "will")

    def __init__(self, client_id: str, will: Will, due_at: float) -> None:
        self.client_id: Final = client_id
        self.will: Final = will
        self.due_at: Final = due_at


@final
class RemoveWill:
    """The will was published, or the client came back in time."""

    __slots__ = ("client_id",)

    def __init__(self, client_id: str) -> None:
        self.client_id: Final = client_id


@final
class Enqueue:
    """A message for a session, which names it by its sequence.

    Without a `packet_id` it waits, behind those that wait. With one it is sent at once, as by `Sent`: only the sequence
    of such a message may be negative, for one that overtook the queue.
    """

    __slots__ = ("client_id", "delivery", "packet_id", "sequence")

    def __init__(self, client_id: str, sequence: int, delivery: Delivery, packet_id: int = 0) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence
        self.delivery: Final = delivery
        self.packet_id: Final = packet_id


@final
class LatestNumber:
    """The highest number of a message that the store ever had: only `Store.load` says this."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number: Final = number


@final
class Stored:
    """Messages that wait for a session and stay in the store until they are read, page by page: only `Store.load` says
    this. `size_bytes` is what they count in the limits of the queue."""

    __slots__ = ("client_id", "count", "first", "size_bytes")

    def __init__(self, client_id: str, first: int, count: int, size_bytes: int) -> None:
        self.client_id: Final = client_id
        self.first: Final = first
        self.count: Final = count
        self.size_bytes: Final = size_bytes


@final
class Sent:
    """The first message that waits is sent. Those that were sent keep the order of these changes.

    A message of a queue may be sent again, or when it was settled and retained; its `packet_id` says how often it was.
    """

    __slots__ = ("client_id", "packet_id", "sequence")

    def __init__(self, client_id: str, sequence: int, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence
        self.packet_id: Final = packet_id


@final
class Settled:
    """A message is done with: acknowledged, if it was sent; dropped, if it was the first that waits."""

    __slots__ = ("client_id", "sequence")

    def __init__(self, client_id: str, sequence: int) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence


@final
class SaveReleased:
    """A QoS 2 message that was sent reached its receiver: it is done with, and its packet identifier waits for PUBCOMP
    [MQTT-4.3.3-8]."""

    __slots__ = ("client_id", "packet_id", "sequence")

    def __init__(self, client_id: str, sequence: int, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence
        self.packet_id: Final = packet_id


@final
class RemoveReleased:
    """PUBCOMP came for that identifier."""

    __slots__ = ("client_id", "packet_id")

    def __init__(self, client_id: str, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id


@final
class SaveReceived:
    """A QoS 2 identifier from the client is taken: the same again is the same message [MQTT-4.3.3-10]."""

    __slots__ = ("client_id", "packet_id")

    def __init__(self, client_id: str, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id


@final
class RemoveReceived:
    """The client released that identifier."""

    __slots__ = ("client_id", "packet_id")

    def __init__(self, client_id: str, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id


@final
class SaveRetained:
    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message: Final = message


@final
class RemoveRetained:
    __slots__ = ("topic",)

    def __init__(self, topic: bytes) -> None:
        self.topic: Final = topic


@final
class SaveDelayed:
    """A message is to be published at that time, by a client (empty: by no client).

    Numbers rise from one such message to the next; of those that are due at one time the lower is the first.
    """

    __slots__ = ("client_id", "due_at", "message", "number")

    def __init__(self, number: int, message: Message, due_at: float, client_id: str) -> None:
        self.number: Final = number
        self.message: Final = message
        self.due_at: Final = due_at
        self.client_id: Final = client_id


@final
class RemoveDelayed:
    """That message was published, or dropped. The same commit holds what it became."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number: Final = number


Change = (
    SaveSession
    | EndSession
    | SaveQueue
    | Due
    | Retain
    | Rewind
    | SaveSubscription
    | RemoveSubscription
    | SaveWill
    | RemoveWill
    | Enqueue
    | LatestNumber
    | Stored
    | Sent
    | Settled
    | SaveReleased
    | RemoveReleased
    | SaveReceived
    | RemoveReceived
    | SaveRetained
    | RemoveRetained
    | SaveDelayed
    | RemoveDelayed
)
