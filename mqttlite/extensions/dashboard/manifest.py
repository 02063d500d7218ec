"""What belongs to the dashboard."""

from typing import Final

from mqttlite.extensions.manifest import Manifest

MANIFEST: Final = Manifest(gateway_routes=("mqttlite.extensions.dashboard.router:routes",))
