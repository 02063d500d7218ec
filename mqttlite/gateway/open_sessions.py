"""The connected HTTP subscribers: found by topic, and ended when their credentials are revoked.

Invariant: without HTTP subscribers nothing here runs.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

SWEEP_S: Final = 0.5
"""How often the credentials of open sessions are looked at, while there are any: what is revoked ends them."""


class Subscriber(Protocol):
    """The interface of a subscriber."""

    @property
    def caller_key(self) -> str:
        """Names its caller."""
        ...

    @property
    def is_revoked(self) -> bool:
        """Whether its API key, or the certificate of its client, is revoked."""
        ...

    @property
    def client_id(self) -> str: ...
    @property
    def topic_ids(self) -> Mapping[str, bytes]: ...
    def end_revoked(self) -> None:
        """End it: its key or certificate is revoked."""
        ...

    def end_topic(self, topic_id: str) -> None:
        """End its subscription to the topic of that id."""
        ...


class OpenSessions:
    """One for each gateway."""

    def __init__(self) -> None:
        self._open: Final[dict[Subscriber, None]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, session: Subscriber) -> None:
        """A subscriber has come."""
        self._open[session] = None
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._on_sweep)

    def discard(self, session: Subscriber) -> None:
        """It is gone; harmless for one that is not known."""
        self._open.pop(session, None)

    def end_topic(self, caller_key: str, topic_id: str, client_id: str) -> int:
        """End a caller's subscriptions to a topic, those of that client identifier if one is given; how many."""
        found = [
            each
            for each in self._open
            if topic_id in each.topic_ids
            and each.caller_key == caller_key
            and (not client_id or each.client_id == client_id)
        ]
        for each in found:
            each.end_topic(topic_id)
        return len(found)

    def stop(self) -> None:
        """Look at no credentials any more."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _on_sweep(self) -> None:
        self._sweep = None
        for each in [each for each in self._open if each.is_revoked]:
            each.end_revoked()
        if self._open:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._on_sweep)
