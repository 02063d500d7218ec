"""What belongs to bridges."""

from typing import Final

from mqttlite.extensions.manifest import Manifest

MANIFEST: Final = Manifest()
