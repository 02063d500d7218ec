"""Which passwords are known to be right, for how long, and of how many users."""

import pytest

from mqttlite.security import verified
from mqttlite.security.verified import VerifiedPasswords

ENTRY = "SCRAM-SHA-256$4096:c2FsdA==$a:b"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("name", "entry", "password", "known"),
    [
        ("ann", ENTRY, b"secret", True),
        ("ann", ENTRY, b"Secret", False),
        ("ann", ENTRY, b"", False),
        ("ann", ENTRY + "=", b"secret", False),
        ("eve", ENTRY, b"secret", False),
        ("an", "n" + ENTRY, b"secret", False),
    ],
)
def test_only_the_same_password_of_the_same_user_and_entry_is_known(
    name: str, entry: str, password: bytes, known: bool
) -> None:
    passwords = VerifiedPasswords(10, Clock())
    assert not passwords.knows("ann", ENTRY, b"secret")
    passwords.add("ann", ENTRY, b"secret")
    assert passwords.knows(name, entry, password) == known


def test_it_is_known_for_a_time_and_knowing_does_not_make_it_longer() -> None:
    clock = Clock()
    passwords = VerifiedPasswords(10, clock)
    passwords.add("ann", ENTRY, b"secret")
    clock.now += 9.9
    assert passwords.knows("ann", ENTRY, b"secret")
    clock.now += 0.1
    assert not passwords.knows("ann", ENTRY, b"secret")


def test_beyond_the_limit_the_longest_unused_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "MAX_VERIFIED", 3)
    passwords = VerifiedPasswords(10, Clock())
    for name in ("a", "b", "c"):
        passwords.add(name, ENTRY, b"x")
    assert passwords.knows("a", ENTRY, b"x")
    passwords.add("d", ENTRY, b"x")
    assert len(passwords) == 3
    assert [passwords.knows(name, ENTRY, b"x") for name in "abcd"] == [True, False, True, True]


def test_nothing_is_known_after_clear_or_without_a_life() -> None:
    passwords, off = VerifiedPasswords(10, Clock()), VerifiedPasswords(0, Clock())
    for each in (passwords, off):
        each.add("ann", ENTRY, b"secret")
    passwords.clear()
    assert len(passwords) == len(off) == 0
    assert not passwords.knows("ann", ENTRY, b"secret")


def test_the_password_is_not_in_memory() -> None:
    passwords = VerifiedPasswords(10, Clock())
    passwords.add("ann", ENTRY, b"a secret of ann")
    assert "a secret of ann" not in repr(vars(passwords))
