"""Limits the rate of messages to one client. The outbox charges each write to the client's own buckets and to the
buckets that it shares with others.

Above the rate, the outbox is blocked until the debt is paid: QoS 1 and 2 messages wait in the session, QoS 0 messages
are dropped. Invariant: a pace that holds its outbox is armed.
"""

from typing import Final, Protocol, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.load.quotas import Quotas
from mqttlite.core.load.rate_limits import Buckets


class Paced(Protocol):
    """Continues with an outbox whose pace is over."""

    def on_pace_over(self, number: int) -> None:
        """Messages may be sent again to the connection with this number."""
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
        """How many messages were charged so far."""
        self.holds: bool = False
        """Whether the outbox waits now."""
        self.held_for: str = ""
        """The scope of the quota that it last waited for."""
        self.times: int = 0
        """How often it waited for a quota."""
        self.is_wanted: bool = False
        """Whether a session has more to send than was allowed. It continues when the pace is over."""

    def charge(self, messages: int, size: int, now: float) -> bool:
        """Charge a write of `size` bytes; `messages` is the total ever sent. Return whether the outbox must now
        wait."""
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
        """Whether a session may send one more message of its queue. `messages` is the total ever put into the outbox,
        `size` the bytes it holds now. If not, the session continues when the pace is over. The first message after each
        write is always allowed."""
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
