"""The command line: `python -m bench GROUP` measures a group of cases, `compare` prints kept results again."""

import argparse
import asyncio
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

if not __package__:  # run as a folder, `python path/to/bench`, which works from anywhere
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import (
    attacks,
    bridges,
    brokers,
    build,
    cases,
    counting,
    durable,
    entrants,
    flood,
    logs,
    machine,
    measure,
    native,
    nodes,
    page,
    profile,
    publishing,
    pushing,
    queues,
    report,
    results,
    rules,
    scale,
    storm,
    streams,
    swap,
)
from bench.guard import command as guard

EPILOG: Final = """\
Brokers: mqttlite is started here, and Debian's mosquitto if it is installed; each --broker joins them or, by the same
name, takes its place.  NAME=[HOST:]PORT is one that runs already; with =COMMAND it is started here and stopped at the
end.  Port 0 means a free one, which COMMAND takes as {port}, and {tls_port} another, for TLS:
  --broker 'mine=0=my-broker --port {port}'
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; problems of ours end in one line on stderr and exit code 2."""
    options = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        return command(options)
    except (
        brokers.BrokerError,
        build.BuildError,
        results.ResultsError,
        streams.StreamsError,
        pushing.PushingError,
        counting.NotMeasured,
    ) as error:
        _say(f"bench: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _group(options: argparse.Namespace) -> int:
    """Measure a group of cases on mqttlite as installed, beside others."""
    chosen = cases.select(options.group, options.cases, options.skip)

    def specs(home: Path) -> list[brokers.Spec]:
        if options.group == cases.DURABLE:
            return durable.specs(home, compiled, _say)
        return [entrants.installed(home), *entrants.peers(home)]

    compiled = _compiled() if chosen and options.group == cases.DURABLE else None

    kept, out = _measure(options, chosen, specs, options.group or "all")
    if kept is None:
        return 2
    _print(kept, options.reference)
    print(f"\nKept in {out}")
    return 1 if any(result.error for result in kept.results) else 0


def _compare(options: argparse.Namespace) -> int:
    """Measure every build of ours beside every peer that is there, and write the page."""
    chosen = cases.compared(options.cases, options.skip)
    compiled = _compiled()

    def specs(home: Path) -> list[brokers.Spec]:
        return [*entrants.ours(home, compiled, _say), *entrants.peers(home)]

    kept, out = _measure(options, chosen, specs, "compare")
    if kept is None:
        return 2
    whole = not options.quick and not options.cases and not options.skip
    if whole:
        for growth in scale.measure(compiled or native.ROOT):
            results.append(out, growth)
            kept.growths.append(growth)
    _print(kept, options.reference)
    print(f"\nKept in {out}")
    path = options.page or (page.PAGE if whole else None)
    if path is not None:
        page.write(kept.machines, kept.results, kept.growths, path)
        print(f"Written to {path}")
    return 1 if any(result.error for result in kept.results) else 0


def _compiled() -> Path | None:
    """The folder of the compiled build; nothing where it cannot be made, which is said."""
    try:
        return native.tree()
    except build.BuildError as error:
        _say(f"bench: {error}")
        return None


def _measure(
    options: argparse.Namespace,
    chosen: Sequence[cases.Case],
    specs: Callable[[Path], list[brokers.Spec]],
    name: str,
) -> tuple[results.Kept | None, Path]:
    """Measure the chosen cases on the brokers that are installed; nothing, where no case has the name."""
    out: Path = options.out or results.new_file(name)
    loadgen = build.loadgen()
    if not build.can_tls(loadgen) and any(case.tls for case in chosen):
        _say("Without TLS, for which the load generator needs OpenSSL (Debian, Ubuntu: apt-get install libssl-dev)")
        chosen = [case for case in chosen if not case.tls]
    if not chosen:
        _say(f"bench: no such case; there are {', '.join(cases.CASES)}")
        return None, out
    plan = measure.Plan(
        loadgen=loadgen,
        cases=chosen,
        rounds=1 if options.quick else options.rounds,
        quick=options.quick,
        extra=tuple(shlex.split(options.extra)),
        quiet=options.quiet,
        attempts=1 if options.quick else options.attempts,
        wait_s=options.wait,
    )
    kept = results.Kept()
    with _contenders(options, specs) as (contenders, versions):
        kept.machines.append(machine.describe(versions))
        results.append(out, kept.machines[0])
        for result in measure.measure(plan, contenders):
            results.append(out, result)
            kept.results.append(result)
            _say(report.progress(result))
    return kept, out


@contextmanager
def _contenders(
    options: argparse.Namespace, specs: Callable[[Path], list[brokers.Spec]]
) -> Iterator[tuple[list[brokers.Contender], dict[str, str]]]:
    """Everybody up and held, with what they say they are; stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        asked = {spec.name: spec for spec in map(brokers.parse, options.broker)}
        usual = [spec for spec in specs(home) if spec.name not in {*asked, *options.without}]
        started = [brokers.Broker(spec, home) for spec in (*usual, *asked.values())]
        try:
            for broker in started:
                broker.ready()
                broker.hold()
            versions = {broker.name: broker.version() for broker in started}
            yield [*([brokers.Raw()] if options.raw else []), *started], versions
        finally:
            for broker in started:
                broker.stop()


def _show(options: argparse.Namespace) -> int:
    """Print what files hold, side by side, or make the page of it; measure nothing."""
    kept = results.load_all(options.files)
    if options.page is None:
        _print(kept, options.reference)
    else:
        page.write(kept.machines, kept.results, kept.growths, options.page)
    return 0


def _scale(options: argparse.Namespace) -> int:
    """Print what things cost at several sizes."""
    source = native.tree() if options.compiled else native.ROOT
    print(page.growth_table(list(scale.measure(source, most=options.most))))
    return 0


def _streams(options: argparse.Namespace) -> int:
    """Print what subscribers over HTTP cost."""
    source = native.tree() if options.compiled else native.ROOT
    plan = streams.Plan(streams=options.streams, sockets=options.sockets, frozen=options.frozen, rounds=options.rounds)
    streams.measure(source, plan, print)
    return 0


def _push(options: argparse.Namespace) -> int:
    """Print how fast a queue is pushed."""
    source = native.tree() if options.compiled else native.ROOT
    plan = pushing.Plan(messages=options.messages, rate=options.rate, seconds=options.seconds)
    print(pushing.told(plan, asyncio.run(pushing.measure(source, plan))))
    return 0


def _queues(options: argparse.Namespace) -> int:
    """Print what queues take in and give out, and how late they redeliver."""
    source = native.tree() if options.compiled else native.ROOT
    plan = queues.Plan(messages=options.messages, backlog=options.backlog, telemetry=options.telemetry)
    chosen = options.cases or tuple(queues.CASES)
    if unknown := set(chosen) - set(queues.CASES):
        raise counting.NotMeasured(f"there is no case {', '.join(unknown)}: they are {', '.join(queues.CASES)}")
    asyncio.run(queues.measure(source, plan, chosen, print))
    return 0


def _log(options: argparse.Namespace) -> int:
    """Print what streams take in and give out, and what retention costs."""
    source = native.tree() if options.compiled else native.ROOT
    plan = logs.Plan(messages=options.messages, long=options.long, written_bytes=int(options.gigabytes * 1e9))
    chosen = options.cases or tuple(logs.CASES)
    if unknown := set(chosen) - set(logs.CASES):
        raise counting.NotMeasured(f"there is no case {', '.join(unknown)}: they are {', '.join(logs.CASES)}")
    asyncio.run(logs.measure(source, plan, chosen, print))
    return 0


def _publishing(options: argparse.Namespace) -> int:
    """Print how many messages come over HTTP."""
    source = native.tree() if options.compiled else native.ROOT
    publishing.measure(source, rounds=options.rounds, seconds=3.0, say=print)
    return 0


def _bridge(options: argparse.Namespace) -> int:
    """Print how many messages cross a bridge."""
    source = native.tree() if options.compiled else native.ROOT
    bridges.measure(source, rounds=options.rounds, seconds=5.0, say=print)
    return 0


def _profile(options: argparse.Namespace) -> int:
    """Print where the time goes, case by case."""
    compiled = native.tree()
    chosen = cases.select(None, options.cases) if options.cases else [cases.CASES[name] for name in profile.USUAL]
    print(profile.run(chosen, compiled, options.svg))
    return 0


def _guard(options: argparse.Namespace) -> int:
    return guard.run(accept=options.accept)


def _storm(options: argparse.Namespace) -> int:
    asked = storm.Storm(
        options.clients, options.users, options.at_work, options.rate, options.algorithm, not options.pure
    )
    return storm.run(replace(asked, mosquitto=options.mosquitto))


def _attacks(options: argparse.Namespace) -> int:
    return attacks.run(seconds=options.seconds, compiled=not options.pure)


def _flood(options: argparse.Namespace) -> int:
    return flood.run(flood.Flood(options.publishers, options.seconds, not options.pure, options.mosquitto))


def _rules(options: argparse.Namespace) -> int:
    chosen = [case for case in cases.select(None, options.cases) if options.cases or case.name in rules.USUAL]
    return rules.run(chosen, rounds=options.rounds, quick=options.quick, compiled=not options.pure)


def _swap(options: argparse.Namespace) -> int:
    return swap.run(clients=options.clients, swaps=options.swaps, rate=options.rate, compiled=not options.pure)


def _print(kept: results.Kept, reference: str) -> None:
    parts = [*map(report.heading, kept.machines)]
    if kept.results:
        parts += [report.details(kept.results, reference), report.summary(kept.results, reference)]
    if kept.growths:
        parts.append(page.growth_table(kept.growths))
    print("\n\n".join(parts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of the broker, beside others.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for group in (*cases.GROUPS, None):
        told = "all groups but durable" if group is None else ", ".join(case.name for case in cases.select(group))
        command = commands.add_parser(
            group or "all",
            parents=[_measuring_options()],
            help=told if len(told) < 60 else f"{told[:56]} …",
            description=f"Measures {told}.",
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=_group, group=group)
    compare = commands.add_parser(
        "compare",
        parents=[_measuring_options(raw=True)],
        help="every build of ours beside every broker there is; writes docs/reference/performance.md",
        description="Measures every build of ours beside every broker there is, and writes a page of it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument("--page", type=Path, metavar="FILE", help="write the page there, even of some of the cases")
    compare.set_defaults(run=_compare)
    show = commands.add_parser("show", help="print kept results again, several files side by side")
    show.add_argument("files", nargs="+", type=Path, metavar="FILE")
    show.add_argument("--page", type=Path, metavar="FILE", help="write the page of them instead")
    _reference_option(show)
    show.set_defaults(run=_show)
    scaling = commands.add_parser("scale", help="what things cost beside a thousand others, and beside a million")
    scaling.add_argument("--compiled", action="store_true", help="measure the compiled build")
    scaling.add_argument("--most", type=_positive, default=1_000_000, help="the largest size (default 1000000)")
    scaling.set_defaults(run=_scale)
    streaming = commands.add_parser("streams", help="very many subscribers over HTTP: memory, time to the last, frozen")
    streaming.add_argument("--compiled", action="store_true", help="measure the compiled build")
    streaming.add_argument("--streams", type=_positive, default=10_000, help="event streams (default 10000)")
    streaming.add_argument("--sockets", type=_positive, default=1_000, help="WebSockets (default 1000)")
    streaming.add_argument("--frozen", type=_positive, default=100, help="readers that never read (default 100)")
    streaming.add_argument("--rounds", type=_positive, default=10, help="times that all come and go (default 10)")
    streaming.set_defaults(run=_streams)
    usual_push = pushing.Plan()
    pushed = commands.add_parser("push", help="a queue that is pushed over HTTP, beside one whose endpoint sleeps")
    pushed.add_argument("--compiled", action="store_true", help="measure the compiled build")
    pushed.add_argument("--messages", type=_positive, default=usual_push.messages, help="(default 20000)")
    pushed.add_argument("--rate", type=_positive, default=usual_push.rate, help="messages a second (default 200)")
    pushed.add_argument("--seconds", type=float, default=usual_push.seconds, help="(default 20)")
    pushed.set_defaults(run=_push)
    usual_queues = queues.Plan()
    queueing = commands.add_parser("queues", help="queues: messages a second, deadlines, very many queues, a long one")
    queueing.add_argument("--compiled", action="store_true", help="measure the compiled build")
    queueing.add_argument("--cases", type=cases.names, default=(), help=f"some of {', '.join(queues.CASES)}")
    queueing.add_argument("--messages", type=_positive, default=usual_queues.messages, help="(default 300000)")
    queueing.add_argument("--backlog", type=_positive, default=usual_queues.backlog, help="(default 10000000)")
    queueing.add_argument("--telemetry", action="store_true", help="with the telemetry dataset")
    queueing.set_defaults(run=_queues)
    usual_log = logs.Plan()
    logging = commands.add_parser("log", help="streams that keep messages: append, replay, the head, times, retention")
    logging.add_argument("--compiled", action="store_true", help="measure the compiled build")
    logging.add_argument("--cases", type=cases.names, default=(), help=f"some of {', '.join(logs.CASES)}")
    logging.add_argument("--messages", type=_positive, default=usual_log.messages, help="(default 300000)")
    logging.add_argument("--long", type=_positive, default=usual_log.long, help="of `places` (default 10000000)")
    logging.add_argument(
        "--gigabytes", type=float, default=usual_log.written_bytes / 1e9, help="of `disk` (default 10)"
    )
    logging.set_defaults(run=_log)
    publishes = commands.add_parser("publishing", help="messages a second that are published over HTTP")
    publishes.add_argument("--compiled", action="store_true", help="measure the compiled build")
    publishes.add_argument("--rounds", type=_positive, default=5, help="how often each is measured (default 5)")
    publishes.set_defaults(run=_publishing)
    bridging = commands.add_parser("bridge", help="messages a second through a bridge between two brokers")
    bridging.add_argument("--compiled", action="store_true", help="measure the compiled build")
    bridging.add_argument("--rounds", type=_positive, default=3, help="how often each is measured (default 3)")
    bridging.set_defaults(run=_bridge)
    profiling = commands.add_parser("profile", help="where the compiled broker's time goes, by perf")
    profiling.add_argument("--cases", type=cases.names, default=(), help="parts of case names; four by default")
    profiling.add_argument("--svg", type=Path, metavar="FOLDER", help="write flame graphs there")
    profiling.set_defaults(run=_profile)
    guarding = commands.add_parser(
        "guard",
        help="count the core's instructions and compare them with those accepted last",
        description="Counts the core's instructions under valgrind and compares them with those accepted last; "
        "the exit code is 1 if something got dearer.",
    )
    guarding.add_argument("--accept", action="store_true", help="from now on it may cost what it costs now")
    guarding.set_defaults(run=_guard)
    several = commands.add_parser("nodes", help="what several nodes cost, in processor time and memory")
    several.add_argument(
        "--subscribers",
        type=_positive,
        default=0,
        help="only how long a message takes to so many subscribers of one topic at three nodes, over TCP",
    )
    several.add_argument(
        "--queue", action="store_true", help="only what a queue costs whose consumers are at another node"
    )
    several.set_defaults(run=nodes.run)
    storming = commands.add_parser(
        "storm",
        help="thousands of clients come at once, with TLS and passwords, beside some at work",
        description="Thousands of clients come at once, with TLS and passwords, twice, beside some at work; the exit "
        "code is 1 if not all are in within a minute, or if those at work notice.",
    )
    usual = storm.Storm()
    storming.add_argument("--clients", type=_positive, default=usual.clients, help="(default 10000)")
    storming.add_argument("--users", type=_positive, default=usual.users, help="with a password each (default 10000)")
    storming.add_argument("--at-work", type=_positive, default=usual.at_work, help="clients (default 200)")
    storming.add_argument("--rate", type=float, default=usual.rate, help="of all those at work (default 1000/s)")
    storming.add_argument("--algorithm", choices=storm.ALGORITHMS, default=usual.algorithm)
    storming.add_argument("--pure", action="store_true", help="measure the build that is not compiled")
    storming.add_argument("--mosquitto", action="store_true", help="measure Mosquitto in place of ours")
    storming.set_defaults(run=_storm)
    attacking = commands.add_parser(
        "attacks", help="what polite clients notice of slow, silent, guessing and other ones"
    )
    attacking.add_argument("--seconds", type=float, default=6.0, help="for each attack (default 6)")
    attacking.add_argument("--pure", action="store_true", help="measure the build that is not compiled")
    attacking.set_defaults(run=_attacks)
    flooding = commands.add_parser(
        "flood",
        help="what polite clients notice of a thousand publishers that send all they can, and what is lost",
    )
    usual_flood = flood.Flood()
    flooding.add_argument("--publishers", type=_positive, default=usual_flood.publishers, help="(default 1000)")
    flooding.add_argument("--seconds", type=float, default=usual_flood.seconds, help="for each flood (default 6)")
    flooding.add_argument("--pure", action="store_true", help="measure the build that is not compiled")
    flooding.add_argument("--mosquitto", action="store_true", help="measure Mosquitto in place of ours")
    flooding.set_defaults(run=_flood)
    ruling = commands.add_parser("rules", help="what 10,000 rules, a thousand users and all quotas cost")
    ruling.add_argument(
        "--cases", type=cases.names, default=(), help=f"parts of case names (default {', '.join(rules.USUAL)})"
    )
    ruling.add_argument("--rounds", type=_positive, default=5, help="how often each is measured (default 5)")
    ruling.add_argument("--quick", action="store_true", help="one short round: shows that it works")
    ruling.add_argument("--pure", action="store_true", help="measure the build that is not compiled")
    ruling.set_defaults(run=_rules)
    swapping = commands.add_parser("swap", help="every certificate is replaced under a thousand connections of TLS")
    swapping.add_argument("--clients", type=_positive, default=1_000, help="(default 1000)")
    swapping.add_argument("--swaps", type=_positive, default=5, help="(default 5)")
    swapping.add_argument("--rate", type=float, default=2_000.0, help="of all clients (default 2000/s)")
    swapping.add_argument("--pure", action="store_true", help="measure the build that is not compiled")
    swapping.set_defaults(run=_swap)
    return parser


def _measuring_options(*, raw: bool = False) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument
    add("--broker", action="append", default=[], metavar="NAME=PORT[=COMMAND]", help="one more broker; see below")
    add("--without", action="append", default=[], metavar="NAME", help="leave out one of those that are usual")
    add("--raw", action=argparse.BooleanOptionalAction, default=raw, help="also measure TCP without a broker")
    add(
        "--cases", type=cases.names, default=(), help="parts of case names, comma-separated; the whole group by default"
    )
    add("--skip", type=cases.names, default=(), help="parts of case names to leave out")
    add("--rounds", type=_positive, default=3, help="how often each case is measured (default 3)")
    add("--quick", action="store_true", help="one short round: shows that it works, its figures mean little")
    add("--extra", default="", help="more load generator arguments for every case, such as --extra=--v5")
    add("--out", type=Path, metavar="FILE", help="add the results to this file (default: a new one in bench/results)")
    add("--quiet", type=float, default=0.25, help="cores of foreign CPU above which a run is repeated (default 0.25)")
    add("--attempts", type=_positive, default=2, help="runs at most until one is quiet (default 2)")
    add("--wait", type=float, default=3.0, help="seconds at most to wait for a quiet machine before a run (default 3)")
    _reference_option(parser)
    return parser


def _reference_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reference", default="mosquitto", help="whom to divide by (default mosquitto)")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that brokers are stopped on the way out
    sys.exit(main())
