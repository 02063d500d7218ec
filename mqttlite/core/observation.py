"""What is to be known of messages that come in: how many there are by topic, and which of them are followed.

Asked for routes that are `observed` only. Invariant: each message of a client, and of the broker itself, is looked at
here once, before anybody is handed it.
"""

from typing import Final, final

from mqttlite.core.message import NO_TRACES
from mqttlite.core.routes import Observed, Route, Routes
from mqttlite.core.session import Session
from mqttlite.core.traffic import TopicTraffic
from mqttlite.core.turn import Turn


@final
class Observation:
    __slots__ = ("_routes", "_turn")

    def __init__(self, routes: Routes, turn: Turn) -> None:
        self._routes: Final = routes
        self._turn: Final = turn

    def follow(
        self,
        observed: Observed,
        route: Route,
        topic: bytes,
        qos: int,
        messages: int,
        payload_bytes: int,
        publisher: Session | None,
    ) -> list[int]:
        """So many messages came in together, each with so many bytes of payload: count them.

        Returns the traces of those that are followed, which are the first; no list of the caller's to change.
        """
        receivers = observed.receivers
        if observed.has_no_local:
            for receiver in route.receivers:
                receivers -= receiver.for_messages_of(publisher) is None
        if observed.traffic is not None:
            self._traffic_of(observed, topic).count(qos, messages, payload_bytes, receivers)
        followed = messages
        if not observed.followed and (publisher is None or not publisher.followed):
            turn = self._turn
            turn.until_sample -= messages
            if turn.until_sample > 0:
                return NO_TRACES
            followed = self._samples()
        witness = self._turn.witness
        assert witness is not None
        client_id = None if publisher is None else publisher.client_id
        traces: list[int] = []
        for _ in range(followed):
            trace = witness.on_received(topic, qos, payload_bytes, client_id)
            witness.on_routed(trace, receivers)
            traces.append(trace)
        return traces

    def _samples(self) -> int:
        """How many samples are due; of a long run there may be many."""
        turn = self._turn
        assert turn.witness is not None
        due = 0
        while turn.until_sample <= 0:
            turn.until_sample += turn.witness.next_sample()
            due += 1
        return due

    def _traffic_of(self, observed: Observed, topic: bytes) -> TopicTraffic:
        traffic, counter = self._routes.traffic, observed.traffic
        assert traffic is not None
        assert counter is not None
        if counter.harvest != traffic.harvests:
            counter = observed.traffic = traffic.of(topic)
        return counter
