"""How the store's thread writes the messages of many sessions, and yields Python's lock meanwhile."""

import pytest

from mqttlite.core.message import Delivery, Message
from mqttlite.store.sqlite.mirror import SessionMirror
from mqttlite.store.sqlite.rests import MESSAGES_BETWEEN_RESTS, Rests
from mqttlite.store.sqlite.runs import Runs


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
