"""A broker that is about to be replaced sends its clients elsewhere (5.0 §4.11)."""

import pytest

from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connect, Disconnect
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import Client, World


def send_away(client: Client, reference: str) -> list[object]:
    client.world.broker.send_away(client.connection, reference, client.world.now)
    client.world.settle()
    assert client.closed
    return list(client.received())


def test_a_5_0_client_is_told_where_to_go() -> None:
    (goodbye,) = send_away(World().connect("client"), "other.example:1883")
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == 0x9C
    assert goodbye.properties.server_reference == "other.example:1883"
    assert goodbye.properties.reason_string == "the server is about to shut down"


def test_where_no_other_server_is_named_the_server_shuts_down() -> None:
    (goodbye,) = send_away(World().connect("client"), "")
    assert isinstance(goodbye, Disconnect)
    assert (goodbye.reason_code, goodbye.properties.server_reference) == (0x8B, None)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Properties(request_problem_information=0), Properties(server_reference="other")),
        (Properties(maximum_packet_size=20), NONE),
    ],
)
def test_the_reference_is_no_problem_information_but_must_fit(asked: Properties, told: Properties) -> None:
    client = World().open()
    client.send(Connect("client", properties=asked))
    client.received()
    assert send_away(client, "other") == [Disconnect(0x9C, told)]


def test_a_3_1_1_client_is_closed() -> None:
    assert send_away(World().connect("client", V311), "other") == []


def test_a_session_that_is_kept_is_there_when_the_client_is_sent_back() -> None:
    world = World()
    send_away(world.connect("client", V5, expiry=100), "")
    assert world.open().connect("client", clean_start=False).session_present  # type: ignore[union-attr]


def test_a_will_that_overflows_another_client_cuts_that_one_in_the_same_turn() -> None:
    from mqttlite.core.limits import Limits
    from mqttlite.wire.packets import Will

    world = World(Limits(max_outbox_messages=1, on_overflow="disconnect"))
    reader = world.connect("reader")
    reader.subscribe("will")
    reader.block()
    first, second = (world.connect(name, will=Will(b"will", b"gone")) for name in ("first", "second"))
    send_away(first, "")
    assert not reader.closed
    send_away(second, "")
    assert reader.closed


@pytest.mark.parametrize("ended", [False, True])
def test_a_will_that_overflows_another_client_cuts_that_one_when_its_client_is_kicked(ended: bool) -> None:
    from mqttlite.core.limits import Limits
    from mqttlite.wire.packets import Will

    world = World(Limits(max_outbox_messages=1, on_overflow="disconnect"))
    reader = world.connect("reader")
    reader.subscribe("will")
    reader.block()
    delayed = Will(b"will", b"gone", properties=Properties(will_delay_interval=10))
    for name in ("first", "second"):
        world.connect(name, will=delayed if ended else Will(b"will", b"gone"), expiry=100)
        assert not reader.closed
        assert (world.broker.end_session if ended else world.broker.kick)(name, world.now)
        world.settle()
    assert reader.closed
    assert not world.broker.kick("first", world.now)


def test_a_client_whose_right_to_be_there_ended_is_told_so_and_its_session_stays() -> None:
    world = World()
    client = world.connect("client", expiry=100)
    for _ in range(2):  # the second time it has ended already
        world.broker.end_unauthorized(client.connection, "its certificate is revoked", world.now)
        world.settle()
    (goodbye,) = client.received()
    assert isinstance(goodbye, Disconnect)
    assert (goodbye.reason_code, goodbye.properties.reason_string) == (0x87, "its certificate is revoked")
    assert client.closed
    assert world.open().connect("client", clean_start=False).session_present  # type: ignore[union-attr]


def test_its_will_may_overflow_another_client() -> None:
    from mqttlite.core.limits import Limits
    from mqttlite.wire.packets import Will

    world = World(Limits(max_outbox_messages=1, on_overflow="disconnect"))
    reader = world.connect("reader")
    reader.subscribe("will")
    reader.block()
    for name in ("first", "second"):
        assert not reader.closed
        client = world.connect(name, will=Will(b"will", b"gone"))
        world.broker.end_unauthorized(client.connection, "revoked", world.now)
        world.settle()
    assert reader.closed
