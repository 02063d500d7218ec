"""Devices that are in trouble on purpose, so that what an analysis finds can be compared with what there was.

How a fleet runs is in `simulation`. Invariant: a device's client id names its trouble, and its count is exact as long
as the broker keeps its connections: nothing is under way when a device itself breaks one.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from tools.devices.bare import Bare
from tools.devices.counting import Count
from tools.devices.target import Target

FLAP_S: Final = 1.0
"""A flapping device's connection lasts about so long."""

BACK_S: Final = 0.1
"""So long it is away then."""

SPEAKING_SHARE: Final = 1 / 3
"""A silent device speaks for this share of the run: long enough to have a rhythm, short enough to be missed."""

SLOW_BYTES_PER_S: Final = 1_000

BACKLOG_S: Final = 30.0
"""A slow device may take so long to read what waits for it when the run ends."""

GREEDY_FACTOR: Final = 100

DUPLICATE_S: Final = 1.0
"""So often a device is thrown out by the other of its name."""


class Speaker(Protocol):
    """Who publishes: a `Client`, or a device on a bare socket."""

    async def publish(self, topic: str, payload: bytes, qos: int, *, timeout: float) -> object: ...  # noqa: ASYNC109


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a troubled device knows of its fleet. All of the fleet's topics are below `top`."""

    where: Target
    top: str
    interval_s: float
    publishing_s: float
    keep_alive_s: int
    stop: asyncio.Event
    publish: Callable[[int, Speaker, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Troubled:
    """One of them. Its messages are those of device `number`."""

    kind: str
    client_id: str
    number: int
    around: Surroundings
    count: Count = field(default_factory=Count)

    async def live(self) -> None:
        """Be in trouble until the run stops. Raises `MqttError` where the broker prevents it."""
        await LIVES[self.kind](self)

    @property
    def stopped(self) -> bool:
        return self.around.stop.is_set()

    async def open(self, **reading: float) -> Bare:
        bare = Bare(self.around.where, self.client_id, self.count, self.around.keep_alive_s, **reading)
        await bare.open()
        return bare

    async def publish(self, bare: Bare) -> None:
        await self.around.publish(self.number, bare, f"{self.around.top}/{self.number}/reading")

    async def pause(self, duration_s: float) -> None:
        """Wait so long, or until the run stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self.around.stop.wait()


async def flap(device: Troubled) -> None:
    """Lose the connection every second, and be back at once."""
    dice = random.Random()
    while not device.stopped:
        bare = await device.open()
        await device.publish(bare)
        await device.pause(FLAP_S * dice.uniform(0.5, 1.5))
        await bare.hang_up()
        await device.pause(BACK_S)


async def fall_silent(device: Troubled) -> None:
    """Say nothing any more after a third of the run, and keep the connection."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SPEAKING_SHARE * device.around.publishing_s
    bare = await device.open()
    while not device.stopped:
        await device.publish(bare)
        await device.pause(device.around.interval_s)
        if loop.time() >= until:
            await device.around.stop.wait()
    await bare.hang_up()


async def read_slowly(device: Troubled) -> None:
    """Subscribe to everything that the fleet publishes, and read a kilobyte a second."""
    everything = f"{device.around.top}/#"
    bare = await device.open(read_bytes_per_s=SLOW_BYTES_PER_S)
    await bare.subscribe(everything)
    while not device.stopped:
        await device.pause(device.around.keep_alive_s / 2)
        bare.ping()
    bare.hurry()
    await bare.unsubscribe(everything, BACKLOG_S)
    await bare.say_goodbye()


async def be_greedy(device: Troubled) -> None:
    """Publish a hundred times as often as the others."""
    bare = await device.open()
    while not device.stopped:
        await device.publish(bare)
        await device.pause(device.around.interval_s / GREEDY_FACTOR)
    await bare.say_goodbye()


async def duplicate(device: Troubled) -> None:
    """Be two devices with one client id, which throw each other out every second."""
    bare = await device.open()
    while not device.stopped:
        await device.publish(bare)
        await device.pause(DUPLICATE_S)
        other = await device.open()
        await bare.be_closed()
        bare = other
    await bare.say_goodbye()


LIVES: Final[Mapping[str, Callable[[Troubled], Awaitable[None]]]] = {
    "flapping": flap,
    "silent": fall_silent,
    "slow": read_slowly,
    "greedy": be_greedy,
    "duplicate": duplicate,
}
"""What each trouble is called, and what it does."""

CONNECTIONS: Final = 2
"""At most so many does one of them have at a time."""
