"""Streams, small and for a short time: what `python -m bench log` does with many messages."""

import pytest

from bench import logs, native

PLAN = logs.Plan(
    messages=2_000,
    rounds=1,
    readers=3,
    seconds=0.5,
    long=4_000,
    groups=3,
    written_bytes=3_000_000,
    keep_bytes=1_000_000,
    write_bytes_per_s=2e6,
)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(logs.CASES))
async def test_streams_are_measured(case: str) -> None:
    said: list[str] = []
    await logs.measure(native.ROOT, PLAN, (case,), said.append)
    assert said
    assert all("a second" in each or " ms" in each or " MB" in each for each in said)
