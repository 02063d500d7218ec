"""Counts incoming messages by topic, and begins the traces of traced messages.

Used only for routes that are `observed`. Invariant: each message of a client or of the broker passes here once, before
its delivery.
"""

from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.message import NO_TRACES
from mqttlite.core.route.route import Observed, Route
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.traffic import TopicTraffic
from mqttlite.core.source import Source


@final
class MessageTracing:
    __slots__ = ("_effects", "_routes")

    def __init__(self, routes: Routes, effects: Effects) -> None:
        self._routes: Final = routes
        self._effects: Final = effects

    def begin(
        self,
        observed: Observed,
        route: Route,
        topic: bytes,
        qos: int,
        messages: int,
        payload_bytes: int,
        source: Source,
        allowed: bool,
        number: int = 0,
    ) -> list[int]:
        """Count messages that arrived together, each with a payload of `payload_bytes`.

        Only `allowed` messages have receivers. A single message may already have a number.

        Returns the traces of the traced messages, which are the first ones. The caller must not change the list.
        """
        receivers = observed.receivers if allowed else 0
        if observed.has_no_local and allowed:
            for receiver in route.receivers:
                receivers -= receiver.for_messages_of(source) is None
            for receiver in route.filtered:
                receivers -= receiver.for_messages_of(source) is None
        if observed.traffic is not None:
            self._traffic_of(observed, topic).count(qos, messages, payload_bytes, receivers)
        traced = messages
        if not observed.traced and not source.traced:
            effects = self._effects
            effects.until_sample -= messages
            if effects.until_sample > 0:
                return NO_TRACES
            traced = self._samples()
        tracer = self._effects.tracer
        assert tracer is not None
        client_id = source.client_id or None
        traces: list[int] = []
        for _ in range(traced):
            trace = number or self._effects.numbers.next(self._effects.now)
            tracer.on_received(trace, topic, qos, payload_bytes, client_id)
            tracer.on_routed(trace, receivers)
            traces.append(trace)
        return traces

    def _samples(self) -> int:
        """How many samples are due. A long batch may contain many."""
        effects = self._effects
        assert effects.tracer is not None
        due = 0
        while effects.until_sample <= 0:
            effects.until_sample += effects.tracer.next_sample()
            due += 1
        return due

    def _traffic_of(self, observed: Observed, topic: bytes) -> TopicTraffic:
        traffic, counter = self._routes.traffic, observed.traffic
        assert traffic is not None
        assert counter is not None
        if counter.drain != traffic.drains:
            counter = observed.traffic = traffic.of(topic)
        return counter
