"""Credits limit how much work each client may cause while the broker is overloaded. The link of a client in debt is not
read.

All clients have the same credit, which shrinks while the loop is too late and grows otherwise. So the clients that send
most are slowed first, and a client that sends little never is. Invariant: no message is lost or reordered, and a client
whose link is held has an armed deadline.
"""

from typing import Final, final

from mqttlite.core.connect.connection import CLOSED, Connection
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
from mqttlite.core.reasons import HoldReason


@final
class Credits:
    """One for each broker. `credit` is the work allowed in `OVERLOAD_INTERVAL_S`, in the unit of `ITERATION_WORK`."""

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
        """The clients that published in this period of `MAX_DEBT` intervals (`_recent`), or only in the period before
        (`_older`). The latter are forgotten after a period, because their debts are paid by then."""
        self._period = 0
        self._heavies = 0
        self._heavies_before = 0
        """How many clients caused much work in an interval of this period, and how many only in the period before."""
        self._highest = 0.0
        """The most work that one client caused in this interval."""
        self._interval = 0
        self._least = LEAST_CREDIT
        """The least credit of a client. Lower than `LEAST_CREDIT` when too many clients send."""
        self._held_at = -CREDIT_CALM_S

    def charge(self, connection: Connection, work: int) -> None:
        """Charge a connection for the work that its packets caused, and its transport before. A client that only
        acknowledges messages is not charged: slowing it would only make more messages wait."""
        if connection.state == CLOSED or connection.identity.is_trusted:
            return
        messages = connection.received_qos0 + connection.received_qos1 + connection.received_qos2
        account = self._account(connection)
        if messages == account.messages:
            return
        now = self._effects.now
        account.messages = messages
        work += connection.transport_work
        connection.transport_work = 0
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
            self._effects.hold(connection.number, HoldReason.OVERLOAD)
            self._deadlines.arm(account, now - account.left / self.credit * OVERLOAD_INTERVAL_S)

    def adjust(self, is_late: bool, is_early: bool) -> None:
        """Adjust the credit at the end of an interval in which the loop was late, early, or neither."""
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
        """Whether some clients sent much lately and others little, so that the former could delay the latter."""
        return 0 < self._heavies + self._heavies_before < len(self._recent) + len(self._older)

    @property
    def are_used(self) -> bool:
        """Whether a link was held lately."""
        return self._effects.now - self._held_at < CREDIT_CALM_S

    def end(self) -> None:
        """The overload is over. Held links are read when their deadlines are due, which is soon."""
        self.credit = MOST_CREDIT
        self._effects.shorten(False)
        self._recent, self._older = {}, {}
        self._heavies = self._heavies_before = 0

    def free(self, number: int) -> None:
        """Release a held link whose deadline is due."""
        self._effects.release(number, HoldReason.OVERLOAD)

    def _account(self, connection: Connection) -> "Account":
        number = connection.number
        account = self._recent.get(number)
        if account is None:
            account = self._older.pop(number, None) or Account(self, number, self.credit, self._effects.now)
            self._recent[number] = account
        return account


@final
class Account(Deadline):
    """The remaining credit of one connection."""

    __slots__ = ("_credits", "_number", "heavy_in", "interval", "is_held", "left", "left_at", "messages", "spent")

    def __init__(self, credits: Credits, number: int, left: float, now: float) -> None:
        super().__init__()
        self._credits: Final = credits
        self._number: Final = number
        self.left: float = left
        """The remaining work; negative is a debt."""
        self.left_at: float = now
        self.spent: float = 0.0
        """The work that its packets caused in `interval`."""
        self.interval: int = -1
        self.heavy_in: int = -2
        """The latest period in which it caused much work."""
        self.messages: int = 0
        """How many messages it had published at the last charge."""
        self.is_held: bool = False

    def on_due(self) -> None:
        self.is_held = False
        self._credits.free(self._number)
