"""The log, as text or JSON, formatted and written by a thread.

The structured fields of a line are passed with `extra={"fields": {"client_id": …}}`. Invariants: the event loop never
waits for the reader of the log; at most `QUEUE_LINES` lines wait; at most `BURST_LINES` warnings of one kind are
written at once, and `LINES_PER_S` over time. Omitted lines are counted, and the count is logged.
"""

import contextlib
import functools
import json
import logging
import math
import os
import select
import threading
import time
from collections.abc import Iterator
from logging.handlers import QueueHandler, QueueListener
from queue import Empty, SimpleQueue
from typing import Any, Final, TextIO

from pythonjsonlogger.msgspec import MsgspecFormatter

BURST_LINES: Final = 100
LINES_PER_S: Final = 10
"""Warnings and errors of one kind that are written at once, and in a second while they go on: at most 300 MB a day. A
refused CONNECT of 24 bytes costs a line of 300."""

MAX_KINDS: Final = 1_000
"""Kinds of warnings with their own count; ours are some tens. Further kinds of a logger share one count."""

MAX_CHARACTERS: Final = 1_000
"""The longest message, and the longest field: a client may choose an identifier of 65,535 bytes."""

QUEUE_LINES: Final = 10_000
"""Lines that wait to be written: those of 5,000 clients that connect and disconnect while the reader pauses, 15 MB of
ordinary records and 60 MB of the longest."""

FLUSH_S: Final = 1.0
"""How long the end of the program waits for a blocked reader of the log."""

COLLECT_S: Final = 0.02
"""How long the writing thread collects lines: each time it wakes up, it takes the interpreter lock from the loop."""

BATCH_LINES: Final = 1_000
"""The most lines in one write."""

YIELD_LINES: Final = 64
"""Lines to format before the thread releases the interpreter lock, about half a millisecond. Otherwise it would block
the loop for the interpreter's switch interval, 5 ms."""

_WAIT_MS: Final = 100
"""How often a thread that waits for the reader checks whether the program ends."""

_LINE: Final = "%(asctime)s %(levelname)-7s %(message)s"


def shortened(text: str) -> str:
    """The text, cut to `MAX_CHARACTERS` with its length appended."""
    if len(text) <= MAX_CHARACTERS:
        return text
    ending = f"… ({len(text)} characters)"
    return text[: MAX_CHARACTERS - len(ending)] + ending


class TextFormatter(logging.Formatter):
    """Date, time, level and message; the fields are left out."""

    def __init__(self) -> None:
        super().__init__(_LINE)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 the library's name
        record.message = shortened(record.message)
        return super().formatMessage(record)


class JsonFormatter(MsgspecFormatter):
    """One object for each line. Its keys are listed in docs/howto/monitor.md."""

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:  # the library's own looks at each attribute of the record, which takes twice as long as all the rest
        second = int(record.created)
        log_data["time"] = f"{_utc(second)}.{int((record.created - second) * 1000):03d}Z"
        log_data["level"] = record.levelname.lower()
        log_data["logger"] = record.name
        log_data["message"] = shortened(record.message)
        log_data.update(getattr(record, "fields", {}))  # which `LogQueue` has shortened
        if "exc_info" in message_dict:  # which is not shortened
            log_data["exception"] = message_dict["exc_info"]

    def jsonify_log_record(self, log_data: dict[str, Any]) -> str:
        try:
            return super().jsonify_log_record(log_data)
        except UnicodeEncodeError:  # the name of a file may be no text
            return json.dumps(log_data)


@functools.lru_cache(maxsize=1)
def _utc(second: int) -> str:
    """Date and time of a second since 1970, made once for all its lines."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


class LogQueue(QueueHandler):
    """Queues records for `LogWriter`, which formats them; a full queue drops them.

    The values of a record must not change after the call: they are text, numbers and exceptions.
    """

    queue: SimpleQueue[logging.LogRecord | None]

    def __init__(self, as_json: bool = False) -> None:
        super().__init__(SimpleQueue())
        self.setFormatter(JsonFormatter() if as_json else TextFormatter())
        self.dropped: int = 0
        """Lines that met a full queue."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """The record to queue, without a traceback, which would keep frames alive, and without long texts."""
        if record.exc_info:
            assert self.formatter is not None, "set by the constructor"
            record.exc_text = self.formatter.formatException(record.exc_info)
            record.exc_info = None
        arguments = record.args
        if type(arguments) is tuple:
            for each in arguments:
                if type(each) is str and len(each) > MAX_CHARACTERS:
                    record.msg, record.args = shortened(record.getMessage()), None
                    break
        fields: dict[str, object] = getattr(record, "fields", {})
        for name, value in fields.items():
            if type(value) is str and len(value) > MAX_CHARACTERS:
                fields[name] = shortened(value)
        return record

    def enqueue(self, record: Any) -> None:
        if self.queue.qsize() < QUEUE_LINES:  # exact: the handler's lock is held
            self.queue.put(record)
        else:
            self.dropped += 1


class LogWriter(QueueListener):
    """Writes the lines of a `LogQueue` on its own thread. `stop` takes at most `FLUSH_S`, except on Windows, which
    cannot say whether a write would block."""

    queue: SimpleQueue[logging.LogRecord | None]

    def __init__(self, lines: LogQueue, stream: TextIO) -> None:
        super().__init__(lines.queue)
        self._lines: Final = lines
        self._stream: Final = stream
        self._file, self._poll = _pollable(stream)
        self._batch: Final[list[str]] = []
        self._reported = 0
        self._formatted = 0
        self._ending: Final = threading.Event()
        self._ends_at = math.inf

    def enqueue_sentinel(self) -> None:
        self._ends_at = time.monotonic() + FLUSH_S
        self._ending.set()
        self.queue.put_nowait(None)

    def dequeue(self, block: bool) -> Any:
        record = None
        if len(self._batch) < BATCH_LINES:
            try:
                record = self.queue.get_nowait()
            except Empty:
                pass
        if record is None:  # the queue is empty, the batch full, or the program ends
            self._write_batch()
            if not self._ending.is_set() or not self.queue.empty():
                record = self.queue.get(block)
                self._ending.wait(COLLECT_S)
        return record

    def handle(self, record: Any) -> None:
        try:
            self._batch.append(self._lines.format(record))
        except Exception:
            self._lines.handleError(record)
        self._formatted += 1
        if self._formatted % YIELD_LINES == 0:
            time.sleep(0)

    def _write_batch(self) -> None:
        self._write(self._batch)
        self._batch.clear()
        dropped = self._lines.dropped
        if dropped > self._reported and self.queue.qsize() < QUEUE_LINES:
            what = "mqttlite.telemetry", logging.WARNING, __file__, 0, "%d lines of the log were dropped: %s"
            why = "nobody read it, or too slowly"
            self._write([self._lines.format(logging.LogRecord(*what, (dropped - self._reported, why), None))])
            self._reported = dropped

    def _write(self, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        with contextlib.suppress(OSError, ValueError):  # the reader is gone for good
            if self._poll is None:
                self._stream.write(text)
                self._stream.flush()
                return
            data = memoryview(text.encode(errors="backslashreplace"))
            while data and self._can_write(self._poll):
                data = data[os.write(self._file, data[: select.PIPE_BUF]) :]

    def _can_write(self, poll: "select.poll") -> bool:
        """Wait until the stream takes `PIPE_BUF` bytes without blocking; False when the program has no more time."""
        while time.monotonic() < self._ends_at:
            if poll.poll(_WAIT_MS):
                return True
        return False


def _pollable(stream: TextIO) -> "tuple[int, select.poll | None]":
    """The stream's file, and a poll object for it; None if the system has none."""
    try:
        file = stream.fileno()
        poll = select.poll()
    except (OSError, AttributeError):  # a stream in memory, or Windows
        return -1, None
    poll.register(file, select.POLLOUT)
    return file, poll


@contextlib.contextmanager
def writing_log(stream: TextIO) -> Iterator[None]:
    """A context in which the root logger writes to the stream. At its end, waiting lines are flushed for up to
    `FLUSH_S`."""
    writers = [LogWriter(lines, stream) for lines in _queues()]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()


def lines_dropped() -> int:
    """How many lines this process dropped because the reader was too slow."""
    return sum(lines.dropped for lines in _queues())


def _queues() -> list[LogQueue]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LogQueue)]


class Calm(logging.Filter):
    """For a handler. Lines of one kind have the same logger and the same words around their values; lines below a
    warning are all written, for they are about clients that were accepted."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: Final[dict[tuple[str, str], _Kind]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        key = record.name, str(record.msg)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MAX_KINDS:
                key = record.name, ""
            kind = self._kinds.setdefault(key, _Kind())
        passed_s = record.created - kind.at
        refill = BURST_LINES if passed_s < -1 else max(0.0, passed_s) * LINES_PER_S  # the clock may have been set back
        kind.room = min(BURST_LINES, kind.room + refill)
        kind.at = record.created
        if kind.room < 1:
            kind.left_out += 1
            return False
        kind.room -= 1
        if kind.left_out:
            record.msg = f"{record.msg} ({kind.left_out} more like this were left out before)"
            kind.left_out = 0
        return True


class _Kind:
    __slots__ = ("at", "left_out", "room")

    def __init__(self) -> None:
        self.at = 0.0
        self.room = float(BURST_LINES)
        """How many lines may be written now."""
        self.left_out = 0
