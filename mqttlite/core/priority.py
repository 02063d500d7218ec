"""Reads a message's priority. Overload drops low-priority messages first; a topic policy may also set the priority."""

from typing import Final

from mqttlite.core.message import RawProperties
from mqttlite.wire.properties import Properties

LOW: Final = "low"
NORMAL: Final = "normal"
PRIORITIES: Final = (LOW, NORMAL)

_NAME: Final = "priority"
_NAME_BYTES: Final = b"priority"


def is_low(properties: Properties) -> bool:
    """Whether the user property `priority` marks a message as low."""
    return (_NAME, LOW) in properties.user_properties


def raw_is_low(raw: RawProperties) -> bool:
    """The same for raw properties."""
    return _NAME_BYTES in raw.data and is_low(raw.properties)
