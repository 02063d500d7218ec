"""`Telling`: what is subscribed here, as other nodes are told it.

Invariant: a node is told each change of a subscription, in order, behind all that was subscribed when the two
connected.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.interest import Interest
from mqttlite.core.limits import MAX_SHARES_TOLD, MAX_SHARES_TOLD_BYTES
from mqttlite.core.message import Message
from mqttlite.extensions.nodes.news import Beginning, NewsItem
from mqttlite.extensions.nodes.peer import Peer
from mqttlite.extensions.nodes.places import Places
from mqttlite.extensions.nodes.sessions import CLIENT_ID_PREFIX
from mqttlite.extensions.nodes.shares import shares_of
from mqttlite.extensions.nodes.subacks import Subacks, lacks, told_now
from mqttlite.net.link import LinkDriver

CONNECTED_S: Final = 1.0
"""How often others are told that members of shared subscriptions have connected or disconnected: one that is back by
then is no news."""

LOOK_AGAIN_S: Final = 0.001
"""How often `tell_all` looks."""

MAX_FILTERS: Final = 1_000_000
"""The most topic filters that other nodes are told: some 290 MB at each of them. With more they are told `#`: each
message comes here then."""

MAX_FILTERS_BYTES: Final = 128 * 1_048_576
"""The same for their bytes."""

EVERYTHING: Final = b"#"

_log = logging.getLogger("mqttlite.nodes")


class Telling:
    """Make it before the first message, which must not take a node for a client. `wake` has `tell` called soon."""

    def __init__(
        self,
        node: str,
        peers: Mapping[str, Peer],
        core: Broker,
        driver: LinkDriver,
        places: Places,
        subacks: Subacks,
        wake: Callable[[], None],
    ) -> None:
        self._peers: Final = peers
        self._core: Final = core
        self._driver: Final = driver
        self._places: Final = places
        self._subacks: Final = subacks
        self._wake: Final = wake
        self._interest: Final = Interest(CLIENT_ID_PREFIX, CLIENT_ID_PREFIX + node, wake)
        self._is_widened = False
        """Whether others are told `#` in place of all filters."""
        self._has_untold_shares = False
        self._connected_told_at = 0.0
        self._interest.holds = False
        core.tell_interest(self._interest)

    def begin(self) -> None:
        """Nodes can be told from now on."""
        self._core.copy_retained(self._copy)
        self._interest.take()
        self._interest.holds = True
        self._widen_if_many()

    def tick(self, now: float) -> None:
        """Called several times a second."""
        if self._interest.shares.has_news and now - self._connected_told_at >= CONNECTED_S:
            self._wake()

    def tell(self) -> None:
        """Tell all nodes what has changed. SUBACKs wait until they know it."""
        now = self._driver.time()
        is_due = now - self._connected_told_at >= CONNECTED_S
        if is_due:
            self._connected_told_at = now
        news, held = self._interest.take(is_due)
        if self._is_widened:
            news = dict(shares_of(news.items()))
        places = self._places.take()
        if news or places:
            self._widen_if_many()
            told = [(EVERYTHING, 2), *shares_of(news.items())] if self._is_widened else list(news.items())
            told += places.items()
            for peer in self._peers.values():
                peer.tell(told)
        if held:
            self._subacks.wait(held)

    async def tell_all(self, within_s: float) -> list[str]:
        """Wait until each connected node knows what is subscribed here now. Return those that do not in time."""
        self.tell()
        counts = told_now(self._peers)
        give_up_at = self._driver.time() + within_s
        while (late := lacks(self._peers, counts)) and self._driver.time() < give_up_at:
            await asyncio.sleep(LOOK_AGAIN_S)
        return late

    def beginning(self) -> Beginning:
        """What a node that connects is told first."""
        others: list[NewsItem] = self._interest.shares.current() + self._places.current()
        if self._is_widened:
            return Beginning([], self._interest.qos_of, [(EVERYTHING, 2), *others])
        return Beginning(self._interest.filters(), self._interest.qos_of, others)

    def _copy(self, message: Message) -> None:
        """A message was retained here, or removed one."""
        for peer in self._peers.values():
            peer.copy(message)

    def _widen_if_many(self) -> None:
        interest = self._interest
        if interest.shares.has_untold and not self._has_untold_shares:
            self._has_untold_shares = True
            _log.warning(
                "more than %d shared subscriptions, or %d bytes of their names, have members here: members of others "
                "share only what is published here",
                *(MAX_SHARES_TOLD, MAX_SHARES_TOLD_BYTES),
            )
        is_much = len(interest) > MAX_FILTERS or interest.size_bytes > MAX_FILTERS_BYTES
        if is_much and not self._is_widened:
            self._is_widened = True
            _log.warning(
                "more than %d topic filters, or %d bytes of them, are subscribed here: until it starts again, other "
                "nodes send all messages to this one",
                *(MAX_FILTERS, MAX_FILTERS_BYTES),
            )
