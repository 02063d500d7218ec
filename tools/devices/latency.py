"""Many durations in little memory: counted in buckets that grow by a fixed ratio.

Invariant: a quantile is at most one bucket, 2 %, above the true one; the maximum is exact.
"""

import math
from typing import Final

SHORTEST_S: Final = 1e-6
RATIO: Final = 1.02
BUCKETS: Final = 1_100
"""Up to 1e-6 s · 1.02^1099, which is 47 minutes; what takes longer is counted there."""


class Latencies:
    """Durations in seconds, added one by one."""

    def __init__(self) -> None:
        self.count = 0
        self.max_s = 0.0
        self._buckets: Final = [0] * BUCKETS

    def add(self, duration_s: float) -> None:
        self.count += 1
        self.max_s = max(self.max_s, duration_s)
        steps = math.log(max(duration_s, SHORTEST_S) / SHORTEST_S) / math.log(RATIO)
        self._buckets[min(math.ceil(steps), BUCKETS - 1)] += 1

    def quantile_s(self, share: float) -> float:
        """The duration that this share of all did not exceed; 0 where there are none."""
        wanted = math.ceil(share * self.count)
        passed = 0
        for number, count in enumerate(self._buckets):
            passed += count
            if passed >= wanted:
                return min(SHORTEST_S * RATIO**number, self.max_s)
        return self.max_s

    def summary_ms(self) -> dict[str, float] | None:
        """Quantiles in milliseconds; None where nothing was measured."""
        if not self.count:
            return None
        quantiles = {f"p{percent}": self.quantile_s(percent / 100) for percent in (50, 95, 99)}
        return {name: round(value * 1000, 2) for name, value in {**quantiles, "max": self.max_s}.items()}
