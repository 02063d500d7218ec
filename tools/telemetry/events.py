"""What happened in a stretch of time, event by event.

Invariant: each session has one `connected` and, unless its broker died, one event of its end.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tools.telemetry.fleet import EVERY_SITE, HOUR, LISTENERS, PROTOCOLS, SECOND, Fleet, Longs, Rng
from tools.telemetry.intervals import DROP_REASONS, Counted, Stretch
from tools.telemetry.lives import REASON_CODES, REASONS, Run, Sessions
from tools.telemetry.rows import LIMITS, Event
from tools.telemetry.troubles import Trouble

REFUSED_PER_HOUR: Final = 0.5
"""Somebody tries passwords, or a device was never told its own."""

_ENDS: Final = {"taken_over": "taken_over", "keep_alive_timeout": "keep_alive_timeout"}


def events(
    rng: Rng, fleet: Fleet, sessions: Sessions, run: Run, counted: Counted, troubles: Sequence[Trouble]
) -> list[Event]:  # fmt: skip
    """Of one stretch, in no order."""
    stretch = counted.stretch
    return [
        *_of_the_broker(run, stretch, troubles),
        *_connected(fleet, sessions, _within(sessions.start, stretch)),
        *_ended(fleet, sessions, _within(sessions.end, stretch)),
        *_blocked(fleet, sessions, counted),
        *_drop_bursts(fleet, counted),
        *_refused(rng, stretch),
    ]


def _within(times: Longs, stretch: Stretch) -> Longs:
    """The end of a run belongs to its last stretch."""
    return np.flatnonzero((times >= stretch.start) & (times < stretch.end))


def _of_the_broker(run: Run, stretch: Stretch, troubles: Sequence[Trouble]) -> Iterator[Event]:
    if run.start == stretch.start:
        yield {"at": run.start, "event": "broker_started", "numbers": LIMITS}
    if run.stop + 1 == stretch.end and not run.crashed:
        duration_s = (run.stop - run.start) / SECOND
        yield {"at": run.stop, "event": "broker_stopped", "duration_s": duration_s}
    for trouble in troubles:
        if trouble.kind == "clock" and stretch.start <= trouble.start < stretch.end:
            yield {"at": trouble.start, "event": "clock_jumped", "duration_s": trouble.amount}


def _who(fleet: Fleet, sessions: Sessions, session: int) -> Event:
    client = int(sessions.client[session])
    name, transport, *_ = LISTENERS[int(fleet.listeners[client])]
    number = int(sessions.number[session])
    return {
        "connection_id": number,
        "client_id": fleet.client_ids[client],
        "username": fleet.usernames[client],
        "listener": name,
        "transport": transport,
        "peer": f"{fleet.addresses[2 * client + int(sessions.other_address[session])]}:{20_000 + number * 7 % 40_000}",
        "protocol_version": PROTOCOLS[int(fleet.protocols[client])],
    }


def _filter(fleet: Fleet, client: int) -> str:
    site = int(fleet.sites[client])
    if client < fleet.devices:
        return f"command/{fleet.client_ids[client]}"
    if client == fleet.controller:
        return "$SYS/#"
    return "plant/#" if site == EVERY_SITE else f"plant/{site}/#"


def _connected(fleet: Fleet, sessions: Sessions, begun: Longs) -> Iterator[Event]:
    for session in begun:
        who, at, client = _who(fleet, sessions, session), int(sessions.start[session]), int(sessions.client[session])
        resumed = bool(sessions.resumed[session])
        numbers = {
            "keep_alive_s": int(fleet.keep_alives_s[client]),
            "clean_start": int(fleet.clean_starts[client]),
            "session_present": int(resumed),
        }
        accept_s = int(sessions.accept_us[session]) / SECOND
        yield who | {"at": at, "event": "connected", "reason_code": 0, "duration_s": accept_s, "numbers": numbers}
        subscribed = at + 20_000
        if subscribed < sessions.end[session]:
            yield who | {
                "at": subscribed, "event": "subscribed", "topic_filter": _filter(fleet, client), "qos": 1,
                "reason_code": 1, "numbers": {"existing": int(resumed)},
            }  # fmt: skip


def _ended(fleet: Fleet, sessions: Sessions, ended: Longs) -> Iterator[Event]:
    for session in ended:
        reason = int(sessions.reason[session])
        if REASONS[reason] == "broker_crash":
            continue
        duration_s = int(sessions.end[session] - sessions.start[session]) / SECOND
        yield _who(fleet, sessions, session) | {
            "at": int(sessions.end[session]),
            "event": _ENDS.get(REASONS[reason], "disconnected"),
            "reason": REASONS[reason],
            "reason_code": REASON_CODES[reason],
            "duration_s": duration_s,
        }


def _blocked(fleet: Fleet, sessions: Sessions, counted: Counted) -> Iterator[Event]:
    for block in counted.blocks:
        who = _who(fleet, sessions, block.session)
        yield who | {"at": block.start, "event": "backpressure_began"}
        yield who | {
            "at": block.end, "event": "backpressure_ended", "duration_s": (block.end - block.start) / SECOND,
            "numbers": {"waiting_bytes": block.waiting_bytes},
        }  # fmt: skip


def _drop_bursts(fleet: Fleet, counted: Counted) -> Iterator[Event]:
    for number, reason, client, _, messages, _ in counted.drops[counted.drops[:, 2] >= 0].tolist():
        at = int(counted.stretch.starts(np.array([number]))[0])
        yield {
            "at": at, "event": "drop_burst", "client_id": fleet.client_ids[client], "reason": DROP_REASONS[reason],
            "numbers": {"messages": messages},
        }  # fmt: skip


def _refused(rng: Rng, stretch: Stretch) -> Iterator[Event]:
    for _ in range(int(rng.poisson(REFUSED_PER_HOUR * (stretch.end - stretch.start) / HOUR))):
        yield {
            "at": int(rng.integers(stretch.start, stretch.end)), "event": "refused", "client_id": "unknown",
            "listener": LISTENERS[0][0], "transport": LISTENERS[0][1], "peer": f"10.99.0.{rng.integers(1, 255)}:40000",
            "protocol_version": "5.0", "reason": "not_authorized", "reason_code": 0x87, "detail": "wrong password",
        }  # fmt: skip
