"""A cluster: which machine serves, and how far each one is.

`look` asks the engine; `node.overview` is what the machine knows that serves.
"""

from typing import Final

import msgspec

from mqttlite.engine.port import Engine
from mqttlite.extensions.cluster import keys, lease, snapshot, status

SERVERS_AWAY: Final = "the log has fewer than three copies, for servers of the engine are away"


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Sequences are those of the log."""

    serving: str
    """The machine that has the lease; empty if it was given back."""
    turn: int
    """How often the lease has changed hands."""
    first: int
    """The first record that is kept."""
    last: int
    """The last record."""
    log_bytes: int
    max_log_bytes: int
    servers_away: tuple[str, ...]
    """Servers of the engine that do not take the log now."""
    snapshot: int
    """How far the engine's snapshot is; 0 if there is none."""
    machines: tuple[status.NodeStatus, ...]
    """By name. One that stopped for ever stays until its key is removed."""

    def behind(self, machine: status.NodeStatus) -> int:
        """How many records of the log a machine lacks. It may have said so later than the log was looked at."""
        return max(0, self.last - machine.position)

    def role_of(self, node: str) -> str:
        """What a machine says of itself; empty for one that is not known."""
        return next((each.role for each in self.machines if each.node == node), "")


async def look(engine: Engine) -> Overview:
    """Raises `EngineError`."""
    bounds = await engine.bounds(keys.LOG)
    entry = await engine.get(keys.LEASE)
    holder = None if entry is None or entry.value is None else lease.decode(entry.value)
    machines = [status.decode_node(each.value) for each in await engine.entries(keys.NODES)]
    return Overview(
        serving="" if holder is None else holder.node,
        turn=0 if holder is None else holder.turn,
        first=bounds.first,
        last=bounds.last,
        log_bytes=bounds.size_bytes,
        max_log_bytes=bounds.max_bytes,
        servers_away=bounds.away,
        snapshot=await snapshot.position_of(engine),
        machines=tuple(sorted((each for each in machines if each is not None), key=lambda each: each.node)),
    )
