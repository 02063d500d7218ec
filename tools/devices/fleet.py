"""tools/fleet: a thousand simulated devices, a subscriber for all of them, and a summary of what arrived and how late.

The run itself is in `simulation`; here are the command, its progress and its report. Invariant: the report goes to
stdout, everything else to stderr.
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import click

from mqttlite.client import MqttError
from mqttlite.security.tls import TlsConfigError
from tools.devices.simulation import SMALLEST_BYTES, Fleet, Plan
from tools.devices.target import Target, target, target_options
from tools.devices.troubles import CONNECTIONS, LIVES

SPARE_FILES: Final = 64
"""Open files that are no connection: the interpreter's, the loop's, those of name look-ups."""

LINE_EVERY_S: Final = 5.0
BAR_EVERY_S: Final = 0.2

_TROUBLES = "\n".join(f"  {kind:<10} {' '.join(str(life.__doc__).split())}" for kind, life in LIVES.items())

_EPILOG = f"""\b
Devices with a --trouble come besides the others, and their client ids name it:
{_TROUBLES}
\b
Latencies are of one clock: of the publish until its acknowledgement, and until the subscriber has the message.
\b
Exit codes:
  0  everything arrived
  1  something was lost or not acknowledged, at QoS 2 came twice, or a device could not connect
  2  an option or a certificate file is wrong
  3  the subscriber could not connect, or was sent away
"""


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["--help"], "max_content_width": 100})
@target_options
@click.option("--devices", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--subscribers", type=click.IntRange(1, 100), default=1, show_default=True, help="Each receives all.")
@click.option("--interval", type=click.FloatRange(0.001), default=5.0, show_default=True, help="Seconds per device.")
@click.option("--jitter", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="Share of the interval.")
@click.option("--duration", type=click.FloatRange(0.1), help="Seconds of publishing.  [default: 30]")
@click.option("--messages", type=click.IntRange(1), help="Messages of each device, instead of --duration.")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True)
@click.option("--size", type=click.IntRange(SMALLEST_BYTES), default=128, show_default=True, help="Payload bytes.")
@click.option("--connect-rate", type=click.FloatRange(0.1), default=200.0, show_default=True, help="Per second.")
@click.option("--drain", type=click.FloatRange(0), default=10.0, show_default=True, help="Seconds for what is late.")
@click.option("--trouble", "troubles", multiple=True, metavar="KIND=COUNT", help="So many devices with a trouble.")
@click.option("--no-resume", is_flag=True, help="A full TLS handshake for each device.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
def command(
    host: str,
    port: int | None,
    plain: bool,
    cafile: str | None,
    cert: str | None,
    key: str | None,
    devices: int,
    subscribers: int,
    interval: float,
    jitter: float,
    duration: float | None,
    messages: int | None,
    qos: int,
    size: int,
    connect_rate: float,
    drain: float,
    troubles: tuple[str, ...],
    no_resume: bool,
    as_json: bool,
) -> None:
    """Simulate a fleet: devices that publish, and a subscriber that receives everything through the broker."""
    if duration is not None and messages is not None:
        raise click.UsageError("--duration and --messages both say how long; use one.")
    troubled = parse_troubles(troubles)
    room = open_files() - SPARE_FILES - subscribers - CONNECTIONS * sum(troubled.values())
    if devices > room:
        raise click.UsageError(f"--devices {devices}: this system lets a process have {room} ('ulimit -Hn').")
    try:
        where = target(host, port, plain, cafile, cert, key)
    except TlsConfigError as error:
        raise click.UsageError(str(error)) from None
    plan = Plan(
        devices=devices,
        subscribers=subscribers,
        interval_s=interval,
        jitter=jitter,
        duration_s=30.0 if duration is None else duration,
        messages=messages,
        qos=qos,
        size_bytes=size,
        connect_rate=connect_rate,
        drain_s=drain,
        resume=not no_resume,
        troubles=troubled,
    )
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        sys.exit(runner.run(_main(where, plan, as_json)))


async def _main(where: Target, plan: Plan, as_json: bool) -> int:
    fleet = Fleet(where, plan)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C arrives as KeyboardInterrupt
            loop.add_signal_handler(number, fleet.end)
    watching = asyncio.create_task(_watch(fleet))
    try:
        await fleet.run()
    except MqttError as error:
        click.echo(str(error), err=True)
        return 3
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    if fleet.first_error is not None:
        click.echo(f"The first error: {fleet.first_error}", err=True)
    found = summary(fleet)
    click.echo(json.dumps(found) if as_json else report(found))
    return 0 if fleet.complete else 1


def parse_troubles(texts: tuple[str, ...]) -> dict[str, int]:
    """How many devices have which trouble. Raises `click.UsageError`."""
    found: dict[str, int] = {}
    for text in texts:
        kind, _, count = text.partition("=")
        if kind not in LIVES:
            raise click.UsageError(f"--trouble {text}: the troubles are {', '.join(LIVES)}.")
        if not (count.isascii() and count.isdecimal() and int(count)):
            raise click.UsageError(f"--trouble {text}: say how many devices, such as {kind}=2.")
        if kind in found:
            raise click.UsageError(f"--trouble {text}: {kind} is there twice; use one.")
        found[kind] = int(count)
    return found


def open_files() -> int:
    """How many files this process may have open, after asking for as many as it may ask for."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return sys.maxsize
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS says no limit, and takes less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def summary(fleet: Fleet) -> dict[str, Any]:
    """A run in numbers."""
    plan = fleet.plan
    return {
        "broker": str(fleet.where),
        "devices": plan.devices,
        "connected": fleet.connected,
        "not_connected": fleet.not_connected,
        "ended": fleet.ended,
        "subscribers": plan.subscribers,
        "qos": plan.qos,
        "size_bytes": plan.size_bytes,
        "interval_s": plan.interval_s,
        "connect_s": round(fleet.connect_s, 2),
        "publish_s": round(fleet.publish_s, 2),
        "tls_handshakes": fleet.tickets.handshakes if fleet.tickets else None,
        "tls_resumed": fleet.tickets.resumed if fleet.tickets else None,
        "reconnects": fleet.reconnects,
        "sent": fleet.total_sent,
        "acked": fleet.acked,
        "unacknowledged": fleet.unacknowledged,
        "received": fleet.received,
        "lost": fleet.lost,
        "duplicates": fleet.duplicates,
        "connect_ms": fleet.connecting.summary_ms(),
        "ack_ms": fleet.acknowledging.summary_ms(),
        "end_to_end_ms": fleet.arriving.summary_ms(),
        "clients": asdict(fleet.count),
        "troubles": {
            kind: {device.client_id: asdict(device.count) for device in fleet.troubled if device.kind == kind}
            for kind in plan.troubles
        },
        "complete": fleet.complete,
    }


def report(found: dict[str, Any]) -> str:
    """The summary for people."""
    resumed = "" if found["tls_resumed"] is None else f", {found['tls_resumed']} by resumed TLS sessions"
    rate = found["sent"] / max(found["publish_s"], 1e-9)
    acked = "" if found["qos"] == 0 else f", {found['acked']} acknowledged"
    missing = f", {found['not_connected']} could not connect" if found["not_connected"] else ""
    missing += f", {found['ended']} were sent away" if found["ended"] else ""
    lines = [
        f"{found['connected']} of {found['devices']} devices connected to {found['broker']} in {found['connect_s']} s"
        f"{resumed}{missing}; {found['reconnects']} reconnects",
        f"{found['sent']} messages of {found['size_bytes']} bytes sent at QoS {found['qos']} in {found['publish_s']} s "
        f"({rate:.0f}/s){acked}",
        f"{found['received']} received by {found['subscribers']} subscriber{'s' if found['subscribers'] > 1 else ''}, "
        f"{found['lost']} lost, {found['duplicates']} duplicates, {found['unacknowledged']} unacknowledged",
        f"{'':<22}{'p50':>10}{'p95':>10}{'p99':>10}{'max':>10}  ms",
    ]
    for name, title in (("connect_ms", "connect"), ("ack_ms", "acknowledgement"), ("end_to_end_ms", "end to end")):
        if found[name] is not None:
            lines.append(f"{title:<22}" + "".join(f"{value:>10.2f}" for value in found[name].values()))
    for kind, devices in found["troubles"].items():
        lines.append(f"{kind:<22}{', '.join(devices)}")
    clients = found["clients"]
    lines.append(
        f"All clients: {clients['sessions']} sessions, {clients['messages_sent']} messages sent "
        f"({clients['bytes_sent']} bytes of MQTT), {clients['messages_received']} received "
        f"({clients['bytes_received']} bytes)"
    )
    return "\n".join(lines)


# progress


async def _watch(fleet: Fleet) -> None:
    """Show how far the fleet is until cancelled: a bar on a terminal, otherwise a line now and then."""
    if not sys.stderr.isatty():
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            click.echo(progress(fleet), err=True)
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task(fleet.phase, total=1.0, words="")
        for share in _shares(fleet):
            bar.update(task, description=fleet.phase, completed=share, words=progress(fleet).partition(": ")[2])
            bar.refresh()
            await asyncio.sleep(BAR_EVERY_S)


def _shares(fleet: Fleet) -> Iterator[float]:
    """How much of the phase is over, again and again."""
    loop = asyncio.get_running_loop()
    plan = fleet.plan
    phase, began = fleet.phase, loop.time()
    while True:
        if fleet.phase != phase:
            phase, began = fleet.phase, loop.time()
        if phase == "connecting":
            yield (fleet.connected + fleet.not_connected) / plan.devices
        elif phase == "publishing" and plan.messages is not None:
            yield fleet.total_sent / (plan.messages * plan.devices)
        elif phase == "publishing":
            yield (loop.time() - began) / plan.publishing_s
        else:
            yield 1.0


def progress(fleet: Fleet) -> str:
    """One line about now."""
    if fleet.phase == "connecting":
        return f"connecting: {fleet.connected} of {fleet.plan.devices} devices connected"
    return f"{fleet.phase}: {fleet.total_sent} sent, {fleet.acked} acknowledged, {fleet.received} received"


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


if __name__ == "__main__":
    command(prog_name="tools/fleet")
