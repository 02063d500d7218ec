"""The command line: `python -m spark_analytics report --input DIR --out DIR`, and `watch` likewise.

Parses, makes one call, prints. Exit codes: 0 the report is written, or with --once what is there is read, 1 Spark
failed on the way, 2 wrong arguments, 3 Java or pyspark is missing, 4 the input cannot be used, 5 the output cannot be
written, 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final

from spark_analytics import environment
from spark_analytics.alerts import Target
from spark_analytics.errors import AnalyticsError
from spark_analytics.limits import METRICS
from spark_analytics.window import parse_moment

INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        environment.require()
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except AnalyticsError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _report(options: argparse.Namespace) -> int:
    # Only now, when we know that pyspark is there.
    from spark_analytics import job

    local = environment.SMALL if environment.is_small(options.input) else environment.LARGE
    with environment.spark_session(options.master, local) as spark:
        summary = job.run(
            spark,
            options.input,
            options.out,
            overwrite=options.overwrite,
            since=options.since,
            until=options.until,
            limits=dict(options.limit),
            archive=options.archive,
            progress_to=sys.stderr,
        )
    for warning in summary.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(summary.text)
    return 0


def _watch(options: argparse.Namespace) -> int:
    from spark_analytics.alerts import Alerts
    from spark_analytics.tell import Terminal
    from spark_analytics.watch import watch

    alerts = Alerts(options.broker) if options.broker else None

    terminal = Terminal(sys.stdout)

    def told(lines: list[dict[str, Any]]) -> None:
        terminal(lines)
        if alerts is not None and lines:
            alerts.publish(lines)

    interrupted = Event()
    with environment.spark_session(options.master, environment.STREAMING) as spark:
        if not options.once:
            # pyspark's own handler talks to the JVM while somebody else does.
            signal.signal(signal.SIGINT, lambda *_: interrupted.set())
            terminal([])
        watch(spark, options.input, options.out, options.checkpoint, told, once=options.once, interrupted=interrupted)
    terminal.end()
    return INTERRUPTED if interrupted.is_set() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m spark_analytics", description="Reports about what MQTT brokers wrote of their work."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    report = commands.add_parser("report", help="write tables and an HTML page about a dataset")
    report.add_argument("--input", required=True, metavar="DIR", help="the directory the broker writes its dataset to")
    report.add_argument("--out", required=True, metavar="DIR", help="where tables and page go; new or empty")
    report.add_argument("--archive", metavar="DIR", help="the directory of [stream_archive], for the section Streams")
    report.add_argument("--overwrite", action="store_true", help="replace the report that is in --out")
    report.add_argument("--since", type=_moment, metavar="TIME", help="rows from then on: 2026-11-21T11:00 or '2 days'")
    report.add_argument("--until", type=_moment, metavar="TIME", help="rows before then")
    report.add_argument(
        "--limit",
        type=_limit,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="a limit to reckon with, such as connections=10000; may be given several times",
    )
    report.add_argument("--master", metavar="URL", help="the Spark master; default local[*]")
    report.set_defaults(run=_report)
    watch = commands.add_parser("watch", help="tell of troubles while the dataset grows, until interrupted")
    watch.add_argument("--input", required=True, metavar="DIR", help="the directory the broker writes its dataset to")
    watch.add_argument("--out", required=True, metavar="DIR", help="where findings go, as JSON Lines")
    watch.add_argument(
        "--broker", type=_target, metavar="URL", help="publish them too: mqtt://[user:password@]host:port"
    )
    watch.add_argument("--checkpoint", metavar="DIR", help="what was read and told; default OUT/checkpoint")
    watch.add_argument("--once", action="store_true", help="read what is there, and end")
    watch.add_argument("--master", metavar="URL", help="the Spark master; default local[*]")
    watch.set_defaults(run=_watch)
    return parser


def _target(text: str) -> Target:
    try:
        return Target.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _moment(text: str) -> datetime:
    try:
        return parse_moment(text, datetime.now(UTC))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _limit(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not (name and equals and number.isdecimal() and int(number) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no limit: give a name and a number, such as connections=10000")
    if name not in METRICS:
        raise argparse.ArgumentTypeError(f"{text!r} is no limit: {name!r} is none of {', '.join(METRICS)}")
    return name, int(number)


if __name__ == "__main__":
    sys.exit(main())
