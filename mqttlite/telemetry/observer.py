"""The observer: turns events of the core into entries of the delivery log, and samples messages for a recorder.

`tracing` records single messages. Invariants: nothing here blocks the loop for more than about half a millisecond,
waits, or raises; and everything kept has a limit.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.reasons import BUFFER_FULL, FILTER_MISMATCH, QUEUE_FULL, count
from mqttlite.core.tracer import BACKPRESSURE, OFFLINE, WINDOW_FULL
from mqttlite.event_hub import Link, Listener
from mqttlite.telemetry.answers import Answers
from mqttlite.telemetry.delivery_log import DeliveryLog, DeliveryLogOptions
from mqttlite.telemetry.histograms import STAGES, Histogram
from mqttlite.telemetry.queue_attempts import QueueAttempts
from mqttlite.telemetry.recent_events import RecentEvents
from mqttlite.telemetry.recorder import Recorder
from mqttlite.telemetry.sampling import PER_S, Sampler
from mqttlite.telemetry.tracing import DeliveryOutcome, MessageTracer, Traced, TraceListener
from mqttlite.telemetry.wall import Wall
from mqttlite.telemetry.why import blocked_in_words, duration, held_in_words
from mqttlite.telemetry.why import clock as time_of_day

_TICK_S: Final = 1.0
"""How often the observer checks the wall's clock, and adapts the sampling to the rate of messages."""

_SLICE: Final = 50
"""Messages to end in one loop iteration."""

_STATE_REASONS: Final = (QUEUE_FULL, BUFFER_FULL, OFFLINE, BACKPRESSURE, WINDOW_FULL)
"""Why a message is dropped or waits because of the state of its receiver."""


class Observer(Listener, TraceListener):
    """Implements the core's `Tracer`. With `recorder` it samples messages, with `delivery_log_options` it keeps a
    delivery log. `clock` returns the broker's seconds."""

    def __init__(
        self,
        core: Broker,
        wall: Wall,
        *,
        clock: Callable[[], float],
        recorder: Recorder | None = None,
        delivery_log_options: DeliveryLogOptions | None = None,
        recent_events: RecentEvents | None = None,
        stopwatch: Callable[[], float] = time.perf_counter,
        seed: int | None = None,
    ) -> None:
        self._core: Final = core
        self._wall: Final = wall
        self._clock: Final = clock
        self._stopwatch: Final = stopwatch
        self._recent_events: Final = recent_events
        self._recorder: Final = recorder
        per_s = PER_S if recorder is None else recorder.samples_per_s
        if recorder is None and delivery_log_options is not None and not delivery_log_options.sampled:
            per_s = 0
        self._sampler: Final = Sampler(per_s, stopwatch(), seed)
        self._message_tracer: Final = MessageTracer(self, stopwatch, self._receiver_state)
        self.attempts: Final = QueueAttempts(wall, recorder, stopwatch, seed)
        """Of the messages of queues."""
        self.delivery_log: DeliveryLog | None = None
        """None where the configuration has none, and nothing was followed."""
        self.answers: Answers | None = None
        """Answers why, from the delivery log."""
        if delivery_log_options is not None:
            self._keep_log(delivery_log_options)
        self.latency: Final = {stage: Histogram() for stage in STAGES}
        """Of all traced messages since the start, by stage."""
        self.drops: Final[dict[str, int]] = {}
        """All messages that were dropped since the start, by reason."""
        self._is_sampling = False
        self._task: asyncio.Task[None] | None = None

    def follow(self, filters: frozenset[bytes], clients: frozenset[str]) -> None:
        """Trace these filters and clients in addition to the options, from the core's next questions on."""
        if self.delivery_log is None:
            self._keep_log(DeliveryLogOptions(sampled=False))
        assert self.delivery_log is not None
        self.delivery_log.followed = filters
        self.delivery_log.followed_clients = clients

    def _keep_log(self, options: DeliveryLogOptions) -> None:
        log = self.delivery_log = DeliveryLog(options, self._wall, clock=self._clock)
        self.answers = Answers(
            log,
            self,
            self._wall,
            self.attempts,
            stopwatch=self._stopwatch,
            mean_distance=lambda: self._sampler.mean,
        )

    # ------------------------------------------------------------------ from start to stop

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._tick_on())

    async def stop(self) -> None:
        """End what is traced. Call it after all connections are closed and the core has another tracer, or none."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])
        while self._message_tracer.end_some(_SLICE):
            await asyncio.sleep(0)

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.tick()

    def tick(self) -> None:
        """Adapt the sampling, and check the clock; due about every second."""
        effects = self._core.effects
        effects.until_sample = self._sampler.hurry(effects.until_sample, self._stopwatch())
        self.attempts.tick()
        jumped_s = self._wall.check()
        if self._recorder is not None:
            self._recorder.tick(jumped_s)

    # ------------------------------------------------------------------ what it knows

    @property
    def one_in(self) -> float:
        """One message in this many is sampled now."""
        return self._sampler.mean

    @property
    def traced(self) -> int:
        """Messages that are traced and still have open deliveries."""
        return len(self._message_tracer)

    @property
    def evicted(self) -> int:
        """Receivers whose outcome is unknown because too many messages were traced."""
        return self._message_tracer.evicted

    def oldest_unacknowledged_s(self) -> float:
        """For how long the oldest message has waited for its receiver's acknowledgement, of those that are traced."""
        return self._message_tracer.oldest_unacknowledged_s()

    def filters_of(self, client_id: str) -> list[bytes] | None:
        """The topic filters of a client's session; None where it has none."""
        session = self._core.sessions.get(client_id)
        return None if session is None else list(session.subscriptions)

    def retained_on(self, topic: bytes) -> tuple[int, int] | None:
        """QoS and payload bytes of the message retained on a topic."""
        for message in self._core.router.retained.search(topic).take(1):
            return message.qos, len(message.payload)
        return None

    def cuts_of(self, client_id: str) -> list[str]:
        """Sentences about limits that affect the client and are not tied to a message."""
        said = [] if self._recent_events is None else self._recent_events.bad_of(client_id)
        session = self._core.sessions.get(client_id)
        outbox = None if session is None else session.outbox
        connection = None if outbox is None else self._core.connections.get(outbox.number)
        if connection is not None:
            said += held_in_words(client_id, connection)
            if connection.blocked_at:
                at, now = connection.blocked_at, self._clock()
                said.append(blocked_in_words(client_id, time_of_day(self._wall.at(at)), now - at))
        return said

    # ------------------------------------------------------------------ connections

    def on_refused(self, link: Link) -> None:
        self._message_tracer.on_gone(link.connection.number)

    def on_closed(self, link: Link) -> None:
        self._message_tracer.on_gone(link.connection.number)

    # ------------------------------------------------------------------ questions and reports of the core

    def traces_topic(self, topic: bytes) -> bool:
        return self.delivery_log is not None and self.delivery_log.traces_topic(topic)

    def traces_client(self, client_id: str) -> bool:
        return self.delivery_log is not None and self.delivery_log.traces_client(client_id)

    def next_sample(self) -> int:
        if not self._is_sampling or self._sampler.is_off:
            self._is_sampling = True
            return self._sampler.begin()
        return self._sampler.next(self._stopwatch())

    def on_received(self, trace: int, topic: bytes, qos: int, payload_bytes: int, publisher: str | None) -> None:
        now = self._stopwatch()
        message = Traced(trace, topic, qos, payload_bytes, publisher, self._clock(), now)
        message.stands_for = self._sampler.weight()
        if not message.stands_for:
            message.is_chosen = True
            message.stands_for = self._sampler.choose(now)
        self._message_tracer.begin(message)

    def on_routed(self, trace: int, receivers: int) -> None:
        self._sampler.spend(receivers)
        self._message_tracer.on_routed(trace, receivers)

    def on_queued(self, trace: int, receiver: str, why: str, waiting: int, limit: int) -> None:
        self._message_tracer.on_queued(trace, receiver, why, waiting, limit)

    def on_sent(self, trace: int, receiver: str, connection: int, qos: int) -> None:
        self._message_tracer.on_sent(trace, receiver, connection, qos)

    def on_written(self, connection: int) -> None:
        """The outbox of a connection, with messages in it that are traced, was handed to its socket."""
        self._message_tracer.on_written(connection)

    def on_acknowledged(self, trace: int, receiver: str) -> None:
        self._message_tracer.on_acknowledged(trace, receiver)

    def on_returned(self, trace: int, receiver: str, detail: str) -> None:
        self._message_tracer.on_returned(trace, receiver, detail)

    def on_filtered(self, trace: int, receiver: str, expression: str) -> None:
        self._message_tracer.on_dropped(trace, receiver, FILTER_MISMATCH, expression)

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        count(self.drops, reason, messages)
        if trace:
            self._message_tracer.on_dropped(trace, receiver, reason, detail)

    # ------------------------------------------------------------------ what `tracing` finds of single messages

    def on_stage(self, message: Traced, stage: str, qos: int, seconds: float) -> None:
        if message.stands_for:
            microseconds = int(seconds * 1e6 + 0.5)
            self.latency[stage].note(microseconds)
            if self._recorder is not None:
                self._recorder.on_stage(stage, qos, message.topic, microseconds)

    def on_delivery(self, delivery: DeliveryOutcome) -> None:
        if self.delivery_log is not None:
            self.delivery_log.enter(delivery)

    def on_end(self, delivery: DeliveryOutcome) -> None:
        if self._recorder is not None and delivery.message.stands_for:
            self._recorder.on_sample(delivery)

    # ------------------------------------------------------------------ inside

    def _receiver_state(self, client_id: str, what: str) -> str:
        """The receiver's state in words, if messages wait or are dropped because of it."""
        session = self._core.sessions.get(client_id)
        if self.delivery_log is None or session is None or what not in _STATE_REASONS:
            return ""
        outbox = session.outbox
        if outbox is None:
            return f"{client_id} was not connected"
        if outbox.blocked:
            connection = self._core.connections.get(outbox.number)
            taken = 0.0 if connection is None else self._clock() - connection.blocked_at
            return f"the socket of {client_id} had taken nothing for {duration(taken)}"
        if session.window.quota > 0:
            return f"others had waited for {client_id} before"
        unacknowledged = session.unacknowledged
        since = self._message_tracer.unacknowledged_since(client_id)
        state = f"{unacknowledged} of {unacknowledged + session.window.quota} were unacknowledged"
        if since is None:
            return state
        return f"{state} since {time_of_day(self._wall.at(self._clock() - (self._stopwatch() - since)))}"
