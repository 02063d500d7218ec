"""What belongs to presence by topic."""

from typing import Final

from mqttlite.extensions.manifest import Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    subject_of="mqttlite.extensions.presence.topics:presence_subject",
    figures=(
        Figure("gauge", "presence_topics", "Topics whose subscribers are told."),
        Figure("gauge", "presence_subscriptions", "Subscriptions that are told of."),
        Figure("counter", "presence_events", "Events of who came and left."),
        Figure(
            *("counter", "presence_left_out"),
            "Topics and subscriptions left out of presence, for a limit was reached.",
        ),
    ),
)
