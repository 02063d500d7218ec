"""tools/device: publishes what this machine measures about itself.

What is measured is in `metrics`. Invariant: a subscriber to the retained status knows whether the device is
there, however it ended: it says so itself, or its will does.
"""

import asyncio
import contextlib
import itertools
import signal
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from mqttlite.client import Client, MqttError, PublishRefused, Will
from mqttlite.security.tls import TlsConfigError
from tools.devices.metrics import Meter
from tools.devices.target import Target, own_name, target, target_options, topic_level

ROOT: Final = "hosts"

ONLINE: Final = "online"
OFFLINE: Final = "offline"

BASELINE_S: Final = 1.0
"""The first sample comes so long after the start, or after the interval if that is shorter: rates need two readings."""

REPORT_S: Final = 5.0
"""How long saying online or offline may take."""

KEEP_ALIVE_S: Final = 15
"""A machine that vanishes is offline for its subscribers after one and a half of it."""

_EPILOG = """\b
Each sample is some messages below hosts/NAME/, such as
  hosts/NAME/cpu/0      {"at":"2026-11-21T12:00:00.000Z","used_percent":12.5}
and hosts/NAME/status is retained: online, or offline when the device ended or its connection was lost.
\b
Exit codes:
  0  all samples were published, or a signal ended the device
  1  the broker refused a message
  2  an option or a certificate file is wrong
  3  no connection, or the broker ended it for good
"""


class Device:
    """A device that samples until `end` is called or it has taken its number of samples."""

    def __init__(self, where: Target, name: str, interval_s: float, count: int | None, qos: int) -> None:
        self.messages = 0
        self._where: Final = where
        self._top: Final = f"{ROOT}/{name}"
        self._interval_s: Final = interval_s
        self._count: Final = count
        self._qos: Final = qos
        self._online: Final = asyncio.Event()
        self._stop: Final = asyncio.Event()
        self._reports: Final[set[asyncio.Task[None]]] = set()
        self._client: Final = Client(
            where.host,
            where.port,
            client_id=f"device-{name}",
            keep_alive=KEEP_ALIVE_S,
            tls=where.tls,
            will=Will(f"{self._top}/status", OFFLINE, qos=1, retain=True),
            on_connection_lost=self._on_connection_lost,
            on_reconnected=self._on_reconnected,
        )

    async def run(self) -> None:
        """Connect, sample, say goodbye. Raises `MqttError` when there is no connection, or none any more for good."""
        connecting = asyncio.create_task(self._client.__aenter__())
        if not await self._first_of(connecting):
            return
        try:
            self._online.set()
            await self._report(ONLINE)
            _say(f"Connected to {self._where}; publishing to {self._top}/#.")
            await self._first_of(asyncio.create_task(self._sample()), asyncio.create_task(self._watch()))
            if self._client.connected:
                await self._report(OFFLINE)
        finally:
            await self._client.disconnect()

    def end(self) -> None:
        """Take no more samples."""
        self._stop.set()

    async def _first_of(self, *tasks: asyncio.Task[Any]) -> bool:
        """Wait for one of the tasks, or for the end; cancel the others, and raise what was raised.

        Whether it was one of the tasks.
        """
        stopping = asyncio.create_task(self._stop.wait())
        done, waiting = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for task in done:
            task.result()
        return stopping not in done

    async def _sample(self) -> None:
        """Measure and publish in time until it is enough."""
        meter = Meter(time.monotonic)
        loop = asyncio.get_running_loop()
        due = loop.time() + min(self._interval_s, BASELINE_S)
        for number in itertools.count(1):
            await asyncio.sleep(due - loop.time())
            await self._online.wait()  # what is measured without a connection would be old when it arrives
            at = datetime.now(UTC)
            # What is in flight when the connection breaks is sent again by the client, so it is not given up in time.
            answers = [
                await self._client.submit(f"{self._top}/{reading.topic}", reading.payload(at), self._qos)
                for reading in meter.read()
            ]
            for answer in await asyncio.gather(*answers, return_exceptions=True):
                if isinstance(answer, BaseException):
                    raise answer
            self.messages += len(answers)
            if number == self._count:
                return
            due = max(due + self._interval_s, loop.time())  # what was missed is not made up for

    async def _watch(self) -> None:
        """Raise when the connection is lost for good."""
        async for _message in self._client.messages:
            pass  # we subscribe to nothing

    def _on_connection_lost(self, error: MqttError, retry_in_s: float) -> None:
        self._online.clear()
        _say(f"{error} Trying again in {retry_in_s:.1f} s.")

    def _on_reconnected(self, session_present: bool) -> None:
        self._online.set()
        _say(f"Connected to {self._where} again.")
        report = asyncio.get_running_loop().create_task(self._report(ONLINE))  # the will has said otherwise
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report(self, status: str) -> None:
        """Retain our status. A failure ends nothing: the will still speaks."""
        try:
            await self._client.publish(f"{self._top}/status", status, 1, retain=True, timeout=REPORT_S)
        except MqttError as error:
            _say(str(error))


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["--help"], "max_content_width": 100})
@target_options
@click.option("--name", help="The device's name in topics.  [default: this machine's name]")
@click.option("--interval", type=click.FloatRange(0.1, 86_400), default=5.0, show_default=True, help="Seconds.")
@click.option("--count", type=click.IntRange(1), help="So many samples, then end.  [default: until a signal]")
@click.option("--once", is_flag=True, help="The same as --count 1.")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True)
def command(
    host: str,
    port: int | None,
    plain: bool,
    cafile: str | None,
    cert: str | None,
    key: str | None,
    name: str | None,
    interval: float,
    count: int | None,
    once: bool,
    qos: int,
) -> None:
    """Publish what this machine measures about itself: CPUs, load, memory, disks, network, sensors, uptime."""
    if once and count is not None:
        raise click.UsageError("--once and --count are two ways to say the same; use one.")
    try:
        where = target(host, port, plain, cafile, cert, key)
        device = Device(where, topic_level(name or own_name()), interval, 1 if once else count, qos)
    except (TlsConfigError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    sys.exit(asyncio.run(_main(device)))


async def _main(device: Device) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C arrives as KeyboardInterrupt
            loop.add_signal_handler(number, device.end)
    try:
        await device.run()
    except MqttError as error:
        _say(str(error))
        return 1 if isinstance(error, PublishRefused) else 3
    _say(f"Published {device.messages} messages.")
    return 0


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)


if __name__ == "__main__":
    command(prog_name="tools/device")
