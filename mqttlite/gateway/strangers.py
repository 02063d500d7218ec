"""Refuses requests of strangers, before the application sees them, where they are too many.

A stranger is who shows no credentials that were accepted lately. Invariant: a refusal costs no more than reading the
request, and callers that are known are not refused here.
"""

from collections.abc import Callable
from typing import Final

from mqttlite.core.load.rate_limits import BucketTable, Rate
from mqttlite.gateway.bodies import Scope
from mqttlite.gateway.problems import Code, Problem
from mqttlite.security.addresses import network_of

MAX_WAITING: Final = 1_000
"""Requests of strangers that wait for their turn: half a second of work."""

MAX_WAITING_UNDER_LOAD: Final = 20
"""The same while the broker is about to drop messages: a person with a browser does not notice it."""

ADMITTED: Final = "is_admitted"
"""In the state of a request: its caller was found, and is counted there."""


class Strangers:
    """One for each gateway. `requests_per_s` (0: any number) is for those of one network that nobody is let in for;
    callers have their own limit."""

    def __init__(
        self,
        requests_per_s: float,
        *,
        is_known: Callable[[Scope], bool],
        is_loaded: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._requests_per_s: Final = requests_per_s
        self._rates: Final = BucketTable(Rate(requests_per_s)) if requests_per_s else None
        self.is_known: Final = is_known
        self._is_loaded: Final = is_loaded
        self._clock: Final = clock

    def refusal(self, scope: Scope, waiting: int) -> Problem | None:
        """Why a stranger's request is refused while others wait; None: it is not."""
        if waiting >= MAX_WAITING or (waiting >= MAX_WAITING_UNDER_LOAD and self._is_loaded()):
            return Problem(Code.BUSY, "too many requests at once; try again", headers={"Retry-After": "1"})
        if self._rates is not None:
            now = self._clock()
            if not self._rates.of(_network(scope), now).have(1, 0, now):
                return Problem(
                    Code.TOO_MANY_REQUESTS,
                    f"more than {self._requests_per_s:g} requests a second without a login (http.requests_per_s)",
                    headers={"Retry-After": "1"},
                )
        return None

    def note(self, scope: Scope) -> None:
        """A request was answered, or a WebSocket begins. It counts where no caller was found for it."""
        if self._rates is not None and ADMITTED not in scope["state"]:
            now = self._clock()
            self._rates.of(_network(scope), now).take(1, 0, now)


def _network(scope: Scope) -> str:
    client = scope["client"]
    return network_of(f"{client[0]}:0") if client else "unix"
