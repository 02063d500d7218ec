"""What belongs to clusters."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    compiled="codec",
    commands={
        "cluster": Command(
            "Look at the machines of a cluster, or let another one serve.",
            "mqttlite.extensions.cluster.commands:command",
        ),
    },
    routes=("mqttlite.extensions.cluster.routes:routes",),
    pages=("mqttlite.extensions.cluster.pages:add",),
    menu=(("/ui/cluster", "Cluster"),),
    switch="cluster",
    conflicts="mqttlite.extensions.cluster.problems:problems",
    figures=(
        Figure("gauge", "cluster_serving", "Whether this machine serves: 1 or 0."),
        Figure("gauge", "cluster_machines", "The machines of the cluster, by what they do; each is 1."),
        Figure("gauge", "cluster_behind", "How many records of the log a machine does not have yet."),
        Figure("counter", "cluster_turn", "How often another machine has begun to serve.", "cluster/turn"),
        Figure("gauge", "cluster_log_bytes", "The size of the log on each server of the engine.", "cluster/log/bytes"),
        Figure("gauge", "cluster_log_limit_bytes", "The most bytes of the log."),
        Figure("gauge", "cluster_servers_away", "Servers of the engine that do not take the log now."),
        Figure("gauge", "cluster_lease_age_seconds", "Seconds since this machine renewed its lease; 3 are too many."),
    ),
    look="mqttlite.extensions.cluster.look:look",
    serving="mqttlite.extensions.cluster.serving:serve",
)
