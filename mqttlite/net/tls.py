"""Sends the alert of a failed TLS handshake, so that a device learns why it was refused (RFC 8446 §6.2).

asyncio and uvloop close the socket of a failed handshake and leave the alert in the TLS library's outgoing buffer. This
module takes the alert from there and sends it on a duplicate of the socket. A successful handshake costs one more
method call for each step; later reads and writes are not affected.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Final

_DRAIN_BYTES: Final = 65_536


class Handshake:
    """One TLS handshake on an accepted socket. Invariant: each task makes at most one."""

    def __init__(self, accepted: socket.socket) -> None:
        self._accepted: Final = accepted
        self._refused: socket.socket | None = None
        _UNDER_WAY.set(self)

    def send_alert(self, alert: bytes) -> None:
        """Send the TLS library's alert before the event loop closes the socket."""
        with suppress(OSError):  # the client is gone, or no file is left: it gets no alert
            self._refused = socket.socket(fileno=os.dup(self._accepted.fileno()))
            self._refused.setblocking(False)
            self._refused.send(alert)
            self._refused.shutdown(socket.SHUT_WR)

    async def part(self, timeout_s: float) -> None:
        """After a failure: wait for the client to close. Closing a socket with unread bytes would reset it, and the
        client could lose the alert."""
        if self._refused is None:
            return
        loop = asyncio.get_running_loop()
        with self._refused as refused, suppress(OSError):  # includes TimeoutError
            async with asyncio.timeout(timeout_s):
                while await loop.sock_recv(refused, _DRAIN_BYTES):
                    pass


_UNDER_WAY: Final[ContextVar[Handshake]] = ContextVar("handshake")
"""The handshake of the current task, because the event loop passes no arguments of ours to `wrap_bio`."""


class AlertingSSLObject(ssl.SSLObject):
    """Calls `on_failed` when its handshake fails."""

    on_failed: Callable[[], None]

    def do_handshake(self) -> None:
        """Like `SSLObject.do_handshake`."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self.on_failed()
            raise


class ServerContext(ssl.SSLContext):
    """The TLS context of a listener. It must be used in a task that has begun a `Handshake`."""

    sslobject_class: type[ssl.SSLObject] = AlertingSSLObject

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> AlertingSSLObject:
        """Like `SSLContext.wrap_bio`."""
        tls = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(tls, AlertingSSLObject)
        handshake = _UNDER_WAY.get()
        tls.on_failed = lambda: handshake.send_alert(outgoing.read())
        return tls
