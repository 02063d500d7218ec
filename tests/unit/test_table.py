"""A test over a table fails where one of its rows does, and says which."""

import asyncio

import pytest

from tests.support.table import over

ROWS = [(1, "one"), (2, "two"), (3, "three")]


def test_each_row_is_tried_and_each_that_fails_is_named() -> None:
    tried = []

    @over(ROWS, lambda number, word: f"{number} is {word}")
    def test(number: int, word: str) -> None:
        tried.append(number)
        assert number == 2, "not two"

    with pytest.RaisesGroup(AssertionError, AssertionError, match="2 of 3 rows") as caught:
        test()
    assert tried == [1, 2, 3]
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert notes == [["in the row: 1 is one"], ["in the row: 3 is three"]]


def test_a_call_that_should_raise_and_does_not_is_a_failure() -> None:
    @over(ROWS)
    def test(number: int, word: str) -> None:
        with pytest.raises(ZeroDivisionError):
            assert 1 / (number - 3)

    with pytest.RaisesGroup(AssertionError, AssertionError) as caught:
        test()
    assert caught.value.exceptions[0].__notes__ == ["in the row: (1, 'one')"]


def test_an_async_test_is_awaited() -> None:
    @over(ROWS)
    async def test(number: int, word: str) -> None:
        await asyncio.sleep(0)
        assert number < 3

    with pytest.RaisesGroup(AssertionError, match="1 of 3 rows"):
        asyncio.run(test())


def test_a_table_without_rows_is_no_test() -> None:
    with pytest.raises(AssertionError, match="the table is empty"):
        over(())


def test_each_row_reaches_the_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[tuple[object, ...], bool]] = []
    monkeypatch.setattr("tests.support.table.LISTENERS", [lambda row, passed: heard.append((row, passed))])

    @over(ROWS)
    def test(number: int, word: str) -> None:
        assert number > 1

    with pytest.RaisesGroup(AssertionError):
        test()
    assert heard == [((1, "one"), False), ((2, "two"), True), ((3, "three"), True)]
