"""What metrics, `$SYS` and alarms say of a cluster, from the machine that serves."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from mqttlite.event_hub import CLUSTER_WEAK
from mqttlite.extensions.cluster.trim import is_filling

if TYPE_CHECKING:
    from mqttlite.extensions.cluster.node import Node
    from mqttlite.telemetry.figures import Values


class ClusterFigures:
    """Of one node. Implements `server.Surroundings`."""

    extension: Final = "cluster"

    def __init__(self, node: "Node") -> None:
        self._node: Final = node
        self._on_alarm: Callable[[str, bool, str], None] = lambda _alarm, _active, _detail: None
        self._weakness = ""
        node.on_looked = self._look

    def begin(self, on_alarm: Callable[[str, bool, str], None]) -> None:
        """A broker begins to serve. `on_alarm` takes its alarms."""
        self._on_alarm = on_alarm
        self._weakness = ""
        self._look()

    def values(self) -> Mapping[str, "Values"]:
        """By the names in the manifest."""
        node = self._node
        last = node.bounds.last
        machines = sorted(node.nodes.values(), key=lambda each: each.node)
        return {
            "cluster_serving": [({"machine": node.name}, float(node.role == "serves"))],
            "cluster_machines": [({"machine": each.node, "role": each.role}, 1.0) for each in machines],
            "cluster_behind": [({"machine": each.node}, float(max(0, last - each.position))) for each in machines],
            "cluster_turn": float(node.turn),
            "cluster_log_bytes": float(node.bounds.size_bytes),
            "cluster_log_limit_bytes": float(node.bounds.max_bytes),
            "cluster_lease_age_seconds": node.renewed_ago(),
        }

    def sys_values(self) -> Iterator[tuple[str, str]]:
        """Further names below `$SYS/broker/`, with their texts."""
        node = self._node
        yield "cluster/machine", node.name
        for each in node.nodes.values():
            yield f"cluster/machines/{each.node}/role", each.role
            yield f"cluster/machines/{each.node}/behind", str(max(0, node.bounds.last - each.position))

    def _look(self) -> None:
        weakness = self._node_weakness()
        if weakness != self._weakness:
            self._weakness = weakness
            self._on_alarm(CLUSTER_WEAK, bool(weakness), weakness)

    def _node_weakness(self) -> str:
        """Why the cluster could lose more than it should, in a sentence; empty if it could not."""
        node = self._node
        if node.is_silent:
            return "the engine does not answer: messages that are to be kept wait"
        if not any(each.role == "follows" and each.node != node.name for each in node.nodes.values()):
            return "no other machine follows, so none could take over"
        if is_filling(node.bounds.size_bytes, node.bounds.max_bytes):
            return "more than half of the log is used, because a machine is behind"
        return ""
