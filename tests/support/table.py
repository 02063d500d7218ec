"""One test for a whole table, where a test for each of its hundreds of rows would cost more than what it asks.

Invariant: every row is tried, and each that fails is named with all that its failure says.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest

LISTENERS: Final[list[Callable[[tuple[Any, ...], bool], None]]] = []
"""Told of each row that was tried, and whether it passed."""


def over(
    rows: Iterable[tuple[Any, ...]], name: Callable[..., str] = lambda *row: repr(row)
) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Call a test, plain or async, with each of the rows; `name` makes a row's name of it."""
    table = [(name(*row), row) for row in rows]
    assert table, "the table is empty"

    def decorate(test: Callable[..., Any]) -> Callable[[], Any]:
        def whole() -> None:
            failures = _Failures(len(table))
            for title, row in table:
                with failures.of(title, row):
                    test(*row)
            failures.tell()

        async def whole_async() -> None:
            failures = _Failures(len(table))
            for title, row in table:
                with failures.of(title, row):
                    await test(*row)
            failures.tell()

        chosen = whole_async if inspect.iscoroutinefunction(test) else whole
        chosen.__name__, chosen.__doc__, chosen.__module__ = test.__name__, test.__doc__, test.__module__
        return chosen

    return decorate


class _Failures:
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._errors: list[Exception] = []

    @contextlib.contextmanager
    def of(self, title: str, row: tuple[Any, ...]) -> Iterator[None]:
        """Keep the failure of a row."""
        passed = False
        try:
            yield
            passed = True
        except (Exception, pytest.fail.Exception) as error:
            # What is expected to raise and does not is no `Exception` of pytest's.
            if not isinstance(error, Exception):
                error = AssertionError(str(error)).with_traceback(error.__traceback__)
            error.add_note(f"in the row: {title}")
            self._errors.append(error)
        finally:
            for listener in LISTENERS:
                listener(row, passed)

    def tell(self) -> None:
        if self._errors:
            raise ExceptionGroup(f"{len(self._errors)} of {self._rows} rows", self._errors)
