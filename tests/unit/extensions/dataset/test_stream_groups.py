"""The dataset has a row for each group of a stream and interval."""

import pytest

from mqttlite.extensions.dataset import intervals
from mqttlite.extensions.dataset.intervals import MAX_GROUPS, Intervals
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.extensions.dataset.tables import GroupRow, Row
from mqttlite.telemetry.recorder import GroupReading
from mqttlite.telemetry.wall import Wall
from tests.support.core_driver import publishes
from tests.support.streams import StreamWorld, ack, options, reader


def reading(lag: int = 0, redeliveries: int = 0, moves: int = 0, appended: int = 0, group: str = "g") -> GroupReading:
    return GroupReading("s", group, "shared", 1, lag, appended, 0, 0, redeliveries, moves, 0)


def interval_rows(*readings: list[GroupReading | None]) -> list[list[GroupRow]]:
    """The rows of intervals with these groups."""
    world = StreamWorld()
    found: list[list[GroupRow]] = []

    def write(table: str, row: Row) -> None:
        assert table == "stream_groups"
        assert isinstance(row, GroupRow)
        found[-1].append(row)

    made = Intervals(
        world.broker.count_traffic(10), {}, Wall(0.0), Pseudonyms(), write, broker_id="b", max_topics=10, now=0.0
    )
    for number, each in enumerate(readings, 1):
        found.append([])
        made.groups = lambda each=each: [lambda group=group: group for group in each]  # type: ignore[misc]
        for _ in made.sweep(10.0 * number):
            pass
    return found


def test_lags_are_those_of_the_end_and_counters_those_of_the_interval() -> None:
    first, second, third = interval_rows(
        [reading(5, 2, 1, 10)],
        [reading(7, 5, 1, 30), None],
        [reading(0, 1, 0, 40)],  # it was deleted and made anew
    )
    assert [(each.lag, each.redeliveries, each.moves, each.appended) for each in (*first, *second, *third)] == [
        (5, 2, 1, 10),
        (7, 3, 0, 20),
        (0, 1, 0, 10),
    ]
    assert (first[0].interval_s, first[0].stream, first[0].group, first[0].mode) == (10.0, "s", "g", "shared")


@pytest.mark.parametrize(
    ("before", "now", "appended"),
    [
        pytest.param([], [reading(appended=1_000_010, group="new")], [0], id="of a stream that nobody read"),
        pytest.param(
            [reading(appended=9)], [reading(appended=14), reading(appended=14, group="new")], [5, 5], id="new"
        ),
        pytest.param([reading(appended=90)], [reading(appended=20)], [20], id="of a stream that was made anew"),
    ],
)
def test_only_messages_of_the_interval_are_counted(
    before: list[GroupReading | None], now: list[GroupReading | None], appended: list[int]
) -> None:
    _, rows = interval_rows(before, now)
    assert [each.appended for each in rows] == appended


def test_the_number_of_groups_is_limited() -> None:
    (rows,) = interval_rows([reading(group=str(each)) for each in range(MAX_GROUPS + 1)])
    assert len(rows) == MAX_GROUPS
    assert intervals.SLICE < MAX_GROUPS, "it takes more than one step"


def test_streams_tell_of_their_groups() -> None:
    world = StreamWorld([options(partitions=2)])
    client = reader(world, "$share/g/$stream/s@earliest", receive_maximum=10)
    world.append("a", "b", "c", topic="$stream/s")
    ack(client, *publishes(client.received())[:1])
    (read,) = world.streams.group_readings()
    found = read()
    assert found is not None
    assert (found.stream, found.group, found.mode, found.members) == ("s", "g", "ordered", 1)
    assert (found.lag, found.appended, found.under_way, found.moves) == (2, 3, 2, 0)
    world.streams.delete_group("s", "g")
    assert read() is None
    world.end()
