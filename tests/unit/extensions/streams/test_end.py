"""A reader that asks for it is told when it has what was in the stream, and where that ended."""

from typing import Final

import pytest

from mqttlite.core.message_filter import NoFilters
from mqttlite.filters import Filters
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.packets import Publish, Subscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, publishes, request
from tests.support.streams import StreamWorld, ack, got, options, reader, subscribe_at

END: Final = ("stream-end", "")
KEPT: Final = {"clean_start": False, "expiry": 1_000}


@pytest.fixture(params=[False, True], ids=["memory", "pages"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(pages=request.param)


def end(packet: Publish) -> str:
    """Where the end was; empty for another message."""
    return dict(packet.properties.user_properties).get("stream-end", "")


def told(client: Client) -> list[str]:
    """The payloads that a client received, and the ends."""
    return [end(each) or each.payload.decode() for each in publishes(client.received())]


def ask(client: Client, position: str = "earliest") -> None:
    assert subscribe_at(client, position, "$stream/s", END).reason_codes == b"\x01"


def test_the_end_is_told_behind_the_last_message(store: MemoryStore) -> None:
    world = StreamWorld([options(partitions=2)], store)
    for at in range(300):
        world.append(str(at), topic=f"a/{at}")
    client = world.connect("r", receive_maximum=10)
    ask(client)
    *before, last = publishes(client.received())
    assert sorted(int(each.payload) for each in before) == list(range(300))
    first, second = (each.end for each in world.streams.state("s").partitions)
    assert (last.topic, last.payload, end(last)) == (b"$stream/s", b"", f"0:{first},1:{second}")
    world.append("new")
    assert told(client) == ["new"], "once"
    other = reader(world, name="other", auto_ack=True)
    assert not [each for each in publishes(other.received()) if end(each)], "this one did not ask"
    world.end()


def test_the_end_of_nothing_is_told_at_once(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    client = world.connect("r", auto_ack=False)
    ask(client)
    assert told(client) == ["0:0"]
    world.end()


def test_messages_that_a_reader_does_not_get_do_not_keep_it_from_the_end() -> None:
    world = StreamWorld([options()], filters=Filters())
    world.append("1", "2", topic="a/b")
    client = world.connect("r", auto_ack=False)
    assert subscribe_at(client, "earliest", "$stream/s/a/c", END).reason_codes == b"\x01"
    assert told(client) == ["0:2"]
    world.end()


def test_a_reader_at_qos_0_is_told() -> None:
    world = StreamWorld([options()])
    world.append("1")
    client = world.connect("r")
    properties = Properties(user_properties=[("stream-offset", "earliest"), END])
    client.send(Subscribe(client.packet_id(), (request("$stream/s", 0),), properties))
    assert told(client) == ["1", "0:1"]
    world.append("2")
    assert told(client) == ["2"]
    world.end()


def test_a_full_window_keeps_the_end_until_there_is_room() -> None:
    world = StreamWorld([options()])
    world.append("1")
    client = world.connect("r", auto_ack=False, receive_maximum=1)
    ask(client)
    (packet,) = publishes(client.received())
    ack(client, packet)
    (last,) = publishes(client.received())
    assert end(last) == "0:1"
    world.append("2")
    assert got(client) == [], "it takes a place in the window"
    ack(client, last)
    assert got(client) == ["2"]
    world.end()


@pytest.mark.parametrize("restarts", [False, True])
def test_an_end_that_was_not_acknowledged_is_told_again(restarts: bool, store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.append("1")
    client = world.connect("r", auto_ack=False, **KEPT)
    ask(client)
    message, last = publishes(client.received())
    assert end(last) == "0:1"
    ack(client, message)
    if restarts:
        world = world.restart()
    else:
        client.lose()
    world.append("2")
    client = world.connect("r", **KEPT)
    assert told(client) == ["2", "0:2"]
    world = world.restart()
    client = world.connect("r", **KEPT)
    assert told(client) == [], "and it was acknowledged"
    world.end()


def test_a_reader_that_is_there_already_can_ask(store: MemoryStore) -> None:
    world = StreamWorld([options()], store, filters=NoFilters())
    client = reader(world, "$stream/s", **KEPT)
    properties = Properties(user_properties=[END])
    client.send(Subscribe(client.packet_id(), (request("$stream/s", 1),), properties))
    assert told(client) == ["0:0"]
    world = world.restart()
    assert told(world.connect("r", auto_ack=False, **KEPT)) == ["0:0"], "it did not acknowledge that"
    world.end()


def test_a_client_that_cannot_take_it_is_not_told() -> None:
    world = StreamWorld([options()])
    client = world.connect("r", auto_ack=False, maximum_packet_size=30)
    ask(client)
    assert told(client) == []
    assert world.streams.readers("s")[0].lag == 0
    world.end()


def test_members_of_a_group_are_not_told() -> None:
    world = StreamWorld([options()])
    client = world.connect("r")
    assert subscribe_at(client, "earliest", "$share/g/$stream/s", END).reason_codes == b"\x01"
    assert told(client) == []
    world.end()


def test_a_reader_begins_with_an_offset_of_each_partition(store: MemoryStore) -> None:
    world = StreamWorld([options(partitions=3)], store)
    for at in range(30):
        world.append(str(at), key=str(at))
    ends = [each.end for each in world.streams.state("s").partitions]
    assert min(ends) > 2
    client = world.connect("r", auto_ack=False)
    assert subscribe_at(client, f"0:{ends[0] - 1},2:{ends[2] - 2}").reason_codes == b"\x01"
    assert len(got(client)) == 3, "and partition 1 begins with new ones"
    assert subscribe_at(client, f"earliest,0:{ends[0]},2:{ends[2]}").reason_codes == b"\x01"
    assert len(got(client)) == ends[1], "or where it says"
    world.end()
