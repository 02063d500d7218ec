"""Numbers for permissions: the *roles* of an `Authorizer`.

Clients with the same permissions share a number. Invariant: a number always stands for the same permissions, because a
session without a connection keeps its number. Others are too many to be looked at, such as the writers of retained
messages: they keep theirs until `on_forgotten` is called.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import count
from typing import Final, Generic, TypeVar, final

Permissions = TypeVar("Permissions", bound=Hashable)

AGAIN_S: Final = 10.0
"""The seconds between two searches for unused numbers if the first one found few: a search among 100,000 takes 9 ms of
the event loop, and afterwards each session asks again."""

FEW: Final = 8
"""Few unused numbers are less than this part of all."""

SEARCHED_ALWAYS: Final = 1_000
"""So many numbers are searched each time, because that takes less than 0.1 ms."""


def nothing() -> None:
    """For numbers that sessions alone have."""


@final
class RoleNumbers(Generic[Permissions]):
    """At most `most` numbers, taken from `numbers`. When all are given, those that no session has are forgotten;
    `in_use` returns the numbers that sessions have. `always` are numbers that stay.

    `on_forgotten` is called afterwards: who has a number and is no session must ask again.
    """

    def __init__(
        self,
        most: int,
        in_use: Callable[[], Iterable[int]],
        numbers: Iterator[int] | None = None,
        *,
        always: tuple[tuple[int, Permissions], ...] = (),
        on_forgotten: Callable[[], None] = nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most: Final = most
        self._in_use: Final = in_use
        self._on_forgotten: Final = on_forgotten
        self._clock: Final = clock
        self._again_at = 0.0
        """When unused numbers may be searched for again."""
        self._next: Final = count(1) if numbers is None else numbers
        self._always: Final = frozenset(number for number, _ in always)
        self._permissions: Final = dict(always)
        self._numbers: Final = {permissions: number for number, permissions in always}

    def __len__(self) -> int:
        return len(self._permissions)

    def of(self, permissions: Permissions) -> int | None:
        """The number for these permissions; None if sessions have all numbers, or had nearly all within the last
        `AGAIN_S`."""
        number = self._numbers.get(permissions)
        if number is None:
            if len(self) >= self._most:
                self._forget_unused()
            if len(self) >= self._most:
                return None
            number = self._numbers[permissions] = next(self._next)
            self._permissions[number] = permissions
        return number

    def get(self, number: int) -> Permissions | None:
        """The permissions for a number; None if it is not one of these."""
        return self._permissions.get(number)

    def all_of(self, numbers: Iterable[int]) -> list[Permissions]:
        """The permissions for those of the numbers that are some of these."""
        return [self._permissions[number] for number in numbers if number in self._permissions]

    def _forget_unused(self) -> None:
        now = self._clock()
        if now < self._again_at:
            return
        used = {*self._always, *self._in_use()}
        unused = [each for each in self._permissions if each not in used]
        if len(self) > SEARCHED_ALWAYS and len(unused) * FEW < len(self):
            self._again_at = now + AGAIN_S
        for number in unused:
            del self._numbers[self._permissions.pop(number)]
        if unused:
            self._on_forgotten()
