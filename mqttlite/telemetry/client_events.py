"""Publishes an event below `$SYS/broker/clients/` for each client that connects or disconnects.

Invariant: events are not retained, and are only built if they have a subscriber at that moment.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.event_hub import Link, Listener
from mqttlite.telemetry.publish_queue import PublishQueue
from mqttlite.wire.constants import VERSION_NAMES


class Connected(msgspec.Struct, frozen=True, kw_only=True):
    """A client was accepted."""

    client_id: str
    connection_id: int
    username: str | None
    peer: str
    listener: str
    protocol_version: str
    keep_alive_s: int
    clean_start: bool
    session_present: bool
    connected_at: datetime


class Disconnected(msgspec.Struct, frozen=True, kw_only=True):
    """A client's connection ended."""

    client_id: str
    connection_id: int
    username: str | None
    peer: str
    listener: str
    reason: str
    reason_code: int
    connected_at: datetime
    disconnected_at: datetime
    duration_s: float


class ClientEvents(Listener):
    """`clock_offset` is what to add to the broker's seconds since 1970 for the UTC time."""

    def __init__(self, core: Broker, queue: PublishQueue, clock_offset: timedelta) -> None:
        self._core: Final = core
        self._queue: Final = queue
        self._clock_offset: Final = clock_offset

    def on_connected(self, link: Link) -> None:
        connection = link.connection
        topic = presence_topic(connection.client_id, "connected")
        if not self._core.has_subscribers(topic):
            return
        event = Connected(
            client_id=connection.client_id,
            connection_id=connection.number,
            username=connection.username,
            peer=link.address,
            listener=link.listener,
            protocol_version=VERSION_NAMES[connection.version],
            keep_alive_s=connection.keep_alive_s,
            clean_start=connection.clean_start,
            session_present=connection.session_present,
            connected_at=self._wall(connection.connected_at),
        )
        self._queue.put(topic, msgspec.json.encode(event))

    def on_closed(self, link: Link) -> None:
        connection = link.connection
        topic = presence_topic(connection.client_id, "disconnected")
        if not self._core.has_subscribers(topic):
            return
        event = Disconnected(
            client_id=connection.client_id,
            connection_id=connection.number,
            username=connection.username,
            peer=link.address,
            listener=link.listener,
            reason=str(connection.close_reason),
            reason_code=int(connection.reason_code),
            connected_at=self._wall(connection.connected_at),
            disconnected_at=self._wall(connection.ended_at),
            duration_s=connection.ended_at - connection.connected_at,
        )
        self._queue.put(topic, msgspec.json.encode(event))

    def _wall(self, at: float) -> datetime:
        return datetime.fromtimestamp(at, UTC) + self._clock_offset


def presence_topic(client_id: str, event: str) -> bytes:
    """The topic of a client's events: characters that end or replace a level are
    written as in a URL."""
    level = client_id.replace("%", "%25").replace("/", "%2F").replace("+", "%2B").replace("#", "%23")
    return f"$SYS/broker/clients/{level}/{event}".encode()
