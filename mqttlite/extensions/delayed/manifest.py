"""What belongs to delayed messages."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    commands={"delayed": Command("List or cancel delayed messages.", "mqttlite.extensions.delayed.commands:command")},
    routes=("mqttlite.extensions.delayed.routes:routes",),
    first_levels=(b"$delayed",),
    figures=(
        Figure(
            *("gauge", "delayed_messages", "Delayed messages that are not due yet."),
            sys_topic="messages/delayed",
            is_held=True,
        ),
        Figure("gauge", "delayed_bytes", "What they take in memory.", is_held=True),
    ),
)
