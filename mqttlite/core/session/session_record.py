"""The state of a session: its client, subscriptions, will, messages, expiry, and memory.

`session` moves the messages. Invariant: the memory account is charged for all of it until `release`.
"""

from typing import Final

from mqttlite.core.deadlines import Deadline
from mqttlite.core.identity import Identity
from mqttlite.core.memory import SESSION_BYTES, SUBSCRIPTION_BYTES, MemoryAccount, text_bytes, will_bytes
from mqttlite.core.retained.retained_replay import RetainedReplays
from mqttlite.core.route.subscription import FilteredSubscription, Subscription
from mqttlite.core.session.inflight import Inflight
from mqttlite.core.session.packet_ids import PacketIds
from mqttlite.core.session.session_queue import SessionQueue
from mqttlite.core.session.usage import NO_USAGE, Usage
from mqttlite.core.session.window import Window
from mqttlite.core.source import CLIENT, Source
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Will

NO_REPLAYS: Final = RetainedReplays()
"""Never added to. Shared by sessions without retained messages to send."""


class SessionRecord(Source):
    __slots__ = (
        "_memory",
        "_replays",
        "base_bytes",
        "drops",
        "ends_with_connection",
        "expiry",
        "expiry_interval",
        "filters",
        "queue",
        "received",
        "saved_will",
        "subscriptions",
        "version",
        "will",
        "will_delay",
        "window",
    )

    def __init__(self, client_id: str, expiry_interval: int, memory: MemoryAccount, max_inflight_bytes: int) -> None:
        super().__init__(CLIENT, client_id)
        self._memory: Final = memory
        self.expiry_interval: int = expiry_interval
        """How many seconds the session outlives its connection; 0: it ends with it."""
        self.ends_with_connection: bool = False
        """Whether it is in the store only because some of its messages are only there."""
        self.version: int = V5
        """The protocol version of its client's latest connection."""
        self.subscriptions: Final[dict[bytes, Subscription]] = {}
        """By topic filter. Read only."""
        self.filters: int = 0
        """How many subscriptions have a message filter."""
        self.will: Will | None = None
        self.saved_will: Will | None = None
        """The will that the store has for this session."""
        self.expiry: Deadline | None = None
        self.will_delay: Deadline | None = None
        self.received: Final = PacketIds()
        """QoS 2 identifiers of messages from the client, until it releases them."""
        self.window: Final = Window(memory, max_inflight_bytes)
        """The sent, unacknowledged messages of this connection and earlier ones."""
        self.queue: Final = SessionQueue(memory)
        """The messages that were never sent."""
        self._replays = NO_REPLAYS  # retained messages for new subscriptions
        self.drops: dict[str, int] = {}
        self.base_bytes: int = 0
        """The memory of the session without its messages."""
        self._charge(SESSION_BYTES + text_bytes(client_id))

    @property
    def durable(self) -> bool:
        """Whether it outlives its connection, and so is in the store."""
        return self.expiry_interval > 0

    @property
    def inflight(self) -> Inflight:
        """Sent on this connection and not yet acknowledged (QoS 1) or received (QoS 2)."""
        return self.window.inflight

    @property
    def unacknowledged(self) -> int:
        """How many messages the client has not completely acknowledged."""
        return len(self.window.inflight) + len(self.window.released)

    @property
    def queued(self) -> int:
        """Messages that wait to be sent."""
        return self._waiting() + len(self._replays)

    @property
    def retained_waiting(self) -> int:
        """The waiting retained messages of new subscriptions."""
        return len(self._replays)

    @property
    def queued_bytes(self) -> int:
        """The memory of the waiting messages, including what stored ones would take. Retained messages do not count."""
        return self.queue.size_bytes + self.queue.stored_bytes + self.window.resend_bytes

    @property
    def held_bytes(self) -> int:
        """The memory of the session, as if no other session held the same messages."""
        return self.base_bytes + self.queue.size_bytes + self.window.size_bytes

    def identify(self, identity: Identity, version: int) -> None:
        """Set whose its client is, and its protocol version."""
        self._charge(text_bytes(identity.username or "") - text_bytes(self.identity.username or ""))
        self.identity = identity
        self.version = version

    def keep_will(self, will: Will) -> None:
        """Keep the will of a new connection, or one that waits for its delay."""
        self.will = will
        self._charge(will_bytes(will))

    def take_will(self) -> Will | None:
        """Remove and return the will."""
        will, self.will = self.will, None
        if will is not None:
            self._charge(-will_bytes(will))
        return will

    def add_subscription(self, subscription: Subscription, replaced: Subscription | None) -> None:
        """Add a subscription. `replaced` is the earlier one with the same filter, if there is one."""
        topic_filter = subscription.topic_filter
        self.subscriptions[topic_filter] = subscription
        if replaced is None:
            size = SUBSCRIPTION_BYTES + len(topic_filter) * 3 // 2
            self.base_bytes += size
            self._memory.used += size
            if self.queue.usages:
                self._count_subscriptions(1)
        elif isinstance(replaced, FilteredSubscription):
            self._let_go_of_filter(replaced)
        if isinstance(subscription, FilteredSubscription):
            self.filters += 1
            self._charge(subscription.filter_bytes())

    def pop_subscription(self, topic_filter: bytes) -> Subscription | None:
        """Remove and return the subscription with this filter; None if there is none."""
        subscription = self.subscriptions.pop(topic_filter, None)
        if subscription is not None:
            size = SUBSCRIPTION_BYTES + len(topic_filter) * 3 // 2
            self.base_bytes -= size
            self._memory.used -= size
            if self.queue.usages:
                self._count_subscriptions(-1)
            if self.filters and isinstance(subscription, FilteredSubscription):
                self._let_go_of_filter(subscription)
        return subscription

    def pop_last_subscription(self) -> Subscription:
        """Remove and return one subscription; there must be one."""
        topic_filter, subscription = self.subscriptions.popitem()
        self._charge(-SUBSCRIPTION_BYTES - (len(topic_filter) * 3 // 2))
        if self.queue.usages:
            self._count_subscriptions(-1)
        if isinstance(subscription, FilteredSubscription):
            self._let_go_of_filter(subscription)
        return subscription

    def _count_subscriptions(self, change: int) -> None:
        for usage in self.queue.usages:
            usage.subscriptions += change

    def _let_go_of_filter(self, subscription: FilteredSubscription) -> None:
        self.filters -= 1
        self._charge(-subscription.filter_bytes())

    def count_for(self, usages: list[Usage]) -> None:
        """Count the session in exactly these groups from now on."""
        former, self.queue.usages = self.queue.usages, usages
        subscriptions, queued_bytes = len(self.subscriptions), self.queue.size_bytes + self.queue.stored_bytes
        for usage in usages:  # join first, so that a group that stays is not removed from its table
            usage.join(subscriptions, queued_bytes)
        for usage in former:
            usage.leave(subscriptions, queued_bytes)

    def release(self) -> None:
        """The session has ended: return all its memory charges."""
        if self.queue.usages:
            self.count_for(NO_USAGE)
        self._charge(-self.base_bytes)

    def _waiting(self) -> int:
        """Waiting QoS 1 and 2 messages, without retained ones."""
        return len(self.queue.deliveries) + self.queue.stored + len(self.window.resend)

    def _charge(self, size: int) -> None:
        self.base_bytes += size
        self._memory.used += size
