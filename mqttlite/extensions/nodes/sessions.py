"""The sessions of this broker for other nodes, also of a broker that is no node any more."""

import logging
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.message import Delivery, Message
from mqttlite.core.route.tally import DROPPED, QUOTA_EXCEEDED, Tally
from mqttlite.core.session.session import Session

CLIENT_ID_PREFIX: Final = "$node/"
"""The client identifier of the session for a node begins with it; the name follows."""

_log = logging.getLogger("mqttlite.nodes")


def send_to_node(session: Session, message: Message, identifiers: tuple[int, ...], tally: Tally) -> None:
    """Put a message into the session for a node, for what the identifiers name there. The tally gets the outcome."""
    delivery = Delivery(message, message.qos, False, identifiers)
    if message.qos == 0:
        tally.count_qos0(session.deliver_qos0(delivery))
        return
    outcome = session.deliver(delivery)
    tally.count(outcome)
    if outcome == DROPPED:
        tally.code = QUOTA_EXCEEDED


def end_sessions_of_nodes(core: Broker, now: float) -> None:
    """End them all: what waits for members of shared subscriptions goes to those here. Call it after `restore`."""
    found = [
        session.client_id
        for session in core.sessions.values()
        if session.client_id.startswith(CLIENT_ID_PREFIX) and session.identity.is_trusted
    ]
    for client_id in found:
        core.end_session(client_id, now)
    if found:
        _log.warning(
            "this broker is no node any more: what waited for %s goes to members of shared subscriptions here; all "
            "else that waited for them is dropped",
            ", ".join(each.removeprefix(CLIENT_ID_PREFIX) for each in found),
        )
