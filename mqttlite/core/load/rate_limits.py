"""Token buckets: rate limits. `throttling` uses them for messages from clients, `pace` for messages to clients.

A bucket allows debt: the caller charges everything that was read together, and the debt says how long to pause.
Invariant: in any time `t` the amount taken without debt is at most `rate * t + burst` plus the last amount.
"""

from typing import Final, final

ALL_AT_ONCE: Final = 1 << 30
"""Stands for any number of messages where there is no limit."""

DEBT_S: Final = 10.0
"""The longest debt, in seconds of the rate, that use elsewhere may leave: another node may have a higher rate."""

MAX_KEYS: Final = 100_000
"""Clients, users or addresses remembered for one limit, some 40 MB. One more replaces the one that was silent for
longest, which later starts again with a full bucket."""


@final
class TokenBucket:
    """`rate` is per second; `burst` may pass at once. Both must be above 0."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate: Final = rate
        self._burst: Final = burst
        self._tokens = burst
        self._at = now

    def left(self, now: float) -> float:
        """How much may pass now; negative while there is a debt."""
        return min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)

    def room(self, now: float) -> float:
        """How much may be taken at once: what may pass now, or a tenth of the burst."""
        return max(self.left(now), self._burst / 10)

    def take(self, amount: float, now: float) -> float:
        """Charge an amount. Return after how many seconds the debt is paid, 0.0 if there is none."""
        self._tokens = self.left(now) - amount
        self._at = max(self._at, now)
        return 0.0 if self._tokens >= 0.0 else -self._tokens / self._rate

    def charge(self, amount: float, now: float) -> None:
        """Charge what was taken elsewhere."""
        left = self.left(now)
        self._tokens = max(left - amount, min(left, -self._rate * DEBT_S))
        self._at = max(self._at, now)

    def try_take(self, amount: float, now: float) -> bool:
        """Charge an amount if the bucket has it, else charge nothing. Return whether it was charged."""
        if self.left(now) < amount:
            return False
        self.take(amount, now)
        return True


@final
class Rate:
    """Messages and bytes per second (0: no limit), and how many seconds' worth may pass at once."""

    __slots__ = ("burst_s", "bytes_per_s", "messages_per_s")

    def __init__(self, messages_per_s: float = 0.0, bytes_per_s: float = 0.0, burst_s: float = 1.0) -> None:
        self.messages_per_s: Final = messages_per_s
        self.bytes_per_s: Final = bytes_per_s
        self.burst_s: Final = burst_s

    @property
    def is_set(self) -> bool:
        return self.messages_per_s > 0.0 or self.bytes_per_s > 0.0


@final
class Buckets:
    """The buckets for messages and for bytes of one client, one user, or all clients together."""

    __slots__ = ("_bytes", "_messages", "_told", "is_over_messages", "key", "taken", "taken_bytes")

    def __init__(self, rate: Rate, now: float, key: str = "", told: "list[Buckets] | None" = None) -> None:
        """`told` gets these buckets when something is taken from them, and `taken` is 0."""
        self._messages: Final = _bucket(rate.messages_per_s, rate.burst_s, now)
        self._bytes: Final = _bucket(rate.bytes_per_s, rate.burst_s, now)
        self.is_over_messages: bool = False
        """Whether the latest debt is one of messages, and not of bytes alone."""
        self.key: Final = key
        self.taken: int = 0
        self.taken_bytes: int = 0
        """The messages and bytes that are in `told`."""
        self._told: Final = told

    def take(self, messages: int, size: int, now: float) -> float:
        """Charge both. Return after how many seconds the debt is paid."""
        if self._told is not None:
            if not (self.taken or self.taken_bytes):
                self._told.append(self)
            self.taken += messages
            self.taken_bytes += size
        wait_s = 0.0 if self._messages is None else self._messages.take(messages, now)
        self.is_over_messages = wait_s > 0.0
        return wait_s if self._bytes is None else max(wait_s, self._bytes.take(size, now))

    def charge(self, messages: int, size: int, now: float) -> None:
        """Charge what was taken elsewhere."""
        if self._messages is not None:
            self._messages.charge(messages, now)
        if self._bytes is not None:
            self._bytes.charge(size, now)

    def room(self, now: float) -> int:
        """How many messages may be handled before they are charged: those that may pass now, and at least a tenth of
        the burst, so that a client with a high rate is not held for each message."""
        return ALL_AT_ONCE if self._messages is None else int(self._messages.room(now))

    def have(self, messages: int, size: int, now: float) -> bool:
        """Whether this much may pass now without a debt."""
        if self._messages is not None and self._messages.left(now) < messages:
            return False
        return self._bytes is None or self._bytes.left(now) >= size


def _bucket(rate: float, burst_s: float, now: float) -> TokenBucket | None:
    return TokenBucket(rate, max(1.0, rate * burst_s), now) if rate > 0.0 else None


@final
class BucketTable:
    """The buckets of each key, for the `max_keys` most recently used keys."""

    __slots__ = ("_found", "_max_keys", "_rate", "_told")

    def __init__(self, rate: Rate, max_keys: int = MAX_KEYS) -> None:
        self._rate: Final = rate
        self._max_keys: Final = max_keys
        self._found: Final[dict[str, Buckets]] = {}
        self._told: list[Buckets] | None = None

    def __len__(self) -> int:
        return len(self._found)

    def of(self, key: str, now: float) -> Buckets:
        """The buckets of a key. An unknown key gets full ones."""
        buckets = self._found.pop(key, None)
        if buckets is None:
            buckets = Buckets(self._rate, now, key, self._told)
            if len(self._found) >= self._max_keys:
                del self._found[next(iter(self._found))]
        self._found[key] = buckets
        return buckets

    def share(self) -> None:
        """From now on `taken` says what is taken. Call it before there are keys."""
        self._told = []

    def taken(self, most: int) -> list[tuple[str, int, int]]:
        """What was taken since the last call: keys with messages and bytes. At most `most` keys; the others come
        next."""
        assert self._told is not None, "it is shared"
        found = []
        for buckets in self._told[:most]:
            found.append((buckets.key, buckets.taken, buckets.taken_bytes))
            buckets.taken = buckets.taken_bytes = 0
        del self._told[:most]
        return found

    def charge(self, key: str, messages: int, size: int, now: float) -> None:
        """Charge what a key took elsewhere, unless it is unknown here."""
        buckets = self._found.get(key)
        if buckets is not None:
            buckets.charge(messages, size, now)
