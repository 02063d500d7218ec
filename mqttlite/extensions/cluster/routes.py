"""`/api/v1/cluster`: the machines of a cluster, as the one knows them that serves.

Invariant: a broker that is no machine of a cluster has no such route.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mqttlite.extensions.cluster.figures import ClusterFigures
from mqttlite.extensions.cluster.status import Role as MachineRole
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.routing import OPERATORS, Route, Routes


class MachineState(msgspec.Struct, frozen=True, kw_only=True):
    """One machine."""

    name: str
    role: MachineRole
    """What it does. `silent`: it has said nothing for 30 seconds."""
    problem: str
    """Why it could not serve, in a sentence; empty if it could."""
    behind: int
    """How many records of the log it does not have yet."""
    safe_up_to: int
    """The last record that it has after a power cut."""
    addresses: tuple[str, ...]
    """Where clients find it."""
    version: str
    """Of mqttlite."""
    heard_ago_s: float
    """How long ago it said something."""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster."""

    machine: str
    """The machine that answers."""
    serving: str
    """The machine that has the lease; empty if it was given back."""
    serving_since: datetime | None
    """When the machine that answers began to serve; null while it starts."""
    turn: int
    """How often a machine has begun to serve."""
    lease_age_s: float
    """How long ago the lease was renewed. After three seconds another machine may take it."""
    problem: str
    """Why the cluster could lose more than it should, in a sentence; empty if it could not."""
    first: int
    """The first record of the log that is kept."""
    last: int
    """The last record."""
    log_bytes: int
    log_limit_bytes: int
    servers_away: tuple[str, ...]
    """Servers of the engine that have not taken the log for some seconds: it has fewer than three copies."""
    snapshot: int
    """The last record that the engine's snapshot has; 0 if there is none."""
    machines: list[MachineState]
    """By name."""


def routes(context: OperatorContext) -> Sequence[Route]:
    """The route of this module."""
    figures = figures_of(context)
    if figures is None:
        return ()
    route = Routes("/api/v1", "cluster", served_on=OPERATORS)

    @route.get("/cluster", Role.VIEWER, "Show the machines of the cluster")
    async def show() -> ClusterState:
        """Which machine serves, how far the others are behind, and how full the log is."""
        return state_of(figures)

    return route.made


def figures_of(context: OperatorContext) -> ClusterFigures | None:
    """None if the broker is no machine of a cluster."""
    around = context.surroundings
    return around if isinstance(around, ClusterFigures) else None


def state_of(figures: ClusterFigures) -> ClusterState:
    """The cluster as the machine knows it; the engine is not asked, since it may be what is ill."""
    node = figures.node
    overview = node.overview()
    return ClusterState(
        machine=node.name,
        serving=overview.serving,
        serving_since=figures.began_at,
        turn=overview.turn,
        lease_age_s=node.turn.renewed_ago(),
        problem=figures.weakness,
        first=overview.first,
        last=overview.last,
        log_bytes=overview.log_bytes,
        log_limit_bytes=overview.max_log_bytes,
        servers_away=overview.servers_away,
        snapshot=overview.snapshot,
        machines=[
            MachineState(
                name=each.node,
                role=each.role,
                problem=each.problem,
                behind=overview.behind(each),
                safe_up_to=each.durable,
                addresses=each.addresses,
                version=each.build,
                heard_ago_s=node.machines.heard_ago(each.node),
            )
            for each in overview.machines
        ],
    )
