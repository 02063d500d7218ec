"""What belongs to the API in the shape of Google Pub/Sub's."""

from typing import Final

from mqttlite.extensions.manifest import Manifest

MANIFEST: Final = Manifest(
    needs=("queues",),
    gateway_routes=("mqttlite.extensions.pubsub.routes:routes",),
    errors={"/v1/": "mqttlite.extensions.pubsub.errors:ERRORS"},
)
