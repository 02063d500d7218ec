"""What the core would tell of some messages, told by a test that also says when; and who listens."""

from datetime import UTC, datetime
from typing import Any

from mqttlite.telemetry.answers import Answers
from mqttlite.telemetry.delivery_log import DeliveryLog, DeliveryLogOptions
from mqttlite.telemetry.queue_attempts import QueueAttempts
from mqttlite.telemetry.tracing import DeliveryOutcome, MessageTracer, Traced, TraceListener
from mqttlite.telemetry.wall import Wall

NOON = datetime(2026, 11, 21, 12, 3, 14, 201_000, tzinfo=UTC)
"""When a story begins."""


class Scenario(TraceListener):
    def __init__(self, **options: Any) -> None:
        self.now = 1_000.0
        self.stages: list[tuple[str, int, float]] = []
        self.ends: list[tuple[str | None, str, str]] = []
        self.receiver_state = ""
        self.message_tracer = MessageTracer(self, lambda: self.now, lambda _client_id, _what: self.receiver_state)
        self._wall = Wall(self.now, wall_clock=NOON.timestamp, steady_clock=lambda: 0.0)
        self.delivery_log = DeliveryLog(
            DeliveryLogOptions(**options),
            self._wall,
            clock=lambda: self.now,
        )
        self.filters: dict[str, list[bytes]] = {}
        """The sessions of the broker, and their subscriptions."""
        self.retained: dict[bytes, tuple[int, int]] = {}
        self.cuts: dict[str, list[str]] = {}
        self.attempts = QueueAttempts(self._wall, None, lambda: self.now)
        self.answers = Answers(
            *(self.delivery_log, self, self._wall, self.attempts),
            stopwatch=lambda: self.now,
            mean_distance=lambda: 12.0,
        )
        self._trace = int(NOON.timestamp()) * 1_000_000 + 201_040

    def publish(
        self, topic: str = "plant/7/temp", qos: int = 1, receivers: int = 1, publisher: str | None = "c3"
    ) -> int:
        """A message comes in; its trace."""
        self._trace += 1
        name = topic.encode()
        message = Traced(self._trace, name, qos, 10, publisher, self.now, self.now)
        message.is_chosen = self.delivery_log.traces_topic(name) or self.delivery_log.traces_client(publisher or "")
        self.message_tracer.begin(message)
        self.message_tracer.on_routed(self._trace, receivers)
        return self._trace

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def why(self, target: str = "plant/7/temp", client: str | None = None) -> list[str]:
        sentences: list[str] = self.answers.why(target, client)["sentences"]
        return sentences

    # ------------------------------------------------------------------ what the broker knows

    def filters_of(self, client_id: str) -> list[bytes] | None:
        return self.filters.get(client_id)

    def cuts_of(self, client_id: str) -> list[str]:
        return list(self.cuts.get(client_id, []))

    def retained_on(self, topic: bytes) -> tuple[int, int] | None:
        return self.retained.get(topic)

    # ------------------------------------------------------------------ what the follower tells

    def on_stage(self, message: Traced, stage: str, qos: int, seconds: float) -> None:
        self.stages.append((stage, qos, round(seconds, 6)))

    def on_delivery(self, delivery: DeliveryOutcome) -> None:
        self.delivery_log.enter(delivery)

    def on_end(self, delivery: DeliveryOutcome) -> None:
        self.ends.append((delivery.receiver, delivery.outcome, delivery.reason))
