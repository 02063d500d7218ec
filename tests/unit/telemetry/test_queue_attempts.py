"""Rows of `attempts` and `dead_letters`, made by a queue at work; and what is kept of traced messages."""

from typing import Any

import pytest

from mqttlite.core.connect.attempts import Attempt
from mqttlite.core.message import Message
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.extensions.dataset.recorder import DatasetRecorder
from mqttlite.extensions.dataset.tables import AttemptRow, DeadLetterRow, Row
from mqttlite.telemetry import queue_attempts
from mqttlite.telemetry.queue_attempts import QueueAttempts
from mqttlite.telemetry.wall import Wall
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish
from tests.support.core_driver import publishes
from tests.support.queues import QueueWorld, deliveries, options


class Watched:
    """A queue, and the rows that telemetry makes of it."""

    def __init__(self, names: Pseudonyms | None = None, per_s: int = 1_000, **fields: Any) -> None:
        self.world = QueueWorld([options(**fields)])
        self.rows: list[Row] = []
        wall = Wall(self.world.now, wall_clock=lambda: self.world.now, steady_clock=lambda: 0.0)
        self.recorder = DatasetRecorder(
            *(self.world.broker, {}, "run", wall, names or Pseudonyms(), lambda _, row: self.rows.append(row)),
            TelemetryOptions(directory="nowhere", samples_per_s=per_s),
            clock=lambda: self.world.now,
        )
        self.attempts = QueueAttempts(wall, self.recorder, lambda: self.world.now, 1)
        self.world.queues.watch(self.attempts)

    def told(self) -> list[tuple[Any, ...]]:
        self.recorder.flush()
        return [
            (row.attempt, row.consumer, row.outcome, row.held_us, row.ordering_key, row.behind)
            for row in self.rows
            if isinstance(row, AttemptRow)
        ]

    def letters(self) -> list[DeadLetterRow]:
        self.recorder.flush()
        return [row for row in self.rows if isinstance(row, DeadLetterRow)]


def test_each_delivery_has_a_row_when_it_is_over() -> None:
    watched = Watched(max_attempts=4, ordering=True)
    world = watched.world
    client = world.connect("c", auto_ack=False)
    client.subscribe("$queue/q", qos=1)
    for number in range(3):
        world.publish("a/b", str(number), user_properties=[("ordering-key", "k")])
    (packet,) = publishes(client.received())
    assert isinstance(packet, Publish)
    world.advance(2)
    client.send(Ack(PUBACK, packet.packet_id, 0x80))
    world.advance(1.2)
    client.lose()
    other = world.connect("d", auto_ack=False)
    other.subscribe("$queue/q", qos=1)
    world.advance(10.01 + 4.4)
    (first, _) = publishes(other.received())
    assert deliveries([first]) == [("0", 3)]
    world.queues.ack("q", [])
    assert watched.told() == [
        (1, "c", "nacked", 2_000_000, "k", 2),
        (2, "c", "disconnected", watched.told()[1][3], "k", 2),
        (3, "d", "deadline", 10_010_000, "k", 2),
    ]
    world.queues.purge("q")
    assert watched.told()[3][:3] == (4, "d", "purged")
    row = watched.rows[0]
    assert isinstance(row, AttemptRow)
    assert (row.queue, row.topic, row.detail, row.one_in) == ("q", "a/b", "reason code 0x80", 1)
    assert (row.ended_at - row.delivered_at).total_seconds() == 2.0
    world.end()


def test_a_message_that_is_given_up_has_a_row_with_its_cause() -> None:
    watched = Watched(max_attempts=1)
    world = watched.world
    world.publish("a/b", "12345")
    (pulled,) = world.queues.pull("q", 1, consumer="worker")
    world.advance(1)
    world.queues.nack("q", [pulled.ack_id])
    (letter,) = watched.letters()
    assert (letter.queue, letter.topic, letter.cause, letter.attempts) == ("q", "a/b", "nacked", 1)
    assert (letter.consumer, letter.ordering_key, letter.payload_bytes) == ("worker", None, 5)
    assert letter.message_id == str(pulled.message.number)
    assert letter.first_at == letter.last_at
    assert letter.first_at is not None
    assert (letter.at - letter.first_at).total_seconds() == 1.0
    world.queues.drop_dead_letter("q", 1)
    world.end()


def test_a_consumer_of_qos_0_acknowledges_nothing() -> None:
    watched = Watched()
    watched.world.connect("c").subscribe("$queue/q", qos=0)
    watched.world.publish("a", "x")
    assert watched.told() == [(1, "c", "sent", 0, None, 0)]
    watched.world.end()


def test_names_are_pseudonyms_where_it_is_asked_for() -> None:
    watched = Watched(Pseudonyms(("client_ids", "topics"), b"k" * 32), ordering=True)
    watched.world.publish("a/b", "x", user_properties=[("ordering-key", "k")])
    (pulled,) = watched.world.queues.pull("q", 1, consumer="worker")
    watched.world.queues.ack("q", [pulled.ack_id])
    ((_, consumer, _, _, key, _),) = watched.told()
    assert consumer.startswith("c-")
    assert key.startswith("c-")
    assert isinstance(watched.rows[0], AttemptRow)
    assert watched.rows[0].topic.startswith("t-")
    watched.world.end()


@pytest.mark.long
def test_of_a_flood_about_as_many_have_rows_as_was_asked_and_failures_are_counted_apart() -> None:
    watched = Watched(per_s=20)
    world = watched.world
    failed = 0
    for second in range(10):
        for number in range(200):
            world.publish("a", str(number))
            (pulled,) = world.queues.pull("q", 1)
            if second == 9 and number < 5:
                failed += world.queues.nack("q", [pulled.ack_id], 0.0)[0]
                (pulled,) = world.queues.pull("q", 1)
            world.queues.ack("q", [pulled.ack_id])
        world.advance(1.0)
        watched.attempts.tick()
        watched.recorder.tick(0.0)
    rows = [row for row in watched.rows if isinstance(row, AttemptRow)]
    ended = [row for row in rows if row.outcome == "acknowledged"]
    assert 150 <= len(ended) <= 350
    assert sum(row.one_in for row in ended) == pytest.approx(2_000, rel=0.1)
    assert len([row for row in rows if row.outcome == "nacked"]) == failed == 5
    world.end()


def test_of_traced_messages_so_many_attempts_are_kept_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_attempts, "MAX_KEPT", 3)
    attempts = QueueAttempts(Wall(0.0), None, lambda: 0.0)

    def attempt(trace: int, number: int, consumer: str = "c") -> None:
        message = Message(b"a", b"x", 1)
        message.trace = trace
        attempts.on_attempt(Attempt("q", message, consumer, "", number, 1.0, 1.5, "nacked", "", 0), 0)

    for trace, number in ((1, 1), (1, 2), (2, 1)):
        attempt(trace, number)
    assert attempts.sentences(1)[1].endswith("nacked after 500 ms")
    assert [len(attempts.entries(trace)) for trace in (1, 2, 3)] == [2, 1, 0]
    attempt(3, 1)
    assert [len(attempts.entries(trace)) for trace in (1, 2, 3)] == [0, 1, 1]
    attempt(4, 1, "c" * queue_attempts.MAX_KEPT_BYTES)
    assert [len(attempts.entries(trace)) for trace in (1, 2, 3, 4)] == [0, 0, 0, 0]
