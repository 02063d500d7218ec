"""Filters that are traced at run time, each for as long as somebody asks for it.

Invariant: a filter that nobody asks for is traced for `LEASE_S` at most, so that a command that was killed leaves no
cost behind.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from mqttlite.topics.names import check_filter

LEASE_S: Final = 10.0
"""How long a filter is traced without being asked for again: some times as long as the command waits between two
questions."""

MAX_FOLLOWED: Final = 20
"""Filters at once: each is compared with the topic of every new route."""


class TooManyFollowed(Exception):
    """There are `MAX_FOLLOWED` filters already."""


class Following:
    """`trace` is called with all filters whenever they change."""

    def __init__(self, trace: Callable[[frozenset[bytes]], None]) -> None:
        self._trace: Final = trace
        self._leases: Final[dict[bytes, asyncio.TimerHandle]] = {}

    def follow(self, topic_filter: bytes) -> None:
        """Trace a filter, or go on with it. Raises `TopicFilterInvalid` and `TooManyFollowed`."""
        check_filter(topic_filter)
        lease = self._leases.get(topic_filter)
        if lease is not None:
            lease.cancel()
        elif len(self._leases) >= MAX_FOLLOWED:
            raise TooManyFollowed
        loop = asyncio.get_running_loop()
        self._leases[topic_filter] = loop.call_later(LEASE_S, self._end, topic_filter)
        if lease is None:
            self._trace(frozenset(self._leases))

    def stop(self) -> None:
        """Trace nothing any more."""
        for lease in self._leases.values():
            lease.cancel()
        self._leases.clear()

    def _end(self, topic_filter: bytes) -> None:
        del self._leases[topic_filter]
        self._trace(frozenset(self._leases))
