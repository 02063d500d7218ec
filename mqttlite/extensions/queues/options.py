"""The options of a queue, and of all queues together."""

import re
from typing import Final, Literal

import msgspec

from mqttlite.extensions.namespaces import check_plain_filter
from mqttlite.extensions.queues.push_target import PushTarget
from mqttlite.filters import Filter, FilterError
from mqttlite.topics.names import check_name, matches
from mqttlite.wire.errors import PeerError

MAX_NAME: Final = 128
"""The longest name of a queue. Names appear in topics, metrics and records."""

MAX_FILTERS: Final = 100
"""The most topic filters of one queue."""

MAX_DEADLINE_S: Final = 600.0
MIN_DEADLINE_S: Final = 10.0
"""As in Google Pub/Sub. Less requires `allow_short_deadlines`, because slow consumers then cause duplicates."""

SHORTEST_DEADLINE_S: Final = 0.05

MAX_ATTEMPTS: Final = 100

MIN_IDLE_S: Final = 60
"""Long enough for a restarted consumer to find its queue."""

MIN_RATE: Final = 0.001
MAX_RATE: Final = 1_000_000.0

_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+")

OnDeadline = Literal["back_off", "at_once"]
Acknowledgement = Literal["puback", "explicit"]
Overflow = Literal["drop_newest", "drop_oldest", "dead_letter"]
Refusal = Literal["filter", "expiry"]


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The delay before a message is delivered again after a failed attempt: `min_s`, doubled with each attempt, up to
    `max_s`. After a disconnect of the consumer there is none."""

    min_s: float = 10.0
    """The delay after the first failure."""
    max_s: float = 600.0
    """The longest delay. Up to a tenth is added at random."""
    on_deadline: OnDeadline = "back_off"
    """Whether the delay also holds after a missed deadline, or the message is delivered again at once."""

    def __post_init__(self) -> None:
        for name in ("min_s", "max_s"):
            value = getattr(self, name)
            if not 0 <= value <= 86_400:
                raise ValueError(f"retry.{name} is {value:g}: it may be 0 to 86400 seconds")
        if self.min_s > self.max_s:
            raise ValueError(f"retry.min_s is {self.min_s:g}, and retry.max_s {self.max_s:g}: the latter is the longer")


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One queue."""

    name: str
    """The name. Consumers subscribe to `$queue/<name>`."""
    filters: tuple[str, ...] = ()
    """The topic filters whose messages it takes."""
    detached_from: str = ""
    """The topic that it was detached from through Google's API. Ignored while it has `filters`."""
    filter: str = ""
    """A message filter (docs/reference/filters.md). The queue takes only messages that pass."""
    ack_deadline_s: float = 10.0
    """How long a consumer may hold a message before it goes to another consumer."""
    allow_short_deadlines: bool = False
    """Whether `ack_deadline_s` may be less than 10 seconds."""
    max_attempts: int = 5
    """How often a message is delivered before it becomes a dead letter."""
    ack: Acknowledgement = "puback"
    """What acknowledges a message: the consumer's PUBACK, or only a publish to `$queue/<name>/$ack`."""
    retry: RetryOptions = RetryOptions()
    """The delay before a message is delivered again after a failed attempt."""
    ordering: bool = False
    """Whether messages with the same `ordering-key` are delivered one after the other."""
    priority: bool = False
    """Whether messages with a higher `priority` are delivered first."""
    max_messages: int = 1_000_000
    """The most messages in the queue, including those held by consumers."""
    max_bytes: int = 1_073_741_824
    """The same in bytes of memory, although most of a long queue is only in the store."""
    idle_expiry_s: int = 0
    """A queue without consumers for this long is deleted with its messages and dead letters. 0: never."""
    expiry_s: int = 7 * 86_400
    """How long an unacknowledged message is kept. 0: only its own expiry interval applies."""
    max_rate: float = 0.0
    """The most messages delivered in a second, to all consumers together. 0: no limit."""
    retain_acked: bool = False
    """Whether acknowledged messages are kept as long as others, so that a seek can deliver them again. Within the
    queue's limits, the newest are kept."""
    dead_letter: bool = True
    """Whether messages that were not acknowledged in `max_attempts` become dead letters. If not, they are dropped."""
    dead_letter_on: tuple[Refusal, ...] = ()
    """Further causes for dead letters: messages that do not pass `filter`, and messages that expire."""
    dead_letter_topic: str = ""
    """A topic to which each dead letter is published in addition to `$dlq/<name>`."""
    on_overflow: Overflow = "drop_newest"
    """The policy at the limits of messages and bytes: refuse the new message, drop the oldest, or make the oldest a
    dead letter."""
    push: PushTarget | None = None
    """The endpoint to push messages to. Absent: consumers get them."""

    def __post_init__(self) -> None:
        check_queue_name(self.name)
        if len(self.filters) > MAX_FILTERS:
            raise ValueError(f"filters has {len(self.filters)} filters: {MAX_FILTERS} at most")
        if len(set(self.filters)) < len(self.filters):
            raise ValueError("filters names a filter twice")
        for each in self.filters:
            check_queue_filter(each)
        if self.filter:
            try:
                Filter(self.filter)
            except FilterError as error:
                raise ValueError(f"filter: {error}") from None
        if self.dead_letter_on and not self.dead_letter:
            raise ValueError("dead_letter_on names what becomes a dead letter, and dead_letter is false")
        if "filter" in self.dead_letter_on and not self.filter:
            raise ValueError('dead_letter_on has "filter", and there is no filter')
        self._check_dead_letter_topic()
        least = SHORTEST_DEADLINE_S if self.allow_short_deadlines else MIN_DEADLINE_S
        if not least <= self.ack_deadline_s <= MAX_DEADLINE_S:
            hint = "" if self.allow_short_deadlines else "; allow_short_deadlines = true allows less"
            raise ValueError(
                f"ack_deadline_s is {self.ack_deadline_s:g}: it may be {least:g} to {MAX_DEADLINE_S:g} seconds{hint}"
            )
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise ValueError(f"max_attempts is {self.max_attempts}: it may be 1 to {MAX_ATTEMPTS}")
        for name in ("max_messages", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: 1 at least")
        if not (self.max_rate == 0 or MIN_RATE <= self.max_rate <= MAX_RATE):
            raise ValueError(
                f"max_rate is {self.max_rate:g}: it may be {MIN_RATE:g} to {MAX_RATE:,.0f} messages a second, or 0"
            )
        if self.retain_acked and not self.expiry_s:
            raise ValueError("retain_acked needs expiry_s: acknowledged messages are kept for as long as others")
        if self.idle_expiry_s and not MIN_IDLE_S <= self.idle_expiry_s <= 366 * 86_400:
            raise ValueError(
                f"idle_expiry_s is {self.idle_expiry_s}: it may be {MIN_IDLE_S} to {366 * 86_400}, or 0 for never"
            )
        if not 0 <= self.expiry_s <= 366 * 86_400:
            raise ValueError(f"expiry_s is {self.expiry_s}: it may be 0 to {366 * 86_400}")

    def _check_dead_letter_topic(self) -> None:
        topic = self.dead_letter_topic
        if not topic:
            return
        try:
            check_name(topic.encode())
        except PeerError as error:
            raise ValueError(f"dead_letter_topic: {error}") from None
        if topic.startswith("$"):
            raise ValueError(f"dead_letter_topic: {topic!r} begins with a reserved name; it is a plain topic")
        for each in self.filters:
            if matches(each.encode(), topic.encode()):
                raise ValueError(f"dead_letter_topic: the queue takes messages of {topic!r} itself, by {each!r}")


class DeliveryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for all queues."""

    create_by_subscribing: bool = False
    """Whether a SUBSCRIBE to `$queue/<name>/<filter>` may create the queue, if the client may subscribe to the
    filter."""
    max_queues: int = 10_000
    """The most queues. Each takes some kilobytes, and some microseconds for each message to its topics."""

    max_queues_per_user: int = 100
    """The most queues that subscribers of one user create. Clients without a user name share one limit."""

    def __post_init__(self) -> None:
        for name in ("max_queues", "max_queues_per_user"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: 0 at least")


def check_queue_name(name: str) -> None:
    """Raises `ValueError` for an invalid queue name."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ValueError(
            f"name is {name[:MAX_NAME]!r}: the name of a queue has 1 to {MAX_NAME} letters, digits and any of . _ ~ -"
        )


def check_queue_filter(topic_filter: str) -> None:
    """Raises `ValueError` for a filter that a queue cannot be bound to."""
    check_plain_filter(topic_filter, "a queue is bound to plain topics")
