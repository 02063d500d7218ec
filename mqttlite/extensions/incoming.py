"""A message on its way in, as hooks and sinks of an extension see it."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

from mqttlite.core.message import Message
from mqttlite.core.source import Source
from mqttlite.wire.properties import NONE, Properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One PUBLISH, or what came by another way. Topics have the mount point of their client."""

    topic: str
    payload: bytes
    qos: int
    """0, 1 or 2."""
    retain: bool
    properties: Properties
    """Those of 5.0 (§3.3.2.3), without topic alias. Must not be changed: `replace` takes others."""
    client_id: str
    """The publisher's client identifier; empty if it is not a client."""
    username: str | None
    """The publisher's authenticated user; None: anonymous, or no client."""

    def replace(self, **changes: Any) -> Self:
        """The same message with some fields changed, for a hook to return."""
        return dataclasses.replace(self, **changes)


def incoming(message: Message, source: Source) -> Incoming:
    """What an extension sees of a message."""
    return Incoming(
        topic=message.topic.decode(),
        payload=message.payload,
        qos=message.qos,
        retain=message.retain,
        properties=message.properties,
        client_id=source.client_id,
        username=source.username,
    )


def outgoing(changed: Incoming, message: Message, now: float) -> Message:
    """The message that a hook wants in the place of another one, at `now` in the broker's seconds.

    Its expiry begins again only if the hook changed the properties.
    """
    topic = changed.topic.encode()
    if changed.properties is message.properties:
        found = Message(
            *(topic, changed.payload, changed.qos, changed.retain),
            NONE if message.raw is not None else message.properties,
            message.expires_at,
            message.raw,
        )
    else:
        expiry = changed.properties.message_expiry_interval
        expires_at = 0.0 if expiry is None else now + expiry
        found = Message(topic, changed.payload, changed.qos, changed.retain, changed.properties, expires_at)
    found.number, found.publisher = message.number, message.publisher
    return found
