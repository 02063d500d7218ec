"""An ended connection as a row of the `sessions` table. What the columns mean is in docs/reference/telemetry.md."""

from datetime import UTC, datetime, timedelta

from mqttlite.core.connection import Connection
from mqttlite.telemetry.dump import SessionRow
from mqttlite.wire.constants import NEVER_EXPIRES, VERSION_NAMES


def session_row(
    connection: Connection,
    *,
    broker_id: str,
    listener: str,
    transport: str,
    peer: str,
    tls_version: str | None,
    tls_cipher: str | None,
    clock_offset: timedelta,
) -> SessionRow:
    """The row of an ended connection; `clock_offset` makes the broker's seconds the wall's."""

    def wall(at: float) -> datetime:
        return datetime.fromtimestamp(at, UTC) + clock_offset

    outbox = connection.outbox
    expiry = connection.session_expiry_s
    return SessionRow(
        broker_id=broker_id,
        connection_id=connection.number,
        client_id=connection.client_id,
        username=connection.username,
        listener=listener,
        transport=transport,
        tls_version=tls_version,
        tls_cipher=tls_cipher,
        peer=peer,
        protocol_version=VERSION_NAMES[outbox.version],
        clean_start=connection.clean_start,
        session_present=connection.session_present,
        session_expiry_s=None if expiry == NEVER_EXPIRES else expiry,
        keep_alive_s=connection.keep_alive_s,
        opened_at=wall(connection.opened_at),
        connected_at=wall(connection.connected_at),
        ended_at=wall(connection.ended_at),
        duration_s=connection.ended_at - connection.connected_at,
        close_reason=str(connection.close_reason),
        reason_code=int(connection.reason_code),
        close_detail=connection.close_detail or None,
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
    )
