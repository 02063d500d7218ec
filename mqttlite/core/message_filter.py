"""Ports for message filters on subscriptions, and for their compiler. The core does not know the filter language.

Invariant: a subscription without a filter uses nothing in this module.
"""

from typing import Final, Protocol, final

from mqttlite.core.message import Message

FILTER_BYTES: Final = 500
FILTER_BYTES_PER_CHARACTER: Final = 24
"""About how much memory a filter takes, plus an amount for each character of its expression. Filters may be shared."""


class MessageFilter(Protocol):
    """Decides for each message whether a subscription gets it. It never raises, and keeps no reference to a message."""

    @property
    def expression(self) -> str:
        """The text that it was compiled from. The store keeps it."""
        ...

    @property
    def reads_payload(self) -> bool:
        """Whether the result may depend on the payload."""
        ...

    def matches(self, message: Message) -> bool: ...


class FilterCompiler(Protocol):
    """Compiles filters. The same expression may yield the same filter again."""

    def compile(self, expression: str, mount_point: bytes) -> MessageFilter | str:
        """The filter for a client below a mount point, or a sentence for the client that says what is wrong."""
        ...


@final
class StoredFilter:
    """The expression of a filter, loaded from a store. If it can no longer be compiled, every message passes, so that
    the client loses no message."""

    __slots__ = ("expression", "reads_payload")

    def __init__(self, expression: str) -> None:
        self.expression: Final = expression
        self.reads_payload: Final = False

    def matches(self, message: Message) -> bool:
        return True


@final
class NoFilters:
    """The compiler of a broker without filters."""

    def compile(self, expression: str, mount_point: bytes) -> MessageFilter | str:
        return "this broker has no filters"
