"""What belongs to schemas of payloads."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    commands={
        "schema": Command("Register, list, compare or delete schemas.", "mqttlite.extensions.schemas.commands:command"),
    },
    routes=("mqttlite.extensions.schemas.routes:routes",),
    errors={"/registry": "mqttlite.extensions.schemas.routes:ERRORS"},
    pages=("mqttlite.extensions.schemas.page:add",),
    part_of={"/ui/schema": "/ui/catalogue"},
    lookup="mqttlite.extensions.schemas.schemas:registry_in",
    figures=(
        Figure(
            *("counter", "schema_violations"),
            "Messages whose payload is not what the schema of their topic says, by schema and what was done.",
        ),
    ),
)
