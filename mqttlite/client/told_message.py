"""A message that the broker delivers with user properties of its own, behind those of the publisher."""

from datetime import datetime
from typing import Final

from mqttlite.client.message import Message
from mqttlite.client.receipts import Receipt
from mqttlite.wire.packets import Publish


class ToldMessage(Message):
    """A message of a queue or stream. What the broker says of it is read when it is asked for."""

    __slots__ = ("_way",)

    def __init__(self, packet: Publish, receipt: Receipt) -> None:
        super().__init__(
            *(packet.topic.decode(), packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id),
            packet.properties,
            receipt,
        )
        self._way: Final = receipt

    @property
    def message_id(self) -> str:
        """The name of the message, which is the same in all streams, queues and deliveries; "" if the broker does not
        say so."""
        return self.told("message-id")

    @property
    def publish_time(self) -> datetime | None:
        """When the broker took the message, in UTC, if it says so."""
        try:
            return datetime.fromisoformat(self.told("publish-time"))
        except ValueError:
            return None

    def told(self, name: str) -> str:
        """The value of a user property that the broker added. "" for none."""
        return next((value for key, value in reversed(self.properties.user_properties) if key == name), "")
