"""`mqttlite top`: a live view of a broker: who is slow, who is greedy, what is dropped, where the queue is.

The figures are those of `/status`; the live view is in `top_live`, its screen in `top_screen`. Invariant: without a
terminal it prints plain text once.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from mqttlite.cli.ask import EXIT_FAILED, ask_status, place_options
from mqttlite.cli.asker import Place, Unreachable, note_silent
from mqttlite.cli.top_words import count, duration, most_of, overload_words, printable, size

EVERY_S: Final = 2.0
"""As often as one can read it."""

LOOK_S: Final = 1.1
"""How long to wait between the two looks of `--once`: rates are told of a second at least."""

ROWS: Final = 10

RANKINGS: Final = (
    ("bytes", "greediest", "most bytes moved"),
    ("outbox", "slowest", "most bytes that their sockets do not take"),
    ("queue", "longest queues", "most messages that wait"),
    ("inflight", "most unacknowledged", "messages that they were sent and have not acknowledged"),
    ("drops", "most drops", "messages that they did not get"),
)

Status = dict[str, Any]


@click.command(
    epilog="Exit codes: 0, also for q; 1, the broker does not answer; 2, wrong usage; 130, interrupted.",
)
@place_options
@click.option("--once", is_flag=True, help="Print the figures once, as text, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print them once as JSON: what /status answers.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.5, 3_600),
    metavar="SECONDS",
    default=EVERY_S,
    show_default=True,
    help="How often to look.",
)
def command(where: Place, timeout_s: float, once: bool, as_json: bool, interval_s: float) -> None:
    """Show what a broker does and who keeps it busy, live; the last line of the screen names the keys. Of several nodes
    it shows the sums, or with --node one of them.

    Where standard output is no terminal, it prints the figures once.
    """
    try:
        if once or as_json or not sys.stdout.isatty():
            ask_status(where, timeout_s)
            time.sleep(LOOK_S)
            status = ask_status(where, timeout_s)
            note_silent(status, set())
            for line in [json.dumps(status)] if as_json else lines(status):
                click.echo(line)
            return
        ask_status(where, timeout_s)
        _live(where, timeout_s, interval_s)
    except Unreachable as error:
        click.echo(error, err=True)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


def _live(where: Place, timeout_s: float, interval_s: float) -> None:
    try:
        from mqttlite.cli.top_live import run  # here, for Windows has no curses
    except ImportError:
        raise Unreachable("This Python has no curses, which a live view needs. --once works without.") from None
    run(where, timeout_s, interval_s)


def lines(status: Status) -> Iterator[str]:
    """The figures as text."""
    kind = "compiled" if status["compiled"] else "pure Python"
    yield f"mqttlite {status['version']} ({kind}, Python {status['python']}), up {duration(status['uptime_s'])}"
    if "nodes" in status:
        yield f"nodes      {', '.join(status['nodes'])}"
    if status["not_ready"]:
        yield f"NOT READY: {status['not_ready']}"
    clients, held, rates, totals = status["clients"], status["held"], status["rates"], status["totals"]
    yield (
        f"clients    {count(clients['connected'])} connected, {count(clients['blocked'])} blocked, "
        f"{count(clients['sessions'])} sessions, {count(clients['subscriptions'])} subscriptions"
    )
    yield (
        f"in         {count(rates['messages_received'])} messages/s, {size(rates['bytes_received'])}/s; "
        f"in all {count(totals['messages_received'])}, {size(totals['bytes_received'])}"
    )
    yield (
        f"out        {count(rates['messages_sent'])} messages/s, {size(rates['bytes_sent'])}/s; "
        f"in all {count(totals['messages_sent'])}, {size(totals['bytes_sent'])}"
    )
    oldest = held["oldest_unacknowledged_s"]
    yield (
        f"waiting    {count(held['queued_messages'])} messages in queues ({size(held['queued_bytes'])}), "
        f"{count(held['inflight_messages'])} unacknowledged"
        f"{f' for up to {duration(oldest)}' if oldest else ''}{most_of(status)}, "
        f"{size(held['outbox_bytes'])} in outboxes"
    )
    yield f"memory     {size(held['memory_bytes'])} held for clients, of {size(held['memory_limit_bytes'])}"
    overload = status["overload"]
    yield f"overload   {overload_words(overload)}"
    lag = status["loop_lag_s"]
    shown = ", ".join(f"{name} {duration(lag[name])}" for name in ("p50", "p99", "max"))
    yield f"loop lag   {shown} in the last minute"
    store = status["store"]
    failing = ", FAILING NOW" if store["failing"] else ""
    yield (
        f"commits    {count(store['commits'])}, p99 {duration(store['p99_s'])}, "
        f"{count(store['failures'])} failed{failing}"
    )
    drops = sorted(status["drops"].items(), key=lambda each: -each[1])
    yield f"drops      {', '.join(f'{count(messages)} {reason}' for reason, messages in drops) or 'none'}"
    latency = status["latency_s"]
    if latency:
        stages = (f"{stage} {duration(each['p50'])}/{duration(each['p99'])}" for stage, each in latency.items())
        yield f"latency    p50/p99: {', '.join(stages)}"
    for ranking, title, meaning in RANKINGS:
        ranked = status["top"].get(ranking, ())
        if ranked:
            yield ""
            yield f"{title.capitalize()}: {meaning}"
            yield from _table(ranked[:ROWS], status["interval_s"])


def _table(ranked: list[Status], interval_s: float) -> Iterator[str]:
    yield "  client                            bytes/s    outbox     queued  unacked    dropped  from"
    for each in ranked:
        moved = size(each["bytes"] / interval_s) if each["connection_id"] is not None else "-"
        outbox = size(each["outbox_bytes"]) + ("!" if each["blocked"] else "")
        place = f"{each['peer']} on {each['listener']}" if each["peer"] else "away"
        place += f" at {each['node']}" if "node" in each else ""
        yield (
            f"  {printable(each['client_id'], 30):<30} {moved:>10} {outbox:>9} {count(each['queued']):>10} "
            f"{count(each['inflight']):>8} {count(each['dropped']):>10}  {place}"
        )
