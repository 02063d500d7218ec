"""What a loop does between two passes if its thread is the broker's: nap, so that more comes in, or poll for it.

Or neither. A nap is what network cards do to their interrupts (moderation): more is done at once, and the whole loop
waits for it. Invariant: none is longer than `MODERATE_S`, but for the kernel's slack.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

from mqttlite.net.polling import TALKERS, Poller, Spare

GATHER_FROM: Final = 16
GATHER_TO: Final = 96
"""A pass with so many chunks, of which few make one write, is followed by a nap: fewer gather by themselves where
messages are few, and more need no nap."""

GATHER_FROM_AMONG_WORKERS: Final = 8
"""The same for one of several workers: each has only its part, and they take processors from each other."""

GATHER_BYTES: Final = 16_384
"""With so much to write, what came in were no single small messages, and no word of a conversation; nor was it little
for a few streams, of which more need not gather."""

GATHER_S: Final = 0.00005
"""How long that nap is; with the kernel's slack about twice as much."""

MODERATE_S: Final = 0.0002
"""Where workers and those they serve take processors from each other, passes with something in them end at least so far
apart: a worker that wakes for every chunk takes the processor from whoever would have sent the next one."""

MODERATE_BYTES: Final = 2_048
"""With so much to write, up to `GATHER_BYTES`, or with chunks enough to gather, a pass has something in it: a part of
streams. Less is a word that somebody waits for."""


@final
class Pauses:
    """One for each loop whose thread is the broker's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, has_idle_processor: Callable[[], bool | None] | None) -> None:
        """`has_idle_processor` is None where that is never known: there nothing is polled for, nor do workers wait."""
        self.nap: Callable[[float], None] = time.sleep
        self.clock: Callable[[], float] = time.monotonic
        self._spare: Final = None if has_idle_processor is None else Spare(has_idle_processor)
        self.poller: Final = None if self._spare is None else Poller(loop, self._spare)
        self._over_at = 0.0

    def after(self, reads: int, writes: int, size: int, talker: int, among_workers: bool) -> None:
        """A pass is over: how many chunks came in, how many writes they led to, of how many bytes in all.

        `talker` is the number of the connection if it was one chunk, at the end of what it said; else 0.

        Where hundreds of devices send single messages to few receivers, the loop keeps up with two or three at a time
        and spends itself on passes, writes and wake-ups. A nap lets a dozen come. Not where each client gets an answer.
        Workers that have no processor of their own do the same with whatever they do, but for single words.
        """
        gather_from = GATHER_FROM_AMONG_WORKERS if among_workers else GATHER_FROM
        is_part = reads >= gather_from or MODERATE_BYTES <= size < GATHER_BYTES
        if (among_workers and is_part and self._moderated()) or size >= GATHER_BYTES:
            return
        if gather_from <= reads <= GATHER_TO and 0 < 4 * writes <= reads:
            self.nap(GATHER_S)
        elif talker and writes <= TALKERS and self.poller is not None:
            self.poller.heard(talker)

    def _moderated(self) -> bool:
        """Nap if this pass came soon after the last one, and others need the processor; whether it did."""
        now = self.clock()
        early = self._over_at + MODERATE_S - now
        self._over_at = now
        if early <= 0.0 or self._spare is None or not self._spare.is_missing(now):
            return False
        self.nap(early)
        self._over_at = self.clock()
        return True
