"""A flood of warnings leaves as a few, and says how many it was."""

import io
import logging

import pytest

from mqttlite.telemetry.log import LINES_PER_S, Calm


class Log:
    """A handler with the filter, at a time that is a number."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._text = io.StringIO()
        self._handler = logging.StreamHandler(self._text)
        self._handler.addFilter(Calm())

    def write(self, template: str, *values: object, level: int = logging.WARNING, line: int = 1) -> None:
        record = logging.LogRecord("mqttlite", level, "listeners.py", line, template, values, None)
        record.created = self.now
        self._handler.handle(record)

    def lines(self) -> list[str]:
        lines = self._text.getvalue().splitlines()
        self._text.seek(0)
        self._text.truncate()
        return lines


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
@pytest.mark.parametrize("above", [-1, 0, 1])
def test_so_many_lines_of_one_kind_leave_in_a_second(log: Log, above: int, level: int) -> None:
    for number in range(LINES_PER_S + above):
        log.write("%s refused", number, level=level)
    assert log.lines() == [f"{number} refused" for number in range(LINES_PER_S + min(0, above))]


def test_the_next_line_says_how_many_were_left_out(log: Log) -> None:
    for number in range(LINES_PER_S + 7):
        log.write("%s refused", number)
    log.lines()
    log.now += 0.99
    log.write("%s refused", "a")
    assert log.lines() == []
    log.now += 0.01
    log.write("%s refused", "b")
    log.write("%s refused", "c")
    assert log.lines() == ["b refused (8 more like this were left out before)", "c refused"]


def test_a_flood_of_one_kind_silences_no_other(log: Log) -> None:
    for number in range(2 * LINES_PER_S):
        log.write("%s refused", number)
    log.lines()
    log.write("%s lost messages", "c", line=2)
    assert log.lines() == ["c lost messages"]


def test_a_line_that_is_never_the_same_twice_is_of_one_kind_with_its_like(log: Log) -> None:
    for number in range(2 * LINES_PER_S):
        log.write(f"{number} refused")
    assert len(log.lines()) == LINES_PER_S


def test_lines_about_clients_that_are_let_in_are_never_left_out(log: Log) -> None:
    for number in range(2 * LINES_PER_S):
        log.write("%s connected", number, level=logging.INFO)
    assert len(log.lines()) == 2 * LINES_PER_S


def test_a_clock_that_is_set_back_silences_nobody(log: Log) -> None:
    for number in range(2 * LINES_PER_S):
        log.write("%s refused", number)
    log.lines()
    log.now -= 3_600
    log.write("%s refused", "a")
    assert log.lines() == [f"a refused ({LINES_PER_S} more like this were left out before)"]
