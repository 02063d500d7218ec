"""What belongs to the push of queues' messages to web services."""

from typing import Final

from mqttlite.extensions.manifest import Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    needs=("queues",),
    conflicts="mqttlite.extensions.push.problems:problems",
    figures=(
        Figure(
            *("counter", "push_requests"),
            "Requests that pushed messages, by the class of the status, or why there was no response.",
        ),
        Figure("gauge", "push_open", "Requests that are open."),
        Figure("gauge", "push_window", "Requests that may be open."),
        Figure("gauge", "push_state", "How the push of a queue stands: 1 for the state that it is in."),
        Figure("histogram", "push_duration_seconds", "How long requests that pushed messages took, of all queues."),
    ),
)
