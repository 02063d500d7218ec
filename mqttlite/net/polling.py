"""Looks for more before the loop sleeps, while few clients talk to each other with short pauses (busy polling).

Whoever waits for an answer before it says more waits for sleeping processors, too, each time. Invariants: a pause as
long as `POLL_S` ends it, and nothing is polled for again before a shorter one was seen; nor while others need the
processor.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

POLL_S: Final = 0.0002
"""How long is polled at most, and how long a pause may have been for polling to be tried after the next message. A
round trip with both ends asleep is shorter. As long as Seastar polls, and Linux as a guest (haltpoll)."""

TALKERS: Final = 4
"""So many clients that spoke alone in a pass are remembered, the latest: two that talk to each other, and who comes
between; and so many are written to at most where they talk. Many devices that send now and then are no conversation,
however short the pauses between them: what they would gain in latency is not worth a whole processor."""

ASK_S: Final = 0.001
"""How often is asked whether a processor is idle: to ask costs some microseconds."""

REST_S: Final = 0.01
"""How soon it is asked again where none was: others that need it now and then need it again soon. So processors that
are short for a third of the time count as short for most of it."""


@final
class Spare:
    """Whether a processor is idle, as it was when it was last asked. Times are those of `time.monotonic`."""

    def __init__(self, has_idle_processor: Callable[[], bool | None]) -> None:
        """The answer None says that it is not known."""
        self._has_idle_processor: Final = has_idle_processor
        self._ask_at = 0.0
        self._answer: bool | None = None

    def is_there(self, now: float) -> bool:
        """Whether one is idle."""
        return self._ask(now) is True

    def is_missing(self, now: float) -> bool:
        """Whether none is; of what is not known this is not said, either."""
        return self._ask(now) is False

    def _ask(self, now: float) -> bool | None:
        if now >= self._ask_at:
            self._answer = self._has_idle_processor()
            self._ask_at = now + (ASK_S if self._answer else REST_S)
        return self._answer


@final
class Poller:
    """One for each loop whose thread is the broker's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, spare: Spare) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self._loop: Final = loop
        self._spare: Final = spare
        self._talkers: list[int] = []
        self._heard_at = 0.0
        self._until = 0.0
        self._is_polling = False

    def heard(self, talker: int) -> None:
        """A pass is over in which one chunk came in, from the connection of this number, and led to few writes."""
        now = self.clock()
        pause = now - self._heard_at
        self._heard_at = now
        talkers = self._talkers
        is_known = talker in talkers
        if not is_known or talkers[-1] != talker:
            if is_known:
                talkers.remove(talker)
            elif len(talkers) == TALKERS:
                del talkers[0]
            talkers.append(talker)
        if is_known and pause < POLL_S:
            may = self._spare.is_there(now)
            self._until = now + POLL_S if may else now
            if may and not self._is_polling:
                self._is_polling = True
                self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """Called in each pass, and a loop that has something to call looks at its sockets without waiting for them."""
        self._is_polling = self.clock() < self._until
        if self._is_polling:
            self._loop.call_soon(self._poll)
