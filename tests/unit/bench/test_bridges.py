"""Messages through a bridge for a short time: what `python -m bench bridge` does for longer."""

import pytest

from bench import bridges, native


@pytest.mark.slow
def test_each_direction_and_qos_of_a_bridge_is_measured() -> None:
    said: list[str] = []
    found = bridges.measure(native.ROOT, rounds=1, seconds=0.2, say=said.append)
    assert list(found) == [f"{direction} QoS {qos}" for qos in (0, 1, 2) for direction in ("out", "in")]
    assert all(each.by_clock > 100 for each in found.values())
    assert len(said) == len(found)
