"""Filters on subscriptions: what the core asks of them, and of what makes them. It does not know their language.

Invariant: a subscription without a filter never asks anything here.
"""

from typing import Final, Protocol, final

from mqttlite.core.message import Message

FILTER_BYTES: Final = 500
FILTER_BYTES_PER_CHARACTER: Final = 24
"""About what a filter takes in memory, and each character of its expression; subscriptions may share one."""


class MessageFilter(Protocol):
    """Says of each message whether a subscription gets it. It never raises, and keeps nothing of a message."""

    @property
    def expression(self) -> str:
        """The text that it was compiled from, which a store keeps."""
        ...

    @property
    def reads_payload(self) -> bool:
        """Whether messages that differ in nothing but their payloads may differ for it."""
        ...

    def matches(self, message: Message) -> bool: ...


class FilterCompiler(Protocol):
    """Makes filters. The same expression may give the same filter again."""

    def compile(self, expression: str, mount_point: bytes) -> MessageFilter | str:
        """The filter for a client below a mount point, or a sentence for it that says what is wrong."""
        ...


@final
class StoredFilter:
    """The expression of a filter, as a store gives it. If it cannot be compiled any more, every message passes: the
    client gets more than it asked for, and loses nothing."""

    __slots__ = ("expression", "reads_payload")

    def __init__(self, expression: str) -> None:
        self.expression: Final = expression
        self.reads_payload: Final = False

    def matches(self, message: Message) -> bool:
        return True


@final
class NoFilters:
    """Makes none."""

    def compile(self, expression: str, mount_point: bytes) -> MessageFilter | str:
        return "this broker has no filters"
