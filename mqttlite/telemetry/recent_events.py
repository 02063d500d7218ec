"""Recent events of clients, in sentences, for the pages of clients.

The dataset keeps more, on disk. Invariant: it holds at most `MAX_EVENTS`, and costs nothing per message.
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from mqttlite.core.reasons import CloseReason
from mqttlite.event_hub import Jailed, Link, Listener
from mqttlite.telemetry.why import clock
from mqttlite.wire.constants import VERSION_NAMES

MAX_EVENTS: Final = 10_000
"""Events of all clients, some 3 MB: a fleet that comes back at once pushes out what was before."""

MAX_SHOWN: Final = 50
"""Events of one client that are shown, the latest."""

MAX_SAID: Final = 5
"""Events of one client in an answer to why, the latest."""

CUTS: Final = {
    CloseReason.QUOTA_EXCEEDED: "see quotas and connects",
    CloseReason.BUFFER_FULL: "see limits.max_outbox_bytes, limits.max_queued_messages, limits.on_overflow",
}
"""Why the broker ends connections of clients that use too much, and what an operator sets to change it."""

MAX_REFUSED: Final = 500
"""Refused connections that are kept, the latest."""

MAX_TEXT: Final = 200
"""Characters of an event: a topic or a reason may be long."""


class Event(NamedTuple):
    """Something that happened to a client."""

    at: datetime
    client_id: str
    what: str
    is_bad: bool


class Refused(NamedTuple):
    """A connection that was refused before it was accepted: a wrong password, a ban, a limit."""

    at: datetime
    peer: str
    listener: str
    client_id: str
    username: str | None
    why: str


class RecentEvents(Listener):
    """`now` gives the UTC time."""

    def __init__(self, now: Callable[[], datetime], max_events: int = MAX_EVENTS) -> None:
        self._now: Final = now
        self._events: Final[deque[Event]] = deque(maxlen=max_events)
        self.refused: Final[deque[Refused]] = deque(maxlen=MAX_REFUSED)
        """The latest is the last."""

    def of_client(self, client_id: str) -> list[Event]:
        """The latest first."""
        found: list[Event] = []
        for event in reversed(self._events):
            if event.client_id == client_id:
                found.append(event)
                if len(found) == MAX_SHOWN:
                    break
        return found

    def bad_of(self, client_id: str) -> list[str]:
        """Sentences about recent losses and refusals of the client, latest last."""
        bad = [event for event in self.of_client(client_id) if event.is_bad][:MAX_SAID]
        return [f"{client_id} at {clock(event.at)}: {event.what}" for event in reversed(bad)]

    def on_connected(self, link: Link) -> None:
        connection = link.connection
        session = "a kept session" if connection.session_present else "a new session"
        words = f"connected from {link.address} by {link.listener}, MQTT {VERSION_NAMES[connection.version]}, {session}"
        self._note(connection.client_id, words)

    def on_closed(self, link: Link) -> None:
        connection = link.connection
        reason = connection.close_reason
        detail = f": {connection.close_detail}" if connection.close_detail else ""
        cut = CUTS.get(reason, "") if reason is not None else ""
        remedy = f"; {cut}" if cut else ""
        self._note(connection.client_id, f"connection ended, {reason}{detail}{remedy}", is_bad=bool(cut))
        if connection.drops:
            lost = ", ".join(f"{count} {reason}" for reason, count in connection.drops.items())
            self._note(connection.client_id, f"lost messages while it was connected: {lost}", is_bad=True)

    def on_refused(self, link: Link) -> None:
        connection = link.connection
        detail = f": {connection.close_detail}" if connection.close_detail else ""
        self.refused.append(
            Refused(
                self._now(),
                link.address,
                link.listener,
                connection.client_id[:MAX_TEXT],
                None if connection.username is None else connection.username[:MAX_TEXT],
                f"{connection.close_reason}{detail}"[:MAX_TEXT],
            )
        )
        if connection.client_id:
            words = f"refused from {link.address}, {connection.close_reason}: {connection.close_detail}"
            self._note(connection.client_id, words, is_bad=True)

    def on_denied(
        self, client_id: str, username: str | None, action: str, topic: bytes, reason: str, link: Link | None
    ) -> None:
        where = "" if link is None else f", from {link.address} on {link.listener}"
        self._note(client_id, f"may not {action} {topic.decode(errors='replace')}: {reason}{where}", is_bad=True)

    def on_shed(self, link: Link, waiting_bytes: int, messages: int) -> None:
        words = "memory was short, and it was one of those that held most: it reads too slowly, and"
        lost = f"{messages} QoS 0 messages that waited for it ({waiting_bytes} bytes) were dropped"
        self._note(link.connection.client_id, f"{words} {lost}; see limits.max_memory_bytes", is_bad=True)

    def on_jailed(self, jailed: Jailed) -> None:
        if jailed.client_id:
            words = f"logins from {jailed.network} are refused for {jailed.duration_s:g} s: {jailed.failures} failed"
            self._note(jailed.client_id, words, is_bad=True)

    def _note(self, client_id: str, what: str, *, is_bad: bool = False) -> None:
        if len(client_id) <= MAX_TEXT:  # longer ones are rare, and would take the memory of many
            self._events.append(Event(self._now(), client_id, what[:MAX_TEXT], is_bad))
