"""Logs a line for each client that connects, is refused, leaves, lost messages, or is denied something.

Invariant: text from a client stays on one line, and is at most `MAX_CHARACTERS` long.
"""

import logging
from typing import Final

from mqttlite.core.authorizer import PUBLISH, RECEIVE, SUBSCRIBE
from mqttlite.event_hub import Jailed, Link, Listener
from mqttlite.wire.constants import VERSION_NAMES

MAX_CHARACTERS: Final = 200
"""The longest text that may quote a client: enough for a reason."""

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
        username = None if connection.username is None else _short(connection.username)
        claims = f" (user {username!r}, client {_short(connection.client_id)!r})" if connection.version else ""
        _log.log(
            level,
            "%s on %s refused: %s%s",
            link.address,
            link.listener,
            _printable(connection.close_detail or "the client left before CONNECT"),
            claims,
            extra={"fields": {**_fields(link), "username": connection.username}},
        )

    def on_jailed(self, jailed: Jailed) -> None:
        username = None if jailed.username is None else _short(jailed.username)
        client_id = _short(jailed.client_id)
        whose = {"username": f"user {username!r} at ", "client_id": f"client {client_id!r} at "}.get(jailed.what, "")
        _log.warning(
            "%s%s is refused for %g s: %d logins failed, the last on %s (user %r, client %r)",
            whose,
            jailed.network,
            jailed.duration_s,
            jailed.failures,
            jailed.listener,
            username,
            client_id,
            extra={
                "fields": {
                    "peer": jailed.peer,
                    "client_id": jailed.client_id or None,
                    "username": jailed.username,
                    "listener": jailed.listener,
                }
            },
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

    def on_denied(
        self, client_id: str, username: str | None, action: str, topic: bytes, reason: str, link: Link | None
    ) -> None:
        about = {"peer": None, "client_id": client_id, "listener": None} if link is None else _fields(link)
        _log.warning(
            "%sclient %r%s may not %s %r: %s",
            "" if link is None else f"{link.address} ",
            client_id,
            f" (user {_short(username)!r})" if username else "",
            _VERBS[action],
            _printable(topic.decode()),
            _printable(reason or "not authorized"),
            extra={"fields": {**about, "username": username, "action": action}},
        )


def _fields(link: Link) -> dict[str, object]:
    """The fields of a log record."""
    connection = link.connection
    return {
        "peer": link.address,
        "client_id": connection.client_id or None,
        "connection_id": connection.number,
        "listener": link.listener,
    }


def _printable(text: str) -> str:
    """Text from a client, made printable for a log line."""
    short = _short(text)
    return short if short.isprintable() else repr(short)


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
