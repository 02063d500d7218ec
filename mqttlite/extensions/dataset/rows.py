"""A connection as a row of the `sessions` table. docs/reference/telemetry.md says what the columns mean.

Invariant: every value that the options ask to pseudonymise is a pseudonym here.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from mqttlite.core.connect.connection import Connection
from mqttlite.core.limits import KEEP_ALIVE_FACTOR
from mqttlite.core.reasons import CloseReason
from mqttlite.event_hub import Link, Listener
from mqttlite.extensions.dataset.dataset import Dataset
from mqttlite.extensions.dataset.journal import Opened
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.extensions.dataset.tables import SessionRow
from mqttlite.telemetry.wall import Wall
from mqttlite.wire.constants import NEVER_EXPIRES, VERSION_NAMES


def opened_session(
    link: Link, *, wall: Callable[[float], datetime], pseudonyms: Pseudonyms, node: str | None
) -> Opened:
    """What is known of an accepted connection; `wall` gives the UTC time of a second of the broker's clock, and `node`
    is the name of this machine of a cluster or of this node."""
    connection = link.connection
    expiry = connection.session_expiry_s
    return Opened(
        connection_id=connection.number,
        client_id=pseudonyms.client_id(connection.client_id),
        username=pseudonyms.username(connection.username),
        listener=link.listener,
        transport=link.transport,
        tls_version=link.tls_version,
        tls_cipher=link.tls_cipher,
        peer=pseudonyms.address(link.address),
        protocol_version=VERSION_NAMES[connection.version],
        clean_start=connection.clean_start,
        session_present=connection.session_present,
        session_expiry_s=None if expiry == NEVER_EXPIRES else expiry,
        keep_alive_s=connection.keep_alive_s,
        opened_at=wall(connection.opened_at),
        connected_at=wall(connection.connected_at),
        node=node,
    )


def session_row(
    connection: Connection, opened: Opened, *, broker_id: str, wall: Callable[[float], datetime], pseudonyms: Pseudonyms
) -> SessionRow:
    """The row of an ended connection; `opened` is made of it when it has ended, too."""
    outbox = connection.outbox
    reason = connection.close_reason
    tell = pseudonyms.quotation if reason == CloseReason.CLIENT_DISCONNECTED_WITH_WILL else pseudonyms.sentence
    late_s = connection.ended_at - connection.last_heard - KEEP_ALIVE_FACTOR * connection.keep_alive_s
    return SessionRow(
        broker_id=broker_id,
        connection_id=opened.connection_id,
        client_id=opened.client_id,
        username=opened.username,
        listener=opened.listener,
        transport=opened.transport,
        tls_version=opened.tls_version,
        tls_cipher=opened.tls_cipher,
        peer=opened.peer,
        protocol_version=opened.protocol_version,
        clean_start=opened.clean_start,
        session_present=opened.session_present,
        session_expiry_s=opened.session_expiry_s,
        keep_alive_s=opened.keep_alive_s,
        opened_at=opened.opened_at,
        connected_at=opened.connected_at,
        ended_at=wall(connection.ended_at),
        duration_s=connection.ended_at - connection.connected_at,
        close_reason=str(reason),
        reason_code=int(connection.reason_code),
        close_detail=tell(connection.close_detail) or None,
        will_published=connection.will_published,
        bytes_received=connection.bytes_received,
        bytes_sent=outbox.bytes_sent,
        received_qos0=connection.received_qos0,
        received_qos1=connection.received_qos1,
        received_qos2=connection.received_qos2,
        sent_qos0=outbox.sent_qos0,
        sent_qos1=outbox.sent_qos1,
        sent_qos2=outbox.sent_qos2,
        drops=connection.drops,
        dropped=sum(connection.drops.values()),
        outbox_high_water_bytes=outbox.high_water_bytes,
        outbox_high_water_messages=outbox.high_water_messages,
        queue_high_water_messages=connection.queue_high_water,
        inflight_high_water=connection.inflight_high_water,
        backpressure_s=connection.backpressure_s,
        backpressure_count=connection.backpressure_count,
        subscriptions=connection.subscriptions,
        last_heard_at=wall(connection.last_heard),
        keep_alive_late_s=max(0.0, late_s) if reason == CloseReason.KEEP_ALIVE_TIMEOUT else None,
        node=opened.node,
    )


class SessionRows(Listener):
    """Enters each accepted connection in the dataset's journal, and writes its row when it ends. `node` is the name of
    this machine of a cluster or of this node, None for a broker alone."""

    def __init__(self, dataset: Dataset, broker_id: str, wall: Wall, pseudonyms: Pseudonyms, node: str | None) -> None:
        self._dataset: Final = dataset
        self._broker_id: Final = broker_id
        self._wall: Final = wall
        self._pseudonyms: Final = pseudonyms
        self._node: Final = node

    def on_connected(self, link: Link) -> None:
        self._dataset.begin(self._opened(link))

    def on_closed(self, link: Link) -> None:
        row = session_row(
            link.connection,
            self._opened(link),
            broker_id=self._broker_id,
            wall=self._wall.at,
            pseudonyms=self._pseudonyms,
        )
        self._dataset.write("sessions", row)

    def _opened(self, link: Link) -> Opened:
        return opened_session(link, wall=self._wall.at, pseudonyms=self._pseudonyms, node=self._node)
