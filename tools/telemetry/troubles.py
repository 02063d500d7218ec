"""The troubles that are planted, and the truth about them.

A trouble is told as what it is, not as what a report may see of it: causes, times and sizes are drawn here, and the
rest of the program makes a fleet behave so. Invariant: a client has one trouble at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tools.telemetry import queues
from tools.telemetry.fleet import CLASSES, DAY, HOUR, MINUTE, SECOND, Fleet, Rng

KINDS: Final = (
    "flapping", "silent", "rate", "greedy", "slow", "duplicate",
    "storm", "clock", "explosion", "dead", "slow_minute", *queues.KINDS,
)  # fmt: skip

FLAPPING_CAUSES: Final = {
    # close reason: seconds that a session lasts, seconds until the next
    "connection_lost": ((4, 60), (0.5, 10)),
    "keep_alive_timeout": ((12, 40), (0.5, 5)),
    "malformed_packet": ((0.1, 3), (1, 15)),
    "not_authorized": ((0.05, 1), (2, 20)),
    "packet_too_large": ((1, 30), (1, 10)),
}
FLAPPING_KEEP_ALIVE_S: Final = 5
"""Of a device that flaps because its keep-alive is shorter than what its network or its work takes."""

DEVICES_PER_TROUBLE: Final = 100
"""Of each kind that devices have: one in so many, two at least."""

SMALLEST: Final = 30
"""Devices for troubles to hide among, and a day to happen in, with some quiet before and after."""

FEWEST_OF_A_STORM: Final = 0.6
"""Share of the clients that lose their connection; the others are on another network."""

WHAT: Final = "KIND=NUMBER,…, `default` or `none`; kinds: " + ", ".join(KINDS)


@dataclass(frozen=True)
class Trouble:
    """One of them. `start` and `end` are microseconds of true time, from the dataset's beginning."""

    kind: str
    cause: str
    start: int
    end: int
    client: int = -1
    amount: float = 0.0
    """Of `rate` and `slow_minute` a factor; of `slow` which share of its messages it can take; of `clock` seconds; of
    `storm` which share of the fleet; of `greedy` and `explosion` messages a second; of `dead` the interval."""
    topic: str = ""


def counts_of(text: str, devices: int) -> dict[str, int]:
    """How many of each kind. Raises ValueError with a sentence."""
    if text == "none":
        return dict.fromkeys(KINDS, 0)
    if text == "default":
        several = max(2, devices // DEVICES_PER_TROUBLE)
        fixed = {"slow": 2, "storm": 2, "clock": 1, "explosion": 1, "slow_minute": 2}
        fixed |= {"consumer": 1, "key": 2, "outage": 1}
        return {kind: fixed.get(kind, several) for kind in KINDS}
    counts = dict.fromkeys(KINDS, 0)
    for part in text.split(","):
        kind, _, number = part.strip().partition("=")
        if kind not in counts or not number.isdecimal():
            raise ValueError(f"{part.strip()!r} is no trouble: {WHAT}")
        counts[kind] = int(number)
    return counts


def plan(
    rng: Rng, fleet: Fleet, counts: Mapping[str, int], span: int, runs: Sequence[tuple[int, int]]
) -> list[Trouble]:  # fmt: skip
    """Draw them. Raises ValueError where the fleet has too few clients for them."""
    free = [int(device) for device in rng.permutation(fleet.devices)]
    viewers = [int(viewer) for viewer in rng.permutation(list(fleet.viewers))]
    troubles: list[Trouble] = []

    def device(kind: str, *, regular: bool) -> int:
        """One that has no trouble yet; a `regular` one is always there and publishes often."""
        for at, candidate in enumerate(free):
            of = fleet.class_of(candidate)
            if not regular or (of.periodic and not of.shift and not of.sleepy):
                return free.pop(at)
        raise ValueError(f"{fleet.devices} devices are too few for {counts[kind]} of {kind}")

    def window(shortest: int, longest: int, earliest: float = 0.1, latest: float = 0.85) -> tuple[int, int]:
        length = int(rng.integers(shortest, longest + 1))
        start = int(rng.integers(int(earliest * span), max(int(earliest * span) + 1, int(latest * span) - length)))
        return start, start + length

    causes = [str(cause) for cause in rng.permutation(list(FLAPPING_CAUSES))]
    for number in range(counts["flapping"]):
        cause = causes[number % len(causes)]
        start, end = window(HOUR, 4 * HOUR)
        troubles.append(Trouble("flapping", cause, start, end, device("flapping", regular=True)))
    for number in range(counts["silent"]):
        client = device("silent", regular=False)
        of = fleet.class_of(client)
        cause = ("vanished", "hung", "paused")[number % 3] if not (of.sleepy or of.shift) else "vanished"
        start = int(rng.uniform(0.3, 0.6) * span)
        if of.shift:  # it goes while it works
            start = start // DAY * DAY + int(rng.uniform(9, 17) * HOUR)
        end = span
        if cause == "paused":
            end = start + int(max(3 * HOUR, 30 * fleet.intervals_s[client] * SECOND))
        troubles.append(Trouble("silent", cause, start, end, client))
    for number in range(counts["rate"]):
        high = number % 2 == 0
        start, end = window(HOUR, 3 * HOUR) if high else window(3 * HOUR, 5 * HOUR)
        factor = rng.uniform(6, 15) if high else rng.uniform(0.05, 0.2)
        client = device("rate", regular=True)
        troubles.append(Trouble("rate", "high" if high else "low", start, end, client, float(factor)))
    for _ in range(counts["greedy"]):
        client = device("greedy", regular=True)
        troubles.append(Trouble("greedy", "publishes", 0, span, client, float(rng.uniform(1, 3))))
    for _ in range(counts["slow"]):
        if len(viewers) <= 2:
            raise ValueError(f"{len(fleet.viewers)} viewers are too few for {counts['slow']} of slow")
        start, end = window(4 * HOUR, 8 * HOUR)
        troubles.append(Trouble("slow", "reads", start, end, viewers.pop(), float(rng.uniform(0.1, 0.6))))
    for _ in range(counts["duplicate"]):
        start, end = window(HOUR, 6 * HOUR)
        troubles.append(Trouble("duplicate", "two devices", start, end, device("duplicate", regular=True)))
    for _ in range(counts["storm"]):
        at = _quiet(rng, span, runs, troubles, "storm")
        share = float(rng.uniform(FEWEST_OF_A_STORM, 1))
        troubles.append(Trouble("storm", "network", at, at + MINUTE, amount=share))
    for _ in range(counts["clock"]):
        at = _quiet(rng, span, runs, troubles, "clock")
        seconds = float(rng.choice([-1, 1]) * round(rng.uniform(1.5, 90), 3))
        troubles.append(Trouble("clock", "stepped", at, at, amount=seconds))
    for _ in range(counts["explosion"]):
        client = device("explosion", regular=True)
        start, end = window(HOUR, 3 * HOUR)
        parent, per_second = f"plant/{fleet.sites[client]}/{fleet.client_ids[client]}/session", rng.uniform(0.2, 2)
        troubles.append(Trouble("explosion", "a topic per message", start, end, client, float(per_second), parent))
    for _ in range(counts["dead"]):
        client = device("dead", regular=True)
        topic = f"debug/{fleet.client_ids[client]}/trace"
        troubles.append(Trouble("dead", "nobody subscribes", 0, span, client, float(rng.uniform(30, 120)), topic))
    for _ in range(counts["slow_minute"]):
        at = _quiet(rng, span, runs, troubles, "slow_minute") // MINUTE * MINUTE
        minutes = int(rng.integers(1, 4))
        troubles.append(Trouble("slow_minute", "disk", at, at + minutes * MINUTE, amount=float(rng.uniform(40, 120))))
    return troubles


def _quiet(rng: Rng, span: int, runs: Sequence[tuple[int, int]], troubles: Sequence[Trouble], kind: str) -> int:
    """A time at which nothing else happens to the whole fleet: half an hour from restarts and from others like it."""
    for _ in range(1000):
        at = int(rng.uniform(0.05, 0.95) * span)
        near = [abs(at - bound) for run in runs for bound in run] + [
            abs(at - other.start) for other in troubles if other.client < 0
        ]
        if min(near) > 30 * MINUTE:
            return at
    raise ValueError(f"the dataset is too short for another {kind}")


def truth(troubles: Sequence[Trouble], fleet: Fleet, iso: Any) -> list[dict[str, Any]]:
    """As it is written beside the dataset; `iso` makes text of a time."""
    rows = []
    for trouble in troubles:
        row: dict[str, Any] = {"kind": trouble.kind, "cause": trouble.cause}
        if trouble.client >= 0:
            row["client_id"] = fleet.client_ids[trouble.client]
            if trouble.client < fleet.devices:
                row["class"] = CLASSES[int(fleet.kinds[trouble.client])].name
        row |= {"start": iso(trouble.start), "end": iso(trouble.end)}
        if trouble.amount:
            row["amount"] = round(trouble.amount, 6)
        if trouble.topic:
            row["topic"] = trouble.topic
        rows.append(row)
    return rows
