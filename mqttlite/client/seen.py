"""Where an `IdempotentHandler` keeps which messages were handled: in memory, in SQLite, or in Redis.

Invariant: of those who `claim` a key at the same time one gets `CLAIMED`, until its lease ends or it says `forget`.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, final

MAX_KEYS: Final = 100_000
"""Keys that a store keeps: some ten megabytes. For one more, the one is forgotten that would be forgotten next."""

_FORGET_EVERY: Final = 1_000
"""After this many claims SQLite deletes the entries beyond their time or number."""

T = TypeVar("T")


class Claim(Enum):
    """The answer to a claim."""

    CLAIMED = "claimed"
    """It is the owner's to handle, or already was."""
    BUSY = "busy"
    """Another is handling it."""
    SEEN = "seen"
    """It was handled."""


class SeenStore(Protocol):
    """The port for stores."""

    async def claim(self, key: str, owner: str, lease_s: float) -> Claim:
        """Whether `owner` may handle `key`, for `lease_s`; a second claim begins the lease anew."""
        ...

    async def done(self, key: str, owner: str, ttl_s: float) -> None:
        """The key was handled: for `ttl_s`, claims get `SEEN`."""
        ...

    async def forget(self, key: str, owner: str) -> None:
        """It was not handled, and the next may claim it."""
        ...


@final
class MemorySeen:
    """For one process, which forgets everything when it ends."""

    def __init__(self, max_keys: int = MAX_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_keys: Final = _checked(max_keys)
        self._clock: Final = clock
        self._keys: Final[OrderedDict[str, tuple[str, float]]] = OrderedDict()
        """The owner, or "" for what was handled, and until when."""

    def __len__(self) -> int:
        return len(self._keys)

    async def claim(self, key: str, owner: str, lease_s: float) -> Claim:
        now = self._clock()
        found = self._keys.get(key)
        if found is not None and found[1] > now and found[0] != owner:
            return Claim.BUSY if found[0] else Claim.SEEN
        self._put(key, owner, now + lease_s)
        return Claim.CLAIMED

    async def done(self, key: str, owner: str, ttl_s: float) -> None:
        self._put(key, "", self._clock() + ttl_s)

    async def forget(self, key: str, owner: str) -> None:
        if self._keys.get(key, ("", 0.0))[0] == owner:
            del self._keys[key]

    def _put(self, key: str, owner: str, until: float) -> None:
        self._keys[key] = (owner, until)
        self._keys.move_to_end(key)
        now = self._clock()
        for oldest, (_, ends_at) in list(_first(self._keys, 2)):
            if ends_at > now and len(self._keys) <= self._max_keys:
                break
            del self._keys[oldest]


@final
class SqliteSeen:
    """A file, for the processes of one machine. What was handled is on disk when the message is acknowledged."""

    def __init__(self, path: str | Path, max_keys: int = MAX_KEYS, clock: Callable[[], float] = time.time) -> None:
        import sqlite3  # here, so that programs without it start sooner

        self._max_keys: Final = _checked(max_keys)
        self._clock: Final = clock
        self._thread: Final = ThreadPoolExecutor(1, "seen")
        self._claims = 0
        self._database: Final[sqlite3.Connection] = sqlite3.connect(
            path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=16
        )
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL)"
            " WITHOUT ROWID"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS seen_until ON seen (until)")

    async def claim(self, key: str, owner: str, lease_s: float) -> Claim:
        return await self._do(lambda: self._claim(key, owner, lease_s))

    async def done(self, key: str, owner: str, ttl_s: float) -> None:
        statement = "INSERT OR REPLACE INTO seen VALUES (?, '', ?)"
        await self._do(lambda: self._database.execute(statement, (key, self._clock() + ttl_s)))

    async def forget(self, key: str, owner: str) -> None:
        await self._do(lambda: self._database.execute("DELETE FROM seen WHERE key = ? AND owner = ?", (key, owner)))

    def close(self) -> None:
        """Close the file; afterwards nothing can be asked."""
        self._thread.shutdown()
        self._database.close()

    def _claim(self, key: str, owner: str, lease_s: float) -> Claim:
        database, now = self._database, self._clock()
        self._claims += 1
        if self._claims % _FORGET_EVERY == 0:
            self._forget_old(now)
        taken = database.execute(  # one statement, and so one transaction
            "INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, "
            "until = excluded.until WHERE until <= ? OR owner = excluded.owner",
            (key, owner, now + lease_s, now),
        )
        if taken.rowcount:
            return Claim.CLAIMED
        row = database.execute("SELECT owner FROM seen WHERE key = ?", (key,)).fetchone()
        return Claim.SEEN if row == ("",) else Claim.BUSY

    def _forget_old(self, now: float) -> None:
        self._database.execute("DELETE FROM seen WHERE until <= ?", (now,))
        [count] = self._database.execute("SELECT count(*) FROM seen").fetchone()
        self._database.execute(
            "DELETE FROM seen WHERE key IN (SELECT key FROM seen ORDER BY until LIMIT ?)",
            (max(0, count - self._max_keys),),
        )

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class RedisLike(Protocol):
    """The methods that are used of a client of Redis or Valkey, such as `redis.asyncio.Redis`."""

    async def set(self, name: str, value: str, *, nx: bool = False, xx: bool = False, px: int | None = None) -> Any: ...
    async def get(self, name: str) -> Any: ...
    async def delete(self, name: str) -> Any: ...


@final
class RedisSeen:
    """For processes of many machines. Redis forgets by itself; it bounds its memory by its own options."""

    def __init__(self, redis: RedisLike, prefix: str = "mqttlite:seen:") -> None:
        self._redis: Final = redis
        self._prefix: Final = prefix

    async def claim(self, key: str, owner: str, lease_s: float) -> Claim:
        name, px = self._prefix + key, _milliseconds(lease_s)
        if await self._redis.set(name, f"by {owner}", nx=True, px=px):
            return Claim.CLAIMED
        found = await self._owner(name)
        if found == f"by {owner}":
            await self._redis.set(name, found, xx=True, px=px)
            return Claim.CLAIMED
        return Claim.SEEN if found == "done" else Claim.BUSY

    async def done(self, key: str, owner: str, ttl_s: float) -> None:
        await self._redis.set(self._prefix + key, "done", px=_milliseconds(ttl_s))

    async def forget(self, key: str, owner: str) -> None:
        name = self._prefix + key
        if await self._owner(name) == f"by {owner}":
            await self._redis.delete(name)

    async def _owner(self, name: str) -> str:
        found = await self._redis.get(name)
        return found.decode() if isinstance(found, bytes) else str(found or "")


def _first(keys: "OrderedDict[str, tuple[str, float]]", count: int) -> list[tuple[str, tuple[str, float]]]:
    found = []
    for item in keys.items():
        found.append(item)
        if len(found) == count:
            break
    return found


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _checked(max_keys: int) -> int:
    if max_keys < 1:
        raise ValueError(f"max_keys is {max_keys}: 1 at least")
    return max_keys
