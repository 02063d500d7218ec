"""What belongs to explanations."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest

MANIFEST: Final = Manifest(
    commands={
        "explain": Command(
            "Say what would become of a message or a subscription.", "mqttlite.extensions.explain.commands:command"
        ),
    },
    routes=("mqttlite.extensions.explain.routes:routes",),
)
