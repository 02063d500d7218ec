"""`Subacks`: SUBACKs wait until other nodes know what is subscribed, and until the node of a queue or stream has
answered."""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from mqttlite.core.broker import Broker
from mqttlite.core.interest import HeldSuback
from mqttlite.extensions.nodes.peer import Peer
from mqttlite.net.link import LinkDriver
from mqttlite.wire.constants import V5
from mqttlite.wire.reason_codes import SUBACK_FAILURE

TOLD_S: Final = 1.0
"""How long a SUBACK waits until other nodes know what is subscribed. A node that does not answer in time is named in
the log, and learns it later."""

_log = logging.getLogger("mqttlite.nodes")


Told: TypeAlias = tuple[int, int]
"""Which connection of a node it is (`Peer.connects`), and how many news it was told on it."""


class _Waiting(NamedTuple):
    """They wait until each connected node has taken so many news."""

    counts: dict[str, Told]
    held: list[HeldSuback]
    since: float


class Subacks:
    """`awaited` are the nodes at which a client subscribes to queues or streams."""

    def __init__(
        self, peers: Mapping[str, Peer], core: Broker, driver: LinkDriver, awaited: Callable[[str], list[str]]
    ) -> None:
        self._peers: Final = peers
        self._core: Final = core
        self._driver: Final = driver
        self._awaited: Final = awaited
        self._waiting: Final[deque[_Waiting]] = deque()
        self._unanswered: Final[list[tuple[HeldSuback, float]]] = []
        """Those that wait only for the node of a queue or stream, each with the time when it began to wait."""
        self._late: Final[dict[str, Told]] = {}
        """Nodes that did not take news in time, and are not waited for until they have taken so many."""

    def wait(self, held: list[HeldSuback]) -> None:
        """They wait for all that each connected node was told until now."""
        counts = {name: told for name, told in told_now(self._peers).items() if name not in self._late}
        self._waiting.append(_Waiting(counts, held, self._driver.time()))
        self.look()

    def look(self) -> None:
        """Send those that need not wait any longer, in order."""
        for name in self._late.keys() - lacks(self._peers, self._late):
            del self._late[name]
        now = self._driver.time()
        while self._waiting:
            first = self._waiting[0]
            missing = lacks(self._peers, first.counts)
            if missing and now - first.since < TOLD_S:
                break
            for name in missing:
                if name not in self._late:
                    self._late[name] = first.counts[name]
                    _log.warning("node %s does not answer: subscriptions are acknowledged without it", name)
            self._waiting.popleft()
            ready = []
            for each in first.held:
                if each.members and now - first.since < TOLD_S and self._nodes_of(each):
                    self._unanswered.append((each, first.since))
                else:
                    ready.append(each)
            self._send(ready, now)
        self._look_at_unanswered(now)

    def refuse(self, client_id: str, topic_filter: bytes, code: int, reason: str) -> bool:
        """Another node has refused a subscription to a queue or stream. False if its SUBACK does not wait any more."""
        is_found = False
        waiting = [each for some in self._waiting for each in some.held] + [each for each, _since in self._unanswered]
        for each in waiting:
            connection = self._core.connections.get(each.number)
            if connection is not None and connection.client_id == client_id:
                is_found |= each.refuse(topic_filter, code if connection.version == V5 else SUBACK_FAILURE, reason)
        return is_found

    def forget(self, name: str) -> None:
        """There is no such node any more."""
        self._late.pop(name, None)

    def _look_at_unanswered(self, now: float) -> None:
        """Send those that the nodes of queues and streams have answered."""
        ready: list[HeldSuback] = []
        for each, since in list(self._unanswered):
            silent = self._nodes_of(each)
            if silent and now - since < TOLD_S:
                continue
            self._unanswered.remove((each, since))
            ready.append(each)
            for name in silent:
                _log.warning("node %s does not answer a client: its subscription is acknowledged without it", name)
        if ready:
            self._send(ready, now)

    def _send(self, ready: list[HeldSuback], now: float) -> None:
        self._core.acknowledge_subscriptions(ready, now)
        self._driver.wake()

    def _nodes_of(self, held: HeldSuback) -> list[str]:
        """The nodes at which its client subscribes to queues or streams."""
        connection = self._core.connections.get(held.number)
        return [] if connection is None else self._awaited(connection.client_id)


def told_now(peers: Mapping[str, Peer]) -> dict[str, Told]:
    """What each node that is connected was told until now."""
    return {name: (peer.connects, peer.news.told) for name, peer in peers.items() if peer.is_connected}


def lacks(peers: Mapping[str, Peer], counts: Mapping[str, Told]) -> list[str]:
    """The nodes that are connected as they were then, and have not taken so many news. One that has connected again was
    told all at its beginning."""
    return [
        name
        for name, (connects, count) in counts.items()
        if (peer := peers.get(name)) is not None
        and peer.is_connected
        and peer.connects == connects
        and peer.news.taken < count
    ]
