"""By how many messages a second a queue, or the lag of a group, grows."""

import pytest

from mqttlite.telemetry.growth import Growth, shown_growth


def test_growth_is_what_comes_less_what_ends_over_a_minute() -> None:
    growth = Growth()
    assert growth.note("q", 1_000, 0.0) == 0.0
    for second in range(10, 310, 10):
        latest = growth.note("q", 1_000 + 5 * second, float(second))
    assert latest == pytest.approx(5.0, rel=0.01)
    assert growth.note("q", 0, 300.5) == latest
    for second in range(310, 910, 10):
        latest = growth.note("q", 2_500, float(second))
    assert latest == pytest.approx(0.0, abs=0.01)


def test_growth_forgets_what_is_no_more() -> None:
    growth = Growth()
    growth.note("a", 10, 0.0)
    growth.note("b", 10, 0.0)
    growth.keep({"b"})
    assert growth.note("a", 70, 60.0) == 0.0
    assert growth.note("b", 70, 60.0) > 0.5


def test_a_growth_of_nothing_has_no_sign() -> None:
    assert [shown_growth(each) for each in (-0.001, 0.0, 2.5, -1.0)] == ["0.00", "0.00", "2.50", "-1.00"]
