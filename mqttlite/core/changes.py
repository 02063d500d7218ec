"""What the core asks a store to make durable: a list of these, in order, is one commit.

Only what must outlive the process is here: sessions with an expiry, and retained messages. Times are in the broker's
seconds; a store that outlives the clock translates them.
"""

from typing import Final, final

from mqttlite.core.message import Delivery, Message
from mqttlite.core.subscription import Subscription


@final
class SaveSession:
    """A session begins, or changes its expiry. `expires_at` is 0.0 while it is connected or never expires."""

    __slots__ = ("client_id", "expires_at", "expiry_interval")

    def __init__(self, client_id: str, expiry_interval: int, expires_at: float) -> None:
        self.client_id: Final = client_id
        self.expiry_interval: Final = expiry_interval
        self.expires_at: Final = expires_at


@final
class EndSession:
    """A session is gone with all that belongs to it."""

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
class SaveMessage:
    """A message for a session, under the packet identifier it will be sent with; order is the order of the changes."""

    __slots__ = ("client_id", "delivery", "packet_id")

    def __init__(self, client_id: str, packet_id: int, delivery: Delivery) -> None:
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id
        self.delivery: Final = delivery


@final
class ReleaseMessage:
    """A QoS 2 message reached its receiver; its identifier waits for PUBCOMP [MQTT-4.3.3-8]."""

    __slots__ = ("client_id", "packet_id")

    def __init__(self, client_id: str, packet_id: int) -> None:
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id


@final
class SettleMessage:
    """A message or a released identifier is done with."""

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


Change = (
    SaveSession
    | EndSession
    | SaveSubscription
    | RemoveSubscription
    | SaveMessage
    | ReleaseMessage
    | SettleMessage
    | SaveReceived
    | RemoveReceived
    | SaveRetained
    | RemoveRetained
)
