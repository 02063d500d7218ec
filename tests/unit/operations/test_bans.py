"""Bans: who is kept out, until when, and how many there may be; time is a number."""

import pytest

from mqttlite.operations import bans
from mqttlite.operations.bans import MAX_BAN_S, MAX_REASON, BanKind, BanRefused, Bans, TooManyBans, address_of


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_ban_is_for_what_it_names_and_ends() -> None:
    clock = Clock()
    all_bans = Bans(clock)
    client = all_bans.add("client", "c", 10, "why", "anna")
    all_bans.add("user", "u", 20)
    all_bans.add("address", "2001:DB8::0007", 30)
    assert all_bans.of("c", None, "") is client
    found = all_bans.of("x", "u", "192.0.2.1:5")
    assert found is not None
    assert found.kind == "user"
    found = all_bans.of("x", None, "[2001:db8::7]:5")
    assert found is not None
    assert found.value == "2001:db8::7"
    for client_id, user, peer in (("u", "c", "192.0.2.1:5"), ("x", None, "local"), ("", None, "")):
        assert all_bans.of(client_id, user, peer) is None
    clock.now += 10
    assert all_bans.of("c", None, "") is None
    assert [each.kind for each in all_bans.list()] == ["user", "address"]
    clock.now += 20
    assert all_bans.list() == []
    assert len(all_bans) == 0
    assert all_bans.of("x", "u", "") is None


def test_another_ban_of_the_same_takes_its_place() -> None:
    all_bans = Bans(Clock())
    first, second = all_bans.add("client", "c", 10), all_bans.add("client", "c", 99)
    assert all_bans.list() == [second]
    assert all_bans.lift(first.number) is None
    assert all_bans.lift(second.number) is second
    assert all_bans.of("c", None, "") is None


@pytest.mark.parametrize(
    ("kind", "value", "duration_s", "reason", "sentence"),
    [
        ("client", "", 1.0, "", "the client is empty: say who is to be banned"),
        ("user", "u", 0.0, "", "duration_s is 0: above 0, and 31622400 (a year) at most"),
        ("user", "u", MAX_BAN_S + 1.0, "", "duration_s is 3.16224e+07: above 0"),
        ("user", "u", float("nan"), "", "duration_s is nan: above 0"),
        ("user", "u", 1.0, "x" * (MAX_REASON + 1), "the reason has 501 characters: 500 at most"),
        ("address", "house", 1.0, "", "'house' is no IP address, such as 192.0.2.7 or 2001:db8::7"),
    ],
)
def test_a_ban_that_cannot_be_is_refused(
    kind: BanKind, value: str, duration_s: float, reason: str, sentence: str
) -> None:
    with pytest.raises(BanRefused) as caught:
        Bans(Clock()).add(kind, value, duration_s, reason)
    assert str(caught.value).startswith(sentence)


def test_ended_bans_make_room_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bans, "MAX_BANS", 2)
    clock = Clock()
    all_bans = Bans(clock)
    all_bans.add("client", "a", 10)
    all_bans.add("client", "b", 20)
    all_bans.add("client", "b", 20)
    with pytest.raises(TooManyBans):
        all_bans.add("client", "c", 10)
    clock.now += 10
    all_bans.add("client", "c", 10)
    assert [each.value for each in all_bans.list()] == ["b", "c"]


def test_the_address_of_a_peer() -> None:
    peers = ("192.0.2.7:1", "[::ffff:192.0.2.7]:1", "[::1]:5", "unix", "local", "")
    assert [address_of(peer) for peer in peers] == ["192.0.2.7", "192.0.2.7", "::1", None, None, None]
