"""Numbers of the standard: packet types, versions, limits. No behaviour here.

Plain `Final` integers and not enums: they stand in loops that run once per message.
"""

from typing import Final

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

PACKET_NAMES: Final[tuple[str, ...]] = (
    "packet type 0",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)

V31: Final = 3
V311: Final = 4
V5: Final = 5

BRIDGE_BIT: Final = 0x80
"""Set in the protocol level of a CONNECT (0x83, 0x84) by a bridge of another broker, after Mosquitto. Versions before
5.0 have no other way to ask for No Local and Retain As Published."""

VERSION_NAMES: Final[dict[int, str]] = {V31: "3.1", V311: "3.1.1", V5: "5.0"}

MAX_REMAINING_LENGTH: Final = 268_435_455
"""The largest variable byte integer, FF FF FF 7F [MQTT-1.5.5-1]."""

MAX_STRING_BYTES: Final = 65_535
"""The longest UTF-8 string or binary field: its length has two bytes (§1.5.4)."""

NEVER_EXPIRES: Final = 0xFFFF_FFFF
"""The session expiry interval that means: keep it for good (5.0 §3.1.2.11.2)."""

DEFAULT_RECEIVE_MAXIMUM: Final = 65_535
"""The Receive Maximum where the property is absent (5.0 §3.1.2.11.3)."""
