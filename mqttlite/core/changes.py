"""The changes that a store makes durable: a list of these, in order, is one commit.

Only state that must outlive the process is here: sessions with an expiry, retained and delayed messages; what features
keep is in `log_changes`. Times are in the broker's seconds; a store on disk translates them.
"""

from typing import Final, final

from mqttlite.core.identity import ANONYMOUS, Identity
from mqttlite.core.log_changes import LogChange
from mqttlite.core.message import Delivery, Message
from mqttlite.core.route.subscription import Subscription
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Will

IF_LOST: Final = 1e300
"""The due time of the will of a connected client: finite, and so large that no offset of a clock changes it."""


@final
class SaveSession:
    """A session begins, or changes its expiry or its owner.

    One with the expiry interval 0 ends with its connection, and is saved only for its will.

    `expires_at` is 0.0 while it is connected or never expires. `identity` and the protocol `version` are those of its
    latest connection.
    """

    __slots__ = ("client_id", "expires_at", "expiry_interval", "identity", "version")

    def __init__(
        self,
        client_id: str,
        expiry_interval: int,
        expires_at: float,
        identity: Identity = ANONYMOUS,
        version: int = V5,
    ) -> None:
        self.client_id: Final = client_id
        self.expiry_interval: Final = expiry_interval
        self.expires_at: Final = expires_at
        self.identity: Final = identity
        self.version: Final = version


@final
class EndSession:
    """A session ends, and all its state is removed."""

    __slots__ = ("client_id",)

    def __init__(self, client_id: str) -> None:
        self.client_id: Final = client_id


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
    """The will of a session. It is due at `due_at` if the client is gone. While the client is connected, `due_at` is
    `IF_LOST`: the will is due only if the broker stops without saying goodbye to the client."""

    __slots__ = ("client_id", "due_at", "will")

    def __init__(self, client_id: str, will: Will, due_at: float) -> None:
        self.client_id: Final = client_id
        self.will: Final = will
        self.due_at: Final = due_at


@final
class RemoveWill:
    """The will was published, or the client has disconnected, or came back in time."""

    __slots__ = ("client_id",)

    def __init__(self, client_id: str) -> None:
        self.client_id: Final = client_id


@final
class Enqueue:
    """A message for a session, identified by its sequence.

    Without a `packet_id` it joins the end of the queue. With one it is sent at once, as by `Sent`; its sequence is
    negative if it overtook the queue.
    """

    __slots__ = ("client_id", "delivery", "packet_id", "sequence")

    def __init__(self, client_id: str, sequence: int, delivery: Delivery, packet_id: int = 0) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence
        self.delivery: Final = delivery
        self.packet_id: Final = packet_id


@final
class LatestNumber:
    """The highest message number that the store ever held. Only `Store.load` yields it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number: Final = number


@final
class Stored:
    """Messages that wait for a session and stay in the store until they are read page by page. Only `Store.load` yields
    it. `size_bytes` is their size as counted by the queue's limits."""

    __slots__ = ("client_id", "count", "first", "size_bytes")

    def __init__(self, client_id: str, first: int, count: int, size_bytes: int) -> None:
        self.client_id: Final = client_id
        self.first: Final = first
        self.count: Final = count
        self.size_bytes: Final = size_bytes


@final
class Sent:
    """The first waiting message is sent. Sent messages keep the order of these changes."""

    __slots__ = ("client_id", "packet_id", "sequence")

    def __init__(self, client_id: str, sequence: int, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence
        self.packet_id: Final = packet_id


@final
class Settled:
    """A message is finished: a sent one was acknowledged, the first waiting one was dropped."""

    __slots__ = ("client_id", "sequence")

    def __init__(self, client_id: str, sequence: int) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence


@final
class SaveReleased:
    """A sent QoS 2 message reached its receiver. The message is finished, and its packet identifier waits for PUBCOMP
    [MQTT-4.3.3-8]."""

    __slots__ = ("client_id", "packet_id", "sequence")

    def __init__(self, client_id: str, sequence: int, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.sequence: Final = sequence
        self.packet_id: Final = packet_id


@final
class RemoveReleased:
    """PUBCOMP arrived for a packet identifier."""

    __slots__ = ("client_id", "packet_id")

    def __init__(self, client_id: str, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id


@final
class SaveReceived:
    """A QoS 2 identifier of the client is in use: a PUBLISH that repeats it is a duplicate [MQTT-4.3.3-10]."""

    __slots__ = ("client_id", "packet_id")

    def __init__(self, client_id: str, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id


@final
class RemoveReceived:
    """The client released the identifier."""

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
    """A message to publish at `due_at`, on behalf of a client (empty: not from a client).

    Numbers rise with each delayed message; of two with the same due time the lower number goes first.
    """

    __slots__ = ("client_id", "due_at", "message", "number")

    def __init__(self, number: int, message: Message, due_at: float, client_id: str) -> None:
        self.number: Final = number
        self.message: Final = message
        self.due_at: Final = due_at
        self.client_id: Final = client_id


@final
class RemoveDelayed:
    """The delayed message was published or dropped. The same commit holds the resulting changes."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number: Final = number


Change = (
    SaveSession
    | EndSession
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
    | LogChange
)
