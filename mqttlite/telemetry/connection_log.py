"""A line of the log for each client that connects, is refused, leaves, lost messages, or is denied something.

Invariant: what a client wrote is one line of the log and no longer than `MAX_CHARACTERS` of it.
"""

import logging
from typing import Final

from mqttlite.core.authorizer import PUBLISH, RECEIVE, SUBSCRIBE
from mqttlite.event_hub import Link, Listener
from mqttlite.wire.constants import VERSION_NAMES

MAX_CHARACTERS: Final = 200
"""Of a sentence that may quote a client: enough for a reason, and a line that fits a screen."""

_VERBS: Final = {PUBLISH: "publish to", SUBSCRIBE: "subscribe to", RECEIVE: "receive from"}

_log = logging.getLogger("mqttlite")


class ConnectionLog(Listener):
    """Writes to the logger `mqttlite`."""

    def on_connected(self, link: Link) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        connection = link.connection
        _log.info(
            "%s client %r connected: MQTT %s on %s, %s, keep-alive %d s%s",
            link.address,
            connection.client_id,
            VERSION_NAMES[connection.version],
            link.listener,
            "session resumed" if connection.session_present else "new session",
            connection.keep_alive_s,
            f", as {connection.username!r}" if connection.username else "",
            extra={"fields": _fields(link)},
        )

    def on_refused(self, link: Link) -> None:
        connection = link.connection
        level = logging.DEBUG if connection.bytes_received == 0 else logging.WARNING
        if not _log.isEnabledFor(level):
            return
        claims = f" (user {connection.username!r}, client {connection.client_id!r})" if connection.version else ""
        _log.log(
            level,
            "%s on %s refused: %s%s",
            link.address,
            link.listener,
            _printable(connection.close_detail or "the client left before CONNECT"),
            claims,
            extra={"fields": {**_fields(link), "username": connection.username}},
        )

    def on_closed(self, link: Link) -> None:
        connection = link.connection
        if _log.isEnabledFor(logging.INFO):
            _log.info(
                "%s client %r disconnected: %s%s",
                link.address,
                connection.client_id,
                connection.close_reason,
                f": {_printable(connection.close_detail)}" if connection.close_detail else "",
                extra={"fields": _fields(link)},
            )
        if connection.drops:
            _log.warning(
                "%s client %r lost messages: %s",
                link.address,
                connection.client_id,
                ", ".join(f"{count} {reason}" for reason, count in connection.drops.items()),
                extra={"fields": _fields(link)},
            )

    def on_denied(self, client_id: str, username: str | None, action: str, topic: bytes, reason: str) -> None:
        _log.warning(
            "client %r may not %s %r: %s",
            client_id,
            _VERBS[action],
            _printable(topic.decode()),
            _printable(reason or "not authorized"),
            extra={"fields": {"client_id": client_id, "username": username, "action": action}},
        )


def _fields(link: Link) -> dict[str, object]:
    """What a line is about."""
    connection = link.connection
    return {
        "peer": link.address,
        "client_id": connection.client_id or None,
        "connection_id": connection.number,
        "listener": link.listener,
    }


def _printable(text: str) -> str:
    """What a client may have written, for a line of the log."""
    short = text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
    return short if short.isprintable() else repr(short)
