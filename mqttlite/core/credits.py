"""Credits: how much work each client may cause while the broker is overloaded; with more, its link is not read.

All clients have the same credit, which shrinks while the loop is too late and grows while it is not. So the clients
that send most are slowed first, and a client that sends little never is. Invariant: nothing is lost or overtaken, and a
client whose link is held has an armed deadline.
"""

from typing import Final, final

from mqttlite.core.connection import CLOSED, Connection
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    CREDIT_CALM_S,
    CREDIT_GROWS,
    CREDIT_SHRINKS,
    INTERVAL_WORK,
    LEAST_CREDIT,
    LIGHT_BYTES,
    MAX_DEBT,
    MOST_CREDIT,
    OVERLOAD_INTERVAL_S,
)


@final
class Credits:
    """One for each broker. The credit is work, in the unit of `ITERATION_WORK`, for `OVERLOAD_INTERVAL_S`."""

    __slots__ = (
        "_deadlines",
        "_effects",
        "_heavies",
        "_heavies_before",
        "_held_at",
        "_highest",
        "_interval",
        "_least",
        "_older",
        "_period",
        "_recent",
        "credit",
        "held",
    )

    def __init__(self, effects: Effects, deadlines: Deadlines) -> None:
        self._effects: Final = effects
        self._deadlines: Final = deadlines
        self.credit: float = MOST_CREDIT
        self.held: int = 0
        """How often a link was held."""
        self._recent: dict[int, Account] = {}
        self._older: dict[int, Account] = {}
        """The clients that published lately: in this period of `MAX_DEBT` intervals, and in the one before but not in
        this one. A period later these are forgotten, for their debts are paid."""
        self._period = 0
        self._heavies = 0
        self._heavies_before = 0
        """How many of both cost much in an interval of this period, and how many in the one before but not in this
        one."""
        self._highest = 0.0
        """The most that one of them cost in this interval."""
        self._interval = 0
        self._least = LEAST_CREDIT
        """The least credit of a client: below `LEAST_CREDIT` where so many send that even that is too much."""
        self._held_at = -CREDIT_CALM_S

    def charge(self, connection: Connection, work: int) -> None:
        """So much work came of what a connection sent. Who only acknowledges messages is not charged: slower, it would
        only have more of them wait."""
        if connection.state == CLOSED or connection.peer.is_trusted:
            return
        messages = connection.received_qos0 + connection.received_qos1 + connection.received_qos2
        account = self._account(connection)
        if messages == account.messages:
            return
        now = self._effects.now
        account.messages = messages
        if account.interval != self._interval:
            account.interval, account.spent = self._interval, 0.0
        account.spent += work
        connection.much_bytes = LIGHT_BYTES if 2.0 * account.spent <= self._least else 0
        if account.spent > self._least and account.heavy_in != self._period:
            self._heavies += 1
            self._heavies_before -= account.heavy_in == self._period - 1
            account.heavy_in = self._period
        self._highest = max(self._highest, account.spent)
        earned = (now - account.left_at) / OVERLOAD_INTERVAL_S * self.credit
        account.left = max(-MAX_DEBT * self.credit, min(self.credit, account.left + earned) - work)
        account.left_at = now
        if account.left < 0.0 and not account.is_held:
            account.is_held = True
            self._held_at = now
            self.held += 1
            self._effects.slowed.append(connection.number)
            self._deadlines.arm(account, now - account.left / self.credit * OVERLOAD_INTERVAL_S)

    def adjust(self, is_late: bool, is_early: bool) -> None:
        """An interval is over in which the loop was late, or early; between the two the credit stays."""
        is_mixed = self.is_mixed
        self._least = min(LEAST_CREDIT, INTERVAL_WORK / max(1, len(self._recent) + len(self._older)))
        if is_late and is_mixed:
            self.credit = max(self._least, CREDIT_SHRINKS * min(self.credit, self._highest))
        elif is_early or not is_mixed:
            self.credit = min(MOST_CREDIT, CREDIT_GROWS * self.credit)
        self._effects.shorten(is_mixed)
        self._highest = 0.0
        self._interval += 1
        if self._interval % MAX_DEBT == 0:
            self._period += 1
            self._older, self._recent = self._recent, {}
            self._heavies_before, self._heavies = self._heavies, 0

    @property
    def is_mixed(self) -> bool:
        """Whether some clients sent much lately and others only little: the former must not hold up the latter."""
        return 0 < self._heavies + self._heavies_before < len(self._recent) + len(self._older)

    @property
    def are_used(self) -> bool:
        """Whether a link was held lately."""
        return self._effects.now - self._held_at < CREDIT_CALM_S

    def end(self) -> None:
        """The overload is over. Links that are held are read when their deadlines are due, which is soon."""
        self.credit = MOST_CREDIT
        self._effects.shorten(False)
        self._recent, self._older = {}, {}
        self._heavies = self._heavies_before = 0

    def free(self, number: int) -> None:
        """The deadline of a held link is due: it may be read again."""
        self._effects.unslowed.append(number)

    def _account(self, connection: Connection) -> "Account":
        number = connection.number
        account = self._recent.get(number)
        if account is None:
            account = self._older.pop(number, None) or Account(self, number, self.credit, self._effects.now)
            self._recent[number] = account
        return account


@final
class Account(Deadline):
    """The credit that one connection has left, in units of work."""

    __slots__ = ("_credits", "_number", "heavy_in", "interval", "is_held", "left", "left_at", "messages", "spent")

    def __init__(self, credits: Credits, number: int, left: float, now: float) -> None:
        super().__init__()
        self._credits: Final = credits
        self._number: Final = number
        self.left: float = left
        """Negative: its debt."""
        self.left_at: float = now
        self.spent: float = 0.0
        """The work that its packets cost in that interval."""
        self.interval: int = -1
        self.heavy_in: int = -2
        """The period in which it cost much, the latest."""
        self.messages: int = 0
        """How many it had published when it was charged last."""
        self.is_held: bool = False

    def on_due(self) -> None:
        self.is_held = False
        self._credits.free(self._number)
