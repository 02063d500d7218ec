"""What metrics and `$SYS` say of queues."""

import pytest

from mqttlite.telemetry.queue_figures import MAX_PUBLISHED, Growth, QueueFigures, sys_values


def figures(name: str = "jobs", **fields: object) -> QueueFigures:
    usual: dict[str, object] = dict.fromkeys(
        ("depth", "leased", "scheduled", "consumers", "dead_letters", "published", "refused", "filtered", "attempts"), 0
    )
    usual |= {"growth_per_s": 0.0, "oldest_age_s": 0.0, "redeliveries": 0, "nacked_late": 0, "ends": {}, "failures": {}}
    usual |= {"dead_letters_total": 0, "dead_letter_causes": {}, "retained": 0, "snapshots": 0, "returned": 0}
    return QueueFigures(name=name, **(usual | fields))  # type: ignore[arg-type]


def test_sys_topics_tell_of_each_queue() -> None:
    jobs = figures(
        depth=7, leased=3, growth_per_s=-0.5, redeliveries=4, dead_letters=1, dead_letter_causes={"nacked": 2}
    )
    told = dict(sys_values([jobs]))
    assert told["queues/jobs/lag"] == "4"
    assert told["queues/jobs/growth"] == "-0.50"
    assert told["queues/jobs/redeliveries"] == "4"
    assert (told["queues/jobs/dead_letters"], told["queues/jobs/dead_letters/nacked"]) == ("1", "2")
    many = [figures(f"q{number:04d}") for number in range(MAX_PUBLISHED + 5)]
    assert len({name.split("/")[1] for name, _ in sys_values(many)}) == MAX_PUBLISHED


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


def test_growth_forgets_queues_that_are_no_more() -> None:
    growth = Growth()
    growth.note("a", 10, 0.0)
    growth.note("b", 10, 0.0)
    growth.keep({"b"})
    assert growth.note("a", 70, 60.0) == 0.0
    assert growth.note("b", 70, 60.0) > 0.5
