"""Groups deliveries with the same outcome into one line with a count.

Invariant: two deliveries of one group differ in their times, and in messages or receivers, and in nothing else.
"""

import re
from collections.abc import Hashable, Iterable
from typing import Final

from mqttlite.telemetry.tracing import DROPPED, DeliveryOutcome, Traced

MAX_NAMED: Final = 3

MAX_NAMED_LOSERS: Final = 20
"""Of receivers for which messages were dropped, who are named."""
"""The most receivers named in a line."""


FEW: Final = 4
"""This many or more are grouped; fewer get separate lines with their own times."""

_NUMBERS: Final = re.compile(r"[\d.:]+ ?m?s?")


class Group:
    """Deliveries of several messages to several receivers with the same outcome."""

    __slots__ = ("deliveries", "messages", "receivers")

    def __init__(self) -> None:
        self.deliveries: Final[list[DeliveryOutcome]] = []
        self.messages: Final[dict[Traced, None]] = {}
        self.receivers: Final[dict[str | None, None]] = {}

    def add(self, deliveries: Iterable[DeliveryOutcome]) -> None:
        for delivery in deliveries:
            self.deliveries.append(delivery)
            self.messages[delivery.message] = None
            self.receivers[delivery.receiver] = None

    def last(self) -> int:
        """The trace of its latest message."""
        return max(message.trace for message in self.messages)

    def slowest(self, now: float) -> DeliveryOutcome:
        """The delivery whose times are shown."""
        return max(self.deliveries, key=lambda each: (each.ended or now) - each.message.received)

    def whom(self) -> str:
        """Its receivers in words; empty if there is only one."""
        names = [name or "nobody" for name in self.receivers]
        if len(names) == 1:
            return ""
        named = MAX_NAMED_LOSERS if self.deliveries[0].outcome == DROPPED else MAX_NAMED
        more = len(names) - named
        return f"{len(names)} clients ({', '.join(names[:named])}{f' and {more} others' if more > 0 else ''})"


def grouped(deliveries: Iterable[DeliveryOutcome]) -> list[Group]:
    """The groups, that of the latest message last: first each receiver's messages, then receivers of the same ones.

    Where fewer than `FEW` are alike, each is a group of its own.
    """
    of_receivers: dict[tuple[str | None, Hashable], Group] = {}
    for delivery in deliveries:
        of_receivers.setdefault((delivery.receiver, _outcome(delivery)), Group()).add([delivery])
    parts = [
        (outcome, part) for (_, outcome), whole in of_receivers.items() for part in _split(whole, len(whole.messages))
    ]
    of_messages: dict[tuple[Hashable, tuple[int, ...]], list[Group]] = {}
    for outcome, part in parts:
        of_messages.setdefault((outcome, tuple(message.trace for message in part.messages)), []).append(part)
    groups = []
    for alike in of_messages.values():
        if len(alike) < FEW:
            groups += alike
        else:
            group = Group()
            for part in alike:
                group.add(part.deliveries)
            groups.append(group)
    return sorted(groups, key=Group.last)


def _split(group: Group, members: int) -> list[Group]:
    """The group, or its deliveries one by one where there are few."""
    if members >= FEW:
        return [group]
    singles = []
    for delivery in group.deliveries:
        single = Group()
        single.add([delivery])
        singles.append(single)
    return singles


def _outcome(delivery: DeliveryOutcome) -> Hashable:
    """The properties of a delivery that must be equal in a group."""
    message = delivery.message
    return (
        message.topic,
        message.publisher,
        delivery.outcome,
        delivery.reason,
        delivery.qos,
        delivery.why,
        _NUMBERS.sub("", delivery.cause.replace(delivery.receiver or "?", "")),
        delivery.queued is None,
        delivery.sent is None,
        delivery.written is None,
        delivery.acknowledged is None,
        delivery.ended is None,
        delivery.again,
        delivery.is_away,
    )
