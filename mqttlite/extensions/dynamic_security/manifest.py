"""What belongs to the commands of dynamic security. Its file, rules and logins belong to the broker itself."""

from typing import Final

from mqttlite.extensions.manifest import Manifest

MANIFEST: Final = Manifest(gateway_routes=("mqttlite.extensions.dynamic_security.routes:routes",))
