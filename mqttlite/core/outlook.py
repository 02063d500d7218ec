"""The predicted outcome of a message for one receiver; `core.plan` gathers these from sessions and sinks.

Invariant: an answer changes nothing.
"""

from typing import Final, final

EXCLUDED: Final = -1
"""The outcome for a receiver that subscribes to the topic, and for which a message is not meant: that is no drop."""

FILTERED: Final = "if its filter lets the message pass"
"""The detail for a session whose filter reads the payload, where that is not known."""

NO_LOCAL: Final = "no_local"
"""Why a session does not get a message of its own: the option of its subscription."""


PUBLISHER_WAITS: Final = "publisher_waits"
"""Why a session would get a message later: its queue is full, and it reads, so the publisher waits for room."""


@final
class PlannedReceiver:
    """The predicted outcome for one receiver. `outcome` is `SENT`, `QUEUED`, `DROPPED` or `EXCLUDED`."""

    __slots__ = ("client_id", "detail", "group", "is_next", "outcome", "qos", "reason", "sink")

    def __init__(self, client_id: str, group: bytes, qos: int, outcome: int, reason: str, detail: str = "") -> None:
        self.client_id: Final = client_id
        self.group: Final = group
        """The shared subscription of which the session is a member; only one of these gets the message."""
        self.qos: Final = qos
        self.outcome: int = outcome
        self.reason: str = reason
        """Why it waits, is dropped, or is not for the session; empty for one that is sent."""
        self.detail: Final = detail
        """The rule or filter, where one keeps the session from getting it; `FILTERED` where its filter may."""
        self.sink: str = ""
        """The name of a receiver that is no session: `$queue/orders`."""
        self.is_next: bool = False
        """Whether it is the member of its group that would get the message."""


def planned_sink(title: str, outcome: int, reason: str = "", detail: str = "") -> PlannedReceiver:
    """The predicted outcome for a receiver that is no session."""
    planned = PlannedReceiver("", b"", 0, outcome, reason, detail)
    planned.sink = title
    return planned
