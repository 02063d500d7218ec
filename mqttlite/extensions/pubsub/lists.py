"""What Google's lists have in common: `pageSize` and `pageToken`, and the `nextPageToken` of the next page."""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from msgspec import Meta
from starlette.responses import Response

from mqttlite.extensions.pubsub.bodies import answer
from mqttlite.gateway.problems import Code, Problem

MAX_PAGE: Final = 1_000
"""Entries of one page; a larger `pageSize` is taken for this, as Google does."""

DEFAULT_PAGE: Final = 100

PageSize = Annotated[
    int, Meta(ge=0, le=0x7FFF_FFFF, description="0: as many as the broker likes", extra={"name": "pageSize"})
]
PageToken = Annotated[
    str, Meta(max_length=1_000, description="The `nextPageToken` before this", extra={"name": "pageToken"})
]


def page(member: str, entries: Iterable[tuple[str, Any]], size: int) -> Response:
    """One page of entries, each with its token, in the order of their tokens."""
    size = min(size or DEFAULT_PAGE, MAX_PAGE)
    found: list[Any] = []
    last = ""
    for token, entry in entries:
        if len(found) == size:
            return answer({member: found, "nextPageToken": last})
        found.append(entry)
        last = token
    return answer({member: found})


def start_of(prefix: str, token: str) -> str:
    """The name from which a page begins. Raises `Problem` for a token of another list."""
    if token and not token.startswith(prefix):
        raise Problem(Code.INVALID_VALUE, f"pageToken is {token[:80]!r}: it is the nextPageToken of another list")
    return token or prefix
