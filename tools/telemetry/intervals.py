"""What becomes of a stretch's messages, added up by interval: who got them, what waited, what was dropped.

Invariant: of the messages for a client as many are sent, dropped or waiting as came for it, and a session's counters
are the sums of its intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tools.telemetry.fleet import DAY, EVERY_SITE, SECOND, Fleet, Longs, Rng
from tools.telemetry.lives import Sessions
from tools.telemetry.messages import NOBODY, Messages
from tools.telemetry.troubles import Trouble

MAX_TOPICS: Final = 1_000
"""Topics of one interval with a row of their own."""

MAX_QUEUED: Final = 200
"""Messages that the broker keeps for a client that reads too slowly."""

BLINKS_PER_DAY: Final = 2.0
LONGEST_BLINK_S: Final = 2.0
"""How often the socket of a viewer that is not slow takes nothing for a moment."""

CATCH_UP: Final = 100
"""Messages of its queue that a client reads in an interval once it is no longer slow."""

RECEIVED, SENT, BYTES_RECEIVED, BYTES_SENT, DROPPED, QUEUED, QUEUED_BYTES, BLOCKED_US, BLOCKS = range(9)
RECEIVED_QOS, SENT_QOS = 9, 12
"""The first of three each."""
COLUMNS: Final = 15

NO_SUBSCRIBERS, QUEUE_FULL, SESSION_EXPIRED = range(3)
DROP_REASONS: Final = ("no_subscribers", "queue_full", "session_expired")


@dataclass(frozen=True)
class Stretch:
    """Part of an hour, of one run of the broker, cut into intervals."""

    start: int
    end: int
    interval: int

    @property
    def count(self) -> int:
        return -(-self.end // self.interval) - self.start // self.interval

    def of(self, at: Longs) -> Longs:
        """In which interval a time is."""
        return at // self.interval - self.start // self.interval

    def starts(self, number: Longs) -> Longs:
        return np.maximum((number + self.start // self.interval) * self.interval, self.start)

    def lengths_s(self, number: Longs) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        ends = np.minimum((number + 1 + self.start // self.interval) * self.interval, self.end)
        return (ends - self.starts(number)) / SECOND


@dataclass
class Block:
    """A client's socket took nothing for a while."""

    session: int
    start: int
    end: int
    waiting_bytes: int


@dataclass
class Counted:
    """A stretch, added up."""

    stretch: Stretch
    deliveries: Longs
    """Of each message."""
    session: Longs
    number: Longs
    activity: Longs
    """A row for each of `session` and `number`, its columns as named above."""
    drops: Longs
    """Rows of interval, reason, client or -1, topic or -1, messages, session or -1."""
    blocks: list[Block]


@dataclass
class Backlogs:
    """What waits for slow clients from one stretch to the next."""

    queued: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By client: its session and how many messages."""


def frame_bytes(fleet: Fleet, topic: Longs, qos: Longs, payload: Longs) -> Longs:
    """Of a PUBLISH."""
    rest = 2 + np.asarray(fleet.topic_bytes)[topic] + np.where(qos > 0, 2, 0) + payload
    return np.asarray(rest + 2 + (rest > 127))


def count(
    rng: Rng, fleet: Fleet, sessions: Sessions, messages: Messages, stretch: Stretch, slow: Sequence[Trouble],
    backlogs: Backlogs,
) -> Counted:  # fmt: skip
    """Deliver the messages and add up."""
    number = stretch.of(messages.at)
    size = frame_bytes(fleet, messages.topic, messages.qos, messages.payload)
    deliveries = np.zeros(len(messages.at), np.int64)
    rows = [_received(messages, number, size)]
    drops: list[Longs] = []
    blocks: list[Block] = []
    for client in (fleet.historian, *fleet.viewers):
        index, session = receives(fleet, sessions, messages, client)
        deliveries[index] += 1
        arrived = _arrived(messages, stretch, number, size, index, session)
        trouble = [each for each in slow if each.client == client]
        if trouble or client in backlogs.queued:
            arrived = _slowly(rng, stretch, arrived, client, trouble, backlogs, drops, blocks)
        elif client in fleet.viewers:
            _blink(rng, sessions, stretch, arrived, client, blocks)
        rows.append(arrived)
    commands = np.flatnonzero(messages.receiver != NOBODY)
    session = sessions.at(messages.receiver[commands], messages.at[commands])
    commands, session = commands[session >= 0], session[session >= 0]
    deliveries[commands] += 1
    rows.append(_arrived(messages, stretch, number, size, commands, session))
    lost = np.flatnonzero(deliveries == 0)
    drops.append(_lost(stretch, number[lost], messages.topic[lost]))

    everything = np.concatenate(rows)
    key = everything[:, 0] * stretch.count + everything[:, 1]
    key, sums = grouped(key, everything[:, 2:])
    return Counted(
        stretch, deliveries, key // stretch.count, key % stretch.count, sums, np.concatenate(drops), blocks
    )  # fmt: skip


def grouped(key: Longs, columns: Longs) -> tuple[Longs, Longs]:
    """Distinct keys, ascending, and the sums of their rows."""
    if not len(key):
        return key, columns
    order = np.argsort(key, kind="stable")
    key = key[order]
    firsts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    return key[firsts], np.add.reduceat(columns[order], firsts, axis=0)


def receives(fleet: Fleet, sessions: Sessions, messages: Messages, client: int) -> tuple[Longs, Longs]:
    """Which messages a subscriber gets, and in which of its sessions."""
    site = fleet.sites[client]
    index = np.flatnonzero(messages.site >= 0 if site == EVERY_SITE else messages.site == site)
    session = sessions.at(np.full(len(index), client), messages.at[index])
    return index[session >= 0], session[session >= 0]


def _received(messages: Messages, number: Longs, size: Longs) -> Longs:
    rows = np.zeros((len(number), 2 + COLUMNS), np.int64)
    rows[:, 0], rows[:, 1] = messages.session, number
    rows[:, 2 + RECEIVED] = 1
    rows[:, 2 + BYTES_RECEIVED] = size + np.where(messages.qos == 2, 4, 0)
    rows[:, 2 + BYTES_SENT] = 4 * messages.qos
    rows[np.arange(len(number)), 2 + RECEIVED_QOS + messages.qos] = 1
    return rows


def _arrived(
    messages: Messages, stretch: Stretch, number: Longs, size: Longs, index: Longs, session: Longs
) -> Longs:  # fmt: skip
    """For one subscriber, or the commands for all: a row per session and interval, as if all of it was sent at once."""
    granted = np.minimum(messages.qos[index], 1)
    columns = np.zeros((len(index), COLUMNS), np.int64)
    columns[:, SENT] = 1
    columns[:, BYTES_SENT] = size[index]
    columns[:, BYTES_RECEIVED] = 4 * granted
    columns[:, SENT_QOS] = 1 - granted
    columns[:, SENT_QOS + 1] = granted
    key, sums = grouped(session * stretch.count + number[index], columns)
    rows: Longs = np.column_stack([key // stretch.count, key % stretch.count, sums])
    return rows


def _slowly(
    rng: Rng, stretch: Stretch, arrived: Longs, client: int, troubles: Sequence[Trouble], backlogs: Backlogs,
    drops: list[Longs], blocks: list[Block],
) -> Longs:  # fmt: skip
    """What a client that reads too slowly gets of it: part at once, part later, the rest never."""
    session, waiting = backlogs.queued.get(client, (-1, 0))
    starts = stretch.starts(arrived[:, 1])
    allowance = 0.0
    for row, start in zip(arrived, starts, strict=True):
        came, size = int(row[2 + SENT]), int(row[2 + BYTES_SENT])
        each = size // max(came, 1)
        lost = 0
        if row[0] != session and waiting:
            drops.append(np.array([[row[1], SESSION_EXPIRED, client, -1, waiting, row[0]]]))
            lost, waiting = waiting, 0
        session = int(row[0])
        trouble = next((trouble for trouble in troubles if trouble.start <= start < trouble.end), None)
        allowance = allowance % 1 + came * trouble.amount if trouble else float(came + CATCH_UP)
        sent = min(waiting + came, int(allowance))
        waiting += came - sent
        full = max(0, waiting - MAX_QUEUED)
        waiting -= full
        if full:
            drops.append(np.array([[row[1], QUEUE_FULL, client, -1, full, session]]))
        granted = round(sent * int(row[2 + SENT_QOS + 1]) / max(came, 1))
        row[2 + SENT], row[2 + BYTES_SENT], row[2 + BYTES_RECEIVED] = sent, sent * each, 4 * granted
        row[2 + SENT_QOS], row[2 + SENT_QOS + 1] = sent - granted, granted
        row[2 + DROPPED], row[2 + QUEUED], row[2 + QUEUED_BYTES] = lost + full, waiting, waiting * each
        if trouble and waiting:
            blocked = int((1 - trouble.amount) * rng.uniform(0.7, 1) * stretch.interval)
            blocked = min(blocked, max(0, stretch.end - int(start)))
            row[2 + BLOCKED_US], row[2 + BLOCKS] = blocked, 1
            blocks.append(Block(session, int(start), int(start) + blocked, waiting * each))
    backlogs.queued[client] = (session, waiting)
    return arrived


def _blink(
    rng: Rng, sessions: Sessions, stretch: Stretch, arrived: Longs, client: int, blocks: list[Block]
) -> None:  # fmt: skip
    for _ in range(min(len(arrived), int(rng.poisson(BLINKS_PER_DAY * (stretch.end - stretch.start) / DAY)))):
        row = arrived[int(rng.integers(len(arrived)))]
        start = int(stretch.starts(row[1:2])[0])
        session = int(row[0])
        length = int(rng.uniform(0.02, LONGEST_BLINK_S) * SECOND)
        if sessions.start[session] <= start and start + length < min(sessions.end[session], stretch.end):
            row[2 + BLOCKED_US] += length
            row[2 + BLOCKS] += 1
            blocks.append(Block(session, start, start + length, 0))


def _lost(stretch: Stretch, number: Longs, topic: Longs) -> Longs:
    key, sums = grouped(topic * stretch.count + number, np.ones((len(topic), 1), np.int64))
    reason, nobody = np.full(len(key), NO_SUBSCRIBERS), np.full(len(key), -1)
    rows: Longs = np.column_stack([key % stretch.count, reason, nobody, key // stretch.count, sums, nobody])
    return rows


def traffic(fleet: Fleet, messages: Messages, counted: Counted) -> tuple[Longs, Longs, Longs]:
    """Topics, intervals, and rows of how many topics, messages by QoS, payload bytes, the largest, deliveries."""
    stretch = counted.stretch
    key = messages.topic * stretch.count + stretch.of(messages.at)
    order = np.argsort(key, kind="stable")
    key = key[order]
    if not len(key):
        return key, key, np.zeros((0, 7), np.int64)
    firsts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    columns = np.column_stack([
        *(messages.qos == qos for qos in range(3)), messages.payload, counted.deliveries
    ]).astype(np.int64)  # fmt: skip
    sums = np.add.reduceat(columns[order], firsts, axis=0)
    largest = np.maximum.reduceat(messages.payload[order], firsts)
    topic, number = key[firsts] // stretch.count, key[firsts] % stretch.count
    rows = np.column_stack([np.ones(len(topic), np.int64), sums[:, :4], largest, sums[:, 4]])
    return _rolled_up(fleet, topic, number, rows)


def _rolled_up(fleet: Fleet, topic: Longs, number: Longs, rows: Longs) -> tuple[Longs, Longs, Longs]:
    """Beyond `MAX_TOPICS` in an interval those that came last share the row of their first level."""
    order = np.lexsort((topic, number))
    topic, number, rows = topic[order], number[order], rows[order]
    firsts = np.searchsorted(number, number, side="left")
    beyond = np.arange(len(number)) - firsts >= MAX_TOPICS
    if not beyond.any():
        return topic, number, rows
    levels = [fleet.known_topic(fleet.topics[each].split("/", 1)[0] + "/#") for each in topic[beyond]]
    intervals = int(number.max()) + 1
    key, sums = grouped(np.array(levels) * intervals + number[beyond], rows[beyond])
    largest = np.zeros(len(key), np.int64)
    place = np.searchsorted(key, np.array(levels) * intervals + number[beyond])
    np.maximum.at(largest, place, rows[beyond][:, 5])
    sums[:, 5] = largest
    keep = ~beyond
    return (
        np.concatenate([topic[keep], key // intervals]),
        np.concatenate([number[keep], key % intervals]),
        np.concatenate([rows[keep], sums]),
    )
