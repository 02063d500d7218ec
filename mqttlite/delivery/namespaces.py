"""The namespaces of all features."""

from typing import Final

from mqttlite.delivery.queues.namespace import DEAD_LETTERS, QUEUES
from mqttlite.topics.namespaces import Namespaces, unavailable

NAMESPACES: Final = Namespaces(
    [QUEUES, DEAD_LETTERS, unavailable(b"$stream", "$stream/…: this broker has no streams yet")]
)
