"""What belongs to the dataset of telemetry."""

from typing import Final

from mqttlite.extensions.manifest import Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    switch="telemetry",
    routes=("mqttlite.extensions.dataset.routes:routes",),
    file_problems="mqttlite.extensions.dataset.problems:problems",
    figures=(
        Figure("counter", "telemetry_rows_written", "Rows of the dataset that are in files."),
        Figure(
            *("counter", "telemetry_rows_dropped"),
            "Rows of the dataset that were dropped, for the disk was too slow or failed.",
        ),
    ),
)
