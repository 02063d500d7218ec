"""Which worker of how many a process is, and the sockets to the others.

The workers of one broker are processes of one machine, and fail together: sessions live with one of them.
"""

import os
import socket
import sys
from dataclasses import dataclass
from typing import Final

MAX_WORKERS: Final = 64
"""Workers at most: each has two sockets to each other one, and tells all of them what it has subscribers for."""


@dataclass(frozen=True)
class Membership:
    """The place of one worker. The sockets are by the number of the worker at their other end."""

    index: int
    count: int
    fabric: dict[int, socket.socket]
    """For what they tell each other."""
    handoff: dict[int, socket.socket]
    """For connections that move."""
    lifeline: socket.socket | None = None
    """Ends when the process is gone that started this one; nothing is ever said there."""

    def close(self) -> None:
        for sock in [*self.fabric.values(), *self.handoff.values()]:
            sock.close()


def memberships(count: int) -> list[Membership]:
    """All places of a broker of so many workers, connected with each other."""
    places = [Membership(index, count, {}, {}) for index in range(count)]
    for one in range(count):
        for other in range(one):
            for channel in ("fabric", "handoff"):
                here, there = socket.socketpair()
                here.setblocking(False)
                there.setblocking(False)
                getattr(places[one], channel)[other] = here
                getattr(places[other], channel)[one] = there
    return places


def why_not() -> str:
    """Why there can be only one worker on this system; empty where there may be more."""
    if sys.platform == "win32" or not hasattr(socket, "SO_REUSEPORT") or not hasattr(os, "fork"):
        return "this system cannot share a port between processes"
    return ""
