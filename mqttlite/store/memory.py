"""The store that lives as long as the process: for tests, and for a broker that is started again within one program.

It keeps the latest state and no history. Invariant: `load` after `commit` gives what those changes amount to.
"""

from dataclasses import dataclass, field
from typing import assert_never

from mqttlite.core.changes import (
    Change,
    EndSession,
    ReleaseMessage,
    RemoveReceived,
    RemoveRetained,
    RemoveSubscription,
    SaveMessage,
    SaveReceived,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SettleMessage,
)


@dataclass
class _Session:
    saved: SaveSession
    subscriptions: dict[bytes, SaveSubscription] = field(default_factory=dict)
    messages: dict[int, SaveMessage | ReleaseMessage] = field(default_factory=dict)
    received: dict[int, SaveReceived] = field(default_factory=dict)


class MemoryStore:
    """A `Store` in two dictionaries. Its size is bounded by the broker's own limits on what it may be asked to keep."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._retained: dict[bytes, SaveRetained] = {}

    def commit(self, changes: list[Change]) -> None:
        for change in changes:
            self._apply(change)

    def load(self) -> list[Change]:
        changes: list[Change] = [*self._retained.values()]
        for session in self._sessions.values():
            changes.append(session.saved)
            changes += session.subscriptions.values()
            changes += session.messages.values()
            changes += session.received.values()
        return changes

    def _apply(self, change: Change) -> None:
        if isinstance(change, SaveRetained):
            self._retained[change.message.topic] = change
        elif isinstance(change, RemoveRetained):
            self._retained.pop(change.topic, None)
        elif isinstance(change, SaveSession):
            session = self._sessions.get(change.client_id)
            if session is None:
                self._sessions[change.client_id] = _Session(change)
            else:
                session.saved = change
        elif isinstance(change, EndSession):
            self._sessions.pop(change.client_id, None)
        elif change.client_id in self._sessions:
            self._apply_to(self._sessions[change.client_id], change)

    def _apply_to(
        self,
        session: _Session,
        change: SaveSubscription
        | RemoveSubscription
        | SaveMessage
        | ReleaseMessage
        | SettleMessage
        | SaveReceived
        | RemoveReceived,
    ) -> None:
        if isinstance(change, (SaveMessage, ReleaseMessage)):
            session.messages[change.packet_id] = change
        elif isinstance(change, SettleMessage):
            session.messages.pop(change.packet_id, None)
        elif isinstance(change, SaveReceived):
            session.received[change.packet_id] = change
        elif isinstance(change, RemoveReceived):
            session.received.pop(change.packet_id, None)
        elif isinstance(change, SaveSubscription):
            session.subscriptions[change.subscription.topic_filter] = change
        elif isinstance(change, RemoveSubscription):
            session.subscriptions.pop(change.topic_filter, None)
        else:
            assert_never(change)
