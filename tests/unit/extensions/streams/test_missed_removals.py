"""A reader learns at the end whether it may have missed the removal of a key, which was forgotten while it read."""

import pytest

from mqttlite.store.memory import MemoryStore
from mqttlite.wire.packets import Publish
from tests.support.core_driver import Client, publishes
from tests.support.streams import StreamWorld, ack, options, subscribe_at

KEEP_S = 1_000
TOMBSTONE_S = 10_000
ENOUGH = 3 * TOMBSTONE_S


@pytest.fixture(params=[False, True], ids=["memory", "pages"])
def world(request: pytest.FixtureRequest) -> StreamWorld:
    given = options("s", "a/#", keep_s=KEEP_S, last_value=True, keep_tombstones_s=TOMBSTONE_S)
    return StreamWorld([given], MemoryStore(pages=request.param))


def put(world: StreamWorld, *pairs: str) -> None:
    for each in pairs:
        key, _, value = each.partition("=")
        assert world.publish(f"a/{key}", value, 1) == 0


def begin(world: StreamWorld, position: str = "earliest", name: str = "r") -> Client:
    client = world.connect(name, receive_maximum=2, auto_ack=False)
    subscribe_at(client, position, "$stream/s", ("stream-end", ""))
    return client


def rest(client: Client, packets: list[Publish]) -> tuple[list[str], str]:
    """What a reader has at the end, and what it missed."""
    found: list[str] = []
    while packets:
        ack(client, *packets)
        for each in packets:
            told = dict(each.properties.user_properties)
            if "stream-end" in told:
                return found, told.get("stream-missed", "")
            found.append(f"{each.topic.decode()[2:]}={each.payload.decode()}")
        packets = publishes(client.received())
    raise AssertionError("no end")


@pytest.mark.long
def test_a_removal_that_is_forgotten_while_a_reader_is_on_its_way_is_told_at_its_end(world: StreamWorld) -> None:
    put(world, "x=1", *(f"{at}=1" for at in range(1_200)), "x=", "z=1")
    client = begin(world)
    packets = publishes(client.received())
    assert packets[0].payload == b"1"
    world.advance(ENOUGH)
    put(world, "z=2")
    world.advance(ENOUGH)
    found, missed = rest(client, packets)
    assert ("x=" in found, missed) == (False, "removals")
    fresh, missed = rest(again := begin(world, name="new"), publishes(again.received()))
    assert (missed, len(fresh), "x=1" in fresh) == ("", 1_201, False)
    world.end()


def test_gaps_of_ordinary_compaction_are_nothing_that_was_missed(world: StreamWorld) -> None:
    put(world, "x=1", "y=0", "x=2", "x=3", "z=1", "z=2")
    client = begin(world)
    packets = publishes(client.received())
    world.advance(2 * KEEP_S + 10)
    put(world, "w=1")
    assert rest(client, packets)[1] == ""
    world.end()


@pytest.mark.long
def test_a_reader_that_goes_on_in_compacted_history_may_have_missed_something(world: StreamWorld) -> None:
    put(world, "x=1", "y=1", "x=", "z=1")
    world.advance(ENOUGH)
    put(world, "z=2")
    world.advance(ENOUGH)
    client = begin(world, "0:2")
    assert rest(client, publishes(client.received()))[1] == "removals"
    world.end()
