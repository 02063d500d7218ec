"""What a session is beside its messages: its client, its subscriptions, its will, when it ends, and what that takes.

Invariant: the memory account is charged for all of it until `release`.
"""

from typing import Final

from mqttlite.core.deadlines import Deadline
from mqttlite.core.memory import SESSION_BYTES, SUBSCRIPTION_BYTES, MemoryAccount, text_bytes, will_bytes
from mqttlite.core.source import CLIENT, Source
from mqttlite.core.subscription import Subscription
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Will


class SessionRecord(Source):
    __slots__ = (
        "_memory",
        "base_bytes",
        "expiry",
        "expiry_interval",
        "subscriptions",
        "username",
        "version",
        "will",
        "will_delay",
    )

    def __init__(self, client_id: str, expiry_interval: int, memory: MemoryAccount) -> None:
        super().__init__(CLIENT, client_id)
        self._memory: Final = memory
        self.expiry_interval = expiry_interval
        """Seconds that the session outlives its connection; 0: not at all."""
        self.username: str | None = None
        self.version = V5
        """Who its client was when it last connected, and with which version of the protocol."""
        self.subscriptions: Final[dict[bytes, Subscription]] = {}
        """By topic filter; look, change nothing."""
        self.will: Will | None = None
        self.expiry: Deadline | None = None
        self.will_delay: Deadline | None = None
        self.base_bytes = 0
        """What it takes in memory beside its messages."""
        self._charge(SESSION_BYTES + text_bytes(client_id))

    @property
    def durable(self) -> bool:
        """Whether it outlives its connection, and so belongs in the store."""
        return self.expiry_interval > 0

    def identify(self, username: str | None, version: int) -> None:
        """Who its client is, and which version of the protocol it speaks."""
        self._charge(text_bytes(username or "") - text_bytes(self.username or ""))
        self.username = username
        self.version = version

    def keep_will(self, will: Will) -> None:
        """Keep the will of the connection that begins, or one that waits for its delay."""
        self.will = will
        self._charge(will_bytes(will))

    def take_will(self) -> Will | None:
        """Keep the will no longer."""
        will, self.will = self.will, None
        if will is not None:
            self._charge(-will_bytes(will))
        return will

    def add_subscription(self, subscription: Subscription) -> Subscription | None:
        """Add a subscription in the place of the one that has its filter, if there is one: the latter."""
        topic_filter = subscription.topic_filter
        replaced = self.subscriptions.get(topic_filter)
        self.subscriptions[topic_filter] = subscription
        if replaced is None:
            size = SUBSCRIPTION_BYTES + len(topic_filter) * 3 // 2
            self.base_bytes += size
            self._memory.used += size
        return replaced

    def pop_subscription(self, topic_filter: bytes) -> Subscription | None:
        """Take out the subscription with that filter; None if there is none."""
        subscription = self.subscriptions.pop(topic_filter, None)
        if subscription is not None:
            size = SUBSCRIPTION_BYTES + len(topic_filter) * 3 // 2
            self.base_bytes -= size
            self._memory.used -= size
        return subscription

    def pop_last_subscription(self) -> Subscription:
        """Take out one of the subscriptions; there are some."""
        topic_filter, subscription = self.subscriptions.popitem()
        self._charge(-SUBSCRIPTION_BYTES - (len(topic_filter) * 3 // 2))
        return subscription

    def release(self) -> None:
        """The session is over, and nothing of it is left."""
        self._charge(-self.base_bytes)

    def _charge(self, size: int) -> None:
        self.base_bytes += size
        self._memory.used += size
