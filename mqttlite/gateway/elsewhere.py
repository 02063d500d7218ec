"""Requests that are about other nodes, as data, and the port by which the HTTP application reaches those.

The broker may be one of several nodes: `extensions.nodes` implements `Elsewhere`. `asking` answers requests of other
nodes. Invariant: nothing of the gateway is needed to import this.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

import msgspec
from starlette.responses import Response

CALLER: Final = "caller_at_node"
"""In the state of a request of another node: its `NodeCaller`."""

IS_ADMITTED: Final = "is_admitted"
"""In the state of a request that is a part of one whose caller was admitted, and counted."""


class Reach(Enum):
    """About which nodes a request is that does not name one, where the broker is one of several nodes."""

    HERE = auto()
    """The node that is asked."""
    LIST = auto()
    """All: its answer has `items`, and there are those of all nodes."""
    THING = auto()
    """The node that has what the path names (`Route.thing`). If several have it, a request that changes nothing is
    about the one that is asked, or the first other one, and a change is refused."""
    EACH = auto()
    """All: each carries it out."""


class NodeCaller(msgspec.Struct, frozen=True, array_like=True):
    """A caller, as the node that admitted it describes it to another one."""

    username: str | None
    role: int
    how: str
    """As in `Caller`, with the name of that node."""
    client: tuple[str, int] | None
    """Its address and port."""


class Question(msgspec.Struct, frozen=True, array_like=True):
    """A request to another node."""

    method: str
    path: bytes
    """Percent-encoded."""
    query: bytes
    media_type: str
    body: bytes
    caller: NodeCaller


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """The answer."""

    status: int
    media_type: str
    body: bytes

    def response(self) -> Response:
        """The same for the caller here."""
        return Response(self.body, self.status, media_type=self.media_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """A request that came here, and may be about other nodes."""

    reach: Reach
    question: Question
    """Without the parameter `node`."""
    here: Callable[[bytes], Awaitable[Response]]
    """Answers it here, with this query. Raises `Problem`."""
    has: Callable[[], Awaitable[bool]]
    """Whether this node has the thing. Raises `Problem`."""
    thing: bytes
    """The path of the thing, percent-encoded, for `Reach.THING`: its GET says whether a node has it."""
    default_limit: int
    """The entries of a page for a request that does not say how many; 0 for a list that has no pages."""
    state: dict[str, Any]
    """Of the request: `node` becomes the node that has answered, for the audit log."""


class Elsewhere(Protocol):
    """The other nodes."""

    @property
    def me(self) -> str:
        """The name of this one."""
        ...

    @property
    def connected(self) -> list[str]:
        """The names of the others that are connected with this one, sorted."""
        ...

    async def tell_all(self, names: Iterable[str]) -> str:
        """Wait until these and all others that are connected know what is subscribed here now. Return why one of them
        does not; empty if all do."""
        ...

    async def ask(self, node: str, question: Question) -> Answered:
        """The answer of another node to a request that follows from that of a caller. Raises `Problem`."""
        ...

    async def answer(self, inquiry: Inquiry, node: str | None) -> Response:
        """The answer of that node, or of all that the request is about. Raises `Problem`."""
        ...
