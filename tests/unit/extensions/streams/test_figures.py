"""What metrics and `$SYS` say of streams, their groups, and what retention leaves them."""

import pytest

from mqttlite.extensions.streams.figures import MAX_PUBLISHED, StreamFigures
from mqttlite.extensions.streams.manifest import MANIFEST
from mqttlite.store.memory import MemoryStore
from tests.support.core_driver import publishes
from tests.support.streams import StreamWorld, ack, options, reader

GROUP = "$share/g/$stream/s@earliest"


def figures_of(world: StreamWorld) -> StreamFigures:
    return StreamFigures(world.streams, None, lambda: world.now)


def test_metrics_and_sys_topics_tell_of_the_first_streams_by_name() -> None:
    world = StreamWorld([options(f"s{number:03}") for number in range(MAX_PUBLISHED + 5)])
    figures = figures_of(world)
    assert len({name.split("/")[1] for name, _ in figures.sys_values()}) == MAX_PUBLISHED
    values = figures.values()
    assert values.keys() == {each.name for each in MANIFEST.figures}
    assert len(values["stream_lag"]) == MAX_PUBLISHED + 5  # type: ignore[arg-type]
    world.end()


def test_sys_topics_tell_how_far_a_group_is_behind() -> None:
    world = StreamWorld([options(keep_s=1_000)], MemoryStore(pages=True))
    client = reader(world, GROUP)
    figures = figures_of(world)
    world.append("1", "2", "3")
    told = dict(figures.sys_values())
    assert told["streams/s/messages"] == told["streams/s/lag"] == told["streams/s/groups/g/lag"] == "3"
    assert told["streams/s/groups/g/members"] == "1"
    world.advance(100.0)
    packets = publishes(client.received())
    ack(client, packets[0])
    told = dict(figures.sys_values())
    assert told["streams/s/groups/g/lag"] == "2"
    assert told["streams/s/groups/g/growth"] == "-0.01"
    assert told["streams/s/unfinished_s"] == told["streams/s/groups/g/unfinished_s"] == "100"
    assert told["streams/s/retention_left"] == told["streams/s/groups/g/retention_left"] == "0.90"
    ack(client, *packets[1:])
    told = dict(figures.sys_values())
    assert (told["streams/s/unfinished_s"], told["streams/s/retention_left"]) == ("0", "1.00")
    world.end()


def test_the_groups_that_sys_topics_tell_of_are_not_too_many() -> None:
    world = StreamWorld([options("s"), options("t")])
    for number in range(MAX_PUBLISHED):
        reader(world, f"$share/g{number:03}/$stream/s", f"c{number}")
    reader(world, "$share/g/$stream/t", "last")
    told = dict(figures_of(world).sys_values())
    assert sum(name.endswith("/members") for name in told) == MAX_PUBLISHED
    assert "streams/t/lag" in told
    world.end()


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_room_that_is_left_shrinks_as_messages_come(partitions: int) -> None:
    world = StreamWorld([options(partitions=partitions, keep_s=0, keep_bytes=64_000)], MemoryStore(pages=True))
    reader(world, GROUP)
    figures, left = figures_of(world), [1.0]
    for number in range(200):
        world.append(f"{number}".ljust(400), key=str(number))
        ((_, latest),) = figures.values()["stream_retention_left"]  # type: ignore[misc]
        left.append(latest)
        if world.streams.state("s").removed:
            break
    assert world.streams.state("s").removed, "the group lost messages"
    assert left[:-1] == sorted(left[:-1], reverse=True)
    assert left[-2] < 0.1, "it was told before"
    world.end()


def test_a_stream_without_a_time_limit_has_all_its_time_left() -> None:
    world = StreamWorld([options(last_value=True, keep_s=10)], MemoryStore(pages=True))
    reader(world, GROUP)
    world.append("1")
    world.advance(100.0)
    ((_, left),) = figures_of(world).values()["stream_retention_left"]  # type: ignore[misc]
    assert left == 1.0
    world.end()
