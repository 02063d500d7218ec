"""From findings of single five minutes to troubles that begin, go on and end. Pure; times are microseconds since 1970.

Invariant: of a trouble there is one line that it began and at most one that it ended, with the same `id`; what is found
of it between them only counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

BEGAN: Final = "began"
GOES_ON: Final = "goes_on"
ENDED: Final = "ended"

QUIET_US: Final = 900_000_000
"""A trouble that comes back within a quarter of an hour has not been over: devices that flap take a breath."""

SILENT: Final = "silent"
"""Is not over because time passes, but because the client publishes again: see `Silences`."""

_SUMMED: Final = frozenset({"flapping", "drop_burst", "failing_consumer", "failing_queue", "dead_letters"})
"""Of these the numbers of several windows add up; the others count clients or messages, of which the most at a time are
told."""

_OVER: Final = {
    "flapping": "{who} connected {number:,} times in {minutes}; it is steady again",
    "drop_burst": "{number:,} messages for {who} were dropped in {minutes}; no more are",
    "keep_alive_burst": "up to {number:,} clients fell silent within 5 minutes, for {minutes}; it is over",
    "reconnect_storm": "up to {number:,} clients reconnected within 5 minutes, for {minutes}; it is over",
    "failing_consumer": "{who} failed {number:,} deliveries of queue {queue} in {minutes}; it works again",
    "failing_queue": "the consumers of queue {queue} failed {number:,} deliveries in {minutes}; they work again",
    "dead_letters": "{number:,} messages of queue {queue} were given up in {minutes}; no more are",
    "stuck_key": "key {key} of queue {queue} was stuck for {minutes}; it is not any more",
    SILENT: "{who} publishes again, after {minutes}",
}


@dataclass
class Trouble:
    """What is known of it so far."""

    kind: str
    client_id: str | None
    start: int
    end: int
    number: int
    sentence: str
    queue: str | None = None
    ordering_key: str | None = None

    @property
    def key(self) -> str:
        named = [each for each in (self.queue, self.client_id, self.ordering_key) if each is not None]
        return "/".join((self.kind, *(named or ["fleet"])))

    def line(self, status: str) -> dict[str, Any]:
        """As it is told: times as in the dataset, and a name that tells a repeated line from a new one."""
        sentence = self.sentence
        if status == ENDED and self.kind != SILENT:
            minutes = f"{max(1, round((self.end - self.start) / 60_000_000))} min"
            sentence = _OVER[self.kind].format(
                who=self.client_id, queue=self.queue, key=self.ordering_key, number=self.number, minutes=minutes
            )
        return {
            "id": f"{self.key}/{_text(self.start)}",
            "kind": self.kind,
            "status": status,
            "client_id": self.client_id,
            "queue": self.queue,
            "ordering_key": self.ordering_key,
            "start": _text(self.start),
            "end": _text(self.end),
            "number": self.number,
            "sentence": sentence,
        }


class Troubles:
    """Those that go on, by what they are and of whom; `state` is all of it, and makes another such object."""

    def __init__(self, state: Iterable[Mapping[str, Any]] = ()) -> None:
        self._open: Final = {trouble.key: trouble for trouble in (Trouble(**row) for row in state)}

    @property
    def state(self) -> list[dict[str, Any]]:
        return [asdict(trouble) for trouble in self._open.values()]

    def take(self, found: Iterable[Trouble], until: int) -> list[dict[str, Any]]:
        """Lines about what was found, in the order of time, and about what is over because nothing was `until` then."""
        lines = []
        for new in sorted(found, key=lambda each: (each.start, each.key)):
            known = self._open.get(new.key)
            if known is not None and new.start <= known.end + QUIET_US:
                known.end = max(known.end, new.end)
                known.number = known.number + new.number if new.kind in _SUMMED else max(known.number, new.number)
                lines.append(known.line(GOES_ON))
                continue
            if known is not None:
                lines.append(known.line(ENDED))
            self._open[new.key] = new
            lines.append(new.line(BEGAN))
        for trouble in list(self._open.values()):
            if until > trouble.end + QUIET_US:
                del self._open[trouble.key]
                lines.append(trouble.line(ENDED))
        return lines


class Silences:
    """Clients that are silent. What began and what ended is told by different queries, each of which keeps its part."""

    def __init__(self) -> None:
        self.began: Final[dict[str, Trouble]] = {}
        """The last silence of each client, whether or not it is over."""
        self.over: Final[dict[str, int]] = {}
        """The beginning of the last one that is."""

    def begin(self, found: Iterable[Trouble]) -> list[dict[str, Any]]:
        """Lines about clients that broke off. `start` is when a client began to publish, `end` when it last did."""
        lines = []
        for new in found:
            assert new.client_id is not None, "a fleet is not silent"
            self.began[new.client_id] = new
            lines.append(new.line(BEGAN))
        return lines

    def open(self) -> dict[str, int]:
        """The clients that are silent, and when they last published."""
        began = dict(self.began)  # of a thread of its own
        return {name: each.end for name, each in began.items() if self.over.get(name) != each.start}

    def heard(self, client_id: str, at: int) -> dict[str, Any]:
        """The line about a silent client that publishes again."""
        silence = self.began[client_id]
        self.over[client_id] = silence.start
        minutes = f"{max(1, round((at - silence.end) / 60_000_000))} min"
        sentence = _OVER[SILENT].format(who=client_id, minutes=minutes)
        return silence.line(ENDED) | {"end": _text(at), "sentence": sentence}


def _text(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat().replace("+00:00", "Z")
