"""The log: a flood of warnings is cut and counted, lines are as documented, and a reader that does not read costs lines
and nothing else."""

import io
import json
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest

from mqttlite.telemetry.log import (
    BATCH_LINES,
    BURST_LINES,
    FLUSH_S,
    LINES_PER_S,
    MAX_CHARACTERS,
    MAX_KINDS,
    QUEUE_LINES,
    Calm,
    LogQueue,
    LogWriter,
    lines_dropped,
    writing_log,
)


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
def test_so_many_lines_of_one_kind_leave_at_once(log: Log, above: int, level: int) -> None:
    for number in range(BURST_LINES + above):
        log.write("%s refused", number, level=level)
    assert log.lines() == [f"{number} refused" for number in range(BURST_LINES + min(0, above))]


def test_the_next_line_says_how_many_were_left_out(log: Log) -> None:
    for number in range(BURST_LINES + 7):
        log.write("%s refused", number)
    log.lines()
    log.now += 0.9 / LINES_PER_S
    log.write("%s refused", "a")
    assert log.lines() == []
    log.now += 1.2 / LINES_PER_S
    log.write("%s refused", "b")
    log.write("%s refused", "c")
    assert log.lines() == ["b refused (8 more like this were left out before)", "c refused"]


@pytest.mark.long
def test_a_flood_that_goes_on_is_cut_to_a_few_lines_a_second(log: Log) -> None:
    for _ in range(60_000):
        log.now += 0.01
        log.write("%s refused", "x" * 200)
    lines = log.lines()
    assert len(lines) <= BURST_LINES + 600 * LINES_PER_S + 1
    assert sum(int(line.partition("(")[2].partition(" ")[0] or 0) for line in lines) > 50_000
    log.now += BURST_LINES / LINES_PER_S
    for _ in range(BURST_LINES):
        log.write("%s refused", "y")
    assert len(log.lines()) == BURST_LINES


def test_a_flood_of_one_kind_silences_no_other(log: Log) -> None:
    for number in range(2 * BURST_LINES):
        log.write("%s refused", number)
    log.lines()
    log.write("%s lost messages", "c", line=2)
    assert log.lines() == ["c lost messages"]


@pytest.mark.parametrize("above", [-1, 0, 1])
def test_there_are_so_many_kinds_and_the_rest_is_one_kind(log: Log, above: int) -> None:
    for number in range(MAX_KINDS + BURST_LINES + above):
        log.write(f"{number} refused")
    assert len(log.lines()) == MAX_KINDS + BURST_LINES + min(0, above)


def test_lines_about_clients_that_are_let_in_are_never_left_out(log: Log) -> None:
    for number in range(2 * BURST_LINES):
        log.write("%s connected", number, level=logging.INFO)
    assert len(log.lines()) == 2 * BURST_LINES


def test_a_clock_that_is_set_back_silences_no_logger(log: Log) -> None:
    for number in range(2 * BURST_LINES):
        log.write("%s refused", number)
    log.lines()
    log.now -= 3_600
    log.write("%s refused", "a")
    assert log.lines() == [f"a refused ({BURST_LINES} more like this were left out before)"]


def logger_into(lines: LogQueue) -> logging.Logger:
    logger = logging.Logger("mqttlite.net", logging.DEBUG)
    logger.addHandler(lines)
    return logger


def written(write: Callable[[logging.Logger], None], *, as_json: bool = False) -> list[str]:
    """The lines of the log."""
    lines, stream = LogQueue(as_json), io.StringIO()
    writer = LogWriter(lines, stream)
    writer.start()
    write(logger_into(lines))
    writer.stop()
    return stream.getvalue().splitlines()


def as_json(write: Callable[[logging.Logger], None]) -> list[dict[str, Any]]:
    """What some lines are as objects."""
    return [json.loads(line) for line in written(write, as_json=True)]


@contextmanager
def pipe() -> Iterator[tuple[IO[bytes], IO[str]]]:
    """The two ends of a pipe."""
    reader, writer = os.pipe()
    with open(reader, "rb") as ours, open(writer, "w") as theirs:
        yield ours, theirs


@pytest.fixture
def lines() -> Iterator[LogQueue]:
    """A queue of the root logger's lines."""
    root, lines = logging.getLogger(), LogQueue()
    root.addHandler(lines)
    yield lines
    root.removeHandler(lines)


# ── the queue and its thread ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
@pytest.mark.parametrize("count", [1, BATCH_LINES - 1, BATCH_LINES, BATCH_LINES + 1, QUEUE_LINES])
def test_a_stop_writes_all_that_is_queued_in_order(count: int) -> None:
    lines, stream = LogQueue(), io.StringIO()
    logger, writer = logger_into(lines), LogWriter(lines, stream)
    for number in range(count):
        logger.info("line %d", number)
    writer.start()
    writer.stop()
    assert [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()] == [str(n) for n in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("above", [-1, 0, 1, 7])
def test_a_full_queue_drops_lines_and_the_count_is_logged_when_there_is_room(above: int) -> None:
    lines, stream = LogQueue(), io.StringIO()
    logger, writer = logger_into(lines), LogWriter(lines, stream)
    for _ in range(QUEUE_LINES + above):
        logger.info("line")
    assert lines.dropped == max(0, above)
    writer.start()
    writer.stop()
    *texts, last = stream.getvalue().splitlines()
    if above <= 0:
        assert len(texts) == QUEUE_LINES + above - 1
    else:
        said = [line for line in (*texts, last) if "dropped" in line]
        assert len(texts) == QUEUE_LINES
        assert len(said) == 1
        assert said[0].endswith(f"WARNING {above} lines of the log were dropped: nobody read it, or too slowly")


@pytest.mark.long
def test_a_pipe_without_a_reader_holds_up_no_logger_and_a_late_reader_learns_the_count() -> None:
    lines = LogQueue()
    logger = logger_into(lines)
    with pipe() as (reader, stream):
        writer = LogWriter(lines, stream)
        writer.start()
        logged = 0
        while not lines.dropped:  # the pipe is full, and the queue is
            logger.info("line %s", "x" * 500)
            logged += 1
        told = kept = 0
        while not told or kept < logged - lines.dropped:
            line = reader.readline()
            if b"dropped" in line:
                told += int(line.split(b"WARNING ")[1].split()[0])
            else:
                kept += 1
        writer.stop()
    assert told == lines.dropped


def test_a_stop_with_a_blocked_pipe_is_bounded() -> None:
    lines = LogQueue()
    logger = logger_into(lines)
    with pipe() as (_, stream):
        writer = LogWriter(lines, stream)
        writer.start()
        for _ in range(1_000):
            logger.info("line %s", "x" * 500)
        began = time.monotonic()
        writer.stop()
        assert FLUSH_S - 0.1 < time.monotonic() - began < FLUSH_S + 30


def test_a_reader_that_is_gone_stops_no_logger(capfd: pytest.CaptureFixture[str]) -> None:
    lines = LogQueue()
    logger = logger_into(lines)
    with pipe() as (reader, stream):
        writer = LogWriter(lines, stream)
        writer.start()
        reader.close()
        logger.info("into a pipe without a reader")
        writer.stop()
    assert capfd.readouterr().err == ""


def test_a_line_that_cannot_be_made_stops_no_logger(capsys: pytest.CaptureFixture[str]) -> None:
    def write(logger: logging.Logger) -> None:
        logger.info("%d", "no number")
        logger.info("next")

    assert [line.rpartition(" ")[2] for line in written(write)] == ["next"]
    assert "Logging error" in capsys.readouterr().err


@pytest.mark.long
def test_the_root_loggers_lines_are_written_meanwhile_and_its_drops_counted(lines: LogQueue) -> None:
    stream = io.StringIO()
    with writing_log(stream):
        logging.getLogger().warning("a line")
    assert stream.getvalue().endswith("WARNING a line\n")
    assert lines_dropped() == 0
    logger = logger_into(lines)  # the others of the root logger need not see them all
    for _ in range(QUEUE_LINES + 3):
        logger.warning("a line")
    assert lines_dropped() == 3


# ── as text ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_has_its_time_and_level_and_no_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000_000.25)
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_250_000_000)  # the library asks it from 3.13 on
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_000_000_000))
    lines = written(lambda logger: logger.warning("a line", extra={"fields": {"client_id": "c"}}))
    assert lines == [f"{at},250 WARNING a line"]


@pytest.mark.parametrize("style", [False, True])
@pytest.mark.parametrize("above", [-1, 0, 1])
def test_long_text_from_a_client_is_shortened(style: bool, above: int) -> None:
    client_id = "x" * (1_000 + above)

    def write(logger: logging.Logger) -> None:
        logger.info("%s", client_id, extra={"fields": {"client_id": client_id}})

    (line,) = written(write, as_json=style)
    ending = "… (1001 characters)"
    expected = client_id if above <= 0 else "x" * (1_000 - len(ending)) + ending
    if style:
        found = json.loads(line)
        assert (found["message"], found["client_id"]) == (expected, expected)
    else:
        assert line.endswith(f"INFO    {expected}")


def test_a_waiting_entry_is_short_and_holds_no_frame() -> None:
    queue = LogQueue()

    class Held:
        pass

    def fail() -> None:
        held = Held()
        alive.append(weakref.ref(held))
        raise ValueError("x")

    alive: list[weakref.ref[Held]] = []
    try:
        fail()
    except ValueError:
        logger_into(queue).exception("%s failed", "y" * 100_000, extra={"fields": {"client_id": "y" * 100_000}})
    record = queue.queue.get_nowait()
    assert record is not None
    assert alive[0]() is None
    assert len(record.getMessage()) == len(vars(record)["fields"]["client_id"]) == MAX_CHARACTERS
    assert record.getMessage().endswith("… (100007 characters)")


# ── as JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_traceback_is_a_field_and_is_not_shortened() -> None:
    def write(logger: logging.Logger) -> None:
        try:
            raise ValueError("x" * 5_000)
        except ValueError:
            logger.exception("it failed")

    (line,) = as_json(write)
    assert set(line) == {"time", "level", "logger", "message", "exception"}
    assert line["message"] == "it failed"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith(f"ValueError: {'x' * 5_000}")


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


def test_a_name_that_is_no_text_is_a_line_all_the_same() -> None:
    (line,) = as_json(lambda logger: logger.info("%s", b"caf\xe9".decode("utf-8", "surrogateescape")))
    assert line["message"] == "caf\udce9"
