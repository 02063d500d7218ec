"""Traces filters and clients at run time, each for as long as a caller renews it.

Invariant: a trace ends `LEASE_S` after its last renewal, so that a killed command leaves no cost behind.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from mqttlite.topics.names import check_filter

LEASE_S: Final = 10.0
"""How long a trace lasts without renewal: several times the interval of the command."""

MAX_FOLLOWED: Final = 20
"""The most filters and clients: each filter is compared with the topic of every new route."""


class TooManyFollowed(Exception):
    """There are `MAX_FOLLOWED` already."""


class Following:
    """`trace` is called with all filters and clients whenever they change."""

    def __init__(self, trace: Callable[[frozenset[bytes], frozenset[str]], None]) -> None:
        self._trace: Final = trace
        self._leases: Final[dict[bytes | str, asyncio.TimerHandle]] = {}
        """Filters are bytes, clients are text."""

    def follow(self, topic_filter: bytes) -> None:
        """Start or renew the trace of a filter. Raises `TopicFilterInvalid` and `TooManyFollowed`."""
        check_filter(topic_filter)
        self._lease(topic_filter)

    def follow_client(self, client_id: str) -> None:
        """Start or renew the trace of messages from and to a client. Raises `TooManyFollowed`."""
        self._lease(client_id)

    def stop(self) -> None:
        """End all traces."""
        for lease in self._leases.values():
            lease.cancel()
        self._leases.clear()

    def _lease(self, target: bytes | str) -> None:
        lease = self._leases.get(target)
        if lease is not None:
            lease.cancel()
        elif len(self._leases) >= MAX_FOLLOWED:
            raise TooManyFollowed
        loop = asyncio.get_running_loop()
        self._leases[target] = loop.call_later(LEASE_S, self._end, target)
        if lease is None:
            self._tell()

    def _end(self, target: bytes | str) -> None:
        del self._leases[target]
        self._tell()

    def _tell(self) -> None:
        filters = frozenset(each for each in self._leases if isinstance(each, bytes))
        self._trace(filters, frozenset(each for each in self._leases if isinstance(each, str)))
