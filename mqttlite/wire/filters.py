"""Reads the topic filters of a long SUBSCRIBE or UNSUBSCRIBE in parts, and as often as needed.

`decode` decodes other packets, and short ones of these, at once. Invariant: both ways give the same filters, and raise
for the same packets.
"""

from typing import Final, final

from mqttlite.wire.constants import PACKET_NAMES, SUBSCRIBE
from mqttlite.wire.decode import check_flags, read_properties, read_request
from mqttlite.wire.errors import ProtocolError
from mqttlite.wire.packets import SubscriptionRequest
from mqttlite.wire.primitives import Cursor


@final
class FilterReader:
    """Over one packet's body. An UNSUBSCRIBE gives requests of which only the filter counts.

    Raises what `decode` raises.
    """

    __slots__ = ("_cursor", "_version", "packet_id", "packet_type", "properties")

    def __init__(self, first: int, body: bytes, version: int) -> None:
        self.packet_type: Final = first >> 4
        check_flags(first, version)
        self._version: Final = version
        self._cursor = Cursor(body)
        self.packet_id: Final = self._cursor.packet_id()
        self.properties: Final = read_properties(self._cursor, self.packet_type, version)
        if self._cursor.at_end:
            raise ProtocolError(
                f"{PACKET_NAMES[self.packet_type]} without a topic filter [MQTT-3.8.3-2] [MQTT-3.10.3-2]"
            )
        self._cursor = Cursor(self._cursor.rest())

    def has_ended(self) -> bool:
        """Whether all filters have been read."""
        return self._cursor.at_end

    def rewind(self) -> None:
        """Begin again with the first filter."""
        self._cursor.rewind()

    def take(self, most: int) -> list[SubscriptionRequest]:
        """The next filters, fewer at the end."""
        cursor = self._cursor
        requests: list[SubscriptionRequest] = []
        if self.packet_type == SUBSCRIBE:
            while len(requests) < most and not cursor.at_end:
                requests.append(read_request(cursor, self._version))
        else:
            while len(requests) < most and not cursor.at_end:
                requests.append(SubscriptionRequest(cursor.utf8_bytes()))
        return requests
