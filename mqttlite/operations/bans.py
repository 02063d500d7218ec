"""Temporary bans of clients, users and addresses by an operator.

They are only in memory: a restart lifts them all, but for several nodes (`shared_bans`). Permanent exclusion needs
rules or a changed password. Invariant: an ended ban has no effect, and there are at most `MAX_BANS`.
"""

import ipaddress
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

BanKind = Literal["client", "user", "address"]

BAN_KINDS: Final[tuple[BanKind, ...]] = ("client", "user", "address")

MAX_BANS: Final = 10_000
"""Some 3 MB. One more is refused, because dropping an earlier one would lift it."""

MAX_BAN_S: Final = 366 * 86_400
"""A year. Use rules for longer exclusion."""

MAX_REASON: Final = 500
"""Characters of a reason, which the log and a client with MQTT 5.0 get."""


class BanRefused(ValueError):
    """An invalid ban; the text is a sentence that says why."""


class TooManyBans(Exception):
    """There are `MAX_BANS` already."""


@dataclass(frozen=True, slots=True)
class Ban:
    """One ban. Times are in the broker's seconds; `by` is who asked for it."""

    number: int
    kind: BanKind
    value: str
    since: float
    until: float
    reason: str
    by: str
    is_alone: bool = False
    """Whether other nodes do not have it yet."""


class Bans:
    """The bans of one run. `now` returns the broker's seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now: Final = now
        self._by_number: Final[dict[int, Ban]] = {}
        self._numbers: Final[dict[tuple[BanKind, str], int]] = {}
        self._last = 0

    def __len__(self) -> int:
        """The number of bans, including ended ones that were not removed yet."""
        return len(self._by_number)

    def add(self, kind: BanKind, value: str, duration_s: float, reason: str = "", by: str = "") -> Ban:
        """Add a ban. It replaces an earlier ban of the same kind and value. Raises `BanRefused` and `TooManyBans`."""
        if not value:
            raise BanRefused(f"the {kind} is empty: say who is to be banned")
        if not 0 < duration_s <= MAX_BAN_S:
            raise BanRefused(f"duration_s is {duration_s:g}: above 0, and {MAX_BAN_S} (a year) at most")
        if len(reason) > MAX_REASON:
            raise BanRefused(f"the reason has {len(reason)} characters: {MAX_REASON} at most")
        if kind == "address":
            value = address_in(value)
        former = self._numbers.get((kind, value))
        if former is not None:
            self.lift(former)
        if len(self._by_number) >= MAX_BANS:
            self.list()
        if len(self._by_number) >= MAX_BANS:
            raise TooManyBans
        now = self._now()
        ban = Ban(self._last + 1, kind, value, now, now + duration_s, reason, by)
        self.put(ban)
        return ban

    def put(self, ban: Ban) -> None:
        """Add a ban with its number, in place of one that has it."""
        self._last = max(self._last, ban.number)
        self._by_number[ban.number] = ban
        self._numbers[ban.kind, ban.value] = ban.number

    def copy(self) -> "Bans":
        """The same bans, to be changed apart from these."""
        copy = Bans(self._now)
        copy.become(self._by_number.values())
        copy._last = self._last
        return copy

    def become(self, bans: Iterable[Ban]) -> None:
        """Have these bans, which are of different clients, users and addresses, and no others."""
        found = list(bans)
        self._by_number.clear()
        self._numbers.clear()
        for ban in found:
            self.put(ban)

    def lift(self, number: int) -> Ban | None:
        """Remove and return a ban; None if the number is unknown."""
        ban = self._by_number.pop(number, None)
        if ban is not None:
            del self._numbers[ban.kind, ban.value]
        return ban

    def lift_of(self, kind: BanKind, value: str) -> bool:
        """Remove the ban of a client, a user or an address; whether there was one."""
        number = self.number_of(kind, value)
        return number is not None and self.lift(number) is not None

    def number_of(self, kind: BanKind, value: str) -> int | None:
        """The number of the ban of a client, a user or an address; None if there is none."""
        with suppress(BanRefused):  # what is no address is not banned
            value = address_in(value) if kind == "address" else value
        return self._numbers.get((kind, value))

    def list(self) -> "list[Ban]":
        """All bans in force, earliest first."""
        now = self._now()
        for ban in [each for each in self._by_number.values() if each.until <= now]:
            self.lift(ban.number)
        return [*self._by_number.values()]

    def of(self, client_id: str, username: str | None, peer: str) -> Ban | None:
        """The ban that applies to a client from `peer` (`address:port`); None if there is none."""
        if not self._by_number:
            return None
        names: list[tuple[BanKind, str | None]] = [
            ("client", client_id),
            ("user", username),
            ("address", address_of(peer)),
        ]
        for kind, value in names:
            number = None if value is None else self._numbers.get((kind, value))
            if number is not None:
                ban = self._by_number[number]
                if ban.until > self._now():
                    return ban
                self.lift(number)
        return None


def address_of(peer: str) -> str | None:
    """The address of `address:port` in the form of bans; None for a peer without one, for example on a Unix socket."""
    try:
        return address_in(peer.rpartition(":")[0].strip("[]"))
    except BanRefused:
        return None


def address_in(text: str) -> str:
    """The one form of an address in bans, in which `::ffff:192.0.2.7` is `192.0.2.7`. Raises `BanRefused`."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise BanRefused(f"{text!r} is no IP address, such as 192.0.2.7 or 2001:db8::7") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
