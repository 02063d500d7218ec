"""What belongs to nodes."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    commands={
        "nodes": Command(
            "List the other nodes, drain one, or spread queues.", "mqttlite.extensions.nodes.commands:command"
        ),
    },
    routes=("mqttlite.extensions.nodes.routes:routes", "mqttlite.extensions.nodes.balance:routes"),
    pages=("mqttlite.extensions.nodes.pages:add",),
    menu=(("/ui/nodes", "Nodes"),),
    switch="nodes",
    conflicts="mqttlite.extensions.nodes.problems:problems",
    look="mqttlite.extensions.nodes.look:look",
    figures=(
        Figure("gauge", "nodes_info", "1, with the name of this node as its label."),
        Figure("gauge", "nodes_connected", "Whether another node is connected: 1 or 0.", "nodes/connected"),
        Figure("gauge", "nodes_waiting", "Messages for another node that it has not acknowledged.", "nodes/waiting"),
        Figure("gauge", "nodes_filters", "Topic filters that are subscribed at another node."),
        Figure("counter", "nodes_sent_bytes", "Bytes of MQTT packets for another node."),
        Figure("counter", "nodes_received_bytes", "Bytes of MQTT packets from another node."),
        Figure("counter", "nodes_connects", "How often another node has connected."),
        Figure("gauge", "nodes_shared_revision", "The revision of a document here that all nodes have."),
        Figure("gauge", "nodes_shared_current", "Whether it is that of all nodes, and may be changed: 1 or 0."),
        Figure("counter", "nodes_shared_refused", "Changes of it here that gave way to those of another node."),
        Figure("gauge", "nodes_passed_on", "Clients here whose sessions are at another node, which serves them."),
        Figure("gauge", "nodes_draining", "1 while this node takes no sessions and moves its own away, else 0."),
        Figure("counter", "nodes_moved", "Sessions that this node has moved to other nodes."),
    ),
)
