"""`POST /api/v1/nodes/balance`: queues go from nodes that have many to nodes that have few, until each has as many.

Invariant: nothing moves while a node does not answer, because what it has is not known.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.requests import Request

from mqttlite.gateway.asking import ask_too, checked
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes

PAGE: Final = "1000"

MOVES_AT_ONCE: Final = 100
"""The most queues that one request moves: some seconds. The next request goes on."""

DryRun = Annotated[bool, Meta(description="Only say which would move.")]


@dataclass(frozen=True, slots=True)
class Placed:
    """A queue, and the node that has it."""

    name: str
    node: str
    depth: int
    """How many messages are in it."""


class Move(msgspec.Struct):
    """A queue that goes from one node to another."""

    name: str
    origin: str
    to: str
    messages: int


class Stays(msgspec.Struct):
    """A queue that should have moved, and cannot."""

    name: str
    node: str
    reason: str


class Balanced(msgspec.Struct):
    """What was done, or with `dry_run` would be, and how many queues each node has then."""

    moved: list[Move]
    stayed: list[Stays]
    queues: dict[str, int]
    complete: bool
    """Whether nothing is left to move."""


class Balance:
    """Finds which queues should move so that each of these nodes has as many, or one more, and others have none: those
    with the fewest messages."""

    def __init__(self, nodes: Iterable[str], placed: Iterable[Placed]) -> None:
        self._nodes: Final = sorted(nodes)
        self._at: Final[dict[str, list[Placed]]] = {node: [] for node in self._nodes}
        for each in placed:
            self._at.setdefault(each.node, []).append(each)
        for there in self._at.values():
            there.sort(key=lambda each: (-each.depth, each.name))
        self._stuck: Final = dict.fromkeys(self._at, 0)
        """By node, how many stay that should have moved."""

    @property
    def counts(self) -> dict[str, int]:
        """How many queues each node has."""
        return {node: len(there) + self._stuck[node] for node, there in self._at.items()}

    def next(self) -> tuple[Placed, str] | None:
        """A queue that should move, and where to; None: there is no further one. Say `moved` or `stayed` after it."""
        counts = self.counts
        to = min(self._nodes, key=lambda node: counts[node])
        for node in sorted(counts, key=lambda node: (node in self._nodes, -counts[node])):
            if self._at[node] and (counts[node] - counts[to] > 1 or node not in self._nodes):
                return self._at[node][-1], to
        return None

    def moved(self, each: Placed, to: str) -> None:
        """It went there."""
        self._at[each.node].remove(each)
        self._at[to].insert(0, each)

    def stayed(self, each: Placed) -> None:
        """It cannot move."""
        self._at[each.node].remove(each)
        self._stuck[each.node] += 1


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    nodes = context.nodes
    route = Routes("/api/v1", "nodes", served_on=OPERATORS)

    @route.post("/nodes/balance", Role.ADMIN, "Spread queues over the nodes")
    async def balance(request: Request, dry_run: DryRun = False) -> Balanced:
        """Each node has as many queues then, or one more, and one that drains has none. Those with the fewest messages
        move, one after the other; what cannot move stays, with the reason. Streams stay where they are."""
        if nodes is None:
            raise Problem(Code.CONFLICT, "this broker is alone: there are no nodes over which queues could be spread")
        names = [] if nodes.drain.is_on else [nodes.node]
        names += [each.name for each in nodes.peers if each.is_connected and not each.drain]
        if not names:
            raise Problem(Code.CONFLICT, "all nodes drain: take one into service first (mqttlite nodes undrain)")
        found = Balance(names, await _placed(request))
        moved: list[Move] = []
        stayed: list[Stays] = []
        while (wanted := found.next()) is not None and (dry_run or len(moved) < MOVES_AT_ONCE):
            queue, to = wanted
            try:
                if not dry_run:
                    await _move(request, queue, to)
            except Problem as problem:
                if problem.code not in (Code.CONFLICT, Code.NOT_FOUND):
                    raise
                stayed.append(Stays(queue.name, queue.node, problem.detail))
                found.stayed(queue)
                continue
            moved.append(Move(queue.name, queue.node, to, queue.depth))
            found.moved(queue, to)
        return Balanced(moved, stayed, found.counts, complete=wanted is None)

    return route.made


async def _placed(request: Request) -> list[Placed]:
    """All queues. Raises `Problem`."""
    placed: list[Placed] = []
    cursor: str | None = ""
    while cursor is not None:
        found: dict[str, Any] = checked(
            await ask_too(request, "GET", "/api/v1/queues", {"limit": PAGE, "cursor": cursor})
        )
        if "silent" not in found:
            raise Problem(Code.CONFLICT, "no node spreads queues for another one: ask that node itself")
        for silent in found["silent"]:
            raise Problem(Code.NO_ANSWER, f"nothing was moved: node {silent['node']} {silent['reason']}")
        placed += [Placed(each["name"], each["node"], each["depth"]) for each in found["items"] if not each["leaving"]]
        cursor = found["cursor"]
    return placed


async def _move(request: Request, queue: Placed, to: str) -> None:
    """Raises `Problem`."""
    path = f"/api/v1/queues/{quote(queue.name, safe='')}/move"
    checked(await ask_too(request, "POST", path, {"node": queue.node}, msgspec.json.encode({"to": to})))
