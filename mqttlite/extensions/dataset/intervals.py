"""Sums up traffic, activity, latency and drops over an interval, and writes the rows at its end.

Invariants: everything counted is in one row of one interval; many rows are written in slices, between which the loop
continues; an interval has at most `MAX_DROPS` rows of drops, and as many topics as the configuration allows.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Final, TypeVar

from mqttlite.core.route.traffic import TopicTraffic, Traffic
from mqttlite.event_hub import Link
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.extensions.dataset.tables import ActivityRow, DropRow, GroupRow, LatencyRow, Row, TrafficRow
from mqttlite.telemetry.histograms import Histogram, Histograms, Key, Labels
from mqttlite.telemetry.recorder import GroupReading, ReadGroups
from mqttlite.telemetry.wall import Wall

SLICE: Final = 50
"""Rows to write, or connections to visit, in one loop iteration: less than half a millisecond."""

MAX_DROPS: Final = 10_000
"""Receivers and topics with their own drop counts in an interval, by reason; further ones share one row for each
reason. Some megabytes."""

MAX_GROUPS: Final = 100
"""Groups of streams with a row in an interval: each looks at up to a thousand partitions, a tenth of a millisecond."""

REST: Final = b"#"

_T = TypeVar("_T")

Write = Callable[[str, Row], None]
"""Takes a row of a table; neither waits nor raises."""


class _Reading:
    """The counters of a connection at its last visit, and the interval since then."""

    __slots__ = ("backpressure_s", "bytes_received", "bytes_sent", "dropped", "received", "sent", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self.received = 0
        self.sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.dropped = 0
        self.backpressure_s = 0.0


class Intervals:
    """`links` are all connections before their `on_closed`. Times are the broker's seconds."""

    def __init__(
        self,
        traffic: Traffic,
        links: Mapping[int, Link],
        wall: Wall,
        names: Pseudonyms,
        write: Write,
        *,
        broker_id: str,
        max_topics: int,
        now: float,
    ) -> None:
        self._traffic: Final = traffic
        self._links: Final = links
        self._wall: Final = wall
        self._names: Final = names
        self._write: Final = write
        self._broker_id: Final = broker_id
        self._max_topics: Final = max_topics
        self._start = now
        self._former_start = now
        self._readings: Final[dict[int, _Reading]] = {}
        self._histograms = Histograms(max_topics)
        self._drops: dict[tuple[str, str | None, bytes], int] = {}
        self._drop_labels = Labels(max_topics)
        self._bursts: dict[tuple[str, str], None] = {}
        self.groups: ReadGroups = list
        """The first `MAX_GROUPS` of them get rows."""
        self._groups: dict[tuple[str, str], GroupReading] = {}
        """As they were at the end of the interval before."""
        self._appended: dict[str, int] = {}
        """How many messages each stream with a group had by then."""
        self._has_swept = False

    # ------------------------------------------------------------------ what is noted meanwhile

    def on_stage(self, stage: str, qos: int, topic: bytes, microseconds: int) -> None:
        """Count the duration of a stage of a message."""
        self._histograms.note(stage, qos, topic, microseconds)

    def on_dropped(self, reason: str, receiver: str | None, topic: bytes, messages: int) -> bool:
        """Count dropped messages. Return whether they are the first of the interval for this receiver and reason."""
        key = reason, receiver, self._drop_labels.of(topic) if topic else b""
        former = self._drops.get(key)
        if former is not None:
            self._drops[key] = former + messages
            return False
        if len(self._drops) >= MAX_DROPS:
            key = reason, None, REST
            self._drops[key] = self._drops.get(key, 0) + messages
            return False
        self._drops[key] = messages
        if receiver is None or (reason, receiver) in self._bursts:
            return False
        self._bursts[reason, receiver] = None
        return True

    def on_closed(self, link: Link, now: float) -> None:
        """A connection ended: write its activity since the last visit."""
        connection = link.connection
        reading = self._readings.pop(connection.number, None)
        if reading is None:
            reading = _Reading(self._former_start if connection.opened_at < self._start else self._start)
        if connection.accepted:
            self._write_activity(link, reading, reading.start, now)

    # ------------------------------------------------------------------ the end of an interval

    def sweep(self, now: float) -> Iterator[int]:
        """Write the interval that ends now, and begin the next one. Each step does a slice, and yields how many are
        left."""
        start = self._former_start = self._start
        self._start = now
        drops, self._drops = list(self._drops.items()), {}
        self._drop_labels = Labels(self._max_topics)
        self._bursts = {}
        latency, self._histograms = self._histograms.all(), Histograms(self._max_topics)
        traffic = self._traffic.drain()
        links = list(self._links.values())
        groups = self.groups()[:MAX_GROUPS]
        former, self._groups = self._groups, {}
        appended, self._appended = self._appended, {}
        left = _slices(links) + _slices(traffic) + _slices(latency) + _slices(drops) + _slices(groups)
        yield left
        for _ in _sliced(links, lambda link: self._look_at(link, start, now)):
            left -= 1
            yield left
        self._former_start = now
        for _ in itertools.chain(
            _sliced(traffic, lambda counted: self._write_traffic(counted, start, now)),
            _sliced(latency, lambda entry: self._write_latency(*entry, start, now)),
            _sliced(drops, lambda entry: self._write_drop(*entry, start, now)),
            _sliced(groups, lambda read: self._write_group(read(), former, appended, start, now)),
        ):
            left -= 1
            yield left
        self._has_swept = True

    def _look_at(self, link: Link, start: float, now: float) -> None:
        connection = link.connection
        if connection.session is None:
            return  # not accepted yet, or ended, which `on_closed` handles
        reading = self._readings.get(connection.number)
        if reading is None:
            reading = self._readings[connection.number] = _Reading(start)
        self._write_activity(link, reading, start, now)
        reading.start = now

    def _write_activity(self, link: Link, reading: _Reading, start: float, now: float) -> None:
        """Write the activity of a connection since its last visit, if any, and take its counters."""
        connection = link.connection
        outbox, session = connection.outbox, connection.session
        received = connection.received_qos0 + connection.received_qos1 + connection.received_qos2
        sent = outbox.sent_qos0 + outbox.sent_qos1 + outbox.sent_qos2
        backpressure_s = connection.backpressure_s
        if session is None:
            queued = queued_bytes = inflight = 0
            dropped = sum(connection.drops.values())
        else:
            queued, queued_bytes = session.queued, session.queued_bytes
            inflight = session.unacknowledged
            dropped = sum(session.drops.values()) + sum(outbox.drops.values())
            if connection.blocked_at:
                backpressure_s += now - connection.blocked_at
        if (
            received != reading.received
            or sent != reading.sent
            or dropped != reading.dropped
            or queued
            or inflight
            or backpressure_s != reading.backpressure_s
        ):
            self._write(
                "activity",
                ActivityRow(
                    broker_id=self._broker_id,
                    interval_start=self._wall.at(start),
                    interval_s=now - start,
                    connection_id=connection.number,
                    client_id=self._names.client_id(connection.client_id),
                    listener=link.listener,
                    messages_received=received - reading.received,
                    messages_sent=sent - reading.sent,
                    bytes_received=connection.bytes_received - reading.bytes_received,
                    bytes_sent=outbox.bytes_sent - reading.bytes_sent,
                    dropped=dropped - reading.dropped,
                    queued=queued,
                    queued_bytes=queued_bytes,
                    inflight=inflight,
                    backpressure_s=backpressure_s - reading.backpressure_s,
                ),
            )
        reading.received, reading.sent, reading.dropped = received, sent, dropped
        reading.bytes_received, reading.bytes_sent = connection.bytes_received, outbox.bytes_sent
        reading.backpressure_s = backpressure_s

    def _write_traffic(self, counted: TopicTraffic, start: float, now: float) -> None:
        messages = counted.messages_qos0 + counted.messages_qos1 + counted.messages_qos2
        if messages or counted.deliveries:
            self._write(
                "traffic",
                TrafficRow(
                    broker_id=self._broker_id,
                    interval_start=self._wall.at(start),
                    interval_s=now - start,
                    topic=self._topic(counted.topic),
                    topics=counted.topics,
                    messages_qos0=counted.messages_qos0,
                    messages_qos1=counted.messages_qos1,
                    messages_qos2=counted.messages_qos2,
                    payload_bytes=counted.payload_bytes,
                    payload_bytes_max=counted.payload_bytes_max,
                    deliveries=counted.deliveries,
                ),
            )

    def _write_group(
        self,
        group: GroupReading | None,
        former: Mapping[tuple[str, str], GroupReading],
        appended: Mapping[str, int],
        start: float,
        now: float,
    ) -> None:
        if group is None:
            return
        key = group.stream, group.group
        self._groups[key] = group
        before = former.get(key)
        if before is not None:
            had = before.appended
        else:  # of a stream that is seen for the first time, it is not known what came in this interval
            had = appended.get(group.stream, group.appended if self._has_swept else 0)
        if had > group.appended:
            had = 0  # the stream was deleted and made anew
        self._appended[group.stream] = group.appended
        if before is not None and before.redeliveries + before.moves > group.redeliveries + group.moves:
            before = None  # it was deleted and made anew
        self._write(
            "stream_groups",
            GroupRow(
                broker_id=self._broker_id,
                interval_start=self._wall.at(start),
                interval_s=now - start,
                stream=group.stream,
                group=group.group,
                mode=group.mode,
                members=group.members,
                lag=group.lag,
                appended=group.appended - had,
                under_way=group.under_way,
                scheduled=group.scheduled,
                redeliveries=group.redeliveries - (0 if before is None else before.redeliveries),
                moves=group.moves - (0 if before is None else before.moves),
                dead_letters=group.dead_letters,
            ),
        )

    def _write_latency(self, key: Key, histogram: Histogram, start: float, now: float) -> None:
        buckets = sorted(histogram.counts)
        self._write(
            "latency",
            LatencyRow(
                broker_id=self._broker_id,
                interval_start=self._wall.at(start),
                interval_s=now - start,
                stage=key.stage,
                qos=key.qos,
                topic=self._topic(key.topic),
                messages=histogram.messages,
                sum_us=histogram.sum_us,
                max_us=histogram.max_us,
                buckets=buckets,
                counts=[histogram.counts[bucket] for bucket in buckets],
            ),
        )

    def _write_drop(self, key: tuple[str, str | None, bytes], messages: int, start: float, now: float) -> None:
        reason, receiver, topic = key
        self._write(
            "drops",
            DropRow(
                broker_id=self._broker_id,
                interval_start=self._wall.at(start),
                interval_s=now - start,
                reason=reason,
                client_id=self._names.client_id(receiver),
                topic=self._topic(topic) if topic else None,
                messages=messages,
            ),
        )

    def _topic(self, topic: bytes) -> str:
        return self._names.topic(topic.decode(errors="replace"))


def _slices(things: Sized) -> int:
    return -(-len(things) // SLICE)


def _sliced(things: list[_T], act: Callable[[_T], None]) -> Iterator[None]:
    """Call `act` for all things, some in each step."""
    for start in range(0, len(things), SLICE):
        for thing in things[start : start + SLICE]:
            act(thing)
        yield
