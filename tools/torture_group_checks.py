"""What must hold of a log's readers and of a group of them, judged from what each one saw: after Jepsen's model of a
queue, with offsets.

Nothing here runs anything. Invariant: a delivery is judged by when it can have been sent, because one that was stopped
reads what was sent long before.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Got(NamedTuple):
    """A message that a reader read, and acknowledged after that. It was sent between `sent_after` and `read_at`."""

    member: str
    connection: int
    partition: int
    offset: int
    number: int
    published_at: float
    sent_after: float
    read_at: float


@dataclass(frozen=True)
class Fault:
    """What was done, and when: it began at `since`, and at `settled` each partition had its reader again."""

    kind: str
    since: float
    settled: float
    members: int
    """The fewest members that were there meanwhile."""
    moves: int = 0
    """How many partitions got another reader."""
    changes: int = 1
    """How often members came or went."""
    went: frozenset[str] = frozenset()
    """The members that went or were stopped: each may have left a window of messages unacknowledged."""


@dataclass
class Verdict:
    """What was seen. All of the first part are to be 0."""

    lost: int = 0
    disagreements: int = 0
    """Offsets with two messages."""
    backward: int = 0
    """Offsets of a partition that a connection got in another order, or twice, while nobody came or went."""
    skipped: int = 0
    """Offsets between two that a connection got, while nobody came or went."""
    two_owners: int = 0
    """Partitions that two members were sent messages of, while nobody came or went."""
    over_window: int = 0
    """Messages that came twice, beyond what those who went had unacknowledged."""
    too_many_moves: int = 0
    """Partitions that moved, beyond those of one member and one more."""
    stuck: int = 0
    """Faults after which not every partition had a reader."""

    acknowledged: int = 0
    deliveries: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    twice: int = 0
    twice_after_kills: int = 0
    moves: int = 0
    pauses_s: list[float] = field(default_factory=list)
    """For each fault of members: the longest time from publishing to reading in a partition that stayed."""

    @property
    def is_good(self) -> bool:
        bad = self.lost + self.disagreements + self.backward + self.skipped + self.two_owners
        return not (bad + self.over_window + self.too_many_moves + self.stuck) and self.acknowledged > 0

    def __str__(self) -> str:
        pauses = sorted(self.pauses_s) or [0.0]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{kinds}; {self.acknowledged} messages acknowledged, {self.deliveries} deliveries: {self.lost} lost, "
            f"{self.disagreements} offsets with two messages, {self.backward} backward, {self.skipped} skipped, "
            f"{self.two_owners} partitions with two owners, {self.over_window} twice beyond a window, "
            f"{self.too_many_moves} moves too many, {self.stuck} stuck; {self.twice} came twice, "
            f"{self.twice_after_kills} of them after kills of the broker; {self.moves} moves; the longest time to the "
            f"reader of a partition that stayed: median {pauses[len(pauses) // 2] * 1e3:.0f} ms, "
            f"p90 {pauses[len(pauses) * 9 // 10] * 1e3:.0f} ms, most {pauses[-1] * 1e3:.0f} ms of {len(pauses)}"
        )


def judge(
    acknowledged: set[int],
    group: Sequence[Got],
    alone: Sequence[Got],
    faults: Sequence[Fault],
    partitions: int,
    window: int,
) -> Verdict:
    """`group` and `alone` are what the members and a kept session read, each member's in its order."""
    verdict = Verdict(acknowledged=len(acknowledged), deliveries=len(group))
    for fault in faults:
        verdict.faults[fault.kind] = verdict.faults.get(fault.kind, 0) + 1
    verdict.lost = sum(len(acknowledged - {each.number for each in part}) for part in (group, alone))
    verdict.disagreements = _disagreements([*group, *alone])
    for each in _by_connection(alone).values():
        _check_order(each, [], verdict)
    for each in _by_connection(group).values():
        _check_order(each, faults, verdict)
    verdict.two_owners = _two_owners(group, faults)
    _check_twice(group, faults, window, verdict)
    for fault in faults:
        if fault.kind == KILL:
            continue
        verdict.moves += fault.moves
        allowed = fault.changes * (math.ceil(partitions / fault.members) + 1)
        verdict.too_many_moves += max(0, fault.moves - allowed)
        pause = _pause(group, fault, faults)
        if pause > 0:
            verdict.pauses_s.append(pause)
    return verdict


KILL = "kills of the broker"
"""The kind of the fault in which all connections end."""

PAUSE_S = 1.0
"""How long after a fault a pause is looked for."""


def _disagreements(deliveries: Iterable[Got]) -> int:
    numbers: dict[tuple[int, int], int] = {}
    return sum(numbers.setdefault((each.partition, each.offset), each.number) != each.number for each in deliveries)


def _by_connection(deliveries: Iterable[Got]) -> dict[tuple[str, int, int], list[Got]]:
    """By member, connection and partition, in the order in which they were read."""
    found: dict[tuple[str, int, int], list[Got]] = defaultdict(list)
    for each in deliveries:
        found[each.member, each.connection, each.partition].append(each)
    return found


def _check_order(deliveries: Sequence[Got], faults: Sequence[Fault], verdict: Verdict) -> None:
    for before, after in itertools.pairwise(deliveries):
        if after.offset == before.offset + 1:
            continue
        if any(each.since <= after.read_at and each.settled >= before.sent_after for each in faults):
            continue  # the partition may have been with somebody else
        verdict.backward += after.offset <= before.offset
        verdict.skipped += after.offset > before.offset + 1


def _quiet(faults: Sequence[Fault]) -> Iterable[tuple[float, float]]:
    """The times in which nobody came or went."""
    for before, after in itertools.pairwise(faults):
        yield before.settled, after.since


def _two_owners(group: Sequence[Got], faults: Sequence[Fault]) -> int:
    found = 0
    ordered = sorted(group, key=lambda each: each.read_at)
    at = 0
    for since, until in _quiet(faults):
        owners: dict[int, set[tuple[str, int]]] = defaultdict(set)
        while at < len(ordered) and ordered[at].read_at <= until:
            each = ordered[at]
            at += 1
            if each.sent_after >= since:
                owners[each.partition].add((each.member, each.connection))
        found += sum(len(each) > 1 for each in owners.values())
    return found


def _check_twice(group: Sequence[Got], faults: Sequence[Fault], window: int, verdict: Verdict) -> None:
    """Messages that came again, by the last fault that had begun when they can have been sent."""
    seen: set[tuple[int, int]] = set()
    twice: dict[int, int] = defaultdict(int)
    for each in sorted(group, key=lambda each: each.read_at):
        place = each.partition, each.offset
        if place in seen:
            twice[max((at for at, fault in enumerate(faults) if fault.since <= each.read_at), default=-1)] += 1
        seen.add(place)
    for at, count in twice.items():
        verdict.twice += count
        if at >= 0 and faults[at].kind == KILL:
            verdict.twice_after_kills += count
            continue
        allowed = len(faults[at].went) * window if at >= 0 else 0
        verdict.over_window += max(0, count - allowed)


def _pause(group: Sequence[Got], fault: Fault, faults: Sequence[Fault]) -> float:
    """The longest time from publishing to reading, in the partitions whose reader stayed; 0 if it cannot be told.

    A fault that came soon before or after counts, too: a member that was stopped reads late, and after a kill of the
    broker all do.
    """
    near = [each for each in faults if each.since <= fault.settled + PAUSE_S and each.settled >= fault.since - PAUSE_S]
    if any(each.kind == KILL for each in near):
        return 0.0
    went = frozenset().union(*(each.went for each in near))
    readers: dict[int, set[tuple[str, int]]] = defaultdict(set)
    longest: dict[int, float] = defaultdict(float)
    for each in group:
        if fault.since - PAUSE_S <= each.read_at <= fault.settled + PAUSE_S:
            readers[each.partition].add((each.member, each.connection))
            if fault.since <= each.published_at <= fault.since + PAUSE_S:
                longest[each.partition] = max(longest[each.partition], each.read_at - each.published_at)
    stayed = [
        partition
        for partition, found in readers.items()
        if len(found) == 1 and not any(member in went for member, _ in found)
    ]
    return max((longest[each] for each in stayed), default=0.0)
