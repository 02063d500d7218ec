"""Who comes into jail, for how long, and what is kept of strangers."""

import asyncio
import itertools

import pytest

from mqttlite.core.authentication import Verdict
from mqttlite.event_hub import Jailed
from mqttlite.security import jail as jail_module
from mqttlite.security.authenticator import Credentials
from mqttlite.security.jail import JailOptions, LoginJail

GOOD, BAD = Verdict(0), Verdict(0x86)
NOBODY_BY_CLIENT = JailOptions(client_failures=0, address_failures=3, window_s=10, jail_s=30, max_jail_s=100)
NOBODY_BY_ADDRESS = JailOptions(client_failures=3, address_failures=0, window_s=10, jail_s=30, max_jail_s=100)


class Jail:
    """A jail and its clock."""

    def __init__(self, options: JailOptions) -> None:
        self.now = 1_000.0
        self.jailed: list[Jailed] = []
        self.jail = LoginJail(options, self.jailed.append, lambda: self.now)
        self._ports = itertools.count(40_000)

    def login(self, good: bool, address: str = "192.0.2.1", username: str | None = "ann", client_id: str = "c") -> int:
        """What a client hears whose password is right or not; below 0 where it was not checked."""
        credentials = self.credentials(address, username, client_id)
        refusal = self.jail.refusal(credentials)
        if refusal is not None:
            return -refusal.reason_code
        return self.jail.judge(credentials, GOOD if good else BAD).reason_code

    def credentials(
        self, address: str = "192.0.2.1", username: str | None = "ann", client_id: str = "c"
    ) -> Credentials:
        return Credentials(client_id, username, b"x", None, f"{address}:{next(self._ports)}", "tcp-1883")


REFUSED = -0x9F
"""Without a check."""


def test_an_address_that_fails_too_often_is_refused_unchecked_for_a_while() -> None:
    jail = Jail(NOBODY_BY_CLIENT)
    assert [jail.login(False, username=f"u{n}", client_id=f"c{n}") for n in range(4)] == [0x86] * 3 + [REFUSED]
    assert jail.login(True, username="good", client_id="good") == REFUSED, "a right password does not help"
    assert jail.login(True, "192.0.2.2") == 0, "other addresses are not concerned"
    (told,) = jail.jailed
    assert (told.what, told.network, told.failures, told.duration_s) == ("address", "192.0.2.1", 3, 30)
    assert (told.username, told.client_id, told.listener) == ("u2", "c2", "tcp-1883")
    jail.now += 29.9
    assert jail.login(True) == REFUSED
    jail.now += 0.1
    assert jail.login(True) == 0


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_fewer_failures_and_old_ones_are_harmless(failures: int) -> None:
    jail = Jail(NOBODY_BY_CLIENT)
    for _ in range(5):
        for _ in range(failures):
            assert jail.login(False) == 0x86
        jail.now += 10
    assert jail.login(True) == 0
    assert not jail.jailed


def test_each_further_time_is_longer_up_to_a_limit_and_quiet_ends_it() -> None:
    jail = Jail(NOBODY_BY_CLIENT)

    def again() -> float:
        before = len(jail.jailed)
        while len(jail.jailed) == before:
            assert jail.login(False) == 0x86
        duration_s = jail.jailed[-1].duration_s
        jail.now += duration_s
        return duration_s

    assert [again() for _ in range(4)] == [30, 60, 100, 100]
    jail.now += 99
    assert again() == 100
    jail.now += 100
    assert again() == 30


@pytest.mark.parametrize(
    ("what", "same", "other"),
    [
        ("username", {"username": "ann"}, {"username": "bob"}),
        ("client_id", {"client_id": "pump", "username": None}, {"client_id": "valve", "username": None}),
    ],
)
def test_one_device_with_a_wrong_password_is_refused_alone(
    what: str, same: dict[str, str | None], other: dict[str, str | None]
) -> None:
    jail = Jail(JailOptions(client_failures=3, address_failures=6))
    for _ in range(3):
        assert jail.login(False, **{"client_id": "", **same}) == 0x86  # type: ignore[arg-type]
    for _ in range(100):
        assert jail.login(True, **{"client_id": "", **same}) == REFUSED  # type: ignore[arg-type]
    assert [told.what for told in jail.jailed] == [what], "what is refused unchecked does not count for the address"
    assert jail.login(True, **{"client_id": "", **other}) == 0  # type: ignore[arg-type]
    assert jail.login(True, "192.0.2.2", **{"client_id": "", **same}) == 0, "from elsewhere it may"  # type: ignore[arg-type]


def test_a_good_login_forgives_its_client_but_not_its_address() -> None:
    jail = Jail(NOBODY_BY_ADDRESS)
    for _ in range(5):
        assert [jail.login(False), jail.login(False), jail.login(True)] == [0x86, 0x86, 0]
    assert not jail.jailed
    jail = Jail(NOBODY_BY_CLIENT)
    answers = [jail.login(good, username="own" if good else f"u{n}") for n, good in enumerate([False, True] * 4)]
    assert answers[:5] == [0x86, 0, 0x86, 0, 0x86]
    assert set(answers[5:]) == {REFUSED}, "an attacker's own account does not wash the address clean"


def test_guesses_sent_at_the_same_time_are_refused_even_if_one_is_right() -> None:
    jail = Jail(NOBODY_BY_CLIENT)
    asked = [jail.credentials(username=f"u{n}") for n in range(10)]
    assert [jail.jail.refusal(each) for each in asked] == [None] * 10
    answers = [jail.jail.judge(each, GOOD if n == 9 else BAD).reason_code for n, each in enumerate(asked)]
    assert answers == [0x86] * 9 + [0x9F]
    assert len(jail.jailed) == 1


def test_a_method_names_the_user_that_fails() -> None:
    jail = Jail(NOBODY_BY_ADDRESS)
    for n in range(3):
        who = jail.credentials(username=None, client_id=f"c{n}")
        assert jail.jail.judge(who, Verdict(0x87, None, "ann")).reason_code == 0x87
    assert [(told.what, told.username) for told in jail.jailed] == [("username", "ann")]
    who = jail.credentials(username=None, client_id="other")
    assert jail.jail.judge(who, Verdict(0, b"proof", "ann")).reason_code == 0x9F
    assert jail.jail.judge(who, Verdict(0, b"proof", "bob")).reason_code == 0


@pytest.mark.parametrize("code", [0x18, 0x88, 0x89])
def test_failures_that_are_not_the_clients_fault_do_not_count(code: int) -> None:
    jail = Jail(NOBODY_BY_CLIENT)
    for _ in range(10):
        assert jail.jail.judge(jail.credentials(), Verdict(code)).reason_code == code
    assert not jail.jailed
    assert len(jail.jail) == 0


@pytest.mark.parametrize(
    ("exempt", "address", "is_jailed"),
    [
        (None, "127.0.0.1", False),
        (None, "127.9.9.9", False),
        (None, "[::1]", False),
        (None, "[::ffff:127.0.0.1]", False),
        (None, "unix", False),
        (None, "192.0.2.1", True),
        (("192.0.2.0/24",), "192.0.2.1", False),
        (("192.0.2.0/24",), "[::ffff:192.0.2.1]", False),
        (("192.0.2.0/24",), "192.0.3.1", True),
        ((), "127.0.0.1", True),
        ((), "[2001:db8::1]", True),
    ],
)
def test_exempt_addresses_and_unix_sockets_are_never_jailed(
    exempt: tuple[str, ...] | None, address: str, is_jailed: bool
) -> None:
    jail = Jail(JailOptions() if exempt is None else JailOptions(exempt=exempt))
    for _ in range(100):
        jail.login(False, address)
    assert bool(jail.jailed) == is_jailed
    assert jail.login(True, address) == (REFUSED if is_jailed else 0)


def test_an_ipv6_network_is_one_address() -> None:
    jail = Jail(NOBODY_BY_CLIENT)
    for n in range(3):
        jail.login(False, f"[2001:db8:1:2::{n}]")
    assert jail.login(True, "[2001:db8:1:2:ffff::1]") == REFUSED
    assert jail.login(True, "[2001:db8:1:3::1]") == 0


def test_with_0_no_client_is_jailed() -> None:
    jail = Jail(JailOptions(address_failures=0, client_failures=0))
    for _ in range(1_000):
        assert jail.login(False) == 0x86
    assert len(jail.jail) == 0


def test_made_up_names_push_no_address_out_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail_module, "MAX_CLIENTS", 10)
    monkeypatch.setattr(jail_module, "MAX_ADDRESSES", 5)
    jail = Jail(JailOptions(client_failures=5, address_failures=30))
    answers = [jail.login(False, username=f"u{n}", client_id=f"c{n}" * 10_000) for n in range(31)]
    assert answers == [0x86] * 30 + [REFUSED]
    assert len(jail.jail) == 10 + 1
    for n in range(4):
        jail.login(False, f"192.0.2.{100 + n}")
    assert len(jail.jail) == 10 + 5
    assert jail.login(True) == REFUSED
    jail.login(False, "192.0.2.200")
    assert len(jail.jail) == 10 + 5
    assert jail.login(True, username="x", client_id="x") == 0, "the longest quiet one is forgotten"


async def test_only_so_many_refusals_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail_module, "MAX_DELAYED", 2)
    jail = Jail(JailOptions(delay_s=5)).jail
    waiting = [asyncio.create_task(jail.delay()) for _ in range(2)]
    third = asyncio.create_task(jail.delay())
    await asyncio.sleep(0)
    assert third.done()
    for each in waiting:
        assert not each.done()
        each.cancel()
    await asyncio.wait(waiting)
    again = asyncio.create_task(jail.delay())
    await asyncio.sleep(0)
    assert not again.done(), "there is room again"
    again.cancel()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"address_failures": -1}, "address_failures is -1: 0 at least"),
        ({"client_failures": -1}, "client_failures is -1"),
        ({"window_s": 0}, "window_s is 0: above 0"),
        ({"jail_s": float("inf")}, "jail_s is inf"),
        ({"delay_s": 5.1}, "delay_s is 5.1: it may be 0 to 5"),
        ({"max_jail_s": 59}, "max_jail_s is 59: as much as jail_s at least, 60"),
        ({"exempt": ("10.0.0.1/8",)}, "exempt has '10.0.0.1/8': 10.0.0.1/8 has host bits set"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("(", r"\(")):
        JailOptions(**options)  # type: ignore[arg-type]
