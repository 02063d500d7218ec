"""Which messages are the first to be dropped under overload: those whose publisher, or topic policy, says so."""

from typing import Final

from mqttlite.core.message import RawProperties
from mqttlite.wire.properties import Properties

LOW: Final = "low"
NORMAL: Final = "normal"
PRIORITIES: Final = (LOW, NORMAL)

_NAME: Final = "priority"
_NAME_BYTES: Final = b"priority"


def is_low(properties: Properties) -> bool:
    """Whether a message says of itself that its priority is low, with the user property `priority`."""
    return (_NAME, LOW) in properties.user_properties


def raw_is_low(raw: RawProperties) -> bool:
    """The same for properties that are not decoded."""
    return _NAME_BYTES in raw.data and is_low(raw.properties)
