"""An idempotent handler with each of the stores: duplicates, also at the same time; failures; a process that dies."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mqttlite.client import Claim, IdempotentHandler, MemorySeen, Message, Properties, RedisSeen, SeenStore, SqliteSeen


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class FakeRedis:
    """What is used of Redis, with its meanings."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: dict[str, tuple[bytes, float]] = {}

    async def set(self, name: str, value: str, *, nx: bool = False, xx: bool = False, px: int | None = None) -> Any:
        known = await self.get(name) is not None
        if (nx and known) or (xx and not known):
            return None
        self._keys[name] = (value.encode(), self._clock.now + (px or 1e12) / 1000)
        return True

    async def get(self, name: str) -> Any:
        value, until = self._keys.get(name, (b"", 0.0))
        return value if until > self._clock.now else None

    async def delete(self, name: str) -> Any:
        self._keys.pop(name, None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncIterator[SeenStore]:
    if request.param == "memory":
        yield MemorySeen(clock=clock)
    elif request.param == "redis":
        yield RedisSeen(FakeRedis(clock))
    else:
        made = SqliteSeen(tmp_path / "seen.db", clock=clock)
        yield made
        made.close()


def message(message_id: str = "1", payload: bytes = b"") -> Message:
    told = [("message-id", "of the publisher"), ("message-id", message_id)]
    return Message("t", payload, properties=Properties(user_properties=told))


async def test_a_store_gives_a_key_to_one(store: SeenStore, clock: Clock) -> None:
    assert await store.claim("k", "a", 10) is Claim.CLAIMED
    assert await store.claim("k", "b", 10) is Claim.BUSY
    clock.now += 6
    assert await store.claim("k", "a", 10) is Claim.CLAIMED, "the owner has longer"
    clock.now += 6
    assert await store.claim("k", "b", 10) is Claim.BUSY
    clock.now += 6
    assert await store.claim("k", "b", 10) is Claim.CLAIMED, "its owner has died"
    await store.forget("k", "a")
    assert await store.claim("k", "a", 10) is Claim.BUSY, "only the owner forgets"
    await store.forget("k", "b")
    assert await store.claim("k", "a", 10) is Claim.CLAIMED
    await store.done("k", "a", 100)
    assert await store.claim("k", "a", 10) is Claim.SEEN
    clock.now += 101
    assert await store.claim("k", "b", 10) is Claim.CLAIMED, "it is not remembered for ever"


async def test_a_message_is_handled_once(store: SeenStore) -> None:
    handled = []

    async def handle(each: Message) -> None:
        handled.append(each.payload)

    handler = IdempotentHandler(handle, store)
    assert [await handler(message("1", b"x")), await handler(message("1", b"x"))] == [True, False]
    assert await handler(message("2", b"y"))
    assert handled == [b"x", b"y"]


async def test_duplicates_at_the_same_time_are_handled_once(store: SeenStore) -> None:
    """Also by several handlers with one store, as several processes would be."""
    handled = 0

    async def handle(_message: Message) -> None:
        nonlocal handled
        await asyncio.sleep(0.02)
        handled += 1

    handlers = [IdempotentHandler(handle, store) for _ in range(3)]
    results = await asyncio.gather(*[handlers[at % 3](message()) for at in range(9)])
    assert (handled, results.count(True)) == (1, 1)


async def test_a_failure_is_raised_and_forgotten(store: SeenStore) -> None:
    calls = 0

    def handle(_message: Message) -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.01)
        if calls == 1:
            raise RuntimeError("not today")

    handler = IdempotentHandler(handle, store)
    first, second = await asyncio.gather(handler(message()), handler(message()), return_exceptions=True)
    assert isinstance(first, RuntimeError)
    assert second is True, "who waited handles it"
    assert await handler(message()) is False


async def test_cancelling_forgets(store: SeenStore) -> None:
    started = asyncio.Event()

    async def handle(_message: Message) -> None:
        started.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(IdempotentHandler(handle, store)(message()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.claim("1", "other", 1) is Claim.CLAIMED


async def test_a_message_in_hand_when_its_process_died_is_handled_again(store: SeenStore, clock: Clock) -> None:
    await store.claim("1", "the dead", 30)

    async def pass_time() -> None:
        await asyncio.sleep(0.05)
        clock.now += 31

    handler = IdempotentHandler(lambda _message: None, store)
    result, _ = await asyncio.gather(handler(message()), pass_time())
    assert result is True


async def test_a_handler_that_takes_longer_than_its_lease_keeps_its_message(
    store: SeenStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = 0
    claimed = asyncio.Event()
    claim = store.claim

    async def noted(key: str, owner: str, lease: float) -> Claim:
        found = await claim(key, owner, lease)
        if found is Claim.CLAIMED:
            claimed.set()
        return found

    async def handle(_message: Message) -> None:
        nonlocal handled
        for _ in range(4):
            claimed.clear()
            await claimed.wait()
            clock.now += 0.06
        handled += 1

    monkeypatch.setattr(store, "claim", noted)
    handler = IdempotentHandler(handle, store, lease=0.1)
    assert sorted(await asyncio.gather(handler(message()), handler(message()))) == [False, True]
    assert handled == 1


async def test_sqlite_remembers_over_a_restart(tmp_path: Path) -> None:
    for expected in (True, False):
        store = SqliteSeen(tmp_path / "seen.db")
        assert await IdempotentHandler(lambda _message: None, store)(message()) is expected
        store.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", [MemorySeen, SqliteSeen])
async def test_a_store_keeps_so_many_keys(kind: Callable[..., Any], tmp_path: Path, clock: Clock) -> None:
    most = 100
    store = MemorySeen(most, clock) if kind is MemorySeen else SqliteSeen(tmp_path / "seen.db", most, clock)
    for number in range(1_000):
        await store.done(str(number), "a", 60 + number)
        if kind is SqliteSeen:
            await store.claim("held", "a", 1e6)
        if kind is MemorySeen:
            assert len(store) <= most  # type: ignore[arg-type]
    assert await store.claim("999", "a", 1) is Claim.SEEN
    assert await store.claim("0", "a", 1) is Claim.CLAIMED
    if kind is SqliteSeen:
        store.close()  # type: ignore[union-attr]


async def test_the_program_chooses_the_key() -> None:
    handler = IdempotentHandler(lambda _message: None, key=lambda each: each.payload.decode())
    assert await handler(message("1", b"order 7"))
    assert not await handler(message("2", b"order 7"))
    with pytest.raises(ValueError, match="no message-id"):
        await IdempotentHandler(print)(Message("t", b""))


@pytest.mark.parametrize("wrong", [{"ttl": 0}, {"lease": -1}])
def test_times_are_above_zero(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        IdempotentHandler(print, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_keys is 0"):
        MemorySeen(0)
