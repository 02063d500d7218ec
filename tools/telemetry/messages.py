"""What is published in a stretch of time, by whom, to which topic.

Invariant: a message is published only while its client is connected and heard, and at a time within the stretch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tools.telemetry.fleet import CLASSES, DAY, HOUR, SECOND, Doubles, Fleet, Longs, Rng
from tools.telemetry.lives import Sessions
from tools.telemetry.troubles import Trouble

COMMANDS_PER_HOUR: Final = 1.5
"""Which each device gets that does not sleep, while it is connected or not."""
COMMAND_BYTES: Final = 60

JITTER: Final = 0.04
"""Of an interval, from one message to the next."""
LATE: Final = 0.01
LATEST_INTERVALS: Final = 2.5
"""Share of the messages that come late, and by how many intervals at most: a device was busy."""

GREEDY_BYTES: Final = (2_000, 8_000)
NOBODY: Final = -1


@dataclass
class Messages:
    """In order of time."""

    at: Longs
    session: Longs
    """Of the publisher."""
    topic: Longs
    site: Longs
    """Whose subscribers get it, or `NO_SITE`."""
    qos: Longs
    payload: Longs
    receiver: Longs
    """The client that a command is for, `NOBODY` of all others."""


@dataclass
class _Segments:
    """Stretches in which a client publishes at one rate."""

    client: Longs
    start: Longs
    end: Longs
    interval: Doubles
    """Microseconds from one message to the next."""


def published(
    rng: Rng, fleet: Fleet, sessions: Sessions, troubles: Sequence[Trouble], start: int, end: int
) -> Messages:
    """Everything between two times, at most an hour of one day."""
    segments = _segments(fleet, troubles, start, end)
    at, row = _times(rng, fleet, segments, start, end)
    client = segments.client[row]
    topic = fleet.first_topics[client] + rng.integers(0, 1 << 30, len(at)) % _measures(fleet)[client]
    parts = [
        (at, client, topic, _payloads(rng, fleet, troubles, client), fleet.qos[client], np.full(len(at), NOBODY)),
        _sleepy(rng, fleet, sessions, start, end),
        _commands(rng, fleet, start, end),
        *(_extra(rng, fleet, trouble, start, end) for trouble in troubles if trouble.kind in ("explosion", "dead")),
    ]
    at, client, topic, payload, qos, receiver = (np.concatenate(column) for column in zip(*parts, strict=True))
    at = np.clip(at, start, end - 1)
    order = np.argsort(at, kind="stable")
    at, client, topic, payload, qos, receiver = (
        column[order] for column in (at, client, topic, payload, qos, receiver)
    )
    session = sessions.at(client, at)
    sent = (session >= 0) & (at <= sessions.heard[session])
    sites = np.asarray(fleet.topic_sites)
    return Messages(
        at[sent], session[sent], topic[sent], sites[topic[sent]], qos[sent], payload[sent], receiver[sent]
    )  # fmt: skip


def _measures(fleet: Fleet) -> Longs:
    counts = np.array([len(each.measures) for each in CLASSES] + [1])
    return counts[fleet.kinds]


def _segments(fleet: Fleet, troubles: Sequence[Trouble], start: int, end: int) -> _Segments:
    """Of each device that publishes all day one, or several where its trouble begins or ends."""
    kinds = fleet.kinds[: fleet.devices]
    day = np.array([each.day for each in CLASSES])[kinds]
    hour = (start % DAY) / HOUR
    factor = 1 - day * np.cos((hour + 0.5) / 24 * 2 * np.pi)
    interval = fleet.intervals_s[: fleet.devices] * SECOND / factor
    client = np.flatnonzero(~np.array([each.sleepy for each in CLASSES])[kinds])
    special = [
        trouble
        for trouble in troubles
        if trouble.kind in ("silent", "rate", "greedy") and trouble.start < end and trouble.end > start
    ]
    usual = client[~np.isin(client, [trouble.client for trouble in special])]
    rows = [(usual, np.full(len(usual), start), np.full(len(usual), end), interval[usual])]
    for trouble in special:
        of = trouble.client
        a, b = max(trouble.start, start), min(trouble.end, end)
        ordinary = float(interval[of])
        during = {"rate": ordinary / max(trouble.amount, 1e-9), "greedy": SECOND / max(trouble.amount, 1e-9)}
        pieces = [(start, a, ordinary), (a, b, during.get(trouble.kind, np.inf)), (b, end, ordinary)]
        if fleet.class_of(of).sleepy:
            continue
        pieces = [piece for piece in pieces if piece[0] < piece[1] and np.isfinite(piece[2])]
        if pieces:
            first, last, every = zip(*pieces, strict=True)
            rows.append((np.full(len(pieces), of), np.array(first), np.array(last), np.array(every)))
    return _Segments(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def _times(rng: Rng, fleet: Fleet, segments: _Segments, start: int, end: int) -> tuple[Longs, Longs]:
    """Of each message its time, and the number of its segment."""
    periodic = np.array([each.periodic for each in CLASSES])[fleet.kinds[segments.client]]
    phase = fleet.phases[segments.client]
    first = np.ceil((segments.start - phase) / segments.interval)
    beyond = np.ceil((segments.end - phase) / segments.interval)
    random = rng.poisson((segments.end - segments.start) / segments.interval)
    count = np.where(periodic, np.maximum(0, beyond - first), random).astype(np.int64)
    row = np.repeat(np.arange(len(count)), count)
    total = len(row)
    nth = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    interval = segments.interval[row]
    noise = rng.standard_normal(total) * JITTER
    late = rng.random(total)
    noise += np.where(late < LATE, late / LATE * LATEST_INTERVALS, 0)
    regular = (first[row] + nth + noise) * interval + phase[row]
    anywhen = segments.start[row] + rng.random(total) * (segments.end - segments.start)[row]
    at = np.where(periodic[row], np.maximum(regular, segments.start[row]), anywhen)
    return at.astype(np.int64), row


def _payloads(rng: Rng, fleet: Fleet, troubles: Sequence[Trouble], client: Longs) -> Longs:
    sizes = fleet.payloads.copy()
    for trouble in troubles:
        if trouble.kind == "greedy":
            least, most = GREEDY_BYTES
            sizes[trouble.client] = least + int(sizes[trouble.client]) * 97 % (most - least)
    return (sizes[client] * rng.uniform(0.9, 1.1, len(client))).astype(np.int64)


Part = tuple[Longs, Longs, Longs, Longs, Longs, Longs]
"""Times, clients, topics, payload sizes, QoS, receivers."""


def _sleepy(rng: Rng, fleet: Fleet, sessions: Sessions, start: int, end: int) -> Part:
    """One to three messages at the beginning of each connection of a device that sleeps in between."""
    sleepy = np.array([*(each.sleepy for each in CLASSES), False])[fleet.kinds]
    awake = np.flatnonzero((sessions.start >= start) & (sessions.start < end) & sleepy[sessions.client])
    count = rng.integers(1, 4, len(awake))
    session = np.repeat(awake, count)
    nth = np.arange(len(session)) - np.repeat(np.cumsum(count) - count, count)
    at = sessions.start[session] + 200_000 + 500_000 * nth
    client = sessions.client[session]
    return at, client, fleet.first_topics[client], fleet.payloads[client], fleet.qos[client], np.full(len(at), NOBODY)


def _commands(rng: Rng, fleet: Fleet, start: int, end: int) -> Part:
    awake = ~np.array([each.sleepy for each in CLASSES])[fleet.kinds[: fleet.devices]]
    count = rng.poisson(COMMANDS_PER_HOUR * (end - start) / HOUR * awake)
    receiver = np.repeat(np.arange(fleet.devices), count)
    total = len(receiver)
    at = rng.integers(start, end, total)
    client = np.full(total, fleet.controller)
    return at, client, fleet.command_topics[receiver], np.full(total, COMMAND_BYTES), np.ones(total, np.int64), receiver


def _extra(rng: Rng, fleet: Fleet, trouble: Trouble, start: int, end: int) -> Part:
    """What a device publishes beside its measures: to a new topic each time, or to one that nobody wants."""
    a, b = max(start, trouble.start), min(end, trouble.end)
    per_second = trouble.amount if trouble.kind == "explosion" else 1 / trouble.amount
    total = int(rng.poisson((b - a) / SECOND * per_second)) if a < b else 0
    at = np.sort(rng.integers(a, max(b, a + 1), total))
    if trouble.kind == "explosion":
        site = int(fleet.sites[trouble.client])
        topics = [fleet.new_topic(f"{trouble.topic}/{rng.integers(1 << 48):012x}", site) for _ in range(total)]
    else:
        topics = [fleet.known_topic(trouble.topic)] * total
    client = np.full(total, trouble.client)
    return at, client, np.array(topics, np.int64), np.full(total, 100), fleet.qos[client], np.full(total, NOBODY)
