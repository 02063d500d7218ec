"""Clients with kept sessions, beside the publishers and subscribers of `torture_clients`: consumers of a queue, and
clients that notice how long nothing is acknowledged.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from tools.torture_clients import Link
from tools.torture_packets import packet, text
from tools.torture_queues import delivered

PAUSE_S = 0.02


class Client(Protocol):
    """What connects again and again."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None: ...


@dataclass
class Consumer:
    """Takes the messages of a queue. An acknowledgement is safe when a retained message behind it is acknowledged."""

    name: str
    version: ClassVar[int] = 5
    numbers: set[int] = field(default_factory=set)
    safe: set[str] = field(default_factory=set)
    """The messages whose acknowledgement is safe, by their identifiers."""
    again: int = 0
    _open: set[str] = field(default_factory=set)

    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None:
        link.writer.write(packet(0x82, b"\0\1\0" + text("$queue/jobs") + b"\1"))
        self._open.clear()
        confirming: set[str] = set()
        while not is_over():
            first, body = await link.read()
            if first >> 4 == 3:
                packet_id, payload, told = delivered(body)
                self.numbers.add(int(payload))
                self.again += told["message-id"] in self.safe
                link.writer.write(packet(0x40, packet_id))
                self._open.add(told["message-id"])
            elif first == 0x40:
                self.safe |= confirming
                confirming = set()
            if self._open and not confirming:
                confirming, self._open = self._open, set()
                link.writer.write(packet(0x33, text(f"kept/{self.name}") + b"\0\2\0" + b"1"))


@dataclass
class Prober:
    """Publishes one message at a time, which is retained, and notes the longest time until one is acknowledged."""

    name: str = "prober"
    version: ClassVar[int] = 4
    longest_s: float = 0.0
    acknowledged: int = 0
    begun: float = 0.0

    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.begun = self.begun or time.monotonic()
            link.writer.write(packet(0x33, text(f"kept/{self.name}") + b"\0\1" + b"%d" % self.acknowledged))
            await link.read()
            self.longest_s = max(self.longest_s, time.monotonic() - self.begun)
            self.begun = 0.0
            self.acknowledged += 1
            await asyncio.sleep(PAUSE_S)
