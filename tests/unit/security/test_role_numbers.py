"""The numbers that stand for permissions."""

from itertools import count

import pytest

from mqttlite.security.role_numbers import AGAIN_S, RoleNumbers


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


def test_a_holder_that_is_no_session_is_told_when_numbers_are_forgotten() -> None:
    used: list[int] = []
    told: list[int] = []
    numbers: RoleNumbers[str] = RoleNumbers(2, lambda: used, on_forgotten=lambda: told.append(len(numbers)))
    used += [numbers.of("a") or 0, numbers.of("b") or 0]
    assert numbers.of("c") is None
    assert not told, "nothing was forgotten"
    used.pop()
    assert numbers.of("c") is not None
    assert told == [1]


@pytest.mark.parametrize(("unused", "searches"), [(0, 1), (249, 1), (250, 2)])
def test_a_search_that_found_few_numbers_is_not_repeated_at_once(unused: int, searches: int) -> None:
    """2,000 numbers, of which an eighth is 250."""
    now, asked, used = [100.0], 0, range(1 + unused, 100_000)

    def in_use() -> range:
        nonlocal asked
        asked += 1
        return used

    numbers: RoleNumbers[int] = RoleNumbers(2_000, in_use, clock=lambda: now[0])
    for each in range(2_000 + unused):
        assert numbers.of(each) is not None
    for each in range(3_000, 3_010):
        assert numbers.of(each) is None
    assert asked == searches
    used = range(0)
    now[0] += AGAIN_S - 0.1
    assert numbers.of(4_000) is None
    now[0] += 0.1
    assert numbers.of(4_000) is not None


def test_a_few_numbers_are_searched_each_time() -> None:
    used = range(100_000)
    numbers: RoleNumbers[int] = RoleNumbers(1_000, lambda: used, clock=lambda: 100.0)
    assert None not in [numbers.of(each) for each in range(1_000)]
    assert numbers.of(2_000) is None
    used = range(2, 100_000)
    assert numbers.of(2_000) is not None
