"""The answers of `Admin`: plain values that HTTP routes and commands show."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from mqttlite.operations.bans import BanKind
from mqttlite.wire.properties import Properties

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of entries, sorted by name."""

    entries: list[T]
    cursor: str
    """Where the next page begins; empty on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEntry:
    """A client with a session. Fields of the connection, except `username`, are None while it is not connected."""

    client_id: str
    connected: bool
    connection_id: int | None
    username: str | None
    peer: str | None
    listener: str | None
    protocol_version: str | None
    connected_at: datetime | None
    subscriptions: int
    queued: int
    inflight: int
    session_ends_at: datetime | None = None
    """When the session of an offline client expires; None: never, or not while it is connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionEntry:
    """One subscription of a session."""

    topic_filter: str
    qos: int
    share: str
    """The name of its shared subscription; empty for another one."""
    no_local: bool
    retain_as_published: bool
    identifier: int
    """0: none."""
    subscribed_at: datetime | None
    """When the client first subscribed to this filter, across reconnects and restarts; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDetails:
    """The details of one client."""

    entry: ClientEntry
    session_expiry_s: int | None
    """None: never."""
    keep_alive_s: int | None
    transport: str | None
    tls_version: str | None
    tls_cipher: str | None
    tls_ends_at_proxy: bool
    """Whether the TLS is that of the client with a proxy, as its PROXY header tells."""
    proxied_certificate_name: str | None
    """The Common Name of the certificate that the client showed to the proxy."""
    proxied_certificate_verified: bool
    """Whether the proxy verified that certificate."""
    bytes_received: int
    bytes_sent: int
    blocked: bool
    """Whether its socket takes no bytes now."""
    outbox_bytes: int
    queued_bytes: int
    window: int
    """How many messages it may have unacknowledged; 0 while it is not connected."""
    most_inflight: int
    """The most unacknowledged messages since it connected."""
    backpressure_count: int
    """How often its socket took no bytes since it connected."""
    backpressure_s: float
    """For how long in all."""
    drops: Mapping[str, int]
    """Since the client connected, or of its offline session, by reason."""
    topic_filters: Mapping[str, int]
    """The QoS of its subscriptions, of the first `MAX_SUBSCRIPTIONS`."""
    message_filters: Mapping[str, str]
    """By topic filter, the filters of those of them that have one."""
    last_heard_at: datetime | None
    """When its last packet arrived; None while it is not connected."""
    keeps: int
    """QoS 2 messages from the client that it has not released."""
    queue_stored: int
    """Messages of its queue that are only in the store."""
    mount_point: str
    subscriptions: list[SubscriptionEntry]
    """The first `MAX_SUBSCRIPTIONS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message that waits for a client and was never sent to it."""

    sequence: int
    """Its number in the session, which does not change while the message waits."""
    message_id: str | None
    """Its id. None: it was never stored, traced or reported to its publisher."""
    published_at: datetime | None
    """When the broker accepted it, from its id."""
    topic: str
    qos: int
    retain: bool
    payload: bytes
    """The payload, or its beginning if the answer has no room for more."""
    payload_bytes: int
    """Of all of it."""
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePeek:
    """The first messages of a queue, in the order in which they will be sent."""

    messages: list[QueuedMessage]
    waiting: int
    """How many there are in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedEntry:
    """A retained message, without its payload."""

    topic: str
    message_id: str | None
    published_at: datetime | None
    """This and the field above are as in `QueuedMessage`."""
    qos: int
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedMessage:
    """A retained message with its payload."""

    entry: RetainedEntry
    payload: bytes
    properties: Properties
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedEntry:
    """A message that was published to `$delayed/…` and is not due yet, without its payload."""

    number: int
    message_id: str | None
    published_at: datetime | None
    """This and the field above are as in `QueuedMessage`."""
    topic: str
    due_at: datetime
    qos: int
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BanEntry:
    """A client, user or address that may not connect for a while."""

    id: int
    kind: BanKind
    value: str
    since: datetime
    until: datetime
    reason: str
    by: str
    alone: bool
    """Whether other nodes do not have it yet, for NATS is away."""


@dataclass(frozen=True, slots=True)
class Removal:
    """`messages` were removed or dropped, or would be by a dry run. Call again unless `complete`."""

    messages: int
    complete: bool
