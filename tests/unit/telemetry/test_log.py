"""A flood of warnings leaves as a few, and says how many it was; lines of one pass of the loop leave together."""

import asyncio
import io
import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mqttlite.telemetry.log import LINES_PER_S, Calm, Lines


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


class Terminal(io.StringIO):
    """Keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        if self.closed:
            raise BrokenPipeError
        self.writes.append(text)
        return len(text)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def logger(terminal: Terminal) -> Iterator[logging.Logger]:
    logger = logging.Logger("alone", logging.INFO)
    lines = Lines(terminal)
    logger.addHandler(lines)
    yield logger
    lines.close()


async def test_lines_of_one_pass_of_the_loop_leave_together(terminal: Terminal, logger: logging.Logger) -> None:
    for number in range(3):
        logger.info("line %d", number)
    assert terminal.writes == []
    await asyncio.sleep(0)
    logger.info("line 3")
    await asyncio.sleep(0)
    assert [re.findall(r"line \d", text) for text in terminal.writes] == [["line 0", "line 1", "line 2"], ["line 3"]]


async def test_a_warning_takes_the_lines_before_it_along_at_once(terminal: Terminal, logger: logging.Logger) -> None:
    logger.info("line 0")
    logger.warning("line 1")
    assert [re.findall(r"line \d", text) for text in terminal.writes] == [["line 0", "line 1"]]
    await asyncio.sleep(0)
    assert len(terminal.writes) == 1


def test_a_line_without_a_loop_leaves_at_once_with_its_time_and_level(
    terminal: Terminal, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in (0.0, 0.25, 1.5):
        monkeypatch.setattr(time, "time", lambda at=at: 1_000_000_000 + at)
        monkeypatch.setattr(time, "time_ns", lambda at=at: int((1_000_000_000 + at) * 1e9))
        logger.info("on")
    day = time.strftime("%Y-%m-%d", time.localtime(1_000_000_000))
    clock = [time.strftime("%H:%M:%S", time.localtime(1_000_000_000 + second)) for second in (0, 0, 1)]
    assert terminal.writes == [
        f"{day} {at},{ms} INFO    on\n" for at, ms in zip(clock, ("000", "250", "500"), strict=True)
    ]


@pytest.mark.parametrize("as_json", [False, True])
async def test_what_is_said_is_what_the_logging_library_would_write(
    terminal: Terminal, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_763_744_967.25)
    monkeypatch.setattr(time, "time_ns", lambda: 1_763_744_967_250_000_000)  # the library asks it from 3.13 on
    logger, lines = logging.Logger("alone", logging.INFO), Lines(terminal, as_json)
    logger.addHandler(lines)
    fields: dict[str, object] = {"peer": "[::1]:7", "client_id": None, "connection_id": 7}
    logger.info("client %r connected", "é\n", extra={"fields": fields})
    lines.say(asyncio.get_running_loop(), "alone", "client 'é\\n' connected", fields)
    assert terminal.writes == []
    await asyncio.sleep(0)
    (text,) = terminal.writes
    library, ours = text.splitlines()
    assert ours == library
    lines.say(asyncio.get_running_loop(), "alone", "next", fields)
    await asyncio.sleep(0)
    assert "next" in terminal.writes[1]
    lines.close()


async def test_what_a_client_may_make_very_long_is_shortened(terminal: Terminal) -> None:
    client_id = "x" * 65_535
    for style in (False, True):
        logger, lines = logging.Logger("alone", logging.INFO), Lines(terminal, as_json=style)
        logger.addHandler(lines)
        logger.info("client %s connected", client_id, extra={"fields": {"client_id": client_id}})
        logger.warning("client %s is slow", client_id, extra={"fields": {"client_id": client_id}})
        lines.say(asyncio.get_running_loop(), "alone", f"client {client_id} left", {"client_id": client_id})
        lines.flush()
        lines.close()
    text = "".join(terminal.writes).splitlines()
    assert len(text) == 6
    assert all(len(line) < 3_000 for line in text)
    assert all(" characters)" in line for line in text)
    assert json.loads(text[-1])["client_id"] == f"{'x' * 1_000}… (65535 characters)"


def test_a_traceback_is_not_shortened(terminal: Terminal) -> None:
    logger, lines = logging.Logger("alone", logging.INFO), Lines(terminal, as_json=True)
    logger.addHandler(lines)
    try:
        raise ValueError("x" * 5_000)
    except ValueError:
        logger.exception("that failed")
    lines.close()
    assert "x" * 5_000 in json.loads("".join(terminal.writes))["exception"]


def test_a_line_that_cannot_be_made_or_written_stops_nobody(
    terminal: Terminal, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logger.info("%d", "no number")
    assert "Logging error" in capsys.readouterr().err
    terminal.close()
    logger.info("into a closed terminal")
    assert capsys.readouterr().err == ""


# ── as JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_json(write: Callable[[logging.Logger], None]) -> list[dict[str, Any]]:
    """What some lines are as objects."""
    terminal = Terminal()
    logger = logging.Logger("mqttlite.net", logging.DEBUG)
    lines = Lines(terminal, as_json=True)
    logger.addHandler(lines)
    write(logger)
    lines.close()
    return [json.loads(line) for line in "".join(terminal.writes).splitlines()]


def test_a_line_is_an_object_with_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.25, 1_763_744_967.5])
    monkeypatch.setattr(time, "time", lambda: next(times))
    monkeypatch.setattr(time, "time_ns", lambda: int(next(times) * 1e9), raising=False)

    def write(logger: logging.Logger) -> None:
        logger.info("%s is up", "it")
        logger.warning('"quoted"\nand two lines')
        logger.error("about one", extra={"fields": {"client_id": "c/1", "connection_id": 7}})

    assert as_json(write) == [
        {"time": "1970-01-01T00:00:00.000Z", "level": "info", "logger": "mqttlite.net", "message": "it is up"},
        {
            "time": "1970-01-01T00:00:00.250Z",
            "level": "warning",
            "logger": "mqttlite.net",
            "message": '"quoted"\nand two lines',
        },
        {
            "time": "2025-11-21T17:09:27.500Z",
            "level": "error",
            "logger": "mqttlite.net",
            "message": "about one",
            "client_id": "c/1",
            "connection_id": 7,
        },
    ]


def test_an_exception_is_a_field() -> None:
    def write(logger: logging.Logger) -> None:
        try:
            raise ValueError("why")
        except ValueError:
            logger.exception("it failed")

    (line,) = as_json(write)
    assert line["message"] == "it failed"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: why")


def test_a_name_that_is_no_text_is_a_line_all_the_same() -> None:
    (line,) = as_json(lambda logger: logger.info("%s", b"caf\xe9".decode("utf-8", "surrogateescape")))
    assert line["message"] == "caf\udce9"


def test_text_says_nothing_of_the_fields(terminal: Terminal, logger: logging.Logger) -> None:
    logger.warning("a line", extra={"fields": {"client_id": "c"}})
    (text,) = terminal.writes
    assert text.endswith("WARNING a line\n")
