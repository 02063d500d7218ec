"""What metrics, `$SYS` and alarms say of a cluster, from the machine that serves."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mqttlite.event_hub import CLUSTER_WEAK
from mqttlite.extensions.cluster.overview import SERVERS_AWAY
from mqttlite.extensions.cluster.trim import is_filling

if TYPE_CHECKING:
    from mqttlite.extensions.cluster.node import Node
    from mqttlite.telemetry.figures import Values


class ClusterFigures:
    """Of one node. Implements `server.Surroundings`."""

    extension: Final = "cluster"

    def __init__(self, node: "Node") -> None:
        self.node: Final = node
        """The machine that serves."""
        self._on_alarm: Callable[[str, bool, str], None] = lambda _alarm, _active, _detail: None
        self._began_at: datetime | None = None
        self._weakness = ""
        node.log_room.on_looked = self._look

    def begin(self, on_alarm: Callable[[str, bool, str], None]) -> None:
        """A broker begins to serve. `on_alarm` takes its alarms."""
        self._on_alarm = on_alarm
        self._began_at = datetime.now(UTC)
        self._weakness = ""
        self._look()

    def settled(self) -> None:
        """The broker stops, and has committed what it keeps."""
        self.node.settled()

    @property
    def machine(self) -> str:
        """The name of this machine."""
        return self.node.name

    @property
    def began_at(self) -> datetime | None:
        """When the broker began to serve; None while it starts."""
        return self._began_at

    @property
    def weakness(self) -> str:
        """What the alarm says; empty while there is none."""
        return self._weakness

    def values(self) -> Mapping[str, "Values"]:
        """By the names in the manifest."""
        node = self.node
        overview = node.overview()
        return {
            "cluster_serving": [({"machine": node.name}, float(node.role == "serves"))],
            "cluster_machines": [({"machine": each.node, "role": each.role}, 1.0) for each in overview.machines],
            "cluster_behind": [({"machine": each.node}, float(overview.behind(each))) for each in overview.machines],
            "cluster_turn": float(overview.turn),
            "cluster_log_bytes": float(overview.log_bytes),
            "cluster_log_limit_bytes": float(overview.max_log_bytes),
            "cluster_servers_away": float(len(overview.servers_away)),
            "cluster_lease_age_seconds": node.turn.renewed_ago(),
        }

    def sys_values(self) -> Iterator[tuple[str, str]]:
        """Further names below `$SYS/broker/`, with their texts."""
        overview = self.node.overview()
        yield "cluster/machine", self.node.name
        for each in overview.machines:
            yield f"cluster/machines/{each.node}/role", each.role
            yield f"cluster/machines/{each.node}/behind", str(overview.behind(each))

    def _look(self) -> None:
        weakness = self._node_weakness()
        if weakness != self._weakness:
            self._weakness = weakness
            self._on_alarm(CLUSTER_WEAK, bool(weakness), weakness)

    def _node_weakness(self) -> str:
        """Why the cluster could lose more than it should, in a sentence; empty if it could not."""
        node = self.node
        if node.log_room.is_silent:
            return "the engine does not answer: messages that are to be kept wait"
        problems = "; ".join(node.machines.problems())
        if not node.machines.followers():
            return problems or "no other machine follows, so none could take over"
        if problems:
            return problems
        if away := node.log_room.bounds.away:
            return f"{SERVERS_AWAY}: {', '.join(away)}"
        if is_filling(node.log_room.bounds.size_bytes, node.log_room.bounds.max_bytes):
            return "more than half of the log is used, because a machine is behind"
        return ""
