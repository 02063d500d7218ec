"""`DocumentsAlarm`: tells that a document here is not that of all nodes, or that an edit of it was refused.

Invariant: nothing is said of a difference that lasts shorter than `LASTS_S`: each change makes one.
"""

from collections.abc import Callable, Iterable
from typing import Final

from mqttlite.extensions.nodes.held_document import DocumentState

LASTS_S: Final = 5.0
"""A change of another node takes less, with its file."""

REFUSED_S: Final = 600.0
"""How long the alarm names an edit that was refused: somebody is to look for it in `<file>.refused`."""


class DocumentsAlarm:
    """`on_alarm` is told which documents differ, in sentences, and when none does any more."""

    def __init__(self, on_alarm: Callable[[bool, str], None]) -> None:
        self._on_alarm: Final = on_alarm
        self._since: Final[dict[str, float]] = {}
        """By document: since when it differs."""
        self._refused: Final[dict[str, tuple[int, float]]] = {}
        """By document: how many edits were refused, and when the latest was seen. A new one may have the file name of
        one before it, which somebody has removed."""
        self._told = ""

    def look(self, documents: Iterable[DocumentState], now: float) -> None:
        """Called about once a second."""
        detail = " ".join(self._sentences(documents, now))
        if detail != self._told:
            self._told = detail
            self._on_alarm(bool(detail), detail)

    def _sentences(self, documents: Iterable[DocumentState], now: float) -> Iterable[str]:
        for each in documents:
            name = each.name
            if self._refused.get(name, (0, 0.0))[0] != each.refused_edits:
                self._refused[name] = each.refused_edits, now
            if each.current:
                self._since.pop(name, None)
            elif now - self._since.setdefault(name, now) >= LASTS_S:
                reason = each.reason or "it is compared with that of the other nodes"
                yield f"{name} is not known to be that of all nodes: {reason}."
            count, at = self._refused.get(name, (0, 0.0))
            if count and each.kept and now - at < REFUSED_S:
                yield f"An edit of {name} was refused, for it was of an older revision: it is in {each.kept}."
