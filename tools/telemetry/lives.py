"""Who was connected when, and why it ended: the sessions of every client over the whole time.

A life is a list of windows in which a client wants to be connected, and of cuts that end a connection for a while.
What is no trouble is here too: networks fail now and then, brokers restart, devices come late and leave for good.
Invariant: the sessions of one client do not overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from tools.telemetry.fleet import DAY, HOUR, MINUTE, SECOND, Bools, Doubles, Fleet, Longs, Rng
from tools.telemetry.troubles import FLAPPING_CAUSES, FLAPPING_KEEP_ALIVE_S, Trouble

REASONS: Final = (
    "client_disconnected", "connection_lost", "keep_alive_timeout", "taken_over", "malformed_packet",
    "not_authorized", "packet_too_large", "server_shutdown", "broker_crash",
)  # fmt: skip
REASON_CODES: Final = (0x00, 0x00, 0x8D, 0x8E, 0x81, 0x87, 0x95, 0x8B, 0x00)
"""Of MQTT 5.0, in the same order."""

LOST_PER_DAY: Final = 0.6
TIMED_OUT_PER_DAY: Final = 0.12
MOVED_PER_DAY: Final = 0.06
"""Ordinary ends of a device's connection: its network fails, it loses power, it is back from another address before
the broker has missed it."""

BAD_DAYS: Final = 0.03
"""Share of the devices whose network fails five to ten times within a day, and that is nobody's trouble."""

NEWCOMERS: Final = 0.04
LEAVERS: Final = 0.04
"""Shares of the devices that come while the fleet is at work, and of those that say goodbye for good. One that says
goodbye before each sleep does not tell that this is the last: a reader who does not hear from it again must take it
as vanished."""

RESTARTS_PER_DAY: Final = 0.5
CRASHES: Final = 0.3
"""Share of the restarts before which the broker died."""

KEEP_ALIVE_FACTOR: Final = 1.5


@dataclass(frozen=True)
class Run:
    """A broker process, from its start to its stop."""

    broker_id: str
    start: int
    stop: int
    crashed: bool
    first: bool
    last: bool


@dataclass
class Sessions:
    """All of them, by client and then by time."""

    client: Longs
    start: Longs
    end: Longs
    """Beyond the dataset's end where it is still open then."""
    heard: Longs
    """When the client last sent anything, at the end."""
    reason: Longs
    run: Longs
    number: Longs
    """`connection_id`."""
    other_address: Bools
    resumed: Bools
    accept_us: Longs
    """From accept to CONNACK."""
    late_s: Doubles
    keys: Longs

    def at(self, clients: Longs, times: Longs) -> Longs:
        """The session that each client has at a time; -1 without one."""
        place = np.searchsorted(self.keys, _key(clients, times), side="right") - 1
        found = np.maximum(place, 0)
        there = (place >= 0) & (self.client[found] == clients) & (times < self.end[found])
        return np.where(there, found, -1)


def _key(clients: Longs, times: Longs) -> Longs:
    """Orders by client, then by time: 2^43 microseconds are a hundred days."""
    return (clients << np.int64(43)) + times


MAX_DAYS: Final = 100
MAX_CLIENTS: Final = 1 << 20

Cut = tuple[int, int, int]
"""When, why (index into `REASONS`), and how long until it is back, microseconds."""


def make_runs(rng: Rng, span: int) -> list[Run]:
    """Restarts at random times, each some seconds; the last run is under way when the dataset ends."""
    count = int(rng.poisson(RESTARTS_PER_DAY * span / DAY))
    stops = sorted(int(at) for at in rng.uniform(0.15, 0.9, count) * span)
    stops = [at for at, before in zip(stops, [0, *stops], strict=False) if at - before > 2 * HOUR]
    runs, start = [], 0
    for number, stop in enumerate([*stops, span]):
        name = f"run{number:02d}-{int(rng.integers(1 << 32)):08x}"
        crashed = stop < span and bool(rng.random() < CRASHES)
        runs.append(Run(name, start, stop, crashed, number == 0, stop == span))
        start = stop + int(rng.uniform(3, 40) * SECOND)
    return runs


def make_sessions(rng: Rng, fleet: Fleet, runs: Sequence[Run], troubles: Sequence[Trouble], span: int) -> Sessions:
    """Play every client's life."""
    of_client: dict[int, list[Trouble]] = {}
    for trouble in troubles:
        of_client.setdefault(trouble.client, []).append(trouble)
    everybody = of_client.get(-1, [])
    rows: list[tuple[int, int, int, int]] = []
    for client in range(len(fleet.client_ids)):
        own = of_client.get(client, [])
        cuts = [*_ordinary(rng, client < fleet.devices, span), *_restarts(rng, runs), *_storms(rng, everybody)]
        for trouble in own:
            cuts += _cuts_of(rng, fleet, trouble)
        windows = _windows(rng, fleet, client, own, span)
        rows += [(client, *life) for life in _live(rng, windows, sorted(cuts), runs, span)]
    return _arranged(rng, fleet, rows, runs, troubles, span)


def _windows(rng: Rng, fleet: Fleet, client: int, own: Sequence[Trouble], span: int) -> list[Cut]:
    """From when to when it wants to be connected; the last is why it ends."""
    goodbye = REASONS.index("client_disconnected")
    if client >= fleet.devices:
        return [(0, span + DAY, goodbye)]
    of = fleet.class_of(client)
    start, stop, end = int(rng.uniform(0, 5) * SECOND), span + DAY, goodbye
    vanished = [trouble.start for trouble in own if trouble.kind == "silent" and trouble.cause == "vanished"]
    if vanished:
        stop = vanished[0] + int(KEEP_ALIVE_FACTOR * fleet.keep_alives_s[client] * SECOND)
        end = REASONS.index("keep_alive_timeout")
    elif not own and rng.random() < NEWCOMERS:
        start = int(rng.uniform(0.1, 0.6) * span)
    elif not own and not of.sleepy and rng.random() < LEAVERS:
        stop = int(rng.uniform(0.3, 0.9) * span)
    if of.sleepy:
        every = int(fleet.intervals_s[client] * SECOND)
        begins = np.arange(start + int(fleet.phases[client]), min(stop, span), every)
        begins += (rng.normal(0, 0.03, len(begins)) * every).astype(np.int64).clip(-every // 4, every // 4)
        begins = np.maximum(begins, 0)
        lengths = (rng.uniform(2.5, 6, len(begins)) * SECOND).astype(np.int64)
        return [(int(a), int(a + b), goodbye) for a, b in zip(begins, lengths, strict=True)]
    if of.shift:
        windows: list[Cut] = []
        for day in range(0, span, DAY):
            a = day + int(rng.normal(6, 0.3) * HOUR)
            b = day + int(rng.normal(21, 0.3) * HOUR)
            if max(a, start) < min(b, stop):
                windows.append((max(a, start), min(b, stop), end if stop < b else goodbye))
        return windows
    return [(start, stop, end)]


def _ordinary(rng: Rng, is_device: bool, span: int) -> list[Cut]:
    cuts: list[Cut] = []
    rate = 1.0 if is_device else 0.3
    for reason, per_day, (least, most) in (
        ("connection_lost", LOST_PER_DAY, (1, 60)),
        ("keep_alive_timeout", TIMED_OUT_PER_DAY, (5, 300)),
        ("taken_over", MOVED_PER_DAY, (0, 0)),
    ):
        times = rng.uniform(0, span, rng.poisson(rate * per_day * span / DAY))
        cuts += [(int(at), REASONS.index(reason), int(rng.uniform(least, most) * SECOND)) for at in times]
    if is_device and rng.random() < BAD_DAYS:
        times = rng.uniform(0, min(DAY, span), rng.integers(5, 11)) + rng.uniform(0, max(0, span - DAY))
        cuts += [(int(at), REASONS.index("connection_lost"), int(rng.uniform(2, 120) * SECOND)) for at in times]
    return cuts


def _restarts(rng: Rng, runs: Sequence[Run]) -> list[Cut]:
    cuts = []
    for run, following in pairwise(runs):
        reason = REASONS.index("broker_crash" if run.crashed else "server_shutdown")
        away = following.start - run.stop + int((1 + min(rng.exponential(8), 55)) * SECOND)
        cuts.append((run.stop, reason, away))
    return cuts


def _storms(rng: Rng, everybody: Sequence[Trouble]) -> list[Cut]:
    cuts = []
    for trouble in everybody:
        if trouble.kind == "storm" and rng.random() < trouble.amount:
            at = trouble.start + int(rng.uniform(0, 3) * SECOND)
            cuts.append((at, REASONS.index("connection_lost"), int((1 + min(rng.exponential(8), 50)) * SECOND)))
    return cuts


def _cuts_of(rng: Rng, fleet: Fleet, trouble: Trouble) -> list[Cut]:
    cuts: list[Cut] = []
    if trouble.kind == "flapping":
        (shortest, longest), (soonest, latest) = FLAPPING_CAUSES[trouble.cause]
        at = trouble.start
        while at < trouble.end:
            at += int(rng.uniform(shortest, longest) * SECOND)
            away = int(rng.uniform(soonest, latest) * SECOND)
            cuts.append((at, REASONS.index(trouble.cause), away))
            at += away
        if trouble.cause == "keep_alive_timeout":
            fleet.keep_alives_s[trouble.client] = FLAPPING_KEEP_ALIVE_S
    if trouble.kind == "duplicate":
        at = trouble.start
        while at < trouble.end:
            cuts.append((at, REASONS.index("taken_over"), 0))
            at += int(rng.uniform(2, 25) * SECOND)
    return cuts


def _live(
    rng: Rng, windows: Sequence[Cut], cuts: Sequence[Cut], runs: Sequence[Run], span: int
) -> list[tuple[int, int, int]]:
    """Sessions as start, end and reason."""
    lives: list[tuple[int, int, int]] = []
    place = 0
    for opens, closes, goodbye in windows:
        now = opens
        while place < len(cuts) and cuts[place][0] < opens:
            place += 1
        while now < min(closes, span):
            now = _when_up(rng, now, runs)
            while place < len(cuts) and cuts[place][0] <= now:
                place += 1
            if now >= min(closes, span):
                break
            if place < len(cuts) and cuts[place][0] < closes:
                at, reason, away = cuts[place]
                lives.append((now, at, reason))
                now = at + away
            else:
                lives.append((now, closes, goodbye))
                now = closes
    return lives


def _when_up(rng: Rng, at: int, runs: Sequence[Run]) -> int:
    """When a client that comes at a time gets in: a while later if there is no broker."""
    for run, following in pairwise(runs):
        if run.stop <= at < following.start:
            return following.start + int(rng.uniform(0.2, 20) * SECOND)
    return at


def _arranged(
    rng: Rng, fleet: Fleet, rows: list[tuple[int, int, int, int]], runs: Sequence[Run], troubles: Sequence[Trouble],
    span: int,
) -> Sessions:  # fmt: skip
    client, start, end, reason = np.array(rows, np.int64).reshape(-1, 4).T
    order = np.lexsort((start, client))
    client, start, end, reason = client[order], start[order], end[order], reason[order]
    count = len(client)
    run = np.searchsorted(np.array([run.start for run in runs]), start, side="right") - 1
    number = np.zeros(count, np.int64)
    by_time = np.lexsort((start, run))
    firsts = np.searchsorted(run[by_time], np.arange(len(runs)))
    number[by_time] = np.arange(count) - firsts[run[by_time]] + 1

    timed_out = reason == REASONS.index("keep_alive_timeout")
    keep_alive = (fleet.keep_alives_s[client] * KEEP_ALIVE_FACTOR * SECOND).astype(np.int64)
    late_s = np.round(rng.exponential(0.05, count), 6)
    heard = np.where(timed_out, np.maximum(start, end - keep_alive - (late_s * SECOND).astype(np.int64)), end)
    late_s = np.where(timed_out, np.maximum(0, (end - heard - keep_alive) / SECOND), np.nan)
    again = np.concatenate([[False], client[1:] == client[:-1]])
    fighting = np.isin(client, [trouble.client for trouble in troubles if trouble.kind == "duplicate"])
    moved = np.concatenate([[False], reason[:-1] == REASONS.index("taken_over")]) & again
    other = _other_addresses(client, moved)
    same_run = again & np.concatenate([[False], run[1:] == run[:-1]])
    resumed = same_run & ~fleet.clean_starts[client] & ~fighting
    accept = (rng.lognormal(8.0, 0.6, count)).astype(np.int64)
    return Sessions(
        client, start, end, heard, reason, run, number, other, resumed, accept, late_s, _key(client, start)
    )  # fmt: skip


def _other_addresses(client: Longs, moved: Bools) -> Bools:
    """A connection that takes over a client id comes from the other of the client's two addresses."""
    moves = np.cumsum(moved)
    first = np.concatenate([[True], client[1:] != client[:-1]])
    before = np.maximum.accumulate(np.where(first, moves, 0))
    return np.asarray((moves - before) % 2 == 1)


def when_storms_end(sessions: Sessions, troubles: Sequence[Trouble]) -> dict[int, int]:
    """Of each storm, by its start: when the last that it had cut off was back."""
    lost = REASONS.index("connection_lost")
    ends = {}
    for trouble in troubles:
        if trouble.kind == "storm":
            during = (sessions.end >= trouble.start) & (sessions.end < trouble.start + 3 * SECOND)
            cut = during & (sessions.reason == lost)
            clients = sessions.client[cut]
            later = np.searchsorted(sessions.keys, _key(clients, sessions.end[cut]), side="left")
            back = sessions.start[np.minimum(later, len(sessions.start) - 1)]
            back = back[back < trouble.start + MINUTE]
            ends[trouble.start] = int(back.max()) if len(back) else trouble.start
    return ends
