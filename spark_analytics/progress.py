"""Where a run is, on the terminal: one line that grows, or a line per step where nobody watches.

Invariant: it writes to the stream it was given and to nothing else, a whole line at a time, from whichever thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TextIO

_BAR = 24


class Progress:
    """Steps of a known number, of which several may be under way."""

    def __init__(self, stream: TextIO, steps: int) -> None:
        self._stream = stream
        self._steps = steps
        self._done = 0
        self._under_way: list[str] = []
        self._live = stream.isatty()
        self._lock = Lock()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """While this lasts the step is under way; then it is done, unless it failed."""
        started = time.monotonic()
        with self._lock:
            self._under_way.append(name)
            self._draw()
        done = 0
        try:
            yield
            done = 1
        finally:
            with self._lock:
                self._under_way.remove(name)
                self._done += done
                if done and not self._live:
                    self._print(f"[{self._done}/{self._steps}] {name} {time.monotonic() - started:.1f} s\n")
                self._draw()

    def tell(self, line: str) -> None:
        """A line that stays, above the one that grows."""
        with self._lock:
            self._print(f"\r\x1b[K{line}\n" if self._live else f"{line}\n")
            self._draw()

    def _draw(self) -> None:
        if not self._live:
            return
        filled = _BAR * self._done // self._steps
        bar = "█" * filled + "·" * (_BAR - filled)
        # The oldest is what one waits for; all their names would not fit into one line.
        names = self._under_way[0] if self._under_way else ""
        others = f" and {len(self._under_way) - 1} more" if len(self._under_way) > 1 else ""
        self._print(f"\r\x1b[K{bar} {self._done}/{self._steps} {names}{others} …" if names else "\r\x1b[K")

    def _print(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
