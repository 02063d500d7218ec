"""The retained messages on their way to a session with new subscriptions: found by and by, in the order of these.

Invariant: only as many are made ready as are about to be sent, however many there are.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.limits import RETAINED_LOOKED_AT
from mqttlite.core.message import Delivery, Message
from mqttlite.topics.retained import Search


@final
class Finding:
    """What one new subscription finds retained: some of it already, and the search for the rest."""

    __slots__ = ("deliveries", "identifiers", "qos", "search")

    def __init__(self, search: Search[Message], qos: int, identifiers: tuple[int, ...]) -> None:
        self.search: Final = search
        self.qos: Final = qos
        self.identifiers: Final = identifiers
        self.deliveries: deque[Delivery] = deque()

    def __len__(self) -> int:
        """How many messages wait, as far as that is known; 1 at least while it is not."""
        left = len(self.search)
        return len(self.deliveries) + (left if self.search.everything else min(left, 1))

    def put(self, message: Message) -> None:
        """A message was found. It has RETAIN 1 [3.1.1 MQTT-3.3.1-8], and the subscription's identifier
        [MQTT-3.3.4-5]."""
        self.deliveries.append(Delivery(message, min(message.qos, self.qos), True, self.identifiers))


@final
class Burst:
    """Findings, the first of which is being sent."""

    __slots__ = ("_findings", "_waiting")

    def __init__(self) -> None:
        self._findings: Final[deque[Finding]] = deque()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, finding: Finding) -> None:
        if len(finding):
            self._findings.append(finding)
            self._waiting += len(finding)

    def first(self) -> Delivery | None:
        """What is to be sent next, while anything waits; None where it must be looked for."""
        deliveries = self._findings[0].deliveries
        return deliveries[0] if deliveries else None

    def pop(self) -> None:
        finding = self._findings[0]
        finding.deliveries.popleft()
        self._waiting -= 1
        if not len(finding):
            self._findings.popleft()

    def look(self, now: float) -> int:
        """Look for more; among how many."""
        finding = self._findings[0]
        before, left = len(finding), len(finding.search)
        for message in finding.search.take(RETAINED_LOOKED_AT):
            if not message.expired(now):
                finding.put(message)
        self._waiting += len(finding) - before
        if not len(finding):
            self._findings.popleft()
        return left - len(finding.search)

    def give_up(self, all_of_them: bool) -> None:
        """End the searches that are not finished: all of them, or those that find nothing above QoS 0."""
        findings = list(self._findings)
        self._findings.clear()
        self._waiting = 0
        for finding in findings:
            if all_of_them or finding.qos == 0:
                finding.search.end()
            self.add(finding)
