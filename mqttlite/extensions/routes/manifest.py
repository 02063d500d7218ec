"""What belongs to routes."""

from typing import Final

from mqttlite.extensions.manifest import Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    switch="routes",
    figures=(
        Figure("counter", "routed", "Messages that a route sent to another topic.", "messages/routed"),
        Figure("counter", "not_routed", "Messages that a route takes and that have no topic to be sent to."),
    ),
)
