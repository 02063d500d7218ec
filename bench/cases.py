"""What is measured: each case's load, the figure that counts, and the group and table it belongs to.

Pure values.  What a load means is told at the head of `loadgen/loadgen.c`; a later option there wins over an
earlier one, which is how a case is shortened and how `--extra` changes all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class Better(Enum):
    """Which way the figure of a case should go."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Case:
    """One load, to be put on every broker in the same way."""

    name: str
    group: str
    table: str
    arguments: tuple[str, ...]
    short: tuple[str, ...]
    """What makes a `--quick` run of it."""
    figure: str = "recv_per_s"
    better: Better = Better.HIGHER
    also: tuple[str, ...] = ()
    """More figures that belong in its table."""
    fresh: bool = False
    """Its memory figures need a broker without a past."""
    raw: bool = False
    """TCP without a broker can carry it: QoS 0, and no topic to be matched."""

    def load(self, extra: Sequence[str], *, quick: bool) -> tuple[str, ...]:
        """The load generator's arguments."""
        return (*self.arguments, *(self.short if quick else ()), *extra)


BRIEFLY: Final = ("--secs", "0.3", "--drain", "1")


def _case(name: str, table: str, load: str) -> Case:
    """A case whose group is its mode; the flood cases are streams and fan-outs without a bound."""
    arguments = tuple(load.split())
    return Case(name, group=arguments[arguments.index("--mode") + 1], table=table, arguments=arguments, short=BRIEFLY)


def _streams() -> Iterator[Case]:
    for pairs, table in ((1, "stream, one pair"), (50, "stream, 50 pairs")):
        for qos in (0, 1, 2):
            for size in (16, 256, 4096):
                # QoS 0 has no window of its own: bound what is under way, so that a broker that cannot hold
                # the sender back is neither flooded nor made to drop.
                bound = "" if qos else " --lag 2000" if size > 1000 else " --lag 10000"
                load = f"--mode stream --qos {qos} --size {size} --pubs {pairs} --secs 0.8 --drain 2.5{bound}"
                yield replace(_case(f"stream-q{qos}-{size}B-x{pairs}", table, load), raw=qos == 0)
    for pairs in (1, 50):
        load = f"--mode stream --size 16 --pubs {pairs} --secs 0.8 --drain 2.5"
        yield replace(_case(f"flood-16B-x{pairs}", "flooded: no bound but TCP", load), raw=True)


def _fan_outs() -> Iterator[Case]:
    load = "--mode fanout --size 64 --secs 1.2 --drain 3"
    for subscribers, lag in ((100, 1000), (1000, 100)):
        bounded = f"{load} --subs {subscribers} --lag {lag}"
        yield replace(_case(f"fanout-{subscribers}", "fan-out", bounded), raw=True)
    for subscribers in (100, 1000):
        flood = f"{load} --subs {subscribers}"
        yield replace(_case(f"fanout-{subscribers}-flood", "flooded: no bound but TCP", flood), raw=True)
    paced = _case("fanout-1000-paced", "fan-out", "--mode fanout --subs 1000 --size 64 --rate 40 --secs 1.5 --drain 2")
    yield replace(paced, figure="p99_us", better=Better.LOWER, raw=True)


def _fan_ins() -> Iterator[Case]:
    load = "--mode fanin --pubs 500 --size 64"
    for rate, name in ((2000, "2k"), (20000, "20k")):
        paced = _case(f"fanin-500-{name}", "fan-in", f"{load} --rate {rate} --secs 1.5 --drain 2")
        yield replace(paced, figure="p99_us", better=Better.LOWER)
    highest = _case("fanin-500-max", "fan-in", f"{load} --rate 4000 --secs 0.7 --sweep")
    yield replace(highest, figure="max_rate", also=("first_failing_rate",))


def _others() -> Iterator[Case]:
    table = "wildcards, connections, round trip, slow reader"
    load = "--mode wild --filters 100000 --subs 100 --pubs 10 --size 64 --secs 1.2 --drain 3 --lag 10000"
    wild = _case("wild-100k", table, f"{load} --setup-limit 25")
    yield replace(wild, short=(*BRIEFLY, "--filters", "10000"))
    connect = _case("connect-5000", table, "--mode connect --conns 5000 --secs 15 --hold 0.5")
    yield replace(
        connect,
        short=("--conns", "500", "--hold", "0.1"),  # its --secs is a limit, not a duration
        figure="connects_per_s",
        also=("failed", "rss_per_conn_bytes"),
        fresh=True,
    )
    pingpong = _case("pingpong", table, "--mode pingpong --size 16 --secs 1")
    yield replace(pingpong, figure="p50_us", better=Better.LOWER, raw=True)
    slow = _case("slow-10", table, "--mode slow --subs 10 --size 4096 --secs 1.5 --drain 3")
    yield replace(slow, figure="reader_ratio", also=("before_per_s", "recv_per_s"), fresh=True)


CASES: Final = {case.name: case for case in (*_streams(), *_fan_outs(), *_fan_ins(), *_others())}
GROUPS: Final = tuple(dict.fromkeys(case.group for case in CASES.values()))


def select(group: str | None, wanted: Sequence[str] = (), unwanted: Sequence[str] = ()) -> list[Case]:
    """The cases of a group (all, if None) whose names hold any wanted part and no unwanted one."""
    return [
        case
        for case in CASES.values()
        if (group is None or case.group == group)
        and (not wanted or any(part in case.name for part in wanted))
        and not any(part in case.name for part in unwanted)
    ]


def names(text: str) -> tuple[str, ...]:
    """The comma-separated parts of case names that `--cases` and `--skip` take."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
