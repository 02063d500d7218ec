"""Common types of lists: `cursor` and `limit`, and pages of `items` with the `cursor` of the next page.

Invariant: a page has `MAX_PAGE` entries at most; it may have fewer, and still another may follow.
"""

from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from mqttlite.operations.admin import MAX_PAGE, Page

T = TypeVar("T")

MAX_TEXT: Final = 65_535
"""Characters of a cursor, a filter or a name: MQTT has no longer ones."""

Cursor = Annotated[str, Meta(max_length=MAX_TEXT, description="The `cursor` of the page before; empty for the first.")]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE, description="How many entries to return at most.")]


class Listed(msgspec.Struct, Generic[T]):
    """One page."""

    items: list[T]
    cursor: str | None
    """Of the next page; null on the last one."""


def listed(page: Page[T]) -> Listed[T]:
    """A page of `Admin` as an answer."""
    return Listed(items=page.entries, cursor=page.cursor or None)
