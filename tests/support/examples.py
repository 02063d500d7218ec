"""How many examples a property is tried with: all of them in the full run, a part of them in the quick one.

Invariant: a test says how many it wants, and the profile that hypothesis is started with says how many of a hundred
of them it gets.
"""

from typing import Final

from hypothesis import HealthCheck, settings

ALL: Final = "all"
QUICK: Final = "quick"
QUICK_PERCENT: Final = 10


def register() -> None:
    """Make the profiles known, and take that of the full run unless the command line names one.

    How long an example takes is no matter of theirs: on a busy machine anything may take long.
    """
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(ALL, patient)
    settings.register_profile(QUICK, patient, max_examples=QUICK_PERCENT)
    settings.load_profile(ALL)


def examples(count: int) -> settings:
    """So many examples, of which the profile may leave out some."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 100))
