"""What belongs to bridges."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    compiled="figures path relay topic_map",
    commands={
        "bridge": Command(
            "List, add, remove, pause or resume bridges to other brokers.",
            "mqttlite.extensions.bridge.commands:command",
        ),
    },
    routes=("mqttlite.extensions.bridge.routes:routes",),
    pages=("mqttlite.extensions.bridge.pages:add",),
    menu=(("/ui/bridges", "Bridges"),),
    part_of={"/ui/bridge": "/ui/bridges"},
    figures=(
        Figure("gauge", "bridge_connected", "Whether a bridge is connected: 1 or 0."),
        Figure("gauge", "bridge_waiting", "Messages for the other broker that it has not acknowledged."),
        Figure("counter", "bridge_sent", "Messages sent to the other broker, repeated ones included."),
        Figure("counter", "bridge_received", "Messages from the other broker, repeated ones included."),
        Figure("counter", "bridge_filtered", "Messages from the other broker that passed no filter."),
        Figure("counter", "bridge_dropped", "Messages that a bridge dropped, by reason."),
        Figure("counter", "bridge_connects", "How often a bridge has connected."),
    ),
)
