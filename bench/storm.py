"""Many clients that come at once over TLS, with passwords, beside some that are at work: who gets in, and who notices.

The first time every password is unknown to the broker; the second time the same clients come again, as after a network
that failed. A run that breaks a bound below ends with exit code 1.
"""

import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import brokers, build, entrants, native, report
from mqttlite.security.hashes import MosquittoHash, new_argon2id, new_scrypt
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import Entry, format_entry, new_salt

ALL_IN_S: Final = 60.0
SLOWER: Final = 3.0
"""How many times their quiet p99 the clients at work may see."""

RETRY_S: Final = 1.0
PASSWORD: Final = "correct horse battery staple"


def _new_mosquitto() -> MosquittoHash:
    """As `mosquitto_passwd` 2.1 makes it by default: a thousand rounds of PBKDF2."""
    salt, rounds = os.urandom(12), 1_000
    return MosquittoHash(rounds, salt, hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, rounds))


ALGORITHMS: Final[Mapping[str, Callable[[], Entry]]] = {
    "scram-sha-256": lambda: keys_of(PASSWORD, new_salt(), 15_000),
    "argon2id": lambda: new_argon2id(PASSWORD),
    "scrypt": lambda: new_scrypt(PASSWORD),
    "mosquitto": _new_mosquitto,
}


@dataclass(frozen=True, slots=True)
class Storm:
    """What is put on the broker."""

    clients: int = 10_000
    users: int = 10_000
    at_work: int = 200
    rate: float = 1_000.0
    """Messages a second of those at work, all together."""
    algorithm: str = "scram-sha-256"
    compiled: bool = True
    mosquitto: bool = False
    """Put it on Mosquitto in place of our broker, with the hashes of that name."""
    quiet_s: float = 8.0
    rest_s: float = 3.0


def run(storm: Storm) -> int:
    """Measure once and print it; 1 if a bound is broken."""
    loadgen = str(build.loadgen())
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        broker = brokers.Broker(_mosquitto(storm, home) if storm.mosquitto else _broker(storm, home), home)
        broker.ready()
        try:
            working, storms = _storms(storm, loadgen, broker)
        finally:
            broker.stop()
    return _tell(storm, working, storms)


def _broker(storm: Storm, home: Path) -> brokers.Spec:
    source = native.tree() if storm.compiled else native.ROOT
    passwords = _password_file(storm, home, format_entry(ALGORITHMS[storm.algorithm]()))
    return entrants.serving("mqttlite", home, {"PYTHONPATH": str(source)}, ("--password-file", str(passwords)))


def _mosquitto(storm: Storm, home: Path) -> brokers.Spec:
    passwords = _password_file(storm, home, format_entry(ALGORITHMS["mosquitto"]()))
    found = entrants.mosquitto(home, ("allow_anonymous false", f"password_file {passwords}"))
    if found is None:
        raise brokers.BrokerError("mosquitto is not installed")
    return found


def _password_file(storm: Storm, home: Path, entry: str) -> Path:
    """All users have one entry, which no broker notices."""
    passwords = home / "passwords"
    passwords.write_text("".join(f"user{number}:{entry}\n" for number in range(storm.users)), encoding="utf-8")
    passwords.chmod(0o600)
    return passwords


def _storms(storm: Storm, loadgen: str, broker: brokers.Broker) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The figures of those at work, with parts before, in and between the storms; and those of the storms."""
    where = ("--host", broker.spec.host, "--port", str(broker.spec.tls_port), "--tls", "--password", PASSWORD)
    about = ("--users", str(storm.users), "--pid", ",".join(map(str, broker.pids())))
    load = ("--mode", "fanin", "--pubs", str(storm.at_work - 1), "--qos", "1", "--rate", f"{storm.rate:g}")
    most_s = storm.quiet_s + 2 * (2 * ALL_IN_S + 3 * storm.rest_s)
    working = subprocess.Popen(
        [loadgen, *where, *about, *load, "--size", "64", "--secs", f"{most_s:g}"], stdout=subprocess.PIPE, text=True
    )
    storms = []
    try:
        time.sleep(2 + storm.quiet_s)  # the passwords of those at work are hashed first
        for _ in range(2):
            storms.append(_storm(storm, [loadgen, *where, *about], lambda: working.send_signal(signal.SIGUSR1)))
        working.send_signal(signal.SIGUSR2)
        told, _ = working.communicate(timeout=30)
    finally:
        working.kill()
        working.wait()
    return _figures(told), storms


def _storm(storm: Storm, command: list[str], end_part: Callable[[], None]) -> dict[str, Any]:
    """All clients connect at once, and come again when they are refused; later they leave at once."""
    number = str(storm.clients)
    load = ("--mode", "connect", "--conns", number, "--concurrency", number, "--retry", f"{RETRY_S:g}")
    with subprocess.Popen(
        [*command, *load, "--secs", f"{2 * ALL_IN_S:g}", "--stay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        end_part()
        told = clients.stdout.readline()
        end_part()
        time.sleep(storm.rest_s)
        end_part()
        clients.stdin.close()
        clients.wait(60)
        time.sleep(storm.rest_s)
        end_part()
        time.sleep(storm.rest_s)
    return _figures(told)


def _figures(told: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(told)
    if "error" in figures:
        raise brokers.BrokerError(f"the load generator: {figures['error']}")
    return figures


def _tell(storm: Storm, working: dict[str, Any], storms: list[dict[str, Any]]) -> int:
    """Print the tables; 1 if a bound is broken."""
    parts = working["parts"]
    quiet = parts[0]["p99_us"]
    rows, broken = [["nobody", *[""] * 4, *_latencies(parts[0], quiet)]], []
    for name, coming, leaving, figures in zip(("cold", "warm"), parts[1::4], parts[3::4], storms, strict=False):
        rows.append(
            [
                f"they come, passwords {name}",
                f"{figures['conns']} of {storm.clients}",
                f"{figures['phase_s']:.1f} s",
                str(figures["retries"]),
                f"{figures['broker_cpu_s']:.1f} s, {figures['loadgen_cpu_s']:.1f} s",
                *_latencies(coming, quiet),
            ]
        )
        rows.append(["they leave", *[""] * 4, *_latencies(leaving, quiet)])
        if figures["failed"] or figures["phase_s"] > ALL_IN_S:
            broken.append(f"{name}: not all in within {ALL_IN_S:g} s")
        if coming["p99_us"] > SLOWER * quiet:
            broken.append(f"{name}: the p99 of those at work is {coming['p99_us'] / quiet:.1f} times what it was")
    if working["disconnects"] or working["lost"]:
        broken.append(f"at work: {working['disconnects']} connections and {working['lost']} messages were lost")
    title = ["", "in", "after", "came again", "CPU: broker, clients", "p50", "p99", "max", "p99, times"]
    print(report.markdown(title, rows))
    print("".join(f"\nbroken: {each}" for each in broken) or "\nall bounds are kept")
    return 1 if broken else 0


def _latencies(part: dict[str, float], quiet: float) -> list[str]:
    """Of those at work."""
    milliseconds = [f"{part[key] / 1e3:.2f} ms" for key in ("p50_us", "p99_us", "max_us")]
    return [*milliseconds, f"{part['p99_us'] / quiet:.1f}"]
