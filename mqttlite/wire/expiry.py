"""What a Message Expiry Interval becomes in packets that are made already, and waited [MQTT-3.3.2-6]."""

from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish


def with_time_left(packets: bytes, count: int, left_s: int) -> bytes:
    """QoS 0 PUBLISH packets of 5.0, of one size and with one interval, which becomes `left_s` if it is longer."""
    size = len(packets) // count
    made: list[bytes] = []
    for start in range(0, len(packets), size):
        body = start + 2
        while packets[body - 1] > 0x7F:
            body += 1
        packet = decode(packets[start], packets[body : start + size], V5)
        assert isinstance(packet, Publish)
        interval = packet.properties.message_expiry_interval
        assert interval is not None, "they expire"
        if interval <= left_s:
            return packets
        packet.properties.message_expiry_interval = left_s
        made.append(encode(packet, V5))
    return b"".join(made)
