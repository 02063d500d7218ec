"""Answers `why` questions: the outcomes of messages, in sentences and as data, and advice if nothing is known.

The delivery log has the outcomes; `why` words a single one. Invariant: an answer has a bounded size, and similar
outcomes are one sentence with a count.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from mqttlite.telemetry.alike import MAX_NAMED, Group, grouped
from mqttlite.telemetry.delivery_log import DeliveryLog, is_message_id
from mqttlite.telemetry.queue_attempts import QueueAttempts
from mqttlite.telemetry.tracing import UNFINISHED, DeliveryOutcome, Traced
from mqttlite.telemetry.wall import Wall
from mqttlite.telemetry.why import REASONS, clock, delivery_in_words, head, head_of_many
from mqttlite.topics.names import check_filter, has_wildcard, matches
from mqttlite.topics.namespaces import split_share
from mqttlite.wire.errors import TopicFilterInvalid

MAX_LINES: Final = 20
"""The most sentences in an answer, the latest ones."""

MAX_DELIVERIES: Final = 2_000
"""The most deliveries to examine for an answer, the latest ones: some milliseconds."""

MAX_ATTEMPTS: Final = 100
"""The most attempts of queues in an answer, the latest ones: as many as a queue may make for a message."""

MAX_ENTRIES: Final = 400
"""The most deliveries in the data of an answer, the latest ones: some hundred kilobytes."""

SETTLED_AFTER_S: Final = 1.0
"""How long a traced message may take before it is reported as waiting."""


class Broker(Protocol):
    """The current state of the broker for answers."""

    def filters_of(self, client_id: str) -> list[bytes] | None:
        """The topic filters of a client's session; None where it has none."""
        ...

    def retained_on(self, topic: bytes) -> tuple[int, int] | None:
        """QoS and payload bytes of the message retained on a topic."""
        ...

    def cuts_of(self, client_id: str) -> list[str]:
        """Sentences about limits that affect the client and are not tied to a message."""
        ...


class Answers:
    """`stopwatch` returns the seconds of the clock for traces. One message in `mean_distance()` is sampled."""

    def __init__(
        self,
        delivery_log: DeliveryLog,
        broker: Broker,
        wall: Wall,
        attempts: QueueAttempts,
        *,
        stopwatch: Callable[[], float],
        mean_distance: Callable[[], float],
    ) -> None:
        self._log: Final = delivery_log
        self._broker: Final = broker
        self._wall: Final = wall
        self._attempts: Final = attempts
        self._stopwatch: Final = stopwatch
        self._mean_distance: Final = mean_distance

    def why(self, target: str, client: str | None = None) -> dict[str, Any]:
        """The outcomes of a message, by its id, or of the latest ones of a topic or filter; ready for JSON.

        With a `client`, only their outcomes for this client, or those of messages that it published; without a target,
        all of them. A target that is only the identifier of a client is about that client. The answer has `sentences`,
        and the same as data in `entries`; if nothing is known, a sentence says why.
        """
        if target or client is None:
            found, about = self._log.find(target)
        else:
            found, about = self._log.of_client(client), f"Nothing is known of any message from or to {client}."
        cuts = [] if client is None else self._broker.cuts_of(client)
        if client is not None and not self.knows(client) and self._broker.filters_of(client) is None and not cuts:
            return self._answer(target, client, [], [_unknown(client)])
        retained = self._retained(target)
        if not found and client is None and self._is_client(target):
            return self.why("", target)
        if not found:
            return self._answer(
                target, client, [], [about, *cuts, *retained, *self._advice(target, client)], bool(cuts)
            )
        deliveries = [delivery for message in found[-MAX_DELIVERIES:] for delivery in _deliveries_to(message, client)][
            -MAX_DELIVERIES:
        ]
        if not deliveries:
            assert client is not None, "without one every message has a delivery"
            return self._answer(target, client, [], [self._not_for(found, client), *cuts], bool(cuts))
        attempts = self._attempts.sentences(found[0].trace)[-MAX_ATTEMPTS:] if len(found) == 1 else []
        lines = self._lines(deliveries, found)
        return self._answer(target, client, deliveries, [*lines, *attempts, *cuts, *retained])

    def knows(self, client: str) -> bool:
        """Whether the log has messages from or to a client."""
        return bool(self._log.of_client(client))

    def _is_client(self, name: str) -> bool:
        """Whether a target is the identifier of a client and not the topic of a known message."""
        broker = self._broker
        return self.knows(name) or broker.filters_of(name) is not None or bool(broker.cuts_of(name))

    def follow(self, topic_filter: str, after: int | None, client: str | None = None) -> dict[str, Any]:
        """The outcomes of messages of a filter, or from and to a client, that arrived after trace `after`; None: from
        now on.

        `latest` is the next value for `after`. A message is included when its deliveries have ended, or after
        `SETTLED_AFTER_S`.
        """
        wanted = topic_filter.encode()
        now = self._stopwatch()
        latest = self._log.latest if after is None else after
        deliveries: list[DeliveryOutcome] = []
        for message in self._log.after(latest):
            if message.open and now - message.received < SETTLED_AFTER_S:
                break
            latest = message.trace
            if client is not None:
                deliveries += _deliveries_to(message, client)
            elif matches(wanted, message.topic):
                deliveries += message.deliveries.values()
        deliveries = deliveries[-MAX_DELIVERIES:]
        lines = self._lines(deliveries, []) if deliveries else []
        return {"sentences": lines, "entries": self._entries(deliveries), "latest": latest}

    # ------------------------------------------------------------------ sentences

    def _lines(self, deliveries: list[DeliveryOutcome], found: list[Traced]) -> list[str]:
        groups = grouped(deliveries)
        lines = [self._line(group) for group in groups[-MAX_LINES:]]
        if len(groups) > MAX_LINES:
            lines.insert(0, f"The latest {MAX_LINES} of {len(groups)} lines, about {len(found)} messages:")
        return lines

    def _line(self, group: Group) -> str:
        now = self._stopwatch()
        delivery = group.slowest(now) if len(group.deliveries) > 1 else group.deliveries[0]
        at = self._wall.at(delivery.message.at)
        words = delivery_in_words(delivery, at, now, group.whom())
        has_times = delivery.queued is not None or delivery.sent is not None
        slowest = "; the times are those of the slowest" if len(group.deliveries) > 1 and has_times else ""
        if len(group.messages) == 1:
            return f"{head(delivery.message, str(delivery.message.trace), at)}: {words}{slowest}"
        messages = list(group.messages)
        ids = str(messages[0].trace), str(messages[-1].trace)
        times = self._wall.at(messages[0].at), self._wall.at(messages[-1].at)
        return f"{head_of_many(messages[0], len(messages), ids, times)}: {words}{slowest}"

    def _not_for(self, found: list[Traced], client: str) -> str:
        """Why none of the messages was for a known client."""
        topics = {message.topic for message in found}
        filters = self._broker.filters_of(client)
        fitting = [each for each in filters or () if any(matches(split_share(each)[1], topic) for topic in topics)]
        if filters is None:
            why = "it has no session now"
        elif fitting:
            why = (
                f"it subscribes to {_listed([each.decode() for each in fitting])} now, and either did not when they "
                "came or is not the member that its shared subscription chose"
            )
        elif filters:
            why = f"it subscribes to {_listed([each.decode() for each in filters])}, which does not match"
        else:
            why = "it subscribes to nothing"
        names = list(dict.fromkeys(name for message in found for name in message.deliveries if name is not None))
        whom = _listed(names) or "nobody"
        if len(found) == 1:
            return f"{found[0].trace!s} was not for {client}: {why}. It was for {whom}."
        return f"None of {len(found)} messages was for {client}: {why}. They were for {whom}."

    def _retained(self, target: str) -> list[str]:
        """A sentence about the retained message of a topic, whose deliveries are not traced."""
        topic = target.encode(errors="replace")
        kept = None if not topic or has_wildcard(topic) else self._broker.retained_on(topic)
        if kept is None:
            return []
        qos, size = kept
        return [
            f"A message of {size} bytes at QoS {qos} is retained on {target}: a client gets it when it subscribes, "
            "and that is not traced."
        ]

    def _advice(self, target: str, client: str | None) -> list[str]:
        """Sentences about the current tracing, the range of the delivery log, and how to trace more."""
        log, options = self._log, self._log.options
        chosen = []
        topics = [*options.topics, *(each.decode() for each in sorted(log.followed))]
        if topics:
            chosen.append(f"the topics {', '.join(topics)}")
        if options.clients:
            chosen.append(f"the messages from and to {', '.join(options.clients)}")
        if options.sampled:
            one_in = self._one_in()
            chosen.append("all others too while there are so few" if one_in == 1 else f"one in {one_in} of all others")
        end = "."
        if log.has_forgotten:
            end = f" and holds {len(log)} outcomes; [delivery_log] entries and max_bytes limit it."
        said = [
            f"Traced are {'; '.join(chosen)}." if chosen else "Nothing is traced now.",
            f"The delivery log goes back to {clock(log.since())}{end}",
        ]
        topic = target.encode(errors="replace")
        is_topic = not is_message_id(target) and _is_filter(topic)
        if is_topic and not log.traces_topic(topic) and (client is None or not log.traces_client(client)):
            wanted = f"topics = [{msgspec.json.encode(target).decode()}]"
            if client is not None:
                wanted += f" or clients = [{msgspec.json.encode(client).decode()}]"
            said.append(
                f"To trace every message of it from now on, run: mqttlite why --follow '{target}'. To trace it always, "
                f"put {wanted} below [delivery_log] and start again."
            )
        return said

    # ------------------------------------------------------------------ data

    def _answer(
        self,
        target: str,
        client: str | None,
        deliveries: list[DeliveryOutcome],
        sentences: list[str],
        is_known: bool = False,
    ) -> dict[str, Any]:
        options = self._log.options
        return {
            "target": target,
            "client": client,
            "known": bool(deliveries) or is_known,
            "sentences": sentences,
            "entries": self._entries(deliveries),
            "attempts": self._attempts.entries(deliveries[0].message.trace)[-MAX_ATTEMPTS:]
            if len({delivery.message.trace for delivery in deliveries}) == 1
            else [],
            "traced": {
                "topics": list(options.topics),
                "clients": list(options.clients),
                "followed": sorted(each.decode() for each in self._log.followed),
                "sampled": options.sampled,
                "one_in": self._one_in(),
            },
            "since": self._log.since().isoformat(),
        }

    def _entries(self, deliveries: list[DeliveryOutcome]) -> list[dict[str, Any]]:
        return [self._entry(delivery) for delivery in deliveries[-MAX_ENTRIES:]]

    def _entry(self, delivery: DeliveryOutcome) -> dict[str, Any]:
        message = delivery.message
        rule = REASONS.get(delivery.reason)
        waits = delivery.outcome == UNFINISHED and delivery.ended is None
        return {
            "message_id": str(message.trace),
            "at": self._wall.at(message.at).isoformat(),
            "topic": message.topic.decode(errors="replace"),
            "qos": message.qos,
            "publisher": message.publisher,
            "receiver": delivery.receiver,
            "outcome": "waiting" if waits else delivery.outcome,
            "reason": delivery.reason or (delivery.why if waits else "") or None,
            "detail": delivery.detail or None,
            "rule": rule.settings or None if rule is not None else None,
            "queued_s": _apart(delivery.queued, delivery.sent or delivery.ended),
            "written_s": _apart(message.received, delivery.written),
            "acknowledged_s": _apart(delivery.written, delivery.acknowledged),
        }

    def _one_in(self) -> int:
        return max(1, round(self._mean_distance()))


def _unknown(client: str) -> str:
    return f"There is no client {client}: it has no session, and no message in the delivery log is from it or for it."


def _listed(names: list[str]) -> str:
    """Some of many names."""
    left = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {left} others" if left > 0 else "")


def _is_filter(topic: bytes) -> bool:
    try:
        check_filter(topic)
    except TopicFilterInvalid:
        return False
    return True


def _deliveries_to(message: Traced, client: str | None) -> list[DeliveryOutcome]:
    """The deliveries to a client, or all if it published the message."""
    deliveries = list(message.deliveries.values())
    if client is None or message.publisher == client:
        return deliveries
    return [delivery for delivery in deliveries if delivery.receiver == client]


def _apart(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(end - start, 6)
