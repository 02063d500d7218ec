"""What belongs to the import of Mosquitto's configuration."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest

MANIFEST: Final = Manifest(
    commands={
        "import": Command(
            "Convert the configuration of Mosquitto.", "mqttlite.extensions.mosquitto_import.commands:command"
        ),
    },
    advice="mqttlite.extensions.mosquitto_import.mosquitto_conf:advice",
)
