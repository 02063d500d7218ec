"""Queues and their workers: each delivery of each message, played one after the other, and the troubles among them.

The workers are no clients of the fleet, and these rows change no others: they have a random generator of their own.
Invariant: a message has one end, messages with one key are delivered one after the other, and attempts count from 1.
"""

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tools.telemetry.fleet import HOUR, MINUTE, SECOND, Rng

KINDS: Final = ("consumer", "key", "outage")


@dataclass(frozen=True)
class Queue:
    """One of them: how many workers it has, and how often a message comes."""

    name: str
    workers: int
    every_s: float
    keys: int
    """Ordering keys of its messages; 0: it does not order."""
    retry_s: tuple[float, float]
    max_attempts: int
    topic: str


ORDERS: Final = Queue("orders", 6, 3.0, 200, (10.0, 600.0), 5, "shop/orders")
MAIL: Final = Queue("mail", 4, 6.0, 0, (2.0, 15.0), 50, "shop/mail")
QUEUES: Final = (ORDERS, MAIL)

HELD_S: Final = (0.05, 0.9)
"""Median and spread (the sigma of a log-normal) of what an acknowledgement takes."""

DEADLINE_S: Final = 10.0
NOISE: Final = 0.01
"""Share of the deliveries that fail without anybody's trouble."""

NOISE_OUTCOMES: Final = (("nacked", 0.6), ("deadline", 0.3), ("disconnected", 0.1))
BEHIND_POISON: Final = 5
"""Messages that follow a message nobody can handle, with its key, within a minute."""


@dataclass(frozen=True)
class QueueTrouble:
    """Times are microseconds of true time; `amount` is the share of its deliveries that a consumer fails."""

    kind: str
    cause: str
    start: int
    end: int
    queue: str
    consumer: str = ""
    key: str = ""
    amount: float = 0.0

    def truth(self, wall: Any) -> dict[str, Any]:
        """As it is written beside the dataset."""
        row = {"kind": self.kind, "cause": self.cause, "queue": self.queue}
        row |= {name: getattr(self, name) for name in ("consumer", "key") if getattr(self, name)}
        row |= {"start": wall(self.start), "end": wall(self.end)}
        return row | ({"amount": round(self.amount, 6)} if self.amount else {})


def plan_queues(rng: Rng, counts: Mapping[str, int], span: int) -> list[QueueTrouble]:
    """Draw the troubles. Raises ValueError where there are too few workers."""

    def window(shortest: int, longest: int) -> tuple[int, int]:
        length = int(rng.integers(shortest, longest + 1))
        start = int(rng.integers(int(0.1 * span), int(0.85 * span) - length))
        return start, start + length

    if counts["consumer"] >= ORDERS.workers // 2:
        raise ValueError(f"{ORDERS.workers} workers are too few for {counts['consumer']} of consumer")
    troubles = []
    workers = [str(name) for name in rng.permutation(_workers(ORDERS))]
    for number in range(counts["consumer"]):
        cause = ("nacked", "deadline", "disconnected")[number % 3]
        start, end = window(2 * HOUR, 5 * HOUR)
        share = float(rng.uniform(0.6, 0.95))
        troubles.append(QueueTrouble("consumer", cause, start, end, ORDERS.name, workers[number], amount=share))
    keys = [int(key) for key in rng.permutation(ORDERS.keys)]
    for number in range(counts["key"]):
        start, _ = window(HOUR, 2 * HOUR)
        end = start + 5 * MINUTE
        troubles.append(QueueTrouble("key", "poison", start, end, ORDERS.name, key=_key(keys[number])))
    for _ in range(counts["outage"]):
        start, end = window(8 * MINUTE, 20 * MINUTE)
        troubles.append(QueueTrouble("outage", "nacked", start, end, MAIL.name))
    return troubles


@dataclass
class Played:
    """Rows by table, as dictionaries whose times are true times, in the order of their time columns."""

    attempts: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Message:
    number: int
    came: int
    key: str
    topic: str
    poison: bool
    attempts: int = 0
    first_at: int = 0


def play(rng: Rng, troubles: list[QueueTrouble], span: int) -> Played:
    """All queues over the whole time."""
    played = Played()
    for queue in QUEUES:
        _play(rng, queue, [each for each in troubles if each.queue == queue.name], span, played)
    played.attempts.sort(key=lambda row: row["ended_at"])
    played.dead_letters.sort(key=lambda row: row["at"])
    return played


def _workers(queue: Queue) -> list[str]:
    return [f"{queue.name}-worker-{number}" for number in range(1, queue.workers + 1)]


def _key(number: int) -> str:
    return f"order-{number:04d}"


def _arrivals(rng: Rng, queue: Queue, troubles: list[QueueTrouble], span: int) -> list[_Message]:
    times = np.cumsum(rng.exponential(queue.every_s * SECOND, int(1.2 * span / SECOND / queue.every_s) + 100))
    came = [(int(at), int(rng.integers(queue.keys)) if queue.keys else -1, False) for at in times if at < span]
    for trouble in troubles:
        if trouble.kind == "key":
            key = int(trouble.key.rpartition("-")[2])
            came.append((trouble.start, key, True))
            came += [(trouble.start + int(at * SECOND), key, False) for at in rng.uniform(0.5, 5, BEHIND_POISON)]
    return [
        _Message(number, at, _key(key) if key >= 0 else "", f"{queue.topic}/{number % 7}", poison)
        for number, (at, key, poison) in enumerate(sorted(came))
    ]


def _play(rng: Rng, queue: Queue, troubles: list[QueueTrouble], span: int, played: Played) -> None:
    lanes: dict[str, deque[_Message]] = {}
    workers = _workers(queue)
    due: list[tuple[int, int, _Message]] = []
    for message in _arrivals(rng, queue, troubles, span):
        heapq.heappush(due, (message.came, message.number, message))
    waiting: set[int] = set()
    while due:
        at, _, message = heapq.heappop(due)
        if at >= span:
            break
        lane = lanes.setdefault(message.key, deque()) if message.key else deque([message])
        if message.key and message.number not in waiting:
            waiting.add(message.number)
            lane.append(message)
        if lane[0] is not message:
            continue  # it is due again when those before it are done
        message.attempts += 1
        message.first_at = message.first_at or at
        consumer = workers[int(rng.integers(len(workers)))]
        outcome, held = _fares(rng, queue, troubles, message, consumer, at)
        ended = at + held
        behind = len(lane) - 1
        played.attempts.append(_attempt(queue, message, consumer, at, ended, outcome, behind))
        over = outcome == "acknowledged"
        if not over and message.attempts >= queue.max_attempts:
            over = True
            played.dead_letters.append(_letter(queue, message, consumer, at, ended, outcome))
        if not over:
            delay_s = 0.0 if outcome in ("deadline", "disconnected") else _backoff(rng, queue, message.attempts)
            heapq.heappush(due, (ended + int(delay_s * SECOND) + 1, message.number, message))
        elif message.key:
            lane.popleft()
            if lane:
                heapq.heappush(due, (ended + 1, lane[0].number, lane[0]))


def _backoff(rng: Rng, queue: Queue, attempts: int) -> float:
    least, most = queue.retry_s
    return float(min(most, least * 2.0 ** (attempts - 1)) * rng.uniform(1, 1.1))


def _fares(
    rng: Rng, queue: Queue, troubles: list[QueueTrouble], message: _Message, consumer: str, at: int
) -> tuple[str, int]:
    """How a delivery ends, and after how many microseconds."""
    median, spread = HELD_S
    held = int(min(rng.lognormal(np.log(median), spread), 0.9 * DEADLINE_S) * SECOND)
    outcome = "acknowledged"
    if message.poison:
        outcome = "nacked"
    elif rng.random() < NOISE:
        names, shares = zip(*NOISE_OUTCOMES, strict=True)
        outcome = str(rng.choice(names, p=shares))
    for trouble in troubles:
        if not trouble.start <= at < trouble.end or trouble.kind == "key":
            continue
        if trouble.kind == "outage":
            return "nacked", held
        if trouble.consumer == consumer and rng.random() < trouble.amount:
            outcome = trouble.cause
    return outcome, int(DEADLINE_S * SECOND) if outcome == "deadline" else held


def _attempt(
    queue: Queue, message: _Message, consumer: str, at: int, ended: int, outcome: str, behind: int
) -> dict[str, Any]:
    return _named(queue, message) | {
        "consumer": consumer,
        "attempt": message.attempts,
        "delivered_at": at,
        "ended_at": ended,
        "outcome": outcome,
        "detail": "reason code 0x80" if outcome == "nacked" else None,
        "held_us": ended - at,
        "behind": behind,
    }


def _letter(queue: Queue, message: _Message, consumer: str, at: int, ended: int, cause: str) -> dict[str, Any]:
    return _named(queue, message) | {
        "consumer": consumer,
        "cause": cause,
        "attempts": message.attempts,
        "payload_bytes": 200 + message.number % 100,
        "published_at": message.came,
        "first_at": message.first_at,
        "last_at": at,
        "at": ended,
    }


def _named(queue: Queue, message: _Message) -> dict[str, Any]:
    return {
        "queue": queue.name,
        "message_id": f"{queue.name}-{message.number}",
        "topic": message.topic,
        "ordering_key": message.key or None,
        "one_in": 1,
    }
