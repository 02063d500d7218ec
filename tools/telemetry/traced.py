"""The messages that were followed: how long they took and what became of them.

Invariant: each followed message has one outcome per receiver, or one without a receiver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tools.telemetry.fleet import SECOND, Doubles, Fleet, Longs, Rng
from tools.telemetry.intervals import MAX_QUEUED, Stretch, receives
from tools.telemetry.lives import Sessions
from tools.telemetry.messages import NOBODY, Messages
from tools.telemetry.troubles import Trouble

FOLLOWED_PER_S: Final = 0.2
"""About so many of all messages a second: what a broker would be told that is to write few samples."""

ROUTE_US: Final = (25, 0.4)
WRITE_US: Final = (60, 0.5)
ACKNOWLEDGE_US: Final = (3_000, 0.8)
"""Median and spread (the sigma of a log-normal) of a stage."""

STAGES: Final = ("route", "queue", "write", "total", "acknowledge")
OUTCOMES: Final = ("sent", "acknowledged", "dropped", "unfinished")
SENT, ACKNOWLEDGED, DROPPED, UNFINISHED = range(4)
NEVER: Final = -1


@dataclass
class Followed:
    """A row per message and receiver; times in microseconds, `NEVER` where a stage was not reached."""

    message: Longs
    """Index into the stretch's messages."""
    receiver: Longs
    outcome: Longs
    full: Longs
    """1 where it was dropped because the receiver's queue was full, 0 where there was no receiver, else -1."""
    qos: Longs
    routed: Longs
    queued: Longs
    written: Longs
    acknowledged: Longs


def one_in(messages: int, span: int) -> int:
    """The share of the messages that are followed."""
    return max(1, round(messages / (span / SECOND) / FOLLOWED_PER_S))


def follow(
    rng: Rng, fleet: Fleet, sessions: Sessions, messages: Messages, share: int, slow: Sequence[Trouble],
    slow_minutes: Sequence[Trouble],
) -> Followed:  # fmt: skip
    """Draw which, and how they fared."""
    chosen = np.flatnonzero(rng.integers(0, share, len(messages.at)) == 0)
    few = Messages(*(column[chosen] for column in vars(messages).values()))
    pairs: list[tuple[Longs, Longs]] = []
    for client in (fleet.historian, *fleet.viewers):
        index, _ = receives(fleet, sessions, few, client)
        pairs.append((index, np.full(len(index), client)))
    commands = np.flatnonzero(few.receiver != NOBODY)
    commands = commands[sessions.at(few.receiver[commands], few.at[commands]) >= 0]
    pairs.append((commands, few.receiver[commands]))
    reached = np.concatenate([index for index, _ in pairs])
    nobody = np.setdiff1d(np.arange(len(chosen)), reached)
    message = np.concatenate([reached, nobody])
    receiver = np.concatenate([*(client for _, client in pairs), np.full(len(nobody), NOBODY)])
    order = np.lexsort((receiver, message))
    return _fared(rng, few, chosen, message[order], receiver[order], slow, slow_minutes)


def _fared(
    rng: Rng, few: Messages, chosen: Longs, message: Longs, receiver: Longs, slow: Sequence[Trouble],
    slow_minutes: Sequence[Trouble],
) -> Followed:  # fmt: skip
    at, total = few.at[message], len(message)
    worse = np.ones(total)
    for trouble in slow_minutes:
        worse[(at >= trouble.start) & (at < trouble.end)] *= trouble.amount
    routed = _stage(rng, ROUTE_US, worse)
    queued = np.zeros(total, np.int64)
    written = _stage(rng, WRITE_US, worse)
    acknowledged = _stage(rng, ACKNOWLEDGE_US, np.ones(total))
    qos = np.minimum(few.qos[message], 1)
    full = np.full(total, -1, np.int64)
    full[receiver == NOBODY] = 0
    for trouble in slow:
        waits = (receiver == trouble.client) & (at >= trouble.start) & (at < trouble.end)
        queued[waits] = rng.uniform(0.5, 1, int(waits.sum())) * MAX_QUEUED * SECOND / 2
        full[waits & (rng.random(total) > trouble.amount)] = 1
    dropped = full >= 0
    queued[dropped], written[dropped] = NEVER, NEVER
    acknowledged[dropped | (qos == 0)] = NEVER
    outcome = np.where(dropped, DROPPED, np.where(qos > 0, ACKNOWLEDGED, SENT))
    return Followed(chosen[message], receiver, outcome, full, qos, routed, queued, written, acknowledged)


def _stage(rng: Rng, of: tuple[float, float], worse: Doubles) -> Longs:
    median, spread = of
    return np.maximum(1, rng.lognormal(np.log(median), spread, len(worse)) * worse).astype(np.int64)


def bucket(us: Longs) -> Longs:
    """The number of a duration's bucket, as the reference defines it."""
    exponent = np.maximum(0, np.frexp(us.astype(np.float64))[1] - 5)
    return np.where(us < 32, us, 16 * (exponent + 1) + (us >> exponent) - 16)


@dataclass
class Histograms:
    """Rows by interval, stage, QoS and topic; the buckets of row `n` are those from `offsets[n]` on."""

    number: Longs
    stage: Longs
    qos: Longs
    topic: Longs
    messages: Longs
    sum_us: Longs
    max_us: Longs
    offsets: Longs
    buckets: Longs
    counts: Longs


def histograms(messages: Messages, followed: Followed, stretch: Stretch) -> Histograms:
    """Add the stages up."""
    total = np.where(followed.written >= 0, followed.routed + followed.queued + followed.written, NEVER)
    stages = [followed.routed, followed.queued, followed.written, total, followed.acknowledged]
    topics = int(messages.topic.max(initial=0)) + 1
    number = stretch.of(messages.at[followed.message])
    keys, values = [], []
    for stage, us in enumerate(stages):
        reached = us >= 0
        key = ((number * len(STAGES) + stage) * 3 + followed.qos) * topics + messages.topic[followed.message]
        keys.append(key[reached])
        values.append(us[reached])
    key, us = np.concatenate(keys), np.concatenate(values)
    if not len(key):
        nothing = np.zeros(0, np.int64)
        return Histograms(
            nothing, nothing, nothing, nothing, nothing, nothing, nothing, np.zeros(1, np.int64), nothing, nothing
        )
    order = np.lexsort((us, key))
    key, us = key[order], us[order]
    firsts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    of = bucket(us)
    begins = np.flatnonzero(np.concatenate([[True], (key[1:] != key[:-1]) | (of[1:] != of[:-1])]))
    rows = key[firsts]
    return Histograms(
        number=rows // (len(STAGES) * 3 * topics),
        stage=rows // (3 * topics) % len(STAGES),
        qos=rows // topics % 3,
        topic=rows % topics,
        messages=np.diff(np.append(firsts, len(key))),
        sum_us=np.add.reduceat(us, firsts),
        max_us=np.maximum.reduceat(us, firsts),
        offsets=np.append(np.searchsorted(begins, firsts), len(begins)),
        buckets=of[begins],
        counts=np.diff(np.append(begins, len(key))),
    )
