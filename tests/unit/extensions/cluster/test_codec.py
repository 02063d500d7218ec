"""The codec of commits: what is decoded is what was encoded, with the times of another process."""

import random
from typing import Final

import msgspec
import pytest

from mqttlite.core.changes import (
    IF_LOST,
    Change,
    Enqueue,
    LatestNumber,
    RemoveDelayed,
    SaveDelayed,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Stored,
)
from mqttlite.core.identity import Identity
from mqttlite.core.log_changes import (
    LOG_MARK,
    Append,
    Compact,
    Finish,
    KeepFrom,
    MoveHead,
    RemoveRecord,
    SaveDeadline,
    SaveRecord,
    Take,
)
from mqttlite.core.message import Delivery, Message, StoredOrigin
from mqttlite.core.message_filter import StoredFilter
from mqttlite.core.retained.writer import Writer
from mqttlite.core.route.subscription import FilteredSubscription
from mqttlite.extensions.cluster.codec import FORMAT, CodecError, decode, encode
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.packets import Will
from mqttlite.wire.properties import Properties
from tests.faults.workload import Workload, contents, differences

HERE_S: Final = 1_700_000_000.0
THERE_S: Final = 1_699_999_000.0
"""How far the wall clock is ahead of the seconds of two processes: the second began 1000 s earlier."""

KEY: Final = LOG_MARK + "stream/a"


def moved(*changes: Change) -> list[Change]:
    """The changes as another process reads them."""
    return decode(encode(changes, HERE_S), THERE_S)


@pytest.mark.long
async def test_commits_amount_to_the_same_on_another_machine() -> None:
    for seed in range(30):
        workload = Workload(random.Random(seed), longest=500)
        here, there = MemoryStore(pages=True), MemoryStore(pages=True)
        for _ in range(60):
            changes = workload.commit()
            here.commit(changes)
            there.commit(decode(encode(changes, HERE_S), HERE_S))
        found, expected = await contents(there), await contents(here)
        assert found == expected, f"seed {seed}: {differences(found, expected)}"


async def test_logs_amount_to_the_same_on_another_machine() -> None:
    deliveries = [Delivery(Message(b"t", b"%d" % number, 1), 1, False) for number in range(6)]
    commits: list[list[Change]] = [
        [SaveRecord(KEY, b"one"), *(Append(KEY, at, each) for at, each in enumerate(deliveries[:4]))],
        [Take(KEY, 0, 7), SaveDeadline(KEY, 0, 50.0), KeepFrom(KEY, 0), Take(KEY, 1, 1), Finish(KEY, 1)],
        [MoveHead(KEY, 1), SaveRecord(KEY, b"two"), Append(KEY, 4, deliveries[4])],
        [SaveRecord(KEY + "x", b""), Append(KEY + "x", 0, deliveries[5], 3), RemoveRecord(KEY + "y")],
    ]
    here, there = MemoryStore(pages=True), MemoryStore(pages=True)
    for changes in commits:
        here.commit(changes)
        there.commit(decode(encode(changes, HERE_S), HERE_S))
        found, expected = await contents(there), await contents(here)
        assert found == expected, differences(found, expected)


def test_times_are_those_of_the_reader() -> None:
    delivery = Delivery(Message(b"t", b"", 1, False, Properties(message_expiry_interval=60), 30.0), 1, False)
    session, will, lost, late, due, queued = moved(
        SaveSession("a", 60, 10.0, Identity("u", b"mount/", True), 4),
        SaveWill("a", Will(b"w", b"gone", 1, True), 20.0),
        SaveWill("b", Will(b"w", b"gone"), IF_LOST),
        SaveDelayed(5, Message(b"d", b"later"), 40.0, "a"),
        SaveDeadline(KEY, 3, 50.0),
        Enqueue("a", 0, delivery),
    )
    assert isinstance(session, SaveSession)
    assert session.expires_at == 1010.0
    identity = session.identity
    assert (identity.username, identity.mount_point, identity.is_trusted) == ("u", b"mount/", True)
    assert session.version == 4
    assert isinstance(will, SaveWill)
    assert (will.due_at, will.will.payload, will.will.retain) == (1020.0, b"gone", True)
    assert isinstance(lost, SaveWill)
    assert lost.due_at == IF_LOST
    assert isinstance(late, SaveDelayed)
    assert (late.number, late.due_at, late.client_id, late.message.payload) == (5, 1040.0, "a", b"later")
    assert isinstance(due, SaveDeadline)
    assert (due.key, due.offset, due.due_at) == (KEY, 3, 1050.0)
    assert isinstance(queued, Enqueue)
    assert queued.delivery.message.expires_at == 1030.0


def test_a_compacted_log_keeps_its_gaps() -> None:
    (compact,) = moved(Compact(KEY, 2, 9, (3, 7)))
    assert isinstance(compact, Compact)
    assert (compact.key, compact.first, compact.end, compact.kept) == (KEY, 2, 9, (3, 7))


def test_a_message_for_many_sessions_stays_one_object() -> None:
    delivery = Delivery(Message(b"t", b"x" * 1_000, 1), 1, False, (3, 4), StoredOrigin(b"group"))
    data = encode([Enqueue(f"{number}", number, delivery) for number in range(100)], HERE_S)
    assert len(data) < 3_000
    changes = decode(data, HERE_S)
    first = changes[0]
    assert isinstance(first, Enqueue)
    assert all(isinstance(each, Enqueue) and each.delivery is first.delivery for each in changes)
    assert first.delivery.identifiers == (3, 4)
    assert first.delivery.origin is not None
    assert first.delivery.origin.name == b"group"


def test_a_retained_message_keeps_its_writer_and_a_subscription_its_filter() -> None:
    message = Message(b"r", b"x", 1, True)
    message.writer, message.number = Writer("c", None), 77
    subscribed = FilteredSubscription("a", b"t/#", 1, True, False, 9, StoredFilter("qos = 1"), 18)
    retained, subscription, removed = moved(SaveRetained(message), SaveSubscription("a", subscribed), RemoveDelayed(12))
    assert isinstance(retained, SaveRetained)
    assert retained.message.number == 77
    assert retained.message.writer is not None
    assert (retained.message.writer.client_id, retained.message.writer.username) == ("c", None)
    assert isinstance(subscription, SaveSubscription)
    found = subscription.subscription
    assert found.message_filter is not None
    assert found.message_filter.expression == "qos = 1"
    assert (found.topic_filter, found.no_local, found.subscribed_at) == (b"t/#", True, 18)
    assert isinstance(removed, RemoveDelayed)
    assert removed.number == 12


@pytest.mark.parametrize("change", [LatestNumber(4), Stored("a", 0, 1, 10)], ids=["latest number", "stored"])
def test_a_change_that_only_a_store_makes_is_not_encoded(change: Change) -> None:
    with pytest.raises(TypeError, match="is nothing to commit"):
        encode([change], HERE_S)


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(CodecError, match=f"version {FORMAT + 1}, and this broker reads {FORMAT}: upgrade it"):
        decode(msgspec.msgpack.encode((FORMAT + 1, "whatever")), HERE_S)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        msgspec.msgpack.encode(FORMAT),
        msgspec.msgpack.encode((FORMAT, [], [])),
        msgspec.msgpack.encode((FORMAT, [b"short"], [], [])),
        msgspec.msgpack.encode((FORMAT, [], [], [(99,)])),
        msgspec.msgpack.encode((FORMAT, [], [], [(1, "a", 0, 5, 0)])),
        msgspec.msgpack.encode((FORMAT, [], [], [(2, "a")])),
        msgspec.msgpack.encode((FORMAT, [], [], [(14, b"no session")])),
    ],
    ids=[
        "empty",
        "no msgpack",
        "no list",
        "a part missing",
        "a message",
        "a kind",
        "no delivery",
        "a field",
        "a session",
    ],
)
def test_damage_is_named(data: bytes) -> None:
    with pytest.raises(CodecError, match="cannot be read"):
        decode(data, HERE_S)
