"""What runs around brokers: a machine of a cluster serves by one broker after another.

`mqttlite serve` hands over what makes and ends a broker (`Run`); the extension decides when (`Serving`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from mqttlite.config import Config, LameDuckOptions
from mqttlite.core.ports import Store
from mqttlite.telemetry.figures import Values


class Surroundings(Protocol):
    """What runs around a broker and outlives it, such as a machine of a cluster: its figures are shown with the
    broker's."""

    @property
    def extension(self) -> str:
        """The extension whose manifest has the figures."""
        ...

    @property
    def machine(self) -> str:
        """The name of this machine among those that serve in turn."""
        ...

    def values(self) -> Mapping[str, Values]:
        """The values of the figures, by name."""
        ...

    def sys_values(self) -> Iterable[tuple[str, str]]:
        """Further names below `$SYS/broker/`, with their texts."""
        ...

    def begin(self, on_alarm: Callable[[str, bool, str], None]) -> None:
        """The broker runs. `on_alarm` takes the name of an alarm, whether it is active, and why."""
        ...

    def settled(self) -> None:
        """The broker stops, and has committed what it keeps. It still closes connections and files."""
        ...


class RunningBroker(Protocol):
    """`mqttlite.Broker`."""

    def stop(self, within_s: float | None = None) -> Awaitable[None]: ...

    def drain(self, options: LameDuckOptions | None = None) -> Awaitable[None]: ...


class Run(Protocol):
    """Run a broker with a store, until a signal ends it or `until` is set; then let `leave` stop it."""

    def __call__(
        self,
        store: Store,
        around: Surroundings,
        until: asyncio.Event,
        leave: Callable[[RunningBroker], Awaitable[None]],
        /,
    ) -> Awaitable[None]: ...


class Serving(Protocol):
    """Call `run`, once or again and again, until `ended` is set by a signal; call `ready` when the process does its
    work without running a broker. Raises `ConfigError` and `OSError`."""

    def __call__(
        self, config: Config, run: Run, ended: asyncio.Event, ready: Callable[[], None], /
    ) -> Awaitable[None]: ...
