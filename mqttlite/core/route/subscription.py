"""The values in the tree of topic filters. A `Binding` connects a filter with a receiver; a `Subscription` is the
binding of a session (5.0 §3.8.3.1)."""

from typing import Final, final

from mqttlite.core.message_filter import FILTER_BYTES, FILTER_BYTES_PER_CHARACTER, MessageFilter
from mqttlite.core.sink import Sink
from mqttlite.topics.namespaces import split_share

_SHARE: Final = b"$share/"
_NO_LOCAL: Final = 4
_RETAIN_AS_PUBLISHED: Final = 8
_IDENTIFIER_SHIFT: Final = 4


NO_SINKS: Final[list[Sink]] = []
_NO_CLIENTS: Final[dict[str, None]] = {}
"""Never added to. Shared by the many topics without sinks and without clients with filters."""


class Binding:
    """Connects a topic filter with a receiver."""

    __slots__ = ()

    def join(self, plan: "RoutePlan") -> None:
        """Add the receiver to the plan of a topic that the filter matches."""
        raise AssertionError("each kind of binding has its own")


@final
class RoutePlan:
    """The bindings that match one topic: subscriptions by client, and sinks."""

    __slots__ = ("by_client", "filtering", "heard", "sinks", "traced")

    def __init__(self) -> None:
        self.by_client: Final[dict[str, list[Subscription]]] = {}
        self.filtering: dict[str, None] = _NO_CLIENTS
        """The clients with a message filter on one of these subscriptions."""
        self.sinks: list[Sink] = NO_SINKS
        self.heard: list[Sink] = NO_SINKS
        """Those of the sinks that also take what was published at other brokers."""
        self.traced: bool = False
        """Whether a sink wants every message traced."""

    def add_sink(self, sink: Sink, hears_others: bool = False) -> None:
        if self.sinks is NO_SINKS:
            self.sinks = []
        self.sinks.append(sink)
        if hears_others:
            if self.heard is NO_SINKS:
                self.heard = []
            self.heard.append(sink)

    def add_filtering(self, client_id: str) -> None:
        if self.filtering is _NO_CLIENTS:
            self.filtering = {}
        self.filtering[client_id] = None


@final
class SinkBinding(Binding):
    """The binding of a sink, added with `Routes.bind`."""

    __slots__ = ("hears_others", "is_alone", "sink", "tells_others")

    def __init__(self, sink: Sink, hears_others: bool, tells_others: bool, is_alone: bool) -> None:
        self.sink: Final = sink
        self.hears_others: Final = hears_others
        self.tells_others: Final = tells_others
        self.is_alone: Final = is_alone

    def join(self, plan: RoutePlan) -> None:
        plan.add_sink(self.sink, self.hears_others)


class Subscription(Binding):
    """Compared by identity: subscribing again creates a new one. `identifier` 0 means none.

    There may be millions, so all small fields are packed into one number.
    """

    __slots__ = ("_options", "client_id", "share_name", "subscribed_at", "topic_filter")

    def __init__(
        self,
        client_id: str,
        topic_filter: bytes,
        qos: int,
        no_local: bool = False,
        retain_as_published: bool = False,
        identifier: int = 0,
        subscribed_at: int = 0,
    ) -> None:
        self.client_id: Final = client_id
        self.topic_filter: Final = topic_filter
        options = qos | identifier << _IDENTIFIER_SHIFT
        if no_local:
            options |= _NO_LOCAL
        if retain_as_published:
            options |= _RETAIN_AS_PUBLISHED
        self._options: Final = options
        self.share_name: Final = split_share(topic_filter)[0] if topic_filter.startswith(_SHARE) else b""
        """The share name of a shared subscription, else empty."""
        self.subscribed_at: Final = subscribed_at
        """When its client first subscribed to this filter, in microseconds of Unix time; 0: not known. In the compiled
        build it takes no extra memory, because objects are padded to 16 bytes."""

    @property
    def filter(self) -> bytes:
        """The filter that topic names are compared with. For a shared subscription, the part after the share name."""
        return self.topic_filter[len(b"$share//") + len(self.share_name) :] if self.share_name else self.topic_filter

    def join(self, plan: RoutePlan) -> None:
        subscriptions = plan.by_client.get(self.client_id)
        if subscriptions is None:
            plan.by_client[self.client_id] = [self]
        else:
            subscriptions.append(self)

    @property
    def qos(self) -> int:
        return self._options & 3

    @property
    def no_local(self) -> bool:
        return self._options & _NO_LOCAL != 0

    @property
    def retain_as_published(self) -> bool:
        return self._options & _RETAIN_AS_PUBLISHED != 0

    @property
    def identifier(self) -> int:
        return self._options >> _IDENTIFIER_SHIFT

    @property
    def message_filter(self) -> MessageFilter | None:
        """None: every message passes."""
        return None


@final
class FilteredSubscription(Subscription):
    """A subscription with a message filter."""

    __slots__ = ("_message_filter",)

    def __init__(
        self,
        client_id: str,
        topic_filter: bytes,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        identifier: int,
        message_filter: MessageFilter,
        subscribed_at: int = 0,
    ) -> None:
        super().__init__(client_id, topic_filter, qos, no_local, retain_as_published, identifier, subscribed_at)
        self._message_filter: Final = message_filter

    def join(self, plan: RoutePlan) -> None:
        super().join(plan)
        plan.add_filtering(self.client_id)

    @property
    def message_filter(self) -> MessageFilter | None:
        return self._message_filter

    def filter_bytes(self) -> int:
        """The memory of its message filter, without the subscription."""
        return FILTER_BYTES + FILTER_BYTES_PER_CHARACTER * len(self._message_filter.expression)
