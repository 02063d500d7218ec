"""The lease: which machine serves. Pure: entries of the lease's key and the time go in, what to do comes out.

A machine that serves renews the lease by writing its key again; the others judge by their own clocks how long it has
not changed. No clocks are compared, so one that steps or is wrong does no harm. Two machines that both believe to have
the lease do none either: the log takes records of one alone (`record.Begin`).
"""

from typing import Final, final

import msgspec

from mqttlite.engine.port import Entry

RENEW_S: Final = 1.0
"""The interval in which the lease is renewed."""

LEASE_S: Final = 3.0
"""How long the lease holds without being renewed: two renewals may be late, and five seconds are promised in all."""


GRACE_S: Final = 2.0
"""How long its holder may take to renew it after the engine answers again: two renewals."""


class Holder(msgspec.Struct, frozen=True):
    """The value of the lease's key."""

    node: str
    """The name of the machine; empty if the lease was given back."""
    run: str
    """Names one run of it: after a restart a machine does not take its own former lease for one that it has."""
    turn: int
    """How often the lease has changed hands."""
    addresses: tuple[str, ...] = ()
    """Where it serves MQTT, as `host:port`."""
    successor: str = ""
    """The machine that is to have a lease that was given back; empty: the first that comes."""


class HandOver(msgspec.Struct, frozen=True):
    """The value of the key by which an operator asks for another machine to serve."""

    turn: int
    """The turn that is to end: a request is for one turn, and means nothing for a later one."""
    successor: str
    """The machine that is to serve; empty: any that follows."""
    refusal: str = ""
    """Why the machine that serves did not do it, in a sentence; empty while it has not answered."""


def encode(value: Holder | HandOver) -> bytes:
    return msgspec.json.encode(value)


def decode(value: bytes) -> Holder | None:
    """None for a value that this version cannot read: it holds like any other."""
    try:
        return msgspec.json.decode(value, type=Holder)
    except msgspec.MsgspecError:
        return None


def decode_hand_over(value: bytes) -> HandOver | None:
    """None for a value that this version cannot read."""
    try:
        return msgspec.json.decode(value, type=HandOver)
    except msgspec.MsgspecError:
        return None


@final
class LeaseView:
    """The lease as one machine sees it. Times are seconds of its own clock, which never steps."""

    def __init__(self, node: str, now: float) -> None:
        self._node: Final = node
        self.expected: int = 0
        """The revision to expect when the lease is written; 0 if there is none."""
        self.holder: Holder | None = None
        self._revision = 0
        self._seen_at = now
        """When it was last seen to change."""

    def see(self, entry: Entry, now: float) -> None:
        """The key has, or was seen to have, this value. An older one is ignored."""
        if entry.revision <= self._revision:
            return
        self._revision = entry.revision
        self.expected = 0 if entry.value is None else entry.revision
        self.holder = None if entry.value is None else decode(entry.value)
        self._seen_at = now

    def is_free(self, now: float) -> bool:
        """Whether this machine may take it."""
        holder = self.holder
        if holder is not None and not holder.node and holder.successor in ("", self._node):
            return True
        return now - self._seen_at >= LEASE_S

    def is_late(self, now: float) -> bool:
        """Whether a renewal is missing: then it is asked whether the engine answers at all."""
        return now - self._seen_at >= 2 * RENEW_S

    def late_in(self, now: float) -> float:
        """How long it is until a renewal is missing; 0 if one is."""
        return max(0.0, self._seen_at + 2 * RENEW_S - now)

    def excuse(self, now: float) -> None:
        """The engine does not answer, so nobody could renew: its holder has `GRACE_S` from now on."""
        self._seen_at = max(self._seen_at, now - LEASE_S + GRACE_S)

    def turn(self) -> int:
        """The number of the next turn."""
        return 1 if self.holder is None else self.holder.turn + 1


@final
class HeldLease:
    """The lease of the machine that has it."""

    def __init__(self, holder: Holder, revision: int, now: float) -> None:
        self.holder: Final = holder
        self.revision: int = revision
        self._renewed_at = now

    def renew(self, revision: int, sent_at: float) -> None:
        """It was written, by a request sent at `sent_at`."""
        self.revision = revision
        self._renewed_at = sent_at

    def age(self, now: float) -> float:
        """How long ago it was renewed."""
        return now - self._renewed_at

    def is_over(self, now: float) -> bool:
        """Whether another machine may have it by now."""
        return self.age(now) >= LEASE_S

    def is_still(self, entry: Entry | None) -> bool:
        """Whether what stands in the key is this lease: the answer to a renewal may have been lost."""
        return entry is not None and entry.value is not None and decode(entry.value) == self.holder
