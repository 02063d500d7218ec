"""Publishers that follow their messages: which of them may, and what goes along (docs/design/014).

A client that only publishes, in long chunks, and whose messages all go to one other worker, is better read there: each
message is then read and written once. Invariant: whoever departs has nothing under way, in neither direction, and
leaves nothing behind.
"""

from mqttlite.core.connection import CONNECTED, Connection
from mqttlite.core.forwards import STAYED, Traveller
from mqttlite.core.limits import FOLLOW_KEPT_BYTES
from mqttlite.core.session import Session
from mqttlite.core.workers import Workers


def may_follow(connection: Connection) -> bool:
    """Whether a client only publishes, and nothing of it would be missed here.

    A will stays with who has promised it, and a session that outlives its connection with who keeps it. Nobody goes
    twice: a connection that comes back to a worker would be there what it was, and is not.
    """
    session = connection.session
    outbox = connection.outbox
    return (
        session is not None
        and connection.earlier is STAYED
        and not session.durable
        and session.will is None
        and not session.subscriptions
        and connection.exchange is None
        and not connection.aliases
        and outbox.sent_qos0 + outbox.sent_qos1 + outbox.sent_qos2 == 0
        and session.queued + len(session.inflight) + len(session.released) == 0
        and not session.drops
        and not outbox.drops
    )


def may_depart(connection: Connection, workers: Workers) -> bool:
    """Whether nothing of it is under way, either."""
    session = connection.session
    outbox = connection.outbox
    return (
        session is not None
        and may_follow(connection)
        and not connection.postponed
        and not outbox.blocked
        and not outbox.chunks
        and connection.framer.kept_bytes <= FOLLOW_KEPT_BYTES
        and workers.may_depart(connection.home_id)
    )


def pack(connection: Connection, session: Session) -> Traveller:
    """What goes along with a connection."""
    outbox = connection.outbox
    traveller = Traveller(connection.number, connection.client_id, connection.username)
    traveller.version = connection.version
    traveller.clean_start = connection.clean_start
    traveller.session_present = connection.session_present
    traveller.keep_alive_s = connection.keep_alive_s
    traveller.problem_information = connection.problem_information
    traveller.max_packet_bytes = outbox.max_packet_bytes
    traveller.topic_alias_maximum = outbox.topic_alias_maximum
    traveller.window = session.window
    traveller.received = session.received.all()
    traveller.opened_at = connection.opened_at
    traveller.connected_at = connection.connected_at
    traveller.bytes_received = connection.bytes_received
    traveller.bytes_sent = outbox.bytes_sent
    traveller.received_qos0 = connection.received_qos0
    traveller.received_qos1 = connection.received_qos1
    traveller.received_qos2 = connection.received_qos2
    traveller.backpressure_s = connection.backpressure_s
    traveller.backpressure_count = connection.backpressure_count
    traveller.high_water_bytes = outbox.high_water_bytes
    return traveller


def unpack(traveller: Traveller, connection: Connection, now: float) -> None:
    """Make the connection what it was where it came from."""
    connection.earlier = traveller
    connection.home_id = traveller.client_id.encode()
    connection.client_id = traveller.client_id
    connection.username = traveller.username
    connection.version = traveller.version
    connection.clean_start = traveller.clean_start
    connection.session_present = traveller.session_present
    connection.keep_alive_s = traveller.keep_alive_s
    connection.problem_information = traveller.problem_information
    connection.outbox.max_packet_bytes = traveller.max_packet_bytes
    connection.outbox.topic_alias_maximum = traveller.topic_alias_maximum
    connection.connected_at = traveller.connected_at
    connection.last_heard = now
    connection.state = CONNECTED
