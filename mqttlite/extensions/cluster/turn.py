"""`Turn`: the lease as this machine has it, from `take` to `give_back`, again and again.

Invariant: `over` is set once when this machine must stop to serve; `is_lost` says whether another may serve already.
"""

import asyncio
import contextlib
import logging
from typing import Final

from mqttlite.engine.port import Engine, EngineError, EngineUnavailable, RevisionConflict
from mqttlite.extensions.cluster import keys
from mqttlite.extensions.cluster.lease import RENEW_S, HandOver, HeldLease, Holder, LeaseView, encode
from mqttlite.extensions.cluster.machines import HURRY_S, Machines

CATCH_UP_S: Final = 5.0
"""How long a machine that is to hand over waits until another one has what the log had when it was asked. It serves
meanwhile."""

_log = logging.getLogger("mqttlite.cluster")


class Turn:
    """Of the machine `name`. `seen` is the lease as the engine has it."""

    def __init__(
        self, engine: Engine, name: str, run: str, addresses: tuple[str, ...], seen: LeaseView, machines: Machines
    ) -> None:
        self._engine: Final = engine
        self._name: Final = name
        self._run: Final = run
        self._addresses: Final = addresses
        self._seen: Final = seen
        self._machines: Final = machines
        self._loop: Final = asyncio.get_running_loop()
        self.over: Final = asyncio.Event()
        self.is_lost: bool = False
        """Whether another machine may serve already. Otherwise an operator has asked for another one."""
        self.successor: str = ""
        """The machine that is to serve next; empty: any."""
        self._held: HeldLease | None = None

    @property
    def is_held(self) -> bool:
        """Whether this machine has the lease, as far as it knows."""
        return self._held is not None

    def renewed_ago(self) -> float:
        """How long ago this machine renewed its lease, in seconds; 0 if it has none."""
        return 0.0 if self._held is None else self._held.age(self._loop.time())

    async def take(self) -> bool:
        """Take the lease; False if that failed: another machine was faster, or it will be seen that this one has it."""
        sent_at = self._loop.time()
        holder = Holder(self._name, self._run, self._seen.turn(), self._addresses)
        try:
            revision = await self._engine.put(keys.LEASE, encode(holder), self._seen.expected)
        except EngineError:
            return False
        self.over.clear()
        self.is_lost = False
        self.successor = ""
        self._held = HeldLease(holder, revision, sent_at)
        return True

    async def renew(self) -> None:
        """Renew the lease for as long as it is held."""
        held = self._held
        assert held is not None, "it was taken"
        while True:
            await asyncio.sleep(RENEW_S)
            sent_at = self._loop.time()
            try:
                held.renew(await self._engine.put(keys.LEASE, encode(held.holder), held.revision), sent_at)
            except RevisionConflict:
                try:
                    entry = await self._engine.get(keys.LEASE)
                except EngineUnavailable:
                    continue
                if entry is None or not held.is_still(entry):
                    self.lose("another machine has the lease")
                    return
                held.renew(entry.revision, sent_at)  # the answer to an earlier renewal was lost
            except EngineUnavailable:
                if held.is_over(self._loop.time()) and (await self._engine.reach()).may_be_cut_off:
                    self.lose("most servers of the engine do not answer here, so another machine may serve")
                    return

    def lose(self, why: str) -> None:
        """This machine must stop to serve, for another one may."""
        if not self.is_lost:
            _log.error("this machine stops to serve: %s", why)
            self.is_lost = True
            self.over.set()

    async def give_back(self) -> None:
        """Let the successor have the lease at once, if this machine still has it. `renew` must have ended."""
        held, self._held = self._held, None
        if held is None or self.is_lost:
            return
        left = encode(Holder("", self._run, held.holder.turn, successor=self.successor))
        with contextlib.suppress(EngineError):
            try:
                await self._engine.put(keys.LEASE, left, held.revision)
            except RevisionConflict:
                entry = await self._engine.get(keys.LEASE)
                if entry is not None and held.is_still(entry):  # a renewal was under way when it was ended
                    await self._engine.put(keys.LEASE, left, entry.revision)

    # ------------------------------------------------------------------ hand over

    def is_asked(self, request: HandOver) -> bool:
        """Whether a request to hand over is for this turn, and still to be answered."""
        return self._held is not None and request.turn == self._held.holder.turn and not request.refusal

    async def hand_over(self, request: HandOver, revision: int) -> None:
        """Let the machine serve that an operator asks for, once it has caught up; or say why not. `revision` is that of
        the request."""
        try:
            refusal = await self._choose(request.successor)
            if refusal:
                _log.error("a hand-over was asked for: %s", refusal)
                answer = HandOver(request.turn, request.successor, refusal)
                await self._engine.put(keys.HAND_OVER, encode(answer), revision)
                return
        except EngineError as error:
            _log.error("a hand-over was asked for, and the engine does not answer: %s", error)
            return
        _log.info("handing over to %s", self.successor)
        self.over.set()

    async def _choose(self, wanted: str) -> str:
        """Set `successor`; return why there is none. Raises `EngineError`."""
        last = (await self._engine.bounds(keys.LOG)).last
        give_up_at = self._loop.time() + CATCH_UP_S
        while True:
            following = [each for each in self._machines.followers() if wanted in ("", each)]
            if not following:
                problems = self._machines.problems()
                return "; ".join([f"{wanted or 'no other machine'} does not follow the log", *problems])
            ahead = max(following, key=lambda each: self._machines.said[each].position)
            position = self._machines.said[ahead].position
            if position >= last:
                self.successor = ahead
                return ""
            if self._loop.time() >= give_up_at:
                return f"{ahead} is {last - position} records behind the log, after {CATCH_UP_S:g} s: ask again later"
            await asyncio.sleep(HURRY_S / 2)
