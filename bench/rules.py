"""What rules and quotas cost: the same loads on two brokers, of which one has neither.

The other has an ACL file of 10,000 rules, a thousand users with a password each, and every quota, so high that nobody
reaches it. Invariant: whatever the loads do is allowed, so both brokers deliver the same.
"""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import brokers, build, cases, entrants, measure, native, report
from mqttlite.config.quotas import QuotaOptions
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import format_entry, new_salt

USERS: Final = 1_000
RULES_OF_A_USER: Final = 10
LOADS: Final = ("stream", "devices", "fanout", "fleet")
"""The first levels of topics that every user may use: of the cases of `stream`, `fanin`, `fanout` and `fleet`."""

USUAL: Final = (
    "stream-q0-16B-x1",
    "stream-q0-256B-x50",
    "stream-q1-16B-x50",
    "mix-topics",
    "fanout-100",
    "fanin-500-20k",
)
PASSWORD: Final = "correct horse battery staple"
WITHOUT: Final = "without"
WITH: Final = "with"
SLOWER: Final = 0.10
"""By how much of the deliveries a second rules and quotas may lower them."""


def run(chosen: Sequence[cases.Case], *, rounds: int, quick: bool, compiled: bool) -> int:
    """Measure in pairs and print a table of medians; 1 if a load lost more than `SLOWER`, or messages."""
    source = native.tree() if compiled else native.ROOT
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        both = [brokers.Broker(spec, home) for spec in specs(home, source)]
        extra = ("--users", str(USERS), "--password", PASSWORD)
        plan = measure.Plan(
            build.loadgen(), chosen, rounds=1 if quick else rounds, quick=quick, extra=extra, attempts=1
        )
        try:
            found = list(measure.measure(plan, both))
        finally:
            for broker in both:
                broker.stop()
    return tell(chosen, found)


def specs(home: Path, source: Path) -> list[brokers.Spec]:
    """A broker with its defaults, and one with rules, users and quotas."""
    entry = format_entry(keys_of(PASSWORD, new_salt(), 4_096))
    passwords = home / "passwords"
    passwords.write_text("".join(f"user{number}:{entry}\n" for number in range(USERS)), encoding="utf-8")
    passwords.chmod(0o600)
    acl = home / "acl.conf"
    acl.write_text("".join(map(_section, range(USERS))), encoding="utf-8")
    rates = [name for name in QuotaOptions.__struct_fields__ if name.endswith("_per_s")]
    amounts = [name for name in QuotaOptions.__struct_fields__ if name.endswith(("_subscriptions", "_queued_bytes"))]
    configuration = home / "rules.toml"
    lines = [f'acl_file = "{acl}"', f'password_file = "{passwords}"', "[quotas]"]
    lines += [f"{name} = 1e12" for name in rates] + [f"{name} = 1_000_000_000_000" for name in amounts]
    configuration.write_text("\n".join(lines), encoding="utf-8")
    environment = {"PYTHONPATH": str(source)}
    return [
        entrants.serving(WITHOUT, home, environment),
        entrants.serving(WITH, home, environment, ("--config", str(configuration))),
    ]


def _section(number: int) -> str:
    """The rules of one user: those for the loads, one that denies, and others of its own."""
    rules = [f"topic readwrite {load}/#" for load in LOADS] + [f"topic deny plant/{number}/secret/#"]
    rules += [f"topic read plant/{number}/line-{line}/#" for line in range(RULES_OF_A_USER - len(rules))]
    return "\n".join([f"user user{number}", *rules, ""])


def tell(chosen: Sequence[cases.Case], found: Sequence[measure.Result]) -> int:
    """Print the medians of the pairs; 1 if a bound is broken."""
    rows, broken = [], []
    for case in chosen:
        mine = [result for result in found if result.case == case.name]
        if errors := {f"{result.broker}: {result.error}" for result in mine if result.error is not None}:
            broken += [f"{case.name}: {error}" for error in sorted(errors)]
            continue
        without, with_rules = ([each.figures for each in mine if each.broker == name] for name in (WITHOUT, WITH))
        rates = [[each["recv_per_s"] for each in figures] for figures in (without, with_rules)]
        costs = [
            [1e6 * each["broker_cpu_s"] / each["received"] for each in figures] for figures in (without, with_rules)
        ]
        rows.append([case.title, *_compared(rates), *_compared(costs)])
        slower = 1 - _times(rates)
        if slower > SLOWER:
            broken.append(f"{case.name}: {slower:.0%} fewer deliveries a second")
        if lost := sum(each["lost"] for each in with_rules):
            broken.append(f"{case.name}: {lost:.0f} messages were lost")
    titles = ["", "deliveries/s without", "with", "times", "CPU µs of each without", "with", "times"]
    print(report.markdown(titles, rows))
    print("".join(f"\nbroken: {each}" for each in broken) or "\nall bounds are kept")
    return 1 if broken else 0


def _compared(pairs: Sequence[Sequence[float]]) -> list[str]:
    return [*(report.short(statistics.median(figures)) for figures in pairs), f"{_times(pairs):.2f}"]


def _times(pairs: Sequence[Sequence[float]]) -> float:
    """The median, over the rounds, of what it was with rules for each one without."""
    without, with_rules = pairs
    return statistics.median([mine / before for before, mine in zip(without, with_rules, strict=True)])
