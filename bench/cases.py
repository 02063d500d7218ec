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
    title: str
    """The same in words, for readers of the tables that are kept."""
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
    before: tuple[str, ...] = ()
    """A load that is put on the broker before; then it is started again, and its start is part of the case."""
    raw: bool = False
    """TCP without a broker can carry it: QoS 0, and no topic to be matched."""
    compared: bool = False
    """It is one of those that `compare` measures and docs/reference/performance.md shows."""

    @property
    def durable(self) -> bool:
        """Whether it belongs to the brokers that keep on disk what they acknowledge."""
        return self.group == DURABLE

    @property
    def tls(self) -> bool:
        """Whether it comes over TLS."""
        return "--tls" in self.arguments

    def load(self, extra: Sequence[str], *, quick: bool) -> tuple[str, ...]:
        """The load generator's arguments."""
        return (*self.arguments, *(self.short if quick else ()), *extra)

    def load_before(self, *, quick: bool) -> tuple[str, ...]:
        """The same for the load before."""
        return (*self.before, *(self.short if quick else ()))


BRIEFLY: Final = ("--secs", "0.3", "--drain", "1")
FEW: Final = ("--conns", "500", "--hold", "0.1")
"""Connections in a quick run; the --secs of these cases is a limit, not a duration."""
FLOODED: Final = "flooded: no bound but TCP"
MIXES: Final = "mixes"
CONNECTIONS: Final = "connections"
SECURE: Final = "over TLS"
DURABLE: Final = "durable"


def _case(name: str, title: str, table: str, load: str) -> Case:
    """A case whose group is its mode."""
    arguments = tuple(load.split())
    group = arguments[arguments.index("--mode") + 1]
    return Case(name, title, group, table, arguments, BRIEFLY)


def _fleets() -> Iterator[Case]:
    load = "--mode fleet --qos 1 --pubs 800 --subs 60 --secs 4 --drain 2"
    for rate, name in ((1000, "1k"), (5000, "5k")):
        title = f"800 devices, {rate // 1000} 000 messages/s in all, each to five subscribers, QoS 1"
        paced = _case(f"fleet-800-{name}", title, "fleet", f"{load} --rate {rate}")
        yield replace(
            paced, figure="cpu_per_delivery_us", better=Better.LOWER, also=("p50_us", "p99_us"), compared=True
        )


def _streams() -> Iterator[Case]:
    compared = {(0, 16, 1), (0, 16, 50), (0, 256, 1), (0, 256, 50), (0, 4096, 50)}
    compared |= {(qos, 16, pairs) for qos in (1, 2) for pairs in (1, 50)}
    # QoS 0 has no window of its own: bound what is under way, so that a broker that cannot hold the sender back is
    # neither flooded nor made to drop. At QoS 2 as much as Mosquitto 2.0 can carry: beyond 20 it loses messages.
    bounds = {0: "--lag 10000", 1: "--window 100", 2: "--window 20"}
    for pairs, table in ((1, "stream, one pair"), (50, "stream, 50 pairs")):
        for qos in (0, 1, 2):
            for size in (16, 256, 4096):
                bound = "--lag 2000" if qos == 0 and size > 1000 else bounds[qos]
                load = f"--mode stream --qos {qos} --size {size} --pubs {pairs} --secs 0.8 --drain 2.5 {bound}"
                title = f"QoS {qos}, {size} bytes, {pairs} {'pair' if pairs == 1 else 'pairs'}"
                case = _case(f"stream-q{qos}-{size}B-x{pairs}", title, table, load)
                yield replace(case, raw=qos == 0, compared=(qos, size, pairs) in compared)
    for pairs in (1, 50):
        load = f"--mode stream --size 16 --pubs {pairs} --secs 0.8 --drain 2.5"
        title = f"QoS 0, 16 bytes, {pairs} {'pair' if pairs == 1 else 'pairs'}, unbounded"
        yield replace(_case(f"flood-16B-x{pairs}", title, FLOODED, load), raw=True)


def _mixes() -> Iterator[Case]:
    load = "--mode stream --secs 0.8 --drain 2.5"
    mixes = (
        ("mix-properties", "5.0, each message with three properties, 50 pairs", "--v5 --props --size 64 --pubs 50"),
        (
            "mix-qos2-window",
            "QoS 2, 16 bytes, 50 pairs, 100 messages under way for each",
            "--qos 2 --size 16 --pubs 50",
        ),
        ("mix-sizes-and-qos", "QoS 0 to 2, 16 bytes to 4 KiB, 12 pairs", "--mixed --window 20 --pubs 12"),
        ("mix-topics", "1000 topics for each of 10 pairs", "--spread 1000 --size 64 --pubs 10"),
        ("mix-churn", "10 pairs beside 500 (un)subscriptions/s", "--churn 500 --size 64 --pubs 10"),
    )
    for name, title, kind in mixes:
        yield replace(_case(name, title, MIXES, f"{load} {kind} --lag 10000"), compared=True)


def _fan_outs() -> Iterator[Case]:
    load = "--mode fanout --size 64 --secs 1.2 --drain 3"
    for subscribers, lag in ((100, 1000), (1000, 100)):
        bounded = f"{load} --subs {subscribers} --lag {lag}"
        case = _case(f"fanout-{subscribers}", f"to {subscribers} subscribers", "fan-out", bounded)
        yield replace(case, raw=True, compared=True)
    for subscribers in (100, 1000):
        title = f"to {subscribers} subscribers, unbounded"
        yield replace(_case(f"fanout-{subscribers}-flood", title, FLOODED, f"{load} --subs {subscribers}"), raw=True)
    paced = "--mode fanout --subs 1000 --size 64 --rate 40 --secs 1.5 --drain 2"
    case = _case("fanout-1000-paced", "to 1000 subscribers, 40 messages/s", "fan-out", paced)
    yield replace(case, figure="p99_us", better=Better.LOWER, raw=True)
    many = "--mode fanout --subs 10000 --size 64 --lag 1 --secs 2 --drain 3"
    case = _case("fanout-10000", "one message to 10 000 subscribers, until the last has it", "fan-out", many)
    short = (*BRIEFLY, "--subs", "500")
    case = replace(case, figure="last_p50_us", better=Better.LOWER, also=("last_p99_us",), short=short)
    yield replace(case, raw=True, compared=True)


def _fan_ins() -> Iterator[Case]:
    load = "--mode fanin --pubs 500 --size 64"
    for rate, name in ((2000, "2k"), (20000, "20k")):
        title = f"500 devices, {rate // 1000} 000 messages/s in all"
        paced = _case(f"fanin-500-{name}", title, "fan-in", f"{load} --rate {rate} --secs 1.5 --drain 2")
        yield replace(paced, figure="p99_us", better=Better.LOWER, raw=True, compared=name == "20k")
    title = "500 devices, most messages/s with p99 below 50 ms"
    highest = _case("fanin-500-max", title, "fan-in", f"{load} --rate 4000 --secs 0.7 --sweep")
    yield replace(highest, figure="max_rate", also=("first_failing_rate",), raw=True, compared=True)


def _connects() -> Iterator[Case]:
    more = ("failed", "rss_per_conn_bytes")
    load = "--mode connect --conns 5000 --secs 15 --hold 0.5"
    case = replace(_case("connect-5000", "5000 clients connect", CONNECTIONS, load), short=FEW, fresh=True)
    yield replace(case, figure="connects_per_s", also=more, compared=True)
    # 20 000 would be rounder, and one more than the usual limit of open files allows.
    load = "--mode connect --conns 19000 --secs 40 --hold 1"
    case = replace(_case("idle-19000", "19 000 idle connections, each", CONNECTIONS, load), short=FEW, fresh=True)
    yield replace(
        case, figure="rss_per_conn_bytes", better=Better.LOWER, also=("failed", "connects_per_s"), compared=True
    )


def _others() -> Iterator[Case]:
    table = "wildcards, round trip, slow reader"
    load = "--mode wild --filters 100000 --subs 100 --pubs 10 --size 64 --secs 1.2 --drain 3 --lag 10000"
    wild = _case("wild-100k", "100 000 subscriptions, four in ten with wildcards", table, f"{load} --setup-limit 25")
    yield replace(wild, short=(*BRIEFLY, "--filters", "10000"), compared=True)
    pingpong = _case("pingpong", "one message at a time, there", table, "--mode pingpong --size 16 --secs 1")
    yield replace(pingpong, figure="p50_us", better=Better.LOWER, also=("p99_us",), raw=True, compared=True)
    title = "nine readers beside one that is frozen, of their rate without it"
    slow = _case("slow-10", title, table, "--mode slow --subs 10 --size 4096 --secs 1.5 --drain 3")
    yield replace(slow, figure="reader_ratio", also=("without_per_s", "recv_per_s"), fresh=True, compared=True)


def _secure() -> Iterator[Case]:
    load = "--mode stream --tls --size 4096 --pubs 10 --lag 2000 --secs 0.8 --drain 2.5"
    yield replace(_case("tls-stream-4096B-x10", "QoS 0, 4 KiB, 10 pairs", SECURE, load), compared=True)
    load = "--mode fanin --tls --pubs 500 --size 64 --rate 10000 --secs 1.5 --drain 2"
    case = _case("tls-fanin-500-10k", "500 devices, 10 000 messages/s in all", SECURE, load)
    yield replace(case, figure="p99_us", better=Better.LOWER, compared=True)
    for name, title, how in (("connect", "full handshakes", ""), ("resume", "resumed handshakes", " --resume")):
        load = f"--mode connect --tls --conns 1000 --secs 15 --hold 0.1{how}"
        case = replace(_case(f"tls-{name}-1000", title, SECURE, load), short=FEW, fresh=True)
        yield replace(case, figure="connects_per_s", also=("failed", "resumed"), compared=True)


def _durable() -> Iterator[Case]:
    short = ("--secs", "0.3", "--warm", "0.1", "--pubs", "10")
    for publishers in (1, 1000):
        for window in (1, 50, 500):
            told = "one publisher" if publishers == 1 else f"{publishers} publishers"
            title = f"{told}, {window} under way for each"
            load = f"--mode durable --size 200 --pubs {publishers} --window {window} --warm 1 --secs 3"
            load += " --drain 60 --idle 60"
            case = _case(f"durable-{publishers}x{window}", title, "messages that wait for an offline session", load)
            also = ("disk_bytes_per_message", "cpu_per_message_us")
            yield replace(case, short=short if publishers > 1 else short[:-2], also=also, fresh=True)
    filled = "--mode durable --size 200 --pubs 10 --window 500 --secs 800 --count 1000000 --drain 100 --idle 60"
    restart = Case(
        "restart-1M",
        "a million messages wait for one session",
        DURABLE,
        "restart",
        ("--mode", "restart", "--count", "1000000"),
        ("--count", "10000"),
        before=tuple(filled.split()),
        figure="restart_ms",
        better=Better.LOWER,
        also=("first_ms", "drain_per_s", "filled_per_s", "disk_bytes_per_message", "rss_started_kb"),
        fresh=True,
    )
    yield restart
    yield replace(
        restart,
        name="restart-100k-sessions",
        title="100 000 sessions with a subscription each",
        arguments=("--mode", "restart"),
        before=("--mode", "sessions", "--conns", "100000", "--setup-limit", "800"),
        short=("--conns", "500"),
        also=("filled_per_s", "disk_bytes_per_message", "rss_started_kb"),
    )


CASES: Final = {
    case.name: case
    for case in (
        *_fleets(),
        *_streams(),
        *_mixes(),
        *_fan_outs(),
        *_fan_ins(),
        *_others(),
        *_connects(),
        *_secure(),
        *_durable(),
    )
}
GROUPS: Final = tuple(dict.fromkeys(case.group for case in CASES.values()))


def select(group: str | None, wanted: Sequence[str] = (), unwanted: Sequence[str] = ()) -> list[Case]:
    """The cases of a group whose names hold any wanted part and no unwanted one; of all but `durable`, if None."""
    return [
        case
        for case in CASES.values()
        if (not case.durable if group is None else case.group == group)
        and (not wanted or any(part in case.name for part in wanted))
        and not any(part in case.name for part in unwanted)
    ]


def compared(wanted: Sequence[str] = (), unwanted: Sequence[str] = ()) -> list[Case]:
    """Of these, those that `compare` measures."""
    return [case for case in select(None, wanted, unwanted) if case.compared]


def names(text: str) -> tuple[str, ...]:
    """The comma-separated parts of case names that `--cases` and `--skip` take."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
