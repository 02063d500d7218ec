"""Passes events of clients to the registered listeners: log, metrics, `$SYS`, presence, telemetry, programs.

A listener is a subclass of `Listener` that overrides the methods it wants; the others cost nothing. Invariant: an
exception in one listener is logged and does not affect the others.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from mqttlite.core.connect.connection import Connection
from mqttlite.core.load.overload import REFUSE_CONNECTS, SHED_LOW_PRIORITY, SHED_QOS0, SLOW_SENDERS
from mqttlite.core.reasons import CloseReason
from mqttlite.core.tracer import NO_SAMPLES

STORE_FAILING: Final = "store_failing"
"""The alarm while commits to the store fail and are retried, or one hangs."""

MEMORY_SHORT: Final = "memory_short"
"""The alarm while more than seven eighths of `limits.max_memory_bytes` are used."""

OVERLOADED: Final = "overloaded"
"""The alarm while the broker drops messages or refuses connections because of overload."""

PUSH_STOPPED: Final = "push_stopped"
"""The alarm while the push of a queue is stopped because its endpoint is gone."""

BRIDGE_AWAY: Final = "bridge_away"
"""The alarm while a bridge cannot connect to its other broker."""

CLUSTER_WEAK: Final = "cluster_weak"
"""The alarm while no other machine could take over, the log fills, or the engine does not answer."""

NODE_AWAY: Final = "node_away"
"""The alarm while another node is away for which something waits, or may."""

DOCUMENTS_DIFFER: Final = "documents_differ"
"""The alarm while users, rules or the like may not be those of all nodes, or an edit of them was refused."""

STOOD_STILL: Final = "stood_still"
"""The alarm for a minute after the process stood still for a second or longer."""

OVERLOAD_STAGES: Final = {
    SLOW_SENDERS: "the clients that send most are read more slowly",
    SHED_LOW_PRIORITY: "messages of low priority are dropped",
    SHED_QOS0: "QoS 0 messages are dropped",
    REFUSE_CONNECTS: "new connections are refused",
}
"""What each stage of overload does, in addition to the stages before it."""

_log = logging.getLogger("mqttlite")


class ProxiedTls(Protocol):
    """The TLS of a client with a proxy, as the proxy tells it."""

    @property
    def certificate_name(self) -> str | None: ...
    @property
    def is_verified(self) -> bool: ...


class Link(Protocol):
    """A connection, with what only adapters know about it."""

    @property
    def connection(self) -> Connection: ...
    @property
    def address(self) -> str: ...
    @property
    def listener(self) -> str: ...
    @property
    def transport(self) -> str: ...
    @property
    def tls_version(self) -> str | None: ...
    @property
    def tls_cipher(self) -> str | None: ...
    @property
    def proxied_tls(self) -> ProxiedTls | None:
        """Where a proxy ends the TLS, of which the version and cipher are then."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and that the kernel has not taken yet."""
        ...


class Jailed(NamedTuple):
    """A new login jail of an address, or of a user name or client identifier at an address. `peer` made the last failed
    login."""

    what: str
    """`address`, `username` or `client_id`."""
    network: str
    """The address; for IPv6 its network."""
    peer: str
    username: str | None
    client_id: str
    listener: str
    failures: int
    duration_s: float


class OverloadStage(NamedTuple):
    """A stage of overload began or ended, as `core.overload` counts them."""

    stage: int
    begins: bool
    load: float
    what: str
    """What the stage does, as a sentence."""
    duration_s: float
    """How long it was in force; 0.0 at its beginning."""


class Listener:
    """Gets the events of one broker, in its event loop. Override the methods you need; they must not block.

    A connection number is `link.connection.number`, as in `connection_id` of the log and the telemetry.
    """

    def on_connected(self, link: Link) -> None:
        """A client was accepted."""

    def on_refused(self, link: Link) -> None:
        """A connection ended before its client was accepted."""

    def on_closed(self, link: Link) -> None:
        """The connection of an accepted client ended."""

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        """A subscription was granted at `qos`, or refused (`reason_code` ≥ 0x80). It may come before `on_connected` if
        the client does not wait for CONNACK."""

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        """A client ended one of its subscriptions."""

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        """`messages` messages were dropped for a receiver, a client identifier; None if there was no receiver.

        `reason` is a drop reason, `topic` is empty if it is not known, and `trace` is 0 unless the message is traced.
        """

    def on_blocked(self, connection: int) -> None:
        """The socket of a client takes no more bytes."""

    def on_unblocked(self, connection: int, duration_s: float, waiting_bytes: int) -> None:
        """The socket of a client takes bytes again; `waiting_bytes` waited for it at the end."""

    def on_denied(
        self, client_id: str, username: str | None, action: str, topic: bytes, reason: str, link: Link | None
    ) -> None:
        """A client was denied an action: `publish`, `subscribe` or `receive` (a message that waited when the rules
        changed). `reason` names the rule; `link` is None for a client that is away. Told up to twenty times a second;
        the metrics count all."""

    def on_jailed(self, jailed: Jailed) -> None:
        """A login jail began: too many logins failed."""

    def on_shed(self, link: Link, waiting_bytes: int, messages: int) -> None:
        """Memory is short, and the QoS 0 messages that waited for this client, one of the ten largest holders, were
        dropped. Called at most once a second; the metrics count all."""

    def on_administered(self, by: str, action: str, target: str, done: bool) -> None:
        """A change over HTTP, the admin socket or a queue command was made, or refused (not `done`). `by` is a user, a
        key, a client or `admin socket`, `action` for example `DELETE`, and `target` the path or topic."""

    def on_overload(self, stage: OverloadStage) -> None:
        """A stage of overload began or ended."""

    def on_stood_still(self, duration_s: float) -> None:
        """The process stood still for a second or longer, until now."""

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        """The condition `alarm` (`STORE_FAILING`, `MEMORY_SHORT`, `OVERLOADED`, `PUSH_STOPPED`, `BRIDGE_AWAY`,
        `CLUSTER_WEAK`, `NODE_AWAY`, `DOCUMENTS_DIFFER` or `STOOD_STILL`) began, or ended if not `active`; of the last
        seven also: it became worse, or better, or came again."""


_CORE_EVENTS: Final = ("on_subscribed", "on_unsubscribed", "on_dropped", "on_blocked", "on_unblocked")
"""Events that the core reports only to a tracer."""

_EVENTS: Final = (
    "on_connected",
    "on_refused",
    "on_closed",
    "on_denied",
    "on_jailed",
    "on_shed",
    "on_administered",
    "on_overload",
    "on_stood_still",
    "on_alarm",
    *_CORE_EVENTS,
)


class EventHub(Listener):
    """One for each run of a broker. Passes each event to the listeners, in the order of registration."""

    def __init__(self) -> None:
        self._callbacks: Final[dict[str, list[Callable[..., None]]]] = {event: [] for event in _EVENTS}

    def register(self, listener: Listener) -> None:
        """Add a listener. It gets the events whose methods its class overrides."""
        for event in _EVENTS:
            if getattr(type(listener), event) is not getattr(Listener, event):
                self._callbacks[event].append(getattr(listener, event))

    def unregister(self, listener: Listener) -> None:
        """Remove a listener. Harmless if it is not registered."""
        for event, callbacks in self._callbacks.items():
            self._callbacks[event] = [each for each in callbacks if getattr(each, "__self__", None) is not listener]

    @property
    def needs_tracer(self) -> bool:
        """Whether a listener wants events that the core reports only to a tracer."""
        return any(self._callbacks[event] for event in _CORE_EVENTS)

    def on_connected(self, link: Link) -> None:
        self._tell("on_connected", link)

    def on_ended(self, link: Link) -> None:
        """A connection ended: call `on_closed` if its client was accepted, else `on_refused`; nothing if another broker
        has it now."""
        if link.connection.close_reason != CloseReason.PASSED_ON:
            self._tell("on_closed" if link.connection.accepted else "on_refused", link)

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        self._tell("on_subscribed", connection, topic_filter, qos, reason_code, existing)

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        self._tell("on_unsubscribed", connection, topic_filter)

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        self._tell("on_dropped", trace, receiver, topic, reason, messages, detail)

    def on_blocked(self, connection: int) -> None:
        self._tell("on_blocked", connection)

    def on_unblocked(self, connection: int, duration_s: float, waiting_bytes: int) -> None:
        self._tell("on_unblocked", connection, duration_s, waiting_bytes)

    def on_denied(
        self, client_id: str, username: str | None, action: str, topic: bytes, reason: str, link: Link | None
    ) -> None:
        self._tell("on_denied", client_id, username, action, topic, reason, link)

    def on_shed(self, link: Link, waiting_bytes: int, messages: int) -> None:
        self._tell("on_shed", link, waiting_bytes, messages)

    def on_jailed(self, jailed: Jailed) -> None:
        self._tell("on_jailed", jailed)

    def on_administered(self, by: str, action: str, target: str, done: bool) -> None:
        self._tell("on_administered", by, action, target, done)

    def on_overload(self, stage: OverloadStage) -> None:
        self._tell("on_overload", stage)

    def on_stood_still(self, duration_s: float) -> None:
        self._tell("on_stood_still", duration_s)

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        self._tell("on_alarm", alarm, active, detail)

    def _tell(self, event: str, *arguments: Any) -> None:
        for callback in self._callbacks[event]:
            try:
                callback(*arguments)
            except Exception:  # a log line or a row may be lost, but no client's messages
                _log.exception("a listener to events failed in %s", event)


class MessageTracing(Protocol):
    """The part of `Tracer` for single messages."""

    def traces_topic(self, topic: bytes) -> bool: ...
    def traces_client(self, client_id: str) -> bool: ...
    def next_sample(self) -> int: ...
    def on_received(self, trace: int, topic: bytes, qos: int, payload_bytes: int, publisher: str | None) -> None: ...
    def on_routed(self, trace: int, receivers: int) -> None: ...
    def on_queued(self, trace: int, receiver: str, why: str, waiting: int, limit: int) -> None: ...
    def on_sent(self, trace: int, receiver: str, connection: int, qos: int) -> None: ...
    def on_acknowledged(self, trace: int, receiver: str) -> None: ...
    def on_returned(self, trace: int, receiver: str, detail: str) -> None: ...
    def on_filtered(self, trace: int, receiver: str, expression: str) -> None: ...


class NoMessages:
    """Traces no messages."""

    def traces_topic(self, topic: bytes) -> bool:
        return False

    def traces_client(self, client_id: str) -> bool:
        return False

    def next_sample(self) -> int:
        return NO_SAMPLES

    def on_received(self, trace: int, topic: bytes, qos: int, payload_bytes: int, publisher: str | None) -> None: ...
    def on_routed(self, trace: int, receivers: int) -> None: ...
    def on_queued(self, trace: int, receiver: str, why: str, waiting: int, limit: int) -> None: ...
    def on_sent(self, trace: int, receiver: str, connection: int, qos: int) -> None: ...
    def on_acknowledged(self, trace: int, receiver: str) -> None: ...
    def on_returned(self, trace: int, receiver: str, detail: str) -> None: ...
    def on_filtered(self, trace: int, receiver: str, expression: str) -> None: ...


class CoreTracer:
    """Implements `Tracer`: reports about single messages go to `messages`, all others to the hub."""

    def __init__(self, hub: EventHub, messages: MessageTracing) -> None:
        self.traces_topic: Final = messages.traces_topic
        self.traces_client: Final = messages.traces_client
        self.next_sample: Final = messages.next_sample
        self.on_received: Final = messages.on_received
        self.on_routed: Final = messages.on_routed
        self.on_queued: Final = messages.on_queued
        self.on_sent: Final = messages.on_sent
        self.on_acknowledged: Final = messages.on_acknowledged
        self.on_returned: Final = messages.on_returned
        self.on_filtered: Final = messages.on_filtered
        self.on_dropped: Final = hub.on_dropped
        self.on_subscribed: Final = hub.on_subscribed
        self.on_unsubscribed: Final = hub.on_unsubscribed
        self.on_blocked: Final = hub.on_blocked
        self.on_unblocked: Final = hub.on_unblocked
