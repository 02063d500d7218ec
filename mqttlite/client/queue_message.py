"""A message of a queue: what the broker says of its delivery, and how it is acknowledged.

Invariant: a message is settled once, by `ack` or `nack`; what is said after that does nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, final

from mqttlite.client.receipts import Receipt
from mqttlite.client.told_message import ToldMessage
from mqttlite.wire.packets import Publish
from mqttlite.wire.reason_codes import ReasonCode

ACK: Final = "$ack"
NACK: Final = "$nack"
EXTEND: Final = "$extend"
"""Where consumers publish what PUBACK cannot say: `$queue/<name>/$nack`."""

_LOOP_S: Final = 30.0
"""How long another thread waits for the event loop: one that has ended answers nothing."""

T = TypeVar("T")


class Owner(Protocol):
    """The queue, as its messages see it."""

    def tell(self, action: str, lines: list[str], /) -> None: ...
    def forget(self, message: "QueueMessage", /) -> None: ...


@final
class QueueMessage(ToldMessage):
    """`ack`, `nack` and `extend` may be called in any thread; they return before the broker has heard of it."""

    __slots__ = ("_loop", "_owner", "arrived_at", "is_settled")

    def __init__(self, packet: Publish, receipt: Receipt, owner: Owner) -> None:
        super().__init__(packet, receipt)
        self._owner: Final = owner
        self._loop: Final = asyncio.get_running_loop()
        self.arrived_at: Final[float] = self._loop.time()
        """By the clock of the event loop."""
        self.is_settled: bool = False
        """Whether it was acknowledged or refused here."""

    @property
    def ack_id(self) -> str:
        """The name of this delivery."""
        return self.told("ack-id")

    @property
    def attempt(self) -> int:
        """How often it was delivered, with this time; 0 if the broker does not say so."""
        text = self.told("delivery-attempt")
        return int(text) if text.isdecimal() else 0

    @property
    def ordering_key(self) -> str:
        """The ordering key from its publisher; "" for none."""
        return next((value for name, value in self.properties.user_properties if name == "ordering-key"), "")

    @property
    def is_lost(self) -> bool:
        """Whether the connection on which it came is gone: the broker delivers it again, unless `ack` comes first."""
        return not (self.is_settled or self._way.is_open)

    def ack(self, reason_code: int = 0) -> bool:
        """The work is done: the queue forgets the message. False: it was settled before.

        This also counts when the deadline is over or the connection was lost, unless somebody else acknowledged first.
        A `reason_code` from 0x80 on is a `nack`.
        """
        if reason_code >= 0x80:
            return self.nack()
        return self._in_loop(self._ack)

    def nack(self, delay: float | None = None) -> bool:
        """The work failed: the queue delivers the message again after `delay` seconds, or else after its back-off."""
        if delay is not None and not 0 <= delay < float("inf"):
            raise ValueError(f"delay is {delay}: it is a number of seconds from 0")
        return self._in_loop(lambda: self._nack(delay))

    def extend(self, seconds: float | None = None) -> None:
        """Move the deadline to `seconds` from now; without them, to what the queue gives a new delivery."""
        if seconds is not None and not 0 < seconds < float("inf"):
            raise ValueError(f"seconds is {seconds}: it is a number above 0")
        self._in_loop(lambda: self._extend(seconds))

    def _ack(self) -> bool:
        if self.is_settled:
            return False
        # PUBACK does not acknowledge it, has to wait for others, or can be sent no longer.
        if self.told("ack") == "explicit" or not self._way.is_next:
            self._owner.tell(ACK, [self.ack_id])
        self.settle(0)
        return True

    def _nack(self, delay: float | None) -> bool:
        if self.is_settled:
            return False
        if self._way.is_open and not (delay is None and self._way.is_next):
            self._owner.tell(NACK, [self.ack_id if delay is None else f"{self.ack_id} {delay:.3f}"])
        self.settle(ReasonCode.UNSPECIFIED_ERROR)
        return True

    def _extend(self, seconds: float | None) -> None:
        if not self.is_settled and self._way.is_open:
            self._owner.tell(EXTEND, [self.ack_id if seconds is None else f"{self.ack_id} {seconds:.3f}"])

    def settle(self, reason_code: int) -> None:
        """The broker was told; PUBACK leaves with that code when its turn has come."""
        self.is_settled = True
        self._way.settle(reason_code)
        self._owner.forget(self)

    def _in_loop(self, act: Callable[[], T]) -> T:
        """Do it in the thread of the event loop, and wait for it in another."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(_later(act), self._loop).result(_LOOP_S)
        return act()


async def _later(act: Callable[[], T]) -> T:
    return act()
