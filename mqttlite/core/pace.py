"""The pace at which one client gets messages. Its outbox charges what it writes, once for each write, to the buckets of
the client and to those that it shares with others.

Over a rate, the outbox is blocked until the debt is paid: QoS 1 and 2 messages wait in the session, QoS 0 ones are
dropped. Invariant: a pace that holds its outbox is armed.
"""

from typing import Final, Protocol, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.quotas import Quotas
from mqttlite.core.rate_limits import Buckets


class Paced(Protocol):
    """Lets an outbox go on."""

    def on_pace_over(self, number: int) -> None:
        """The connection of that number may be sent messages again."""
        ...


@final
class Pace(Deadline):
    __slots__ = (
        "_buckets",
        "_charged",
        "_deadlines",
        "_number",
        "_owner",
        "_quotas",
        "held_for",
        "holds",
        "is_wanted",
        "times",
    )

    def __init__(
        self, number: int, quotas: Quotas, buckets: list[tuple[str, Buckets]], deadlines: Deadlines, owner: Paced
    ) -> None:
        super().__init__()
        self._number: Final = number
        self._quotas: Final = quotas
        self._buckets: Final = buckets
        self._deadlines: Final = deadlines
        self._owner: Final = owner
        self._charged = 0
        """How many messages were charged."""
        self.holds: bool = False
        """Whether the outbox waits now."""
        self.held_for: str = ""
        """The scope of the quota for which it waited last."""
        self.times: int = 0
        """How often it waited for one."""
        self.is_wanted: bool = False
        """Whether a session has more to send than was left: it goes on when the pace is over."""

    def charge(self, messages: int, size: int, now: float) -> bool:
        """`size` bytes are written now, and `messages` were ever: whether the outbox must wait from now on."""
        longest_s, over = 0.0, ""
        for scope, buckets in self._buckets:
            wait_s = buckets.take(messages - self._charged, size, now)
            if wait_s > longest_s:
                longest_s, over = wait_s, scope
        self._charged = messages
        if self.holds or not (over or self.is_wanted):
            return False
        self.holds = True
        self.is_wanted = False
        if over:
            self.held_for = over
            self.times += 1
            self._quotas.count_held(f"to_{over}")
        self._deadlines.arm(self, now + longest_s)
        return True

    def allows(self, messages: int, size: int, now: float) -> bool:
        """Whether a session may send one more of its queue, when `messages` were ever put into the outbox and it holds
        `size` bytes now; if not, it goes on when the pace is over. The first after each write may always go."""
        unwritten = messages - self._charged
        if unwritten == 0:
            return True
        for _, buckets in self._buckets:
            if not buckets.have(unwritten + 1, size, now):
                self.is_wanted = True
                return False
        return True

    def on_due(self) -> None:
        self.holds = False
        self._owner.on_pace_over(self._number)
