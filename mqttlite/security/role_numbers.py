"""Numbers for permissions: the *roles* of an `Authorizer`.

Clients with the same permissions share a number. Invariant: a number always stands for the same permissions, because a
session without a connection keeps its number.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import count
from typing import Final, Generic, TypeVar, final

Permissions = TypeVar("Permissions", bound=Hashable)


@final
class RoleNumbers(Generic[Permissions]):
    """At most `most` numbers, taken from `numbers`. When all are in use, those that no session has are dropped;
    `in_use` returns the numbers that sessions have. `always` are numbers that stay."""

    def __init__(
        self,
        most: int,
        in_use: Callable[[], Iterable[int]],
        numbers: Iterator[int] | None = None,
        *,
        always: tuple[tuple[int, Permissions], ...] = (),
    ) -> None:
        self._most: Final = most
        self._in_use: Final = in_use
        self._next: Final = count(1) if numbers is None else numbers
        self._always: Final = frozenset(number for number, _ in always)
        self._permissions: Final = dict(always)
        self._numbers: Final = {permissions: number for number, permissions in always}

    def __len__(self) -> int:
        return len(self._permissions)

    def of(self, permissions: Permissions) -> int | None:
        """The number for these permissions; None if sessions have all numbers."""
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
        used = {*self._always, *self._in_use()}
        for number in [each for each in self._permissions if each not in used]:
            del self._numbers[self._permissions.pop(number)]
