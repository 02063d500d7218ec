"""How often clients, users and addresses may connect, and how many connections they may have."""

import pytest

from mqttlite.core.connect.connect_limits import ConnectLimits, ConnectRate, Jail
from mqttlite.core.load.rate_limits import TokenBucket
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.core_driver import START, Client, World


def arrive(
    world: World, limits: ConnectLimits, client_id: str, username: str | None = None, version: int = V5
) -> tuple[Client, int]:
    client = world.open(version, connect_limits=limits)
    connack = client.connect(client_id, username=username)
    assert connack is not None
    return client, connack.reason_code


def test_a_key_may_come_as_often_as_its_rate_says() -> None:
    rate = ConnectRate(2.0, 3.0)
    assert [rate.admits("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert rate.admits("b", 0.0)
    assert [rate.admits("a", 0.5) for _ in range(2)] == [True, False]


def test_the_tables_forget_the_key_that_was_silent_for_longest() -> None:
    rate, jail = ConnectRate(1.0, 1.0, max_keys=2), Jail(1, 10.0, 5.0, 60.0, max_keys=2)
    for key in ("a", "b", "c"):
        assert rate.admits(key, 0.0)
        assert jail.jailed_s(key, 0.0) == 0.0
    assert (len(rate), len(jail)) == (2, 2)
    assert not rate.admits("c", 0.0)
    assert rate.admits("a", 0.0)
    assert jail.jailed_s("c", 0.0) > 0.0
    assert jail.jailed_s("a", 0.0) == 0.0


def test_a_key_that_comes_too_often_is_jailed_for_longer_each_time_until_it_behaves() -> None:
    jail = Jail(connects=3, window_s=30.0, jail_s=10.0, max_jail_s=35.0)
    assert [jail.jailed_s("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert jail.jailed_s("a", 0.0) == 10.0
    assert jail.jailed_s("a", 4.0) == 6.0, "to knock at the door does not prolong it"
    assert jail.jailed_s("b", 4.0) == 0.0
    assert jail.jailed_s("a", 10.0) == 0.0
    assert jail.jailed_s("a", 10.0) == 20.0
    assert [jail.jailed_s("a", 30.0) for _ in range(3)] == [0.0, 0.0, 35.0]
    assert [jail.jailed_s("a", 65.0) for _ in range(4)] == [0.0, 0.0, 0.0, 35.0]
    now = 65.0 + 35.0 + 35.0
    assert [jail.jailed_s("a", now) for _ in range(4)] == [0.0, 0.0, 0.0, 10.0], "free for long enough"


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        (ConnectLimits(all_rate=TokenBucket(1.0, 2.0, 0.0)), "all_rate"),
        (ConnectLimits(address_rate=ConnectRate(1.0, 2.0)), "address_rate"),
        (ConnectLimits(max_per_address=2), "address_connections"),
        (ConnectLimits(address_jail=Jail(2, 60.0, 60.0, 60.0)), "address_flapping"),
    ],
)
def test_each_limit_on_addresses_refuses_the_third_connection(limits: ConnectLimits, refusal: str) -> None:
    assert [limits.open("1.2.3.4", 0.0) for _ in range(4)] == ["", "", refusal, refusal]
    assert limits.refused == {refusal: 2}
    assert limits.open("", 0.0) == (refusal if refusal == "all_rate" else ""), "a Unix socket has no address"


def test_an_address_whose_connections_are_gone_may_have_others() -> None:
    limits = ConnectLimits(max_per_address=1)
    assert limits.open("1.2.3.4", 0.0) == ""
    limits.close("1.2.3.4")
    assert limits.open("1.2.3.4", 0.0) == ""
    assert limits.open("1.2.3.5", 0.0) == ""


@pytest.mark.parametrize(
    ("limits", "refusal", "code"),
    [
        (ConnectLimits(user_rate=ConnectRate(1.0, 2.0)), "user_rate", ReasonCode.CONNECTION_RATE_EXCEEDED),
        (ConnectLimits(max_per_user=2), "user_connections", ReasonCode.QUOTA_EXCEEDED),
        (
            ConnectLimits(user_jail=Jail(2, 60.0, 60.0, 60.0)),
            "user_flapping",
            ReasonCode.CONNECTION_RATE_EXCEEDED,
        ),
    ],
)
def test_each_limit_on_users_refuses_the_third_client(limits: ConnectLimits, refusal: str, code: int) -> None:
    world = World()
    assert [arrive(world, limits, str(number), "ann")[1] for number in range(3)] == [0, 0, code]
    assert arrive(world, limits, "old", "ann", V311)[1] == 3
    assert limits.refused == {refusal: 2}
    assert arrive(world, limits, "other", "bob")[1] == 0
    assert arrive(world, limits, "nobody")[1] == 0


def test_a_user_whose_client_left_or_is_taken_over_has_room_for_another() -> None:
    world = World()
    limits = ConnectLimits(max_per_user=1)
    first, code = arrive(world, limits, "one", "ann")
    second, code = arrive(world, limits, "one", "ann")
    assert code == 0
    assert first.closed
    assert arrive(world, limits, "two", "ann")[1] == ReasonCode.QUOTA_EXCEEDED
    second.disconnect()
    third, code = arrive(world, limits, "two", "ann")
    assert code == 0
    elsewhere = ConnectLimits(max_per_user=1)
    arrive(world, elsewhere, "three", "ann")
    assert arrive(world, limits, "three", "ann")[1] == ReasonCode.QUOTA_EXCEEDED, "it had a place elsewhere"
    assert not third.closed
    world.end()


def test_a_flapping_client_is_refused_and_its_session_stays() -> None:
    world = World()
    limits = ConnectLimits(client_jail=Jail(2, 60.0, 60.0, 600.0))
    for _ in range(2):
        client, code = arrive(world, limits, "flapper")
        assert code == 0
        client.lose()
    stays, code = arrive(world, limits, "other")
    refused, code = arrive(world, limits, "flapper")
    assert code == ReasonCode.CONNECTION_RATE_EXCEEDED
    assert refused.connection.close_detail == "the client connects too often: come again in 60 s"
    assert limits.refused == {"client_flapping": 1}
    world.advance(60.0)
    assert arrive(world, limits, "flapper")[1] == 0
    assert not stays.closed


def test_a_flapping_client_does_not_disturb_the_one_it_would_take_over() -> None:
    world = World(now=START)
    limits = ConnectLimits(client_jail=Jail(1, 60.0, 60.0, 600.0))
    first, _ = arrive(world, limits, "same")
    assert arrive(world, limits, "same")[1] == ReasonCode.CONNECTION_RATE_EXCEEDED
    assert not first.closed
