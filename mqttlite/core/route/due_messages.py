"""Publishes wills and delayed messages in the order in which they became due.

A thousand clients with large wills may die at once, and all delayed messages may have the same due time. An iteration
publishes as many as its budget allows; the next ones wait a moment for links that are blocked by then. Invariant: a
message is published once, and every receiver gets the messages in the order in which they became due.
"""

from collections import deque
from typing import Final, Protocol, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.limits import DUE_PATIENCE_S, DUE_WORK
from mqttlite.core.message import Message
from mqttlite.core.route.fan_out import FanOut


class Due(Protocol):
    """A message that became due. Its owner keeps it until it is published."""

    @property
    def message(self) -> Message: ...

    def publish(self) -> FanOut | None:
        """Publish it; None if it must no longer be published."""
        ...

    def on_published(self) -> None:
        """All receivers have the message."""
        ...


@final
class DueMessages(Job):
    """One job for all due messages of a broker."""

    __slots__ = ("_blocked", "_deadlines", "_due", "_effects", "_held_until", "_jobs", "_publishing")

    def __init__(self, deadlines: Deadlines, jobs: Jobs, effects: Effects) -> None:
        self._deadlines: Final = deadlines
        self._jobs: Final = jobs
        self._effects: Final = effects
        self._due: Final[deque[Due]] = deque()
        self._publishing: Due | None = None
        """The message whose fan-out was interrupted. The others wait for its end."""
        self._blocked: Final[dict[int, None]] = {}
        self._held_until: Deadline | None = None

    def publish(self, due: Due) -> None:
        """Publish a message: now if the budget has room, otherwise after the messages that wait already."""
        self._due.append(due)
        self._effects.memory.hold(due.message)
        if len(self._due) > 1 or self._publishing is not None:
            return
        if not len(self._jobs):
            self._blocked.clear()
        if has_budget(self._effects):
            self.step()
        else:
            self._jobs.queue(self)

    def step(self) -> bool:
        """Publish while the budget lasts, at least one message, unless it waits for links or a fan-out."""
        while self._due and self._publishing is None:
            if self._blocked:
                self._held_until = _Patience(self)
                self._deadlines.arm(self._held_until, self._effects.now + DUE_PATIENCE_S)
                return True  # queued again when the links take bytes
            due = self._due.popleft()
            self._effects.memory.let_go(due.message)
            self._effects.work += DUE_WORK
            fan_out = due.publish()
            if fan_out is not None and not fan_out.done:
                self._publishing = due
                fan_out.on_done = self._on_fan_out
                return True  # queued again at the end of the fan-out
            if fan_out is not None:
                due.on_published()
            if self._due and not has_budget(self._effects):
                return False
        return True

    def on_blocked(self, number: int) -> None:
        """A connection's link stopped taking bytes. Waiting messages wait for it for a short time."""
        if self._due or len(self._jobs):
            self._blocked[number] = None

    def on_unblocked(self, number: int) -> None:
        """A connection's link takes bytes again, or is gone."""
        self._blocked.pop(number, None)
        if not self._blocked:
            self.release()

    def release(self) -> None:
        """Stop waiting for links."""
        if self._held_until is not None:
            self._deadlines.cancel(self._held_until)
            self.on_patience_over()

    def on_patience_over(self) -> None:
        """Stop waiting: the limits of a link that is still blocked decide whether it keeps or drops the messages."""
        self._held_until = None
        self._blocked.clear()
        self._jobs.queue(self)

    def _on_fan_out(self) -> None:
        published, self._publishing = self._publishing, None
        assert published is not None
        published.on_published()
        if self._due:
            self._jobs.queue(self)


@final
class _Patience(Deadline):
    """Limits how long due messages wait for blocked links."""

    __slots__ = ("_due_messages",)

    def __init__(self, due_messages: DueMessages) -> None:
        super().__init__()
        self._due_messages: Final = due_messages

    def on_due(self) -> None:
        self._due_messages.on_patience_over()
