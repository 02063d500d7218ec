"""Where a run is, on the terminal: one line that grows, or a line per step where nobody watches.

Invariant: it writes to the stream it was given and to nothing else, and only between `begin` and `end`.
"""

from __future__ import annotations

import time
from typing import TextIO

_BAR = 24


class Progress:
    """Steps of a known number."""

    def __init__(self, stream: TextIO, steps: int) -> None:
        self._stream = stream
        self._steps = steps
        self._done = 0
        self._name = ""
        self._started = 0.0
        self._live = stream.isatty()

    def step(self, name: str) -> None:
        """The step before is done, if there was one, and this one begins."""
        self.end()
        self._name = name
        self._started = time.monotonic()
        if self._live:
            filled = _BAR * self._done // self._steps
            bar = "█" * filled + "·" * (_BAR - filled)
            self._print(f"\r\x1b[K{bar} {self._done + 1}/{self._steps} {name} …")

    def end(self) -> None:
        """The last step is done."""
        if not self._name:
            return
        self._done += 1
        if self._live:
            self._print("\r\x1b[K")
        else:
            took_s = time.monotonic() - self._started
            self._print(f"[{self._done}/{self._steps}] {self._name} {took_s:.1f} s\n")
        self._name = ""

    def _print(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
