"""TLS sessions that are resumed: a connection shows the newest ticket, and skips the expensive half of its handshake.

asyncio has no argument for it, so the object that does the handshake shows and keeps the ticket. Invariant: without a
ticket, or with one that the server does not take, the handshake is a full one.
"""

import ssl
from typing import Any, Final


class Tickets:
    """What the connections of one context share. All of them have the same certificate, so any may use the ticket."""

    def __init__(self) -> None:
        self.session: ssl.SSLSession | None = None
        self.handshakes = 0
        self.resumed = 0


def resume_sessions(context: ssl.SSLContext) -> Tickets:
    """Let the connections that this client context will make resume sessions."""
    tickets: Final = Tickets()

    class Resuming(ssl.SSLObject):
        _began = False
        _has_read = False

        def do_handshake(self) -> None:
            if not self._began:
                self._began = True
                if tickets.session is not None:
                    self.session = tickets.session
            super().do_handshake()  # raises until the last flight is in
            tickets.handshakes += 1
            tickets.resumed += bool(self.session_reused)

        def read(self, *how: Any) -> Any:
            result = super().read(*how)
            if not self._has_read:  # TLS 1.3 sends tickets after the handshake, with the first bytes
                self._has_read = True
                session = self.session
                if session is not None and session.has_ticket:
                    tickets.session = session
            return result

    context.sslobject_class = Resuming
    return tickets
