"""The command line: `python -m bench GROUP` measures a group of cases, `compare` prints kept results again."""

import argparse
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

if not __package__:  # run as a folder, `python path/to/bench`, which works from anywhere
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import brokers, build, cases, machine, measure, report, results
from bench.guard import command as guard

OUR_OWN: Final = "mqttlite"
EPILOG: Final = """\
Brokers: mqttlite is started here, and Debian's mosquitto if it is installed; each --broker joins them or, by the same
name, takes its place.  NAME=[HOST:]PORT is one that runs already; with =COMMAND it is started here and stopped at the
end.  Port 0 means a free one, which COMMAND takes as {port}:  --broker 'mine=0=my-broker --port {port}'
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; problems of ours end in one line on stderr and exit code 2."""
    options = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        return command(options)
    except (brokers.BrokerError, build.BuildError, results.ResultsError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _measure(options: argparse.Namespace) -> int:
    """Measure the chosen cases; a contender that failed at one makes the exit code 1."""
    chosen = cases.select(options.group, options.cases, options.skip)
    if not chosen:
        print(f"bench: no such case; there are {', '.join(cases.CASES)}", file=sys.stderr)
        return 2
    plan = measure.Plan(
        loadgen=build.loadgen(),
        cases=chosen,
        rounds=1 if options.quick else options.rounds,
        quick=options.quick,
        extra=tuple(shlex.split(options.extra)),
        quiet=options.quiet,
        attempts=1 if options.quick else options.attempts,
        wait_s=options.wait,
    )
    out: Path = options.out or results.new_file(options.group or "all")
    found: list[measure.Result] = []
    with _contenders(options) as (contenders, versions):
        here = machine.describe(versions)
        results.append(out, here)
        for result in measure.measure(plan, contenders):
            results.append(out, result)
            found.append(result)
            print(report.progress(result), file=sys.stderr, flush=True)
    _print([here], found, options.reference)
    print(f"\nKept in {out}")
    return 1 if any(result.error for result in found) else 0


@contextmanager
def _contenders(options: argparse.Namespace) -> Iterator[tuple[list[brokers.Contender], dict[str, str]]]:
    """Everybody up and held, with what they say they are; stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        specs = {spec.name: spec for spec in map(brokers.parse, options.broker)}
        started = [brokers.Broker(spec, home) for spec in _with_our_own(specs, options.without, home)]
        try:
            for broker in started:
                broker.ready()
                broker.hold()
            versions = {broker.name: broker.version() for broker in started}
            yield [*([brokers.Raw()] if options.raw else []), *started], versions
        finally:
            for broker in started:
                broker.stop()


def _with_our_own(specs: dict[str, brokers.Spec], without: Sequence[str], home: Path) -> list[brokers.Spec]:
    """The brokers that are measured unless told otherwise, then the others."""
    known: dict[str, Callable[[Path], brokers.Spec | None]] = {
        OUR_OWN: brokers.mqttlite,
        "mosquitto": brokers.mosquitto,
    }
    absent = {*specs, *without}
    usual = [spec for name, find in known.items() if name not in absent and (spec := find(home))]
    return [*usual, *specs.values()]


def _compare(options: argparse.Namespace) -> int:
    """Print what files hold, side by side; measure nothing."""
    machines, found = results.load_all(options.files)
    _print(machines, found, options.reference)
    return 0


def _guard(options: argparse.Namespace) -> int:
    return guard.run(accept=options.accept)


def _print(machines: Sequence[machine.Machine], found: Sequence[measure.Result], reference: str) -> None:
    parts = [*map(report.heading, machines), report.details(found, reference), report.summary(found, reference)]
    print("\n\n".join(parts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of the broker, beside others.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    common = _measuring_options()
    for group in (*cases.GROUPS, None):
        told = "all cases" if group is None else ", ".join(case.name for case in cases.select(group))
        command = commands.add_parser(
            group or "all",
            parents=[common],
            help=told if len(told) < 60 else f"{told[:56]} …",
            description=f"Measures {told}.",
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=_measure, group=group)
    compare = commands.add_parser("compare", help="print kept results again, several files side by side")
    compare.add_argument("files", nargs="+", type=Path, metavar="FILE")
    _reference_option(compare)
    compare.set_defaults(run=_compare)
    guarding = commands.add_parser(
        "guard",
        help="count the core's instructions and compare them with those accepted last",
        description="Counts the core's instructions under valgrind and compares them with those accepted last; "
        "the exit code is 1 if something got dearer.",
    )
    guarding.add_argument("--accept", action="store_true", help="from now on it may cost what it costs now")
    guarding.set_defaults(run=_guard)
    return parser


def _measuring_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument
    add("--broker", action="append", default=[], metavar="NAME=PORT[=COMMAND]", help="one more broker; see below")
    add("--without", action="append", default=[], metavar="NAME", help="leave out mqttlite or mosquitto")
    add("--raw", action="store_true", help="also measure TCP without a broker")
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
