"""Subscribers and publishers over HTTP, few and for a short time: what `python -m bench streams` does with many."""

import pytest

from bench import native, publishing, streams


@pytest.mark.slow
def test_idle_streams_are_small() -> None:
    said: list[str] = []
    plan = streams.Plan(streams=500, sockets=20, frozen=10, rounds=2, messages=2, settle_s=0.3)
    found = streams.measure(native.ROOT, plan, said.append)
    assert found.bytes_per_stream < 12 * 1_024
    assert max(found.to_the_last_s) < 5.0
    assert len(found.p99_with_s) == len(found.p99_without_s) == streams.PAIRS
    assert len(found.rss_after_rounds) == 2


@pytest.mark.slow
def test_publishing_is_measured_with_rules_and_a_subscriber() -> None:
    found = publishing.measure(native.ROOT, rounds=1, seconds=0.1, say=lambda _: None)
    assert len(found) == 3
    assert all(each.by_clock > 100 and each.p99_s < 5.0 for each in found.values())
