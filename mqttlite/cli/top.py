"""`mqttlite top`: a live view of a broker: rates, the slowest and greediest clients, drops by reason, the loop's lag.

The figures are those of `/status`. Invariant: without a terminal it prints plain text once, and needs no library.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from mqttlite.cli.ask import EXIT_FAILED, TIMEOUT_S, Unreachable, ask, options, place

EVERY_S: Final = 2.0
"""As often as one can read it."""

LOOK_S: Final = 1.1
"""How long to wait between the two looks of `--once`: rates are told of a second at least."""

ROWS: Final = 10

RANKINGS: Final = (
    ("bytes", "greediest", "most bytes moved"),
    ("outbox", "slowest", "most bytes that their sockets do not take"),
    ("queue", "longest queues", "most messages that wait"),
    ("drops", "most drops", "messages that they did not get"),
)

Status = dict[str, Any]


@click.command(
    epilog="Exit codes: 0; 1, the broker does not answer; 2, wrong usage; 130, interrupted.",
    context_settings={"help_option_names": ["--help"]},
)
@options
@click.option("--once", is_flag=True, help="Print the figures once, as text, and exit.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.5, 3_600),
    metavar="SECONDS",
    default=EVERY_S,
    show_default=True,
    help="How often to look.",
)
def command(url: str | None, config_path: str | None, timeout_s: float, once: bool, interval_s: float) -> None:
    """Show what a broker does and who keeps it busy, live; ends with Ctrl-C.

    Where standard output is no terminal, it prints the figures once.
    """
    where = place(url, config_path)
    try:
        if once or not sys.stdout.isatty():
            _look(where, timeout_s)
            time.sleep(LOOK_S)
            for line in lines(_look(where, timeout_s)):
                click.echo(line)
            return
        _live(where, timeout_s, interval_s)
    except Unreachable as error:
        click.echo(error, err=True)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


def _look(url: str, timeout_s: float = TIMEOUT_S) -> Status:
    """The broker's status. Raises `Unreachable`."""
    answer = ask(url, "/status", timeout_s)
    try:
        if answer.status != 200:
            raise ValueError
        found: Status = json.loads(answer.body)
    except ValueError:
        raise Unreachable(f"{url} has no status; is that the port of [metrics]?") from None
    return found


def _live(url: str, timeout_s: float, interval_s: float) -> None:
    """Show the figures until interrupted; a broker that is gone for a while is waited for."""
    try:
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        raise Unreachable("A live view needs rich: pip install 'mqttlite[top]'. --once works without.") from None
    last = _look(url, timeout_s)
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            note = []
            try:
                last = _look(url, timeout_s)
            except Unreachable as error:
                note = [Text(str(error), "bold red")]
            shown = [_styled(line) for line in lines(last)]
            live.update(Group(*[*note, *shown][: live.console.size.height]), refresh=True)
            time.sleep(interval_s)


def _styled(line: str) -> Any:
    from rich.text import Text

    heading = line[:1].isupper() or line.startswith("mqttlite")
    return Text(line, "bold" if heading else "", no_wrap=True, overflow="ellipsis")


def lines(status: Status) -> Iterator[str]:
    """The figures as text."""
    kind = "compiled" if status["compiled"] else "pure Python"
    yield f"mqttlite {status['version']} ({kind}, Python {status['python']}), up {duration(status['uptime_s'])}"
    if status["not_ready"]:
        yield f"NOT READY: {status['not_ready']}"
    clients, held, rates, totals = status["clients"], status["held"], status["rates"], status["totals"]
    yield (
        f"clients    {_count(clients['connected'])} connected, {_count(clients['blocked'])} blocked, "
        f"{_count(clients['sessions'])} sessions, {_count(clients['subscriptions'])} subscriptions"
    )
    yield (
        f"in         {_count(rates['messages_received'])} messages/s, {size(rates['bytes_received'])}/s; "
        f"in all {_count(totals['messages_received'])}, {size(totals['bytes_received'])}"
    )
    yield (
        f"out        {_count(rates['messages_sent'])} messages/s, {size(rates['bytes_sent'])}/s; "
        f"in all {_count(totals['messages_sent'])}, {size(totals['bytes_sent'])}"
    )
    oldest = held["oldest_unacknowledged_s"]
    yield (
        f"waiting    {_count(held['queued_messages'])} messages in queues ({size(held['queued_bytes'])}), "
        f"{_count(held['inflight_messages'])} unacknowledged"
        f"{f' for up to {duration(oldest)}' if oldest else ''}, {size(held['outbox_bytes'])} in outboxes"
    )
    lag = status["loop_lag_s"]
    shown = ", ".join(f"{name} {duration(lag[name])}" for name in ("p50", "p99", "max"))
    yield f"loop lag   {shown} in the last minute"
    store = status["store"]
    failing = ", FAILING NOW" if store["failing"] else ""
    yield (
        f"commits    {_count(store['commits'])}, p99 {duration(store['p99_s'])}, "
        f"{_count(store['failures'])} failed{failing}"
    )
    drops = sorted(status["drops"].items(), key=lambda each: -each[1])
    yield f"drops      {', '.join(f'{_count(messages)} {reason}' for reason, messages in drops) or 'none'}"
    latency = status["latency_s"]
    if latency:
        stages = (f"{stage} {duration(each['p50'])}/{duration(each['p99'])}" for stage, each in latency.items())
        yield f"latency    p50/p99: {', '.join(stages)}"
    for ranking, title, meaning in RANKINGS:
        ranked = status["top"][ranking]
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
        yield (
            f"  {printable(each['client_id'], 30):<30} {moved:>10} {outbox:>9} {_count(each['queued']):>10} "
            f"{_count(each['inflight']):>8} {_count(each['dropped']):>10}  {place}"
        )


def printable(text: str, width: int) -> str:
    """What a client chose as its name, so that it cannot steer the terminal."""
    safe = text if text.isprintable() else repr(text)[1:-1]
    return safe if len(safe) <= width else safe[: width - 1] + "…"


def _count(value: float) -> str:
    """With spaces between thousands."""
    return f"{value:,.0f}".replace(",", " ")


def size(count: float) -> str:
    """Bytes in a unit that leaves three digits or four."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1_024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """In a unit that one can read."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    hours, minutes = divmod(int(seconds) // 60, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min"
