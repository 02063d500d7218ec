"""A tracer that keeps what it was told, and checks what every tracer relies on."""

from collections import Counter

from mqttlite.core.tracer import NO_SAMPLES, NOT_TRACED

NOBODY = "nobody"
"""The receiver of a message that reached none."""


class Recorder:
    """Follows the topics and clients that it is told to follow, and one in so many of all other messages."""

    def __init__(self, topics: tuple[bytes, ...] = (), clients: tuple[str, ...] = (), one_in: int = NO_SAMPLES) -> None:
        self.topics = topics
        self.clients = clients
        self.one_in = one_in
        self.traces = 0
        self._counted: dict[int, int] = {0: 0}
        """By the numbers of the messages: 1 for the first that is traced, 2 for the second."""
        self.receivers: dict[int, int] = {}
        """How many each followed message was for."""
        self.told: list[tuple[object, ...]] = []
        """In order: what, of which trace, and the rest of it."""
        self.drops: Counter[tuple[str | None, str]] = Counter()
        """Messages, by receiver and reason."""
        self.details: list[tuple[str, str]] = []
        """What was told of drops beside: the topic and the detail."""

    def traces_topic(self, topic: bytes) -> bool:
        return topic in self.topics

    def traces_client(self, client_id: str) -> bool:
        return client_id in self.clients

    def next_sample(self) -> int:
        return self.one_in

    def on_received(self, trace: int, topic: bytes, qos: int, payload_bytes: int, publisher: str | None) -> None:
        self.traces += 1
        self._counted[trace] = self.traces
        self.told.append(("received", self.traces, topic.decode(), qos, payload_bytes, publisher))

    def on_routed(self, trace: int, receivers: int) -> None:
        trace = self._counted[trace]
        assert trace not in self.receivers, "it is routed once"
        self.receivers[trace] = receivers
        self.told.append(("routed", trace, receivers))

    def on_queued(self, trace: int, receiver: str, why: str, waiting: int, limit: int) -> None:
        trace = self._counted[trace]
        assert trace in self.receivers, "what becomes of a message follows its receivers"
        assert waiting >= 1
        self.told.append(("queued", trace, receiver, why, waiting, limit))

    def on_sent(self, trace: int, receiver: str, connection: int, qos: int) -> None:
        trace = self._counted[trace]
        assert trace in self.receivers, "what becomes of a message follows its receivers"
        self.told.append(("sent", trace, receiver, connection, qos))

    def on_acknowledged(self, trace: int, receiver: str) -> None:
        trace = self._counted[trace]
        before = "queued" if receiver.startswith("$queue/") else "sent"
        assert any(each[:3] == (before, trace, receiver) for each in self.told), f"it was {before} before"
        self.told.append(("acknowledged", trace, receiver))

    def on_returned(self, trace: int, receiver: str, detail: str) -> None:
        self.told.append(("returned", self._counted[trace], receiver, detail))

    def on_filtered(self, trace: int, receiver: str, expression: str) -> None:
        trace = self._counted[trace]
        assert trace in self.receivers, "what becomes of a message follows its receivers"
        self.told.append(("filtered", trace, receiver))

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        assert messages >= 1
        assert trace == NOT_TRACED or messages == 1, "a followed message is told alone"
        self.drops[receiver, reason] += messages
        self.details.append((topic.decode(), detail))
        if trace:
            trace = self._counted[trace]
            assert trace in self.receivers, "what becomes of a message follows its receivers"
            self.told.append(("dropped", trace, receiver or NOBODY, reason))

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        self.told.append(("subscribed", connection, topic_filter.decode(), qos, reason_code, existing))

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        self.told.append(("unsubscribed", connection, topic_filter.decode()))

    def on_blocked(self, connection: int) -> None:
        self.told.append(("blocked", connection))

    def on_unblocked(self, connection: int, duration_s: float, waiting_bytes: int) -> None:
        self.told.append(("unblocked", connection, duration_s, waiting_bytes))

    def of(self, trace: int) -> list[tuple[object, ...]]:
        """What became of one message: the same without its trace."""
        became = ("received", "routed", "queued", "sent", "acknowledged", "filtered", "dropped")
        return [(each[0], *each[2:]) for each in self.told if each[0] in became and each[1] == trace]

    def check_outcomes(self, shared: str) -> None:
        """Each followed message has an outcome for each whom it was for: one broker is all there is.

        One to a topic that begins with `shared` may go to another member after the first one's session ended.
        """
        told: dict[int, list[object]] = {trace: [] for trace in self.receivers}
        topics: dict[int, str] = {}
        for kind, trace, *rest in self.told:
            if kind in ("received", "sent", "queued", "filtered", "dropped"):
                assert isinstance(trace, int)
                if kind == "received":
                    topics[trace] = str(rest[0])
                else:
                    told[trace].append(rest[0])
        assert len(told) == self.traces, "each is routed"
        for trace, receivers in self.receivers.items():
            if receivers == 0:
                assert told[trace] == [NOBODY], f"{trace} is for nobody: {self.of(trace)}"
            else:
                assert receivers <= len(told[trace]), f"{trace}: {self.of(trace)}"
                if not topics[trace].startswith(shared):
                    assert len(set(told[trace])) == receivers, f"{trace}: {self.of(trace)}"


class Everything(Recorder):
    """Follows all messages."""

    def traces_topic(self, topic: bytes) -> bool:
        return True
