"""Reads a message's priority. Overload drops low-priority messages first; a topic policy may also set the priority."""

from typing import Final

from mqttlite.core.effects import Effects
from mqttlite.core.message import RawProperties
from mqttlite.core.reasons import OVERLOAD_LOW_PRIORITY, OVERLOAD_QOS0
from mqttlite.topics.namespaces import is_control
from mqttlite.wire.properties import Properties

LOW: Final = "low"
NORMAL: Final = "normal"

OVERLOADED: Final = "the broker is overloaded, and the message has a low priority: publish it again later"

_NAME: Final = "priority"
_NAME_BYTES: Final = b"priority"


def is_low(properties: Properties) -> bool:
    """Whether the user property `priority` marks a message as low."""
    return (_NAME, LOW) in properties.user_properties


def raw_is_low(raw: RawProperties) -> bool:
    """The same for raw properties."""
    return _NAME_BYTES in raw.data and is_low(raw.properties)


def shed_reason(effects: Effects, topic: bytes, qos: int, has_low_priority: bool) -> str:
    """Why the stage of overload in force drops a message; empty if it does not. Ask while it `sheds_low_priority`."""
    if has_low_priority:
        return OVERLOAD_LOW_PRIORITY
    return OVERLOAD_QOS0 if effects.sheds_qos0 and not qos and not is_control(topic) else ""
