"""One behaviour for every store: what was committed is what is loaded, as the shortest list of changes, in order."""

from collections.abc import Awaitable, Callable

import pytest

from mqttlite.core.changes import (
    Change,
    EndSession,
    ReleaseMessage,
    RemoveReceived,
    RemoveRetained,
    RemoveSubscription,
    SaveMessage,
    SaveReceived,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SettleMessage,
)
from mqttlite.core.message import Delivery, Message
from mqttlite.core.ports import Store
from mqttlite.core.subscription import Subscription
from mqttlite.store.memory import MemoryStore


@pytest.fixture(params=[MemoryStore])
def store(request: pytest.FixtureRequest) -> Store:
    make: Callable[[], Store] = request.param
    return make()


async def commit(store: Store, *changes: Change) -> None:
    done: Awaitable[None] | None = store.commit(list(changes))
    if done is not None:
        await done


def session(client_id: str = "a", interval: int = 60, expires_at: float = 0.0) -> SaveSession:
    return SaveSession(client_id, interval, expires_at)


def subscription(topic_filter: bytes, qos: int = 1, client_id: str = "a") -> SaveSubscription:
    return SaveSubscription(client_id, Subscription(client_id, topic_filter, qos, False, False, 0))


def message(packet_id: int, payload: bytes = b"", client_id: str = "a") -> SaveMessage:
    return SaveMessage(client_id, packet_id, Delivery(Message(b"t", payload, 1), 1, False))


def retained(topic: bytes, payload: bytes) -> SaveRetained:
    return SaveRetained(Message(topic, payload, retain=True))


def shown(changes: list[Change]) -> list[tuple[object, ...]]:
    """What a change says, in a form that can be compared."""
    rows: list[tuple[object, ...]] = []
    for change in changes:
        kind = type(change).__name__
        if isinstance(change, SaveRetained):
            rows.append((kind, change.message.topic, change.message.payload))
        elif isinstance(change, SaveSession):
            rows.append((kind, change.client_id, change.expiry_interval, change.expires_at))
        elif isinstance(change, SaveSubscription):
            rows.append((kind, change.client_id, change.subscription.topic_filter, change.subscription.qos))
        elif isinstance(change, SaveMessage):
            rows.append((kind, change.client_id, change.packet_id, change.delivery.message.payload))
        else:
            assert isinstance(change, (ReleaseMessage, SaveReceived))
            rows.append((kind, change.client_id, change.packet_id))
    return rows


async def test_an_empty_store_has_nothing_to_say(store: Store) -> None:
    assert store.load() == []


async def test_what_was_committed_is_loaded_in_an_order_that_can_be_restored(store: Store) -> None:
    changes = [
        retained(b"r", b"1"),
        session(),
        subscription(b"x"),
        subscription(b"y"),
        message(7, b"first"),
        message(3, b"second"),
        SaveReceived("a", 9),
        session("b", 0xFFFF_FFFF),
    ]
    await commit(store, *changes[:4])
    await commit(store, *changes[4:])
    assert shown(store.load()) == shown(changes)


async def test_what_is_saved_again_takes_the_place_of_what_was(store: Store) -> None:
    await commit(store, session(), subscription(b"x", 0), retained(b"r", b"1"), message(1))
    await commit(store, session("a", 60, 99.5), subscription(b"x", 2), retained(b"r", b"2"), ReleaseMessage("a", 1))
    assert shown(store.load()) == shown(
        [retained(b"r", b"2"), session("a", 60, 99.5), subscription(b"x", 2), ReleaseMessage("a", 1)]
    )


async def test_what_is_removed_is_gone(store: Store) -> None:
    await commit(store, session(), subscription(b"x"), message(1), SaveReceived("a", 2), retained(b"r", b"1"))
    removed = [RemoveSubscription("a", b"x"), SettleMessage("a", 1), RemoveReceived("a", 2), RemoveRetained(b"r")]
    await commit(store, *removed)
    assert shown(store.load()) == shown([session()])


async def test_a_session_that_ends_takes_all_that_is_its_own_along(store: Store) -> None:
    mine = [session(), subscription(b"x"), message(1), SaveReceived("a", 2)]
    other = [session("b"), subscription(b"x", client_id="b"), message(1, client_id="b")]
    await commit(store, *mine, *other)
    await commit(store, EndSession("a"))
    assert shown(store.load()) == shown([*other])
    await commit(store, session())
    assert shown(store.load()) == shown([*other, session()])


async def test_an_identifier_that_is_used_again_stands_behind_those_that_were_waiting(store: Store) -> None:
    await commit(store, session(), message(1, b"old"), message(2), SettleMessage("a", 1), message(1, b"new"))
    assert shown(store.load()) == shown([session(), message(2), message(1, b"new")])


async def test_changes_of_a_session_that_is_gone_are_harmless(store: Store) -> None:
    gone: list[Change] = [message(1), SettleMessage("a", 1), subscription(b"x"), RemoveSubscription("a", b"x")]
    await commit(store, EndSession("a"), *gone, RemoveRetained(b"r"))
    assert store.load() == []
