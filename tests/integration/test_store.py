"""One behaviour for every store: what was committed is what is loaded, as the shortest list of changes, in order."""

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from mqttlite.core.changes import (
    Change,
    EndSession,
    Enqueue,
    RemoveDelayed,
    RemoveReceived,
    RemoveReleased,
    RemoveRetained,
    RemoveSubscription,
    RemoveWill,
    SaveDelayed,
    SaveReceived,
    SaveReleased,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Sent,
    Settled,
)
from mqttlite.core.identity import Identity
from mqttlite.core.message import Delivery, Message
from mqttlite.core.message_filter import StoredFilter
from mqttlite.core.ports import Store
from mqttlite.core.retained.writer import Writer
from mqttlite.core.route.subscription import FilteredSubscription, Subscription
from mqttlite.extensions.cluster.replicated_store import ReplicatedStore
from mqttlite.store.memory import LOAD_BATCH, MemoryStore
from mqttlite.store.sqlite.store import SqliteStore
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Will
from tests.support.replicated import replicated
from tests.support.stores import everything


@pytest.fixture(params=["memory", "memory, by pages", "sqlite", "replicated", "the machine that follows"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        on_disk = SqliteStore(tmp_path)
        yield on_disk
        on_disk.close()
    elif request.param in ("replicated", "the machine that follows"):
        async with replicated(tmp_path) as pair:
            yield pair.leader if request.param == "replicated" else pair
    else:
        yield MemoryStore(pages=request.param == "memory, by pages")


async def commit(store: Store, *changes: Change) -> None:
    done: Awaitable[None] | None = store.commit(list(changes))
    if done is not None:
        await done
    if isinstance(store, ReplicatedStore):
        await store.picture.reached(store.sequence)


def session(client_id: str = "a", interval: int = 60, expires_at: float = 0.0) -> SaveSession:
    return SaveSession(client_id, interval, expires_at)


def subscription(topic_filter: bytes, qos: int = 1, client_id: str = "a") -> SaveSubscription:
    return SaveSubscription(client_id, Subscription(client_id, topic_filter, qos, False, False, 0, 17))


def filtered(topic_filter: bytes, expression: str) -> SaveSubscription:
    message_filter = StoredFilter(expression)
    return SaveSubscription("a", FilteredSubscription("a", topic_filter, 1, True, True, 9, message_filter, 18))


def message(sequence: int, payload: bytes = b"", client_id: str = "a", packet_id: int = 0) -> Enqueue:
    return Enqueue(client_id, sequence, Delivery(Message(b"t", payload, 1), 1, False), packet_id)


def will(topic: bytes = b"w", due_at: float = 9.5) -> SaveWill:
    return SaveWill("a", Will(topic, b"gone"), due_at)


def retained(topic: bytes, payload: bytes) -> SaveRetained:
    return SaveRetained(Message(topic, payload, retain=True))


def delayed(number: int, payload: bytes = b"", due_at: float = 9.5, client_id: str = "") -> SaveDelayed:
    return SaveDelayed(number, Message(b"t", payload, 1, True), due_at, client_id)


def shown(changes: list[Change]) -> list[tuple[object, ...]]:
    """What a change says, in a form that can be compared. Times may be some milliseconds off, because the wall clock,
    in which a store keeps them, may be corrected meanwhile."""
    rows: list[tuple[object, ...]] = []
    for change in changes:
        kind = type(change).__name__
        if isinstance(change, SaveRetained):
            rows.append((kind, change.message.topic, change.message.payload))
        elif isinstance(change, SaveSession):
            rows.append((kind, change.client_id, change.expiry_interval, round(change.expires_at, 2)))
            identity = change.identity
            rows.append((identity.username, change.version, identity.mount_point, identity.is_trusted))
        elif isinstance(change, SaveSubscription):
            rows.append((kind, change.client_id, change.subscription.topic_filter, change.subscription.qos))
            message_filter = change.subscription.message_filter
            expression = None if message_filter is None else message_filter.expression
            rows.append((expression, change.subscription.subscribed_at))
        elif isinstance(change, Enqueue):
            payload = change.delivery.message.payload
            rows.append((kind, change.client_id, change.sequence, change.packet_id, payload))
        elif isinstance(change, SaveWill):
            rows.append((kind, change.client_id, change.will, round(change.due_at, 2)))
        elif isinstance(change, SaveDelayed):
            rows.append((kind, change.number, change.message.topic, change.message.payload, change.message.qos))
            rows.append((change.message.retain, round(change.due_at, 2), change.client_id))
        else:
            assert isinstance(change, (SaveReleased, SaveReceived))
            rows.append((kind, change.client_id, change.packet_id))
    return rows


async def test_an_empty_store_has_nothing_to_say(store: Store) -> None:
    assert await everything(store) == []


async def test_committed_state_is_loaded_in_an_order_that_can_be_restored(store: Store) -> None:
    changes: list[Change] = [
        retained(b"r", b"1"),
        delayed(3, b"by a", 1.5, "a"),
        delayed(7),
        SaveSession("a", 60, 0.0, Identity("somebody"), V311),
        will(),
        subscription(b"x"),
        filtered(b"y", 'attributes."é" = "x"'),
        message(-1, b"overtook", packet_id=3),
        message(4, b"sent", packet_id=7),
        message(5, b"first"),
        message(6, b"second"),
        SaveReleased("a", 3, 8),
        SaveReceived("a", 9),
        session("b", 0xFFFF_FFFF),
        SaveSession("c", 60, 0.0, Identity(None, b"site/", is_trusted=True), V5),
    ]
    await commit(store, *changes[:4])
    await commit(store, *changes[4:])
    assert shown(await everything(store)) == shown(changes)


async def test_retained_and_delayed_messages_keep_their_writers(store: Store) -> None:
    writer, other = Writer("é", "user"), Writer("b", None)
    changes = [retained(b"1", b"x"), retained(b"2", b"x"), retained(b"3", b"x"), retained(b"4", b"x"), delayed(7)]
    for change, wrote in zip(changes, [writer, writer, other, None, writer], strict=True):
        change.message.writer = wrote
    await commit(store, *changes)
    found = [each.message.writer for each in await everything(store) if isinstance(each, SaveRetained | SaveDelayed)]
    assert found[:3] == [found[0], found[0], found[2]]
    assert found[3:] == [None, found[0]]
    assert [(each.client_id, each.username) for each in found if each is not None] == [
        ("é", "user"),
        ("é", "user"),
        ("b", None),
        ("é", "user"),
    ]


async def test_a_value_saved_again_replaces_the_old_one(store: Store) -> None:
    await commit(store, session(), subscription(b"x", 0), retained(b"r", b"1"), will(b"w"))
    await commit(store, filtered(b"x", "qos = 1"))
    again = [session("a", 60, 99.5), will(b"v", 1.0), subscription(b"x", 2)]
    await commit(store, *again, retained(b"r", b"2"))
    assert shown(await everything(store)) == shown([retained(b"r", b"2"), *again])


async def test_a_removed_message_is_gone(store: Store) -> None:
    await commit(store, session(), subscription(b"x"), will(), SaveReceived("a", 2), retained(b"r", b"1"))
    await commit(store, delayed(1))
    removed = [RemoveSubscription("a", b"x"), RemoveWill("a"), RemoveReceived("a", 2), RemoveRetained(b"r")]
    await commit(store, *removed, RemoveDelayed(1))
    assert shown(await everything(store)) == shown([session()])


async def test_sent_messages_come_before_waiting_ones_in_the_order_of_sending(store: Store) -> None:
    waits = [message(at, b"%d" % at) for at in range(10, 14)]
    await commit(store, session(), *waits, Sent("a", 10, 500), message(-1, b"overtook", packet_id=2), Sent("a", 11, 1))
    sent = [message(10, b"10", packet_id=500), message(-1, b"overtook", packet_id=2), message(11, b"11", packet_id=1)]
    assert shown(await everything(store)) == shown([session(), *sent, *waits[2:]])


async def test_a_message_is_settled_wherever_it_is(store: Store) -> None:
    waits = [message(at) for at in range(4)]
    await commit(store, session(), *waits, Sent("a", 0, 1), Sent("a", 1, 2), Settled("a", 1), Settled("a", 2))
    assert shown(await everything(store)) == shown([session(), message(0, packet_id=1), message(3)])
    await commit(store, Settled("a", 0), Settled("a", 3), Settled("a", 3), message(9))
    assert shown(await everything(store)) == shown([session(), message(9)])


async def test_a_message_that_arrived_leaves_its_identifier_to_be_released(store: Store) -> None:
    await commit(store, session(), message(0), Sent("a", 0, 7), SaveReleased("a", 0, 7))
    assert shown(await everything(store)) == shown([session(), SaveReleased("a", 0, 7)])
    await commit(store, RemoveReleased("a", 7))
    assert shown(await everything(store)) == shown([session()])


async def test_a_message_is_kept_once_however_many_sessions_have_it(store: Store) -> None:
    """A store in memory keeps the object, and any other gives one object back for all."""
    delivery = Delivery(Message(b"t", b"x", 1), 1, False)
    await commit(store, session("a"), session("b"), Enqueue("a", 0, delivery), Enqueue("b", 5, delivery))
    sent = [Sent("a", 0, 1), Sent("b", 5, 1)]
    await commit(store, *sent)
    first, second = [change for change in await everything(store) if isinstance(change, Enqueue)]
    assert first.delivery.message is second.delivery.message


async def test_a_session_that_ends_takes_all_that_is_its_own_along(store: Store) -> None:
    mine = [session(), will(), subscription(b"x"), message(1), message(2, packet_id=2), SaveReceived("a", 2)]
    other = [session("b"), subscription(b"x", client_id="b"), message(1, client_id="b")]
    await commit(store, *mine, *other)
    await commit(store, EndSession("a"))
    assert shown(await everything(store)) == shown([*other])
    await commit(store, session())
    assert shown(await everything(store)) == shown([*other, session()])


async def test_delayed_messages_come_in_the_order_of_their_numbers(store: Store) -> None:
    await commit(store, *[delayed(number, b"%d" % number, 20.0 - number) for number in range(9, 12)])
    await commit(store, RemoveDelayed(10), RemoveDelayed(10), delayed(100, b"last", 0.5))
    expected = [delayed(9, b"9", 11.0), delayed(11, b"11", 9.0), delayed(100, b"last", 0.5)]
    assert shown(await everything(store)) == shown([*expected])


async def test_a_delayed_message_outlives_the_session_of_its_publisher(store: Store) -> None:
    await commit(store, session(), delayed(1, client_id="a"), EndSession("a"))
    assert shown(await everything(store)) == shown([delayed(1, client_id="a")])


async def test_changes_of_a_session_that_is_gone_are_harmless(store: Store) -> None:
    gone: list[Change] = [message(1), Settled("a", 1), subscription(b"x"), RemoveSubscription("a", b"x"), will()]
    await commit(store, EndSession("a"), *gone, RemoveRetained(b"r"))
    assert await everything(store) == []


@pytest.mark.long
async def test_kept_messages_are_loaded_in_parts(store: Store) -> None:
    await commit(store, *[session(f"{at}") for at in range(2 * LOAD_BATCH + 1)])
    batches = store.load()
    assert len(next(batches)) <= LOAD_BATCH
    assert sum(map(len, batches)) > LOAD_BATCH
