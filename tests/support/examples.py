"""How many examples a property is tried with: all of them in the full run, a part of them in the quick one.

Invariant: a test says how many it wants, and the profile that hypothesis is started with says how many of a hundred
of them it gets.
"""

from typing import Final

from hypothesis import settings

QUICK: Final = "quick"
QUICK_PERCENT: Final = 25


def register() -> None:
    """Make the profile of the quick suite known."""
    settings.register_profile(QUICK, max_examples=QUICK_PERCENT)


def examples(count: int) -> settings:
    """So many examples, of which the profile may leave out some; each may take its time."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 100), deadline=None)
