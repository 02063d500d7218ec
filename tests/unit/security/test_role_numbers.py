"""The numbers that stand for permissions."""

from itertools import count

from mqttlite.security.role_numbers import RoleNumbers


def test_equal_permissions_have_one_number_and_a_number_its_permissions() -> None:
    numbers: RoleNumbers[str] = RoleNumbers(10, list)
    one, two = numbers.of("read"), numbers.of("write")
    assert one is not None
    assert two is not None
    assert numbers.of("read") == one != two
    assert [numbers.get(one), numbers.get(two), numbers.get(99)] == ["read", "write", None]
    assert numbers.all_of([two, 99, one]) == ["write", "read"]
    assert len(numbers) == 2


def test_a_number_that_a_session_has_stays_and_none_is_given_again() -> None:
    used: list[int] = []
    numbers: RoleNumbers[str] = RoleNumbers(2, lambda: used)
    first, second = numbers.of("a"), numbers.of("b")
    assert first is not None
    assert second is not None
    used.append(first)
    third = numbers.of("c")
    assert third not in (None, first, second)
    assert [numbers.get(first), numbers.get(second)] == ["a", None]
    assert numbers.of("a") == first
    used.append(third or 0)
    assert numbers.of("d") is None, "sessions have all of them"
    assert numbers.of("c") == third, "it needs no room"


def test_numbers_come_from_their_source_and_some_stay_always() -> None:
    numbers = RoleNumbers(2, list, count(7), always=((0, "anybody"),))
    assert [numbers.of("a"), numbers.of("b"), numbers.of("anybody")] == [7, 8, 0]
    assert [numbers.get(0), numbers.get(7), numbers.get(8)] == ["anybody", None, "b"]
