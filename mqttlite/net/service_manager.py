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

STARTING_S: Final = 60.0
"""How long a start may take that is reported again before: half of it later."""

_log = logging.getLogger("mqttlite")


class ServiceManager:
    """`environment` names the socket and the watchdog's interval."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address: Final = environment.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)  # @ marks an abstract address
        self._watchdog_s: Final = _watchdog_s(environment) if self._address else 0.0
        self._feeds_watchdog = False
        self._is_starting = False

    def starting(self) -> None:
        """Report that the start may take as long as it does, again and again until `ready`."""
        self._is_starting = bool(self._address)
        self._ask_for_time()

    def ready(self) -> None:
        """Report that the process does its work, at the start or after a reload. Starts the watchdog reports of the
        event loop."""
        self._is_starting = False
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

    def _ask_for_time(self) -> None:
        if self._is_starting:
            self._send(f"EXTEND_TIMEOUT_USEC={STARTING_S * 1_000_000:.0f}")
            asyncio.get_running_loop().call_later(STARTING_S / 2, self._ask_for_time)

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
