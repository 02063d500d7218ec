"""The observer: turns events of the core into rows of the dataset and entries of the delivery log.

`intervals` sums up intervals, `tracing` records single messages. Invariants: nothing here blocks the loop for more than
about half a millisecond, waits, or raises; and everything kept has a limit.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.reasons import BUFFER_FULL, FILTER_MISMATCH, QUEUE_FULL, count
from mqttlite.core.tracer import BACKPRESSURE, OFFLINE, WINDOW_FULL
from mqttlite.event_hub import Jailed, Link, Listener, OverloadStage
from mqttlite.telemetry.answers import Answers
from mqttlite.telemetry.delivery_log import DeliveryLog
from mqttlite.telemetry.delivery_log import Options as DeliveryLogOptions
from mqttlite.telemetry.events import Events
from mqttlite.telemetry.histograms import STAGES, Histogram
from mqttlite.telemetry.intervals import SLICE, Intervals, ReadGroups, Write
from mqttlite.telemetry.options import Options
from mqttlite.telemetry.pseudonyms import Pseudonyms
from mqttlite.telemetry.queue_attempts import QueueAttempts
from mqttlite.telemetry.recent_events import RecentEvents
from mqttlite.telemetry.sampling import PER_S, Sampler
from mqttlite.telemetry.tables import SampleRow
from mqttlite.telemetry.tracing import DeliveryOutcome, MessageTracer, Traced, TraceListener
from mqttlite.telemetry.wall import Wall
from mqttlite.telemetry.why import blocked_in_words, duration, held_in_words
from mqttlite.telemetry.why import clock as time_of_day

_TICK_S: Final = 1.0
"""How often the observer checks the wall's clock, and adapts the sampling to the rate of messages."""

_PAUSE_S: Final = 0.02
"""The longest pause between two slices. The rows of an interval are spread over up to half of the next one, because
rows that arrive faster than the disk writes would be dropped."""

BATCH: Final = 256
"""Samples passed on together, at least each second: waking the writer's thread costs more than writing a row."""

_STATE_REASONS: Final = (QUEUE_FULL, BUFFER_FULL, OFFLINE, BACKPRESSURE, WINDOW_FULL)
"""Why a message is dropped or waits because of the state of its receiver."""


class Observer(Listener, TraceListener):
    """Implements the core's `Tracer`. With `options` and `write` it writes rows, with `delivery_log_options` a delivery
    log.

    `links` are all open connections; `clock` returns the broker's seconds. `node` is the name of this machine of a
    cluster, None for a broker alone.
    """

    def __init__(
        self,
        core: Broker,
        links: Mapping[int, Link],
        broker_id: str,
        wall: Wall,
        *,
        clock: Callable[[], float],
        options: Options | None = None,
        write: Write | None = None,
        names: Pseudonyms | None = None,
        delivery_log_options: DeliveryLogOptions | None = None,
        recent_events: RecentEvents | None = None,
        node: str | None = None,
        groups: ReadGroups | None = None,
        stopwatch: Callable[[], float] = time.perf_counter,
        seed: int | None = None,
    ) -> None:
        names = names or Pseudonyms()
        self._core: Final = core
        self._broker_id: Final = broker_id
        self._wall: Final = wall
        self._clock: Final = clock
        self._stopwatch: Final = stopwatch
        self._recent_events: Final = recent_events
        self._names: Final = names
        self._write: Final = write
        self._interval_s: Final = 0.0 if options is None else options.interval_s
        per_s = PER_S if options is None else options.samples_per_s
        if options is None and delivery_log_options is not None and not delivery_log_options.sampled:
            per_s = 0
        self._sampler: Final = Sampler(per_s, stopwatch(), seed)
        self._message_tracer: Final = MessageTracer(self, stopwatch, self._receiver_state)
        self.attempts: Final = QueueAttempts(broker_id, wall, names, write, per_s, stopwatch, seed)
        """Of the messages of queues."""
        self._events: Events | None = None
        self._intervals: Intervals | None = None
        if options is not None and write is not None:
            self._events = Events(links, wall, names, write, clock, broker_id, node)
            self._intervals = Intervals(
                core.count_traffic(options.max_topics),
                links,
                wall,
                names,
                write,
                broker_id=broker_id,
                max_topics=options.max_topics,
                now=clock(),
            )
            if groups is not None:
                self._intervals.groups = groups
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
        self._samples: list[SampleRow] = []
        self._sweep: Iterator[int] = iter(())
        self._tasks: list[asyncio.Task[None]] = []

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

    def start(self, max_connections: int) -> None:
        """Begin, on the running loop; the event of the start names the `max_connections` of all listeners."""
        if self._events is not None:
            self._events.started(self._core.limits, max_connections)
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._tick_on()))
        if self._intervals is not None:
            self._tasks.append(loop.create_task(self._sum_up(self._intervals, self._clock() + self._interval_s)))

    async def stop(self) -> None:
        """Write remaining data. Call it after all connections are closed and the core has another tracer, or none."""
        if not self._tasks:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        while self._message_tracer.end_some(SLICE):
            await asyncio.sleep(0)
        self._write_samples()
        self.attempts.flush()
        await self._finish_sweep()
        if self._intervals is not None:
            self._sweep = self._intervals.sweep(self._clock())
            await self._finish_sweep()
        if self._events is not None:
            self._events.stopped()

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.tick()

    async def _sum_up(self, intervals: Intervals, due: float) -> None:
        while True:
            await asyncio.sleep(max(0.0, due - self._clock()))
            now = self._clock()
            due = max(due + self._interval_s, now)
            self._sweep = intervals.sweep(now)
            await self._finish_sweep(self._interval_s / 2)

    async def _finish_sweep(self, within_s: float = 0.0) -> None:
        end = self._clock() + within_s
        for left in self._sweep:
            await asyncio.sleep(max(0.0, min(_PAUSE_S, (end - self._clock()) / (left + 1))))

    def tick(self) -> None:
        """Adapt the sampling, write samples, check the clock; due about every second."""
        effects = self._core.effects
        effects.until_sample = self._sampler.hurry(effects.until_sample, self._stopwatch())
        self._write_samples()
        self.attempts.tick()
        jumped_s = self._wall.check()
        if jumped_s and self._events is not None:
            self._events.clock_jumped(jumped_s)

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

    def on_connected(self, link: Link) -> None:
        if self._events is not None:
            self._events.connected(link)

    def on_refused(self, link: Link) -> None:
        self._on_ended(link)
        if self._events is not None:
            self._events.refused(link)

    def on_jailed(self, jailed: Jailed) -> None:
        if self._events is not None:
            self._events.jailed(jailed)

    def on_shed(self, link: Link, waiting_bytes: int, messages: int) -> None:
        if self._events is not None:
            self._events.shed(link, waiting_bytes)

    def on_overload(self, stage: OverloadStage) -> None:
        if self._events is not None:
            self._events.overload(stage)

    def on_stood_still(self, duration_s: float) -> None:
        if self._events is not None:
            self._events.stood_still(duration_s)

    def on_closed(self, link: Link) -> None:
        self._on_ended(link)
        if self._events is not None:
            self._events.ended(link)

    def _on_ended(self, link: Link) -> None:
        self._message_tracer.on_gone(link.connection.number)
        if self._intervals is not None:
            self._intervals.on_closed(link, self._clock())

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
        if self._intervals is not None and self._intervals.on_dropped(reason, receiver, topic, messages):
            assert self._events is not None
            assert receiver is not None
            self._events.drop_burst(receiver, self._connection_of(receiver), reason, messages, detail)
        if trace:
            self._message_tracer.on_dropped(trace, receiver, reason, detail)

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        if self._events is not None:
            self._events.subscribed(connection, topic_filter, qos, reason_code, existing)

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        if self._events is not None:
            self._events.unsubscribed(connection, topic_filter)

    def on_blocked(self, connection: int) -> None:
        if self._events is not None:
            self._events.backpressure_began(connection)

    def on_unblocked(self, connection: int, duration_s: float, waiting_bytes: int) -> None:
        if self._events is not None:
            self._events.backpressure_ended(connection, duration_s, waiting_bytes)

    # ------------------------------------------------------------------ what `tracing` finds of single messages

    def on_stage(self, message: Traced, stage: str, qos: int, seconds: float) -> None:
        if message.stands_for:
            microseconds = int(seconds * 1e6 + 0.5)
            self.latency[stage].note(microseconds)
            if self._intervals is not None:
                self._intervals.on_stage(stage, qos, message.topic, microseconds)

    def on_delivery(self, delivery: DeliveryOutcome) -> None:
        if self.delivery_log is not None:
            self.delivery_log.enter(delivery)

    def on_end(self, delivery: DeliveryOutcome) -> None:
        message = delivery.message
        if self._write is None or not message.stands_for:
            return
        sent = delivery.sent
        self._samples.append(
            SampleRow(
                broker_id=self._broker_id,
                message_id=str(message.trace),
                at=self._wall.at(message.at),
                topic=self._names.topic(message.topic.decode(errors="replace")),
                qos=message.qos,
                payload_bytes=message.payload_bytes,
                publisher=self._names.client_id(message.publisher),
                receiver=self._names.client_id(delivery.receiver),
                outcome=delivery.outcome,
                reason=delivery.reason or None,
                routed_us=_us(message.received, message.routed),
                queued_us=_us(message.routed, sent),
                written_us=_us(sent, delivery.written),
                acknowledged_us=_us(delivery.written, delivery.acknowledged),
                one_in=message.stands_for,
            )
        )
        if len(self._samples) >= BATCH:
            self._write_samples()

    # ------------------------------------------------------------------ inside

    def _write_samples(self) -> None:
        samples, self._samples = self._samples, []
        if self._write is not None:
            for sample in samples:
                self._write("samples", sample)

    def _connection_of(self, client_id: str) -> int:
        """The number of a client's connection; 0 while it is away."""
        session = self._core.sessions.get(client_id)
        return 0 if session is None or session.outbox is None else session.outbox.number

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


def _us(start: float | None, end: float | None) -> int | None:
    return None if start is None or end is None else int((end - start) * 1e6 + 0.5)
