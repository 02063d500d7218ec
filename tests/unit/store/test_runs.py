"""How the store's thread writes the messages of many sessions, and yields Python's lock meanwhile."""

import pytest

from mqttlite.core.message import Delivery, Message
from mqttlite.store.sqlite.mirror import SessionMirror
from mqttlite.store.sqlite.rests import MESSAGES_BETWEEN_RESTS, Rests
from mqttlite.store.sqlite.runs import FAMILY_BYTES, Runs


@pytest.mark.parametrize("sessions", [1, 100])
def test_a_commit_yields_the_lock_however_few_messages_each_of_its_sessions_has(sessions: int) -> None:
    rested: list[None] = []
    messages = [Message(b"t", b"x", 1) for _ in range(20 * MESSAGES_BETWEEN_RESTS // sessions)]
    mirrors = []
    for number in range(sessions):
        mirror = SessionMirror(f"c{number}", number + 1)
        for sequence, message in enumerate(messages):
            mirror.enqueue(sequence, Delivery(message, 1, False), 0)
        mirrors.append(mirror)
    Runs(1, 0.0, Rests(lambda: rested.append(None))).add(mirrors)
    passes = 1 if sessions == 1 else 2  # the first one looks which messages are shared
    handled = passes * sessions * len(messages)
    assert handled // MESSAGES_BETWEEN_RESTS >= len(rested) >= handled // (2 * MESSAGES_BETWEEN_RESTS)


def runs_of(*families: str, payload: bytes = b"x") -> Runs:
    """What a commit writes with two messages for a log of each of these families."""
    mirrors = []
    for number, family in enumerate(families):
        mirror = SessionMirror(f"\0log/{number}", number + 1)
        mirror.family = family
        for sequence in range(2):
            mirror.enqueue(sequence, Delivery(Message(b"t", payload, 1), 1, False), 0)
        mirrors.append(mirror)
    runs = Runs(1, 0.0, Rests())
    runs.add(mirrors)
    return runs


def test_logs_of_one_family_share_a_chunk_and_others_have_their_own() -> None:
    runs = runs_of("a", "b", "a", "", "", "b", "a")
    assert [row[3] for row in runs.rows] == [1, 2, 1, 3, 4, 2, 1]
    assert [row[2] for row in runs.rows] == [2] * 7, "the messages of a log stay together"
    assert len(runs.chunks) == 4


def test_no_other_log_begins_in_a_long_chunk_of_its_family() -> None:
    half = b"x" * (FAMILY_BYTES // 4)
    assert [row[3] for row in runs_of("a", "a", "a", "a", payload=half).rows] == [1, 1, 2, 2]
