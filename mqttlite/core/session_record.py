"""The state of a session: its client, subscriptions, will and messages, the time of its end, and its memory.

How messages come and go is in `session`. Invariant: the memory account is charged for all of it until `release`.
"""

from typing import Final

from mqttlite.core.deadlines import Deadline
from mqttlite.core.inflight import Inflight
from mqttlite.core.memory import SESSION_BYTES, SUBSCRIPTION_BYTES, MemoryAccount, text_bytes, will_bytes
from mqttlite.core.packet_ids import PacketIds
from mqttlite.core.retained_replay import RetainedReplays
from mqttlite.core.session_queue import SessionQueue
from mqttlite.core.source import CLIENT, Source
from mqttlite.core.subscription import FilteredSubscription, Subscription
from mqttlite.core.usage import NO_USAGE, Usage
from mqttlite.core.window import Window
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Will

NO_REPLAYS: Final = RetainedReplays()
"""Never added to: it stands for the retained messages on their way where there are none."""


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
        "mount_point",
        "queue",
        "received",
        "subscriptions",
        "username",
        "version",
        "will",
        "will_delay",
        "window",
    )

    def __init__(self, client_id: str, expiry_interval: int, memory: MemoryAccount, max_inflight_bytes: int) -> None:
        super().__init__(CLIENT, client_id)
        self._memory: Final = memory
        self.expiry_interval: int = expiry_interval
        """Seconds that the session outlives its connection; 0: not at all."""
        self.ends_with_connection: bool = False
        """Whether it is in the store only because some of its messages are nowhere else."""
        self.mount_point: bytes = b""
        """The prefix of its topic filters; a client below another mount point has another session."""
        self.version: int = V5
        """The protocol version of its client's latest connection."""
        self.subscriptions: Final[dict[bytes, Subscription]] = {}
        """By topic filter; look, change nothing."""
        self.filters: int = 0
        """How many of them have a filter for messages."""
        self.will: Will | None = None
        self.expiry: Deadline | None = None
        self.will_delay: Deadline | None = None
        self.received: Final = PacketIds()
        """QoS 2 identifiers of the client's own messages, until it releases them."""
        self.window: Final = Window(memory, max_inflight_bytes)
        """The messages that were sent and are not acknowledged, on this connection or an earlier one."""
        self.queue: Final = SessionQueue(memory)
        """The messages that were never sent."""
        self._replays = NO_REPLAYS  # retained messages for a new subscription
        self.drops: dict[str, int] = {}
        self.base_bytes: int = 0
        """The memory of the session without its messages."""
        self._charge(SESSION_BYTES + text_bytes(client_id))

    @property
    def durable(self) -> bool:
        """Whether it outlives its connection, and so belongs in the store."""
        return self.expiry_interval > 0

    @property
    def inflight(self) -> Inflight:
        """Sent on this connection and not yet acknowledged (QoS 1) or received (QoS 2)."""
        return self.window.inflight

    @property
    def released(self) -> PacketIds:
        """QoS 2 identifiers whose message arrived, and whose PUBCOMP has not."""
        return self.window.released

    @property
    def quota(self) -> int:
        """How many more messages the client's Receive Maximum allows now."""
        return self.window.quota

    @property
    def inflight_high_water(self) -> int:
        """The most that was unacknowledged at a time since the connection began."""
        return self.window.high_water

    @property
    def queued(self) -> int:
        """Messages that wait to be sent."""
        return self._waiting() + len(self._replays)

    @property
    def retained_waiting(self) -> int:
        """Those of them that were found retained by a new subscription."""
        return len(self._replays)

    @property
    def queued_bytes(self) -> int:
        """The memory of the messages that wait, or that they would take where the store has them; retained messages on
        their way do not count."""
        return self.queue.size_bytes + self.queue.stored_bytes + self.window.resend_bytes

    @property
    def held_bytes(self) -> int:
        """The memory of the session, as if no other held the same messages."""
        return self.base_bytes + self.queue.size_bytes + self.window.size_bytes

    def identify(self, username: str | None, version: int) -> None:
        """Note the user name of its client, and which version of the protocol it speaks."""
        self._charge(text_bytes(username or "") - text_bytes(self.username or ""))
        self.set_user(username)
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

    def add_subscription(self, subscription: Subscription, replaced: Subscription | None) -> None:
        """Add a subscription in the place of the one that has its filter, if there is one."""
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
        """Take out the subscription with that filter; None if there is none."""
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
        """Take out one of the subscriptions; there are some."""
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
        """The session counts for these groups from now on, and for no others."""
        former, self.queue.usages = self.queue.usages, usages
        subscriptions, queued_bytes = len(self.subscriptions), self.queue.size_bytes + self.queue.stored_bytes
        for usage in usages:  # first, lest a group that stays is taken out of its table
            usage.join(subscriptions, queued_bytes)
        for usage in former:
            usage.leave(subscriptions, queued_bytes)

    def release(self) -> None:
        """The session is over, and nothing of it is left."""
        if self.queue.usages:
            self.count_for(NO_USAGE)
        self._charge(-self.base_bytes)

    def _waiting(self) -> int:
        """QoS 1 and 2 messages that wait, but for retained ones."""
        return len(self.queue.deliveries) + self.queue.stored + len(self.window.resend)

    def _charge(self, size: int) -> None:
        self.base_bytes += size
        self._memory.used += size
