"""Reports the state of the process to systemd, for units with `Type=notify`.

The protocol is that of sd_notify(3): a datagram of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names.
Invariant: without that variable nothing is sent, and a report that cannot be sent delays nothing.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

_log = logging.getLogger("mqttlite")


class ServiceManager:
    """`environment` names the socket and the watchdog's interval."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address: Final = environment.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)  # @ marks an abstract address
        self._watchdog_s: Final = _watchdog_s(environment) if self._address else 0.0
        self._feeds_watchdog = False

    def ready(self) -> None:
        """Report that clients may connect, at the start or after a reload. Starts the watchdog reports of the event
        loop."""
        self._send("READY=1")
        if self._watchdog_s and not self._feeds_watchdog:
            self._feeds_watchdog = True
            self._feed_watchdog()

    def reloading(self) -> None:
        """Report that a reload began; `ready` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self, within_s: float) -> None:
        """Report that the broker stops, within `within_s`."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={within_s * 1_000_000:.0f}")

    def _feed_watchdog(self) -> None:
        self._send("WATCHDOG=1")
        asyncio.get_running_loop().call_later(self._watchdog_s / 2, self._feed_watchdog)

    def _send(self, lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(lines.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager was not told %s: %s", lines.partition("\n")[0], error)


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """The interval in which the watchdog expects a report; 0 if there is no watchdog."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return int(environment.get("WATCHDOG_USEC", "0")) / 1_000_000
    except ValueError:
        return 0.0
