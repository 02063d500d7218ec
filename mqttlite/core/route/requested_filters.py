"""The message filters of one SUBSCRIBE: one for all topic filters in the user property `filter`, or, if the listener
allows it, one after the `?` of each topic filter.

Invariant: a topic filter with an invalid message filter is refused, and never subscribed without it.
"""

from typing import Final, final

from mqttlite.core.connect.connection import Connection
from mqttlite.core.effects import Effects
from mqttlite.core.limits import CHARACTERS_PER_WORK_UNIT
from mqttlite.core.message_filter import FilterCompiler, MessageFilter
from mqttlite.wire.packets import SubscriptionRequest
from mqttlite.wire.properties import Properties

PROPERTY: Final = "filter"
_MARK: Final = b"?"


def without_filter(topic_filter: bytes) -> bytes:
    """A topic filter without its message filter: the part before `?` or `/?`.

    `/?` is for the many client libraries that reject a topic filter in which `+` is not a whole level.
    """
    base, mark, _expression = topic_filter.partition(_MARK)
    return base[:-1] if mark and base.endswith(b"/") else base


@final
class RequestedFilter:
    """A filter, or the reason why it is refused. If neither is set, every message passes."""

    __slots__ = ("message_filter", "refusal")

    def __init__(self, message_filter: MessageFilter | None = None, refusal: str = "") -> None:
        self.message_filter: Final = message_filter
        self.refusal: Final = refusal


_EVERYTHING: Final = RequestedFilter()


@final
class RequestedFilters:
    """The filters of a packet; see `requested_filters`."""

    __slots__ = ("_compiler", "_effects", "_for_all", "_has_property", "_has_suffixes", "_mount_point")

    def __init__(
        self, expressions: list[str], connection: Connection, compiler: FilterCompiler, effects: Effects
    ) -> None:
        self._compiler: Final = compiler
        self._effects: Final = effects
        self._has_suffixes: Final = connection.peer.capabilities.filter_suffix
        self._mount_point: Final = connection.identity.mount_point
        self._has_property: Final = len(expressions) > 0
        if len(expressions) > 1:
            self._for_all = RequestedFilter(None, f"the user property {PROPERTY} comes {len(expressions)} times")
        else:
            self._for_all = self._compile(expressions[0] if expressions else "")

    def base(self, request: SubscriptionRequest) -> SubscriptionRequest:
        """The request without the message filter after its topic filter."""
        if not self._has_suffixes or _MARK not in request.topic_filter:
            return request
        topic_filter = without_filter(request.topic_filter)
        return SubscriptionRequest(
            topic_filter, request.qos, request.no_local, request.retain_as_published, request.retain_handling
        )

    def of(self, request: SubscriptionRequest) -> RequestedFilter:
        """The message filter of a topic filter."""
        _topic_filter, mark, expression = request.topic_filter.partition(_MARK)
        if not mark or not self._has_suffixes:
            return self._for_all
        if self._has_property:
            return RequestedFilter(None, f"a filter is behind ? or in the user property {PROPERTY}, and not in both")
        return self._compile(expression.decode())

    def _compile(self, expression: str) -> RequestedFilter:
        if not expression:
            return _EVERYTHING
        self._effects.work += len(expression) // CHARACTERS_PER_WORK_UNIT
        compiled = self._compiler.compile(expression, self._mount_point)
        return RequestedFilter(None, compiled) if isinstance(compiled, str) else RequestedFilter(compiled)


def requested_filters(
    connection: Connection, properties: Properties, compiler: FilterCompiler, effects: Effects
) -> RequestedFilters | None:
    """The filters of a SUBSCRIBE with these properties; None if it cannot have any."""
    has_suffixes = connection.peer.capabilities.filter_suffix
    if not has_suffixes and not properties.user_properties:
        return None
    expressions = [value for name, value in properties.user_properties if name == PROPERTY]
    if not has_suffixes and not expressions:
        return None
    return RequestedFilters(expressions, connection, compiler, effects)
