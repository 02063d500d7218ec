"""What somebody at a terminal is told of a watch: each trouble once, its end, and that there is nothing to tell.

Invariant: where somebody watches, the last line counts what goes on; a log has a line for each beginning and end.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, TextIO

from spark_analytics.troubles import BEGAN, ENDED
from spark_analytics.units import printable


class Terminal:
    """Called with the lines of each batch, or with none when there has been nothing to tell for a while."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._going_on: dict[str, dict[str, Any]] = {}
        self._told = 0
        self._lock = Lock()

    def __call__(self, lines: list[dict[str, Any]]) -> None:
        with self._lock:
            for line in lines:
                self._note(line)
            if self._live:
                self._stream.write(f"\r\x1b[K{printable(self._counted())}")
            elif not lines:
                self._print(self._counted())
            self._stream.flush()

    def _note(self, line: dict[str, Any]) -> None:
        if line["status"] == ENDED:
            self._going_on.pop(line["id"], None)
        else:
            self._going_on[line["id"]] = line
        if line["status"] in (BEGAN, ENDED):
            self._told += 1
            when = line["end"] if line["status"] == ENDED else line["start"]
            self._print(f"{when}  {line['kind']} {line['status']}  {line['sentence']}")

    def end(self) -> None:
        """All that was there is read."""
        with self._lock:
            if not self._told:
                self._print("Nothing to tell: no trouble began or ended in what was read.")
            elif self._live:
                self._print(self._counted())

    def _counted(self) -> str:
        if not self._going_on:
            return "Watching; nothing goes wrong." if self._told else "Watching; nothing to tell so far."
        latest = max(self._going_on.values(), key=lambda line: str(line["end"]))
        named = latest["client_id"] or latest["ordering_key"] or latest["queue"] or "fleet"
        what = f"{latest['kind']} {named} ({latest['number']:,} so far)"
        others = len(self._going_on) - 1
        return f"Watching; {what}{f' and {others:,} more go on' if others else ' goes on'}."

    def _print(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{printable(text)}\n" if self._live else f"{printable(text)}\n")
