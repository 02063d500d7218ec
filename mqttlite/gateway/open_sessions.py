"""The connected HTTP subscribers: found by caller, and ended when their credentials are revoked.

Invariant: without HTTP subscribers nothing here runs.
"""

import asyncio
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
    def end_revoked(self) -> None:
        """End it: its key or certificate is revoked."""
        ...

    def end_unsubscribed(self) -> None:
        """End it, if it is a stream without a subscription."""
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

    def of(self, caller_key: str) -> list[Subscriber]:
        """The connected subscribers of a caller."""
        return [each for each in self._open if each.caller_key == caller_key]

    def end_unsubscribed(self, client_id: str) -> None:
        """End the stream of a client that has no subscription any more; harmless for every other client."""
        for each in self._open:
            if each.client_id == client_id:
                each.end_unsubscribed()
                return

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
