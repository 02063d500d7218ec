"""A few pushed messages: what `python -m bench push` does with many."""

import pytest

from bench import native, pushing


@pytest.mark.slow
async def test_a_sleeping_endpoint_holds_up_no_other() -> None:
    plan = pushing.Plan(messages=300, rate=50, seconds=1.0)
    found = await pushing.measure(native.ROOT, plan)
    assert found.pushed_per_s > 30
    assert found.p50_s < 1.0
