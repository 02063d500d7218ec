"""What other nodes have, below the lists of this one: on the pages of queues and of streams.

Invariant: a node that did not answer is named.
"""

from typing import Any, Final, NamedTuple

from starlette.requests import Request

from mqttlite.gateway.asking import ask_too, checked
from mqttlite.gateway.context import OperatorContext
from mqttlite.operations.admin import MAX_PAGE

SHOWN: Final = 200
"""Entries of other nodes that a page lists."""


class AtOtherNodes(NamedTuple):
    """`items` and `silent` as in the answer of the route, without what is here."""

    items: list[dict[str, Any]]
    silent: list[dict[str, Any]]


async def at_other_nodes(context: OperatorContext, request: Request, path: str) -> AtOtherNodes | None:
    """What they answer at a list of the API; None if the broker is alone."""
    nodes = context.nodes
    if nodes is None:
        return None
    found = checked(await ask_too(request, "GET", path, {"limit": str(MAX_PAGE)}))
    return AtOtherNodes([each for each in found["items"] if each["node"] != nodes.node][:SHOWN], found["silent"])
