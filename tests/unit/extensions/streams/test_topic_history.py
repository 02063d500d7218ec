"""The numbers that a topic had, as points of a chart."""

import asyncio

import pytest

from mqttlite.core.question import Entries
from mqttlite.extensions.streams import topic_history
from mqttlite.extensions.streams.pages import HEIGHT, WIDTH, chart_of
from mqttlite.extensions.streams.topic_history import TopicHistory, history_of
from mqttlite.store.memory import MemoryStore
from tests.support.streams import StreamWorld, options

BEGIN = 1_000.0


def made(*payloads: str, topic: str = "a") -> StreamWorld:
    """One message a second."""
    world = StreamWorld([options()], MemoryStore(pages=True), now=BEGIN)
    for payload in payloads:
        world.append(payload, topic=topic)
        world.advance(1.0)
    return world


async def looked(world: StreamWorld, field: str = "", since: float = BEGIN, topic: str = "a") -> TopicHistory:
    async def entries(key: str, first: int, end: int, count: int) -> Entries:
        return world.store.read_entries(key, first, end, count)

    logs = world.streams.partitions("s")
    return await history_of(logs, topic.encode(), field, int(since * 1e6), int(world.now * 1e6), entries)


async def test_the_payload_is_the_number() -> None:
    world = made("1", "2.5", "no number", "-3", "true")
    world.append("9", topic="a/b")
    found = await looked(world)
    assert [each.mean for each in found.points] == [1.0, 2.5, -3.0]
    assert (found.values, found.messages, found.field, found.fields) == (3, 5, "", [])
    assert [round(each.at_us / 1e6) for each in found.points] == [1_000, 1_001, 1_003]
    later = await looked(world, since=BEGIN + 1.0)
    assert [each.mean for each in later.points] == [2.5, -3.0]


async def test_a_field_of_an_object_is_the_number() -> None:
    world = made('{"name": "x", "now": {"t": 20, "on": true}, "h": 5}', '{"now": {"t": 22}, "h": 6}', '{"now": 3}')
    found = await looked(world)
    assert (found.field, found.fields) == ("h", ["now"])
    assert [each.mean for each in found.points] == [5.0, 6.0]
    inner = await looked(world, "now.t")
    assert [each.mean for each in inner.points] == [20.0, 22.0]
    assert (await looked(world, "now.t.more")).points == []


async def test_values_of_a_part_of_the_time_are_one_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_history, "MAX_POINTS", 2)
    found = await looked(made("1", "2", "9", "7"))
    assert [(each.mean, each.low, each.high, each.values) for each in found.points] == [
        (1.5, 1.0, 2.0, 2),
        (8.0, 7.0, 9.0, 2),
    ]


async def test_a_chart_is_of_the_latest_messages_of_a_long_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_history, "MAX_CHARTED", 3)
    found = await looked(made(*map(str, range(10))))
    assert [each.mean for each in found.points] == [7.0, 8.0, 9.0]
    assert round(found.since_us / 1e6) == 1_007, "no earlier one was looked at"


async def test_the_fields_that_are_offered_are_not_too_many() -> None:
    many = "{" + ",".join(f'"f{at}": {at}' for at in range(100)) + "}"
    assert len((await looked(made(many))).fields) == topic_history.MAX_FIELDS


async def test_a_topic_without_messages_has_no_points() -> None:
    assert (await looked(made())).points == []


async def test_only_the_first_parts_of_a_payload_are_looked_at() -> None:
    far = "{" + ",".join(f'"{at}": ""' for at in range(topic_history.MAX_PARTS)) + ', "far": 1}'
    assert (await looked(made(far))).fields == []
    assert (await looked(made('{"' + "n" * topic_history.MAX_FIELD_NAME + '": 1, "near": 1}'))).fields == ["near"]


async def test_a_large_payload_is_not_decoded() -> None:
    large = '{"a": 1, "b": "' + "x" * topic_history.MAX_DECODED_BYTES + '"}'
    found = await looked(made(large))
    assert (found.messages, found.values, found.fields) == (1, 0, [])


async def test_a_chart_reads_no_more_bytes_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_history, "MAX_ANSWERED", 2)
    monkeypatch.setattr(topic_history, "MAX_CHARTED_BYTES", 1)
    found = await looked(made("1", "2", "3", "4"))
    assert [each.mean for each in found.points] == [1.0, 2.0]
    assert round(found.until_us / 1e6) == 1_001, "no later one was looked at"


async def test_the_loop_has_its_turns_while_a_chart_is_made() -> None:
    world, turns = made(*["1"] * (4 * topic_history.LOOKED_AT_ONCE)), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await looked(world)
    counting.cancel()
    assert turns >= 4


@pytest.mark.parametrize("payload", ["[" * 2_000, "1" + "0" * 400, "1e999", "NaN", "1" * 5_000])
async def test_a_payload_without_a_finite_number_is_left_out(payload: str) -> None:
    found = await looked(made("1", payload, "2"))
    assert ([each.mean for each in found.points], found.messages) == ([1.0, 2.0], 3)


@pytest.mark.parametrize("second", ["1.7e308", "-1.7e308"])
async def test_the_mean_of_large_numbers_is_finite(second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_history, "MAX_POINTS", 1)
    (point,) = (await looked(made("1.7e308", second))).points
    assert point.mean == (1.7e308 + 0.0 if second == "1.7e308" else 0.0)


async def test_messages_with_keys_are_in_the_chart_whatever_their_partitions_are() -> None:
    world = StreamWorld([options(partitions=4)], MemoryStore(pages=True), now=BEGIN)
    for at in range(8):
        world.append(str(at), topic="a", key=f"key {at}")
        world.advance(1.0)
    assert [each.mean for each in (await looked(world)).points] == [float(at) for at in range(8)]


async def test_partitions_share_the_limits_of_a_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_history, "MAX_CHARTED", 4)
    world = StreamWorld([options(partitions=2)], MemoryStore(pages=True), now=BEGIN)
    for at in range(40):
        world.append(str(at), topic="a", key=f"key {at}")
        world.advance(1.0)
    assert (await looked(world)).messages == 4


async def test_partitions_share_the_bytes_of_a_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    world = StreamWorld([options(partitions=2)], MemoryStore(pages=True), now=BEGIN)
    for at in range(20):
        world.append("1".ljust(1_000), topic="a", key=f"key {at}")
    assert all(each.count >= 4 for each in world.streams.partitions("s"))
    monkeypatch.setattr(topic_history, "MAX_ANSWERED", 1)
    monkeypatch.setattr(topic_history, "MAX_CHARTED_BYTES", 4_000)
    assert (await looked(world)).messages == 4, "two of a kilobyte and more in each"


LARGEST = 1.7976931348623157e308


@pytest.mark.parametrize("values", [(LARGEST, -LARGEST), (-LARGEST,), (0.0, 5e-324), (LARGEST, LARGEST), (7.0,)])
def test_a_chart_of_any_finite_numbers_is_inside_its_frame(values: tuple[float, ...]) -> None:
    points = [
        {"at": f"2026-01-01T00:00:0{at}Z", "mean": value, "low": value, "high": max(values), "count": 1}
        for at, value in enumerate(values)
    ]
    chart = chart_of({"points": points, "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:05Z"})
    places = [tuple(map(float, each.split(","))) for each in f"{chart['line']} {chart['band']}".split()]
    assert len(places) == 3 * len(values)
    assert all(0.0 <= across <= WIDTH and 0.0 <= down <= HEIGHT for across, down in places)
    if min(values) / 2 < max(values) / 2:
        assert {down for _, down in places} >= {0.0, HEIGHT}, "it fills its frame"
