"""`Heard`: what a node tells that is subscribed there, as subscriptions of its session here.

Invariant: when all was told, the session has these subscriptions and no other.
"""

from collections.abc import Callable, Iterable
from typing import Final

from mqttlite.core.interest import NOBODY
from mqttlite.extensions.nodes.blobs import Data
from mqttlite.extensions.nodes.own_answers import OwnAnswers
from mqttlite.extensions.nodes.places import is_place
from mqttlite.extensions.nodes.shares import is_share, membership
from mqttlite.net.local_link import LocalLink
from mqttlite.wire.packets import Subscribe, SubscriptionRequest, Unsubscribe

SHORT_FILTERS_BYTES: Final = 700
"""About how many bytes of topic filters are in one SUBSCRIBE or UNSUBSCRIBE: one may have 64 KiB, and a packet must
have room. The broker handles a longer SUBSCRIBE later, in parts."""


class Heard:
    """`answers` are told which answers of the broker are not for the other node. `on_places` as in `Peer`."""

    def __init__(
        self,
        node: str,
        answers: OwnAnswers,
        on_places: Callable[[str, dict[bytes, int], bool], dict[bytes, int]],
    ) -> None:
        self._node: Final = node
        self._answers: Final = answers
        self._on_places: Final = on_places
        self._stale: Final[set[bytes]] = set()
        """Subscriptions of an earlier connection that were not told again."""
        self._packet_id = 0
        self.is_whole: bool = False
        """Whether all topic filters of the other node are known."""

    def begin(self, subscriptions: Iterable[bytes]) -> None:
        """A connection has begun. The session has these subscriptions."""
        self.is_whole = False
        self._stale.update(subscriptions)

    def end(self) -> None:
        """It has ended."""
        self._stale.clear()

    def hear(self, link: LocalLink, blob: Data) -> None:
        """Subscribe to what is subscribed there."""
        requests: list[SubscriptionRequest] = []
        size = 0
        gone: list[bytes] = []
        news = dict(blob.news)  # of several changes of a filter, the last holds
        places = {name: made for name, made in news.items() if is_place(name)}
        if places or blob.is_whole:
            kept = self._on_places(self._node, places, blob.is_whole)
            news = {name: qos for name, qos in news.items() if name not in places} | kept
        for topic_filter, qos in news.items():
            self._stale.discard(topic_filter)
            if qos == NOBODY:
                gone.append(topic_filter)
                continue
            if is_share(topic_filter):
                self._ask(link, membership(self._next_packet_id(), topic_filter, qos))
                continue
            requests.append(_request(topic_filter, qos))
            size += len(topic_filter)
            if size > SHORT_FILTERS_BYTES:
                self._subscribe(link, requests)
                requests, size = [], 0
        if requests:
            self._subscribe(link, requests)
        if blob.news:
            self._answers.await_disk(blob.number)
        if blob.is_whole:
            gone += self._stale
            self._stale.clear()
            self.is_whole = True
        some: list[bytes] = []
        size = 0
        for topic_filter in gone:
            some.append(topic_filter)
            size += len(topic_filter)
            if size > SHORT_FILTERS_BYTES:
                self._unsubscribe(link, some)
                some, size = [], 0
        if some:
            self._unsubscribe(link, some)

    def _subscribe(self, link: LocalLink, requests: list[SubscriptionRequest]) -> None:
        self._ask(link, Subscribe(self._next_packet_id(), tuple(requests)))

    def _unsubscribe(self, link: LocalLink, topic_filters: list[bytes]) -> None:
        self._answers.expect_unsuback()
        link.send(Unsubscribe(self._next_packet_id(), tuple(topic_filters)))

    def _ask(self, link: LocalLink, packet: Subscribe) -> None:
        self._answers.expect_suback()
        link.send_at_once(packet)

    def _next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id


def _request(topic_filter: bytes, qos: int) -> SubscriptionRequest:
    """With No Local, so that nothing goes on to another node, and RETAIN as published. Retained messages go another
    way."""
    return SubscriptionRequest(topic_filter, qos, no_local=True, retain_as_published=True, retain_handling=2)
