"""What metrics and `$SYS` say of streams, their groups, and what retention leaves them."""

from random import Random

import pytest

from mqttlite.build import is_compiled
from mqttlite.extensions.streams import backlogs as backlogs_module
from mqttlite.extensions.streams.backlogs import Backlogs
from mqttlite.extensions.streams.figures import MAX_PUBLISHED, StreamFigures
from mqttlite.extensions.streams.manifest import MANIFEST
from mqttlite.store.memory import MemoryStore
from tests.support.core_driver import publishes
from tests.support.numbers import CountedInt
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


def test_the_figures_of_a_stream_are_those_of_its_worst_reader() -> None:
    random = Random(175)
    world = StreamWorld([options(partitions=3, keep_s=1_000, keep_bytes=60_000)], MemoryStore(pages=True))
    clients = [reader(world, "$stream/s@earliest", f"c{number}") for number in range(8)]
    clients += [reader(world, f"$share/g{number}/$stream/s@earliest", f"g{number}") for number in range(3)]
    backlogs = Backlogs(world.streams)
    kept = world.streams.find("s")
    assert kept is not None
    for _ in range(60):
        world.append(*[str(number).ljust(random.randrange(300)) for number in range(4)], key=str(random.random()))
        world.advance(random.randrange(40))
        for client in random.sample(clients, 3):
            ack(client, *publishes(client.received()))
        backlogs.measure()
        cursors = [each.cursor for each in (*kept.readers.values(), *kept.groups.values())]
        worst = [kept.stream.unfinished(each.positions) for each in cursors]
        assert backlogs.streams["s"] == (
            world.streams.lag("s"),
            min((oldest for oldest, _ in worst if oldest), default=0),
            min(left for _, left in worst),
        )
        assert backlogs.groups["s"] == world.streams.groups("s")
    assert world.streams.state("s").removed, "readers lost messages"
    world.end()


def test_a_report_of_many_readers_ends_at_its_limit_and_the_next_one_goes_on() -> None:
    names = ["s", "t", "u"]
    world = StreamWorld([options(name, f"{name}/#") for name in names], MemoryStore(pages=True))
    clients = [reader(world, f"$stream/{name}", f"{name}{number}") for name in names for number in range(4)]
    backlogs = Backlogs(world.streams, most=9)  # a partition and four readers, twice

    def lags() -> dict[str, int]:
        backlogs.measure()
        return {name: each.lag for name, each in backlogs.streams.items()}

    world.append("1", topic="s/1")
    found = [lags() for _ in names]
    assert found == [{"s": 1}, {"s": 1, "t": 0}, {"s": 1, "t": 0, "u": 0}]
    world.append("2", "3", topic="u/1")
    assert [lags()["u"] for _ in range(4)] == [0, 0, 0, 2], "in the round that has begun, and in the next one"
    world.streams.delete("t")
    while "t" in lags():
        pass
    assert clients
    world.end()


def test_a_reader_that_had_finished_when_it_was_measured_is_not_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs_module, "MEASURED_AT_ONCE", 1)
    world = StreamWorld([options()], MemoryStore(pages=True))
    clients = [reader(world, "$stream/s", name) for name in "ab"]
    backlogs = Backlogs(world.streams, most=4)  # two readers and a partition, and one of the readers
    backlogs.measure()
    assert not backlogs.streams, "one of the two is measured"
    world.append("1")
    for each in clients:
        ack(each, *publishes(each.received()))
    backlogs.measure()
    assert backlogs.streams["s"] == (0, 0, 1.0)
    world.end()


def test_figures_tell_of_a_limited_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs_module, "MAX_REPORTED", 3)
    world = StreamWorld([options("s"), options("t")])
    for name, groups in (("s", 2), ("t", 3)):
        for number in range(groups):
            reader(world, f"$share/g{number}/$stream/{name}", f"{name}{number}")
    backlogs = Backlogs(world.streams)
    backlogs.measure()
    assert [(name, [each.name for each in found]) for name, found in backlogs.groups.items()] == [
        ("s", ["g0", "g1"]),
        ("t", ["g0"]),
    ]
    world.end()


def test_a_report_asks_few_segments_however_many_readers_are_behind() -> None:
    world = StreamWorld([options(keep_s=1_000)], MemoryStore(pages=True))
    world.append("1")
    for number in range(50):
        reader(world, "$stream/s@0:0", f"r{number}", expiry=1_000).lose()
    kept = world.streams.find("s")
    assert kept is not None
    counted = CountedInt.counter()
    rows = [(number, *(CountedInt(counted, each) for each in (number, number, 1))) for number in range(256)]
    (partition,) = kept.stream.partitions
    partition.segments.restore(rows, 0, 256, 255)
    counted.clear()
    Backlogs(world.streams).measure()
    assert counted.total() < 64, "two searches among 256"
    assert is_compiled() or counted.total() > 0, "compiled code compares plain numbers"
    world.end()
