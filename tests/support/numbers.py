"""Numbers that count how often they are used."""

from collections import Counter
from typing import Any


class CountedInt(int):
    """Counts in `used` how often it is compared or added."""

    used: Counter[str]

    def __new__(cls, used: Counter[str], value: int) -> "CountedInt":
        made = super().__new__(cls, value)
        made.used = used
        return made

    @staticmethod
    def counter() -> Counter[str]:
        """For the numbers of a test."""
        return Counter()


def _counted(name: str) -> Any:
    plain = getattr(int, name)

    def count(self: CountedInt, other: int) -> Any:
        self.used[name] += 1
        return plain(self, other)

    return count


for each in ("__lt__", "__le__", "__gt__", "__ge__", "__add__", "__radd__"):
    setattr(CountedInt, each, _counted(each))
