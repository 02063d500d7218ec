"""What belongs to Sparkplug awareness."""

from typing import Final

from mqttlite.extensions.manifest import Manifest

MANIFEST: Final = Manifest(
    switch="sparkplug",
    right_of="mqttlite.extensions.sparkplug.sparkplug:right_of",
    subject_of="mqttlite.extensions.sparkplug.sparkplug:subject_of",
)
