"""`Machines`: what each machine of a cluster says of itself, and what this one says.

Invariant: a machine that has said nothing for `SILENT_S` counts as gone, whatever it said last.
"""

import asyncio
import contextlib
import logging
import time
from typing import Final

import msgspec

from mqttlite.build import VERSION
from mqttlite.engine.port import Engine, EngineError, Entry
from mqttlite.extensions.cluster import keys, status

STATUS_S: Final = 2.0
"""The interval in which a machine says how far it is, if that has changed."""

HURRY_S: Final = 0.1
"""The same, while a machine that is to hand over waits for it."""

ALIVE_S: Final = 10.0
"""The interval in which it says so if nothing has changed."""

SILENT_S: Final = 3 * ALIVE_S
"""A machine that said nothing for so long counts as gone, until it says something."""

_log = logging.getLogger("mqttlite.cluster")


class Machines:
    """Those that the engine knows. `name` and `run` are of this one, which clients find at `addresses`."""

    def __init__(self, engine: Engine, name: str, run: str, addresses: tuple[str, ...]) -> None:
        self._engine: Final = engine
        self._name: Final = name
        self._run: Final = run
        self._addresses: Final = addresses
        self._loop: Final = asyncio.get_running_loop()
        self._build: Final = VERSION
        self.said: Final[dict[str, status.NodeStatus]] = {}
        """What each machine said last, by its name. See `roles`."""
        self._heard_at: Final[dict[str, float]] = {}
        self._told: tuple[object, ...] = ()
        self._told_at = 0.0
        self._wake: Final = asyncio.Event()
        self._hurries_until = 0.0

    def see(self, entry: Entry) -> None:
        """A machine has said something, or its key was removed."""
        found = status.decode_node(entry.value)
        if found is None:
            self.said.pop(entry.key.removeprefix(keys.NODES), None)
            return
        self.said[found.node] = found
        self._heard_at[found.node] = self._loop.time()
        if found.node == self._name and found.run != self._run and self._told:
            _log.error("two machines have the name %s: set cluster.node to another on one of them", self._name)

    def roles(self) -> dict[str, status.Role]:
        """What each machine does, by its name."""
        now = self._loop.time()
        return {
            name: each.role if now - self._heard_at[name] < SILENT_S else "silent" for name, each in self.said.items()
        }

    def states(self) -> tuple[status.NodeStatus, ...]:
        """What each machine said last, with the role of now, by name."""
        roles = self.roles()
        return tuple(msgspec.structs.replace(self.said[name], role=roles[name]) for name in sorted(roles))

    def heard_ago(self, name: str) -> float:
        """How long ago a machine said something, in seconds."""
        return self._loop.time() - self._heard_at[name]

    def followers(self) -> list[str]:
        """The other machines that could take over."""
        return [name for name, role in self.roles().items() if role == "follows" and name != self._name]

    def problems(self) -> list[str]:
        """Why machines that follow could not serve, with their names."""
        return [
            f"the machine {name} could not serve: {self.said[name].problem}"
            for name, role in sorted(self.roles().items())
            if role == "cannot serve"
        ]

    def addresses_of(self, name: str) -> tuple[str, ...]:
        """Where clients find a machine; empty if that is not known."""
        return self.said[name].addresses if name in self.said else ()

    # ------------------------------------------------------------------ what this one says

    def wake(self) -> None:
        """What this machine is to say has changed: let it be said at once."""
        self._wake.set()

    def hurry(self, for_s: float) -> None:
        """Another machine waits to hear how far this one is: let it be said often for a while."""
        self._hurries_until = self._loop.time() + for_s
        self._wake.set()

    async def next_time(self) -> None:
        """Wait until this machine is to say something."""
        interval_s = HURRY_S if self._loop.time() < self._hurries_until else STATUS_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s):  # `wait_for` of Python 3.11 may swallow a cancellation
                await self._wake.wait()
        self._wake.clear()

    async def tell(self, role: status.Role, problem: str, position: int, durable: int) -> None:
        """Say it if it is new, or to show that this machine is alive. Raises `EngineError`."""
        told = role, problem, position, durable
        if told == self._told and self._loop.time() - self._told_at < ALIVE_S:
            return
        now = status.NodeStatus(
            node=self._name,
            run=self._run,
            role=role,
            problem=problem,
            position=position,
            durable=durable,
            addresses=self._addresses,
            build=self._build,
            at=time.time(),
        )
        key = keys.NODES + self._name
        entry = await self._engine.get(key)
        await self._engine.put(key, status.encode(now), 0 if entry is None else entry.revision)
        self._told, self._told_at = told, self._loop.time()

    async def say_goodbye(self, position: int, durable: int) -> None:
        """This machine stops. It is said once, and harmless if the engine does not answer."""
        with contextlib.suppress(EngineError):
            await self.tell("stopped", "", position, durable)
