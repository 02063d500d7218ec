"""The predicted outcome of a message for one receiver; `core.plan` gathers these from sessions and sinks.

Invariant: an answer changes nothing.
"""

from typing import Final, final

EXCLUDED: Final = -1
"""The outcome for a subscriber that a message is not meant for. It is not a drop."""

FILTERED: Final = "if its filter lets the message pass"
"""The detail for a session whose filter reads the payload, if the payload is not known."""

NO_LOCAL: Final = "no_local"
"""Why a session does not get its own message: the No Local option of its subscription."""


PUBLISHER_WAITS: Final = "publisher_waits"
"""Why a session would get a message later: its queue is full but it reads, so the publisher waits for room."""


@final
class PlannedReceiver:
    """The predicted outcome for one receiver. `outcome` is `SENT`, `QUEUED`, `DROPPED` or `EXCLUDED`."""

    __slots__ = ("client_id", "detail", "group", "is_next", "outcome", "qos", "reason", "sink")

    def __init__(self, client_id: str, group: bytes, qos: int, outcome: int, reason: str, detail: str = "") -> None:
        self.client_id: Final = client_id
        self.group: Final = group
        """The shared subscription of which the session is a member. Only one member gets the message."""
        self.qos: Final = qos
        self.outcome: int = outcome
        self.reason: str = reason
        """Why the message waits, is dropped, or is not meant for the session; empty if it is sent."""
        self.detail: Final = detail
        """The rule or filter that keeps the message from the session; `FILTERED` if a filter may."""
        self.sink: str = ""
        """The name of a receiver that is not a session, for example `$queue/orders`."""
        self.is_next: bool = False
        """Whether this member of its group would get the message."""


def planned_sink(title: str, outcome: int, reason: str = "", detail: str = "") -> PlannedReceiver:
    """The predicted outcome for a receiver that is not a session."""
    planned = PlannedReceiver("", b"", 0, outcome, reason, detail)
    planned.sink = title
    return planned
