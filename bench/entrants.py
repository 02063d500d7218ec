"""Who is measured unless told otherwise: the builds of our broker, and the brokers of others that are installed.

Each of ours is a line in OURS, each of the others one in PEERS. All get a TLS listener beside the plain one, with
certificates of an authority that is made for the occasion. Those of the group `durable` are in `bench.durable`.
Invariant: what a broker of ours keeps is in the temporary folder of the measurement.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.brokers import LOOPBACK, Spec, free_port
from mqttlite.security import certificates

ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run our broker."""

    name: str
    compiled: bool


OURS: Final = (
    Variant("mqttlite-pure", compiled=False),
    Variant("mqttlite", compiled=True),
)


MEMORY: Final = "mqttlite-memory"
"""Ours with --no-persistence, in the best build that there is."""


def ours(home: Path, compiled: Path | None, absent: Callable[[str], None]) -> list[Spec]:
    """Our variants of this source tree and its compiled copy; one that cannot be had is told to `absent`.

    A fleet has retained messages, which ours commits to disk and the others do not: it is measured in memory too.
    """
    specs = []
    for variant in OURS:
        source = compiled if variant.compiled else ROOT
        if source is None:
            absent(f"{variant.name}: there is no compiled build")
            continue
        specs.append(serving(variant.name, home, {"PYTHONPATH": str(source)}))
    in_memory = serving(MEMORY, home, {"PYTHONPATH": str(compiled or ROOT)}, ("--no-persistence",))
    return [*specs, replace(in_memory, groups=frozenset({"fleet"}))]


def installed(home: Path) -> Spec:
    """Our broker as installed, if it is, and compiled if that is; else from this source tree."""
    found = subprocess.run([sys.executable, "-c", "import mqttlite"], cwd=home, capture_output=True, timeout=30)
    environment = {}
    if found.returncode != 0:
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    return serving("mqttlite", home, environment)


def serving(name: str, home: Path, environment: Mapping[str, str], more: Sequence[str] = ()) -> Spec:
    """`mqttlite serve` with its defaults, on two free ports and with a data directory of its own."""
    data = None if "--no-persistence" in more else home / f"{name}.data"
    certificate, key = authority(home)
    port, tls_port = free_port(), free_port()
    python = (sys.executable, "-P", "-m", "mqttlite")
    listeners = ("--port", str(port), "--tls-port", str(tls_port), "--cert", certificate, "--key", key)
    return Spec(
        name,
        LOOPBACK,
        port,
        (*python, "serve", *listeners, "--log-level", "warning", *(("--data-dir", str(data)) if data else ()), *more),
        tls_port=tls_port,
        version_command=(*python, "--version"),
        folder=home,  # an empty one: neither a source tree nor a configuration file is picked up by chance
        environment=environment,
        data=data,
    )


def mosquitto(home: Path, more: Sequence[str] = ("allow_anonymous true",)) -> Spec | None:
    """With its own defaults and the lines in `more`; on loopback, keeping nothing, and sending at once, as all others.

    By default it lets the kernel wait 40 ms for more bytes, and few people would leave that as it is.
    """
    found = find_mosquitto()
    if found is None:
        return None
    certificate, key = authority(home)
    port, tls_port = free_port(), free_port()
    lines = [f"listener {port} {LOOPBACK}", *more, "persistence false", "log_dest none"]
    lines += ["set_tcp_nodelay true"]
    lines += [f"listener {tls_port} {LOOPBACK}", f"certfile {certificate}", f"keyfile {key}"]
    if os.geteuid() == 0:
        lines.insert(0, "user root")  # it would become a user who may not read the key
    configuration = home / "mosquitto.conf"
    configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Spec(
        "mosquitto",
        LOOPBACK,
        port,
        (found, "-c", str(configuration)),
        tls_port=tls_port,
        version_command=(found, "-h"),
        folder=home,
    )


def find_mosquitto() -> str | None:
    """Debian's is where only root looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def amqtt(home: Path) -> Spec | None:
    """The other broker in Python."""
    found = shutil.which("amqtt")
    if found is None:
        return None
    certificate, key = authority(home)
    port, tls_port = free_port(), free_port()
    configuration = home / "amqtt.yaml"
    configuration.write_text(
        "listeners:\n"
        f"  default: {{type: tcp, bind: '{LOOPBACK}:{port}'}}\n"
        f"  secure: {{bind: '{LOOPBACK}:{tls_port}', ssl: true, certfile: {certificate}, keyfile: {key}}}\n"
        "plugins: {amqtt.plugins.authentication.AnonymousAuthPlugin: {allow_anonymous: true}}\n",
        encoding="utf-8",
    )
    return Spec(
        "amqtt",
        LOOPBACK,
        port,
        (found, "-c", str(configuration)),
        tls_port=tls_port,
        version_command=(found, "--version"),
        folder=home,
    )


PEERS: Final[Mapping[str, Callable[[Path], Spec | None]]] = {"mosquitto": mosquitto, "amqtt": amqtt}


def peers(home: Path) -> list[Spec]:
    """The brokers of others that are on PATH."""
    return [spec for find in PEERS.values() if (spec := find(home)) is not None]


def authority(home: Path) -> tuple[str, str]:
    """A certificate for this machine and its key."""
    folder = home / "certs"
    if not folder.exists():
        certificates.init(folder)
    return str(folder / "server.crt"), str(folder / "server.key")
