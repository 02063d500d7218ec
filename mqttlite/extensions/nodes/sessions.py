"""The sessions of this broker for other nodes, of a broker that is no node any more."""

import logging
from typing import Final

from mqttlite.core.broker import Broker

CLIENT_ID_PREFIX: Final = "$node/"
"""The client identifier of the session for a node begins with it; the name follows."""

_log = logging.getLogger("mqttlite.nodes")


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
