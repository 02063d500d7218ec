"""Keeps what the observer samples, and what happens meanwhile, as rows of the dataset.

`intervals` sums up intervals, `events` has a row for each event. Invariant: rows are handed over together, and at least
each second.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.connect.attempts import Attempt, GivenUp
from mqttlite.event_hub import Link, Listener
from mqttlite.extensions.dataset.events import Events
from mqttlite.extensions.dataset.intervals import Intervals, Write
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.extensions.dataset.tables import AttemptRow, DeadLetterRow, Row, SampleRow
from mqttlite.telemetry.recorder import ReadGroups
from mqttlite.telemetry.tracing import DeliveryOutcome
from mqttlite.telemetry.wall import Wall

_PAUSE_S: Final = 0.02
"""The longest pause between two slices. The rows of an interval are spread over up to half of the next one, because
rows that arrive faster than the disk writes would be dropped."""

BATCH: Final = 256
"""Samples passed on together, at least each second: waking the writer's thread costs more than writing a row."""

MAX_DETAIL: Final = 200
"""Characters of what a consumer said."""


class DatasetRecorder(Listener):
    """Implements `telemetry.recorder.Recorder`. `links` are all open connections; `clock` returns the broker's seconds.
    `node` is the name of this machine of a cluster or of this node, None for a broker alone. `events` is a listener of
    its own."""

    def __init__(
        self,
        core: Broker,
        links: Mapping[int, Link],
        broker_id: str,
        wall: Wall,
        names: Pseudonyms,
        write: Write,
        options: TelemetryOptions,
        *,
        clock: Callable[[], float],
        node: str | None = None,
        groups: ReadGroups | None = None,
    ) -> None:
        self._core: Final = core
        self._broker_id: Final = broker_id
        self._wall: Final = wall
        self._names: Final = names
        self._write: Final = write
        self._clock: Final = clock
        self._interval_s: Final = options.interval_s
        self.samples_per_s: Final = options.samples_per_s
        self.events: Final = Events(links, wall, names, write, clock, broker_id, node)
        self.intervals: Final = Intervals(
            *(core.count_traffic(options.max_topics), links, wall, names, write),
            broker_id=broker_id,
            max_topics=options.max_topics,
            now=clock(),
        )
        if groups is not None:
            self.intervals.groups = groups
        self._rows: list[tuple[str, Row]] = []
        self._sweep: Iterator[int] = iter(())
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ from start to stop

    def start(self, max_connections: int) -> None:
        """Begin, on the running loop; the event of the start names the `max_connections` of all listeners."""
        self.events.started(self._core.limits, max_connections)
        self._task = asyncio.get_running_loop().create_task(self._sum_up(self._clock() + self._interval_s))

    async def stop(self) -> None:
        """Write remaining data. Call it after the observer's stop."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])
        self.flush()
        await self.finish_sweep()
        await self.finish_sweep(self.intervals.sweep(self._clock()))
        self.events.stopped()

    async def _sum_up(self, due: float) -> None:
        while True:
            await asyncio.sleep(max(0.0, due - self._clock()))
            now = self._clock()
            due = max(due + self._interval_s, now)
            await self.finish_sweep(self.intervals.sweep(now), self._interval_s / 2)

    async def finish_sweep(self, sweep: Iterator[int] | None = None, within_s: float = 0.0) -> None:
        """Write the rows of an interval, of the one that was begun if none is given."""
        if sweep is not None:
            self._sweep = sweep
        end = self._clock() + within_s
        for left in self._sweep:
            await asyncio.sleep(max(0.0, min(_PAUSE_S, (end - self._clock()) / (left + 1))))

    def tick(self, jumped_s: float) -> None:
        self.flush()
        if jumped_s:
            self.events.clock_jumped(jumped_s)

    def flush(self) -> None:
        """Hand over the rows that there are."""
        rows, self._rows = self._rows, []
        for table, row in rows:
            self._write(table, row)

    # ------------------------------------------------------------------ events

    def on_refused(self, link: Link) -> None:
        self.intervals.on_closed(link, self._clock())

    def on_closed(self, link: Link) -> None:
        self.intervals.on_closed(link, self._clock())

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        if self.intervals.on_dropped(reason, receiver, topic, messages):
            assert receiver is not None
            session = self._core.sessions.get(receiver)
            number = 0 if session is None or session.outbox is None else session.outbox.number
            self.events.drop_burst(receiver, number, reason, messages, detail)

    # ------------------------------------------------------------------ samples

    def on_stage(self, stage: str, qos: int, topic: bytes, microseconds: int) -> None:
        self.intervals.on_stage(stage, qos, topic, microseconds)

    def on_sample(self, delivery: DeliveryOutcome) -> None:
        message, sent = delivery.message, delivery.sent
        self._put(
            "samples",
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
            ),
        )

    def on_attempt(self, attempt: Attempt, one_in: int) -> None:
        message = attempt.message
        held_s = attempt.ended_at - attempt.delivered_at
        self._put(
            "attempts",
            AttemptRow(
                broker_id=self._broker_id,
                queue=attempt.queue,
                message_id=str(message.number),
                topic=self._names.topic(message.topic.decode(errors="replace")),
                consumer=self._names.client_id(attempt.consumer or None),
                ordering_key=self._names.client_id(attempt.key or None),
                attempt=attempt.number,
                delivered_at=self._wall.at(attempt.delivered_at),
                ended_at=self._wall.at(attempt.ended_at),
                outcome=attempt.outcome,
                detail=self._detail(attempt.detail),
                held_us=int(held_s * 1e6 + 0.5),
                behind=attempt.behind,
                one_in=one_in,
            ),
        )

    def on_given_up(self, letter: GivenUp, one_in: int) -> None:
        message = letter.message
        at = self._wall.at
        self._put(
            "dead_letters",
            DeadLetterRow(
                broker_id=self._broker_id,
                queue=letter.queue,
                message_id=str(message.number),
                topic=self._names.topic(message.topic.decode(errors="replace")),
                cause=letter.cause,
                detail=self._detail(letter.detail),
                attempts=letter.attempts,
                consumer=self._names.client_id(letter.consumer or None),
                ordering_key=self._names.client_id(letter.key or None),
                payload_bytes=len(message.payload),
                published_at=datetime.fromtimestamp(message.number / 1e6, UTC),
                first_at=at(letter.first_at) if letter.first_at else None,
                last_at=at(letter.last_at) if letter.last_at else None,
                at=at(letter.at),
                one_in=one_in,
            ),
        )

    def _detail(self, text: str) -> str | None:
        return self._names.sentence(text)[:MAX_DETAIL] or None

    def _put(self, table: str, row: Row) -> None:
        self._rows.append((table, row))
        if len(self._rows) >= BATCH:
            self.flush()


def _us(start: float | None, end: float | None) -> int | None:
    return None if start is None or end is None else int((end - start) * 1e6 + 0.5)
