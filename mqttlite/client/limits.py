"""The limits of a server, from its CONNACK, and the refusal of a message that exceeds them.

Invariant: absent properties mean what 5.0 §3.2.2.3 says they mean; before 5.0 there are no limits to announce.
"""

from dataclasses import dataclass

from mqttlite.wire.constants import DEFAULT_RECEIVE_MAXIMUM, MAX_REMAINING_LENGTH
from mqttlite.wire.packets import Connack
from mqttlite.wire.reason_codes import ReasonCode

LARGEST_PACKET_BYTES = MAX_REMAINING_LENGTH + 5
"""The largest packet there can be: the longest remaining length and its fixed header."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of one connection."""

    receive_maximum: int = DEFAULT_RECEIVE_MAXIMUM
    maximum_packet_size: int = LARGEST_PACKET_BYTES
    maximum_qos: int = 2
    retain_available: bool = True

    @classmethod
    def of(cls, connack: Connack) -> "ServerLimits":
        said = connack.properties
        return cls(
            DEFAULT_RECEIVE_MAXIMUM if said.receive_maximum is None else said.receive_maximum,
            LARGEST_PACKET_BYTES if said.maximum_packet_size is None else said.maximum_packet_size,
            2 if said.maximum_qos is None else said.maximum_qos,
            said.retain_available != 0,
        )

    def refusal(self, qos: int, retain: bool, size_bytes: int) -> tuple[int, str] | None:
        """Why a message may not be sent to this server, as reason code and sentence; None when it may."""
        if size_bytes > self.maximum_packet_size:
            why = f"it makes a packet of {size_bytes} bytes and the server takes at most {self.maximum_packet_size}"
            return ReasonCode.PACKET_TOO_LARGE, why
        if qos > self.maximum_qos:
            return ReasonCode.QOS_NOT_SUPPORTED, f"the server takes at most QoS {self.maximum_qos}"
        if retain and not self.retain_available:
            return ReasonCode.RETAIN_NOT_SUPPORTED, "the server does not retain messages"
        return None
