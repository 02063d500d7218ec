"""Keeps the log readable, small and cheap, whatever comes over the network: as text for people, or JSON for programs.

Who may connect may be refused, thousands of times a second, and each refusal is a line. What a line is about is told
beside its words, `extra={"fields": {"client_id": …}}`. Invariant: of lines of one kind no more than `LINES_PER_S` leave
in a second, and what was left out is counted in the next that does.
"""

import asyncio
import contextlib
import json
import logging
import time
from typing import Final, TextIO

import msgspec

LINES_PER_S: Final = 100
"""Warnings and errors of one kind: more than anybody reads, and 1 GB a day at the worst."""


MAX_CHARACTERS: Final = 1_000
"""Of a message, and of each of its fields: a client chooses its identifier, and may choose one of 65 535."""


def shortened(text: str) -> str:
    """With its length in the place of what is too much."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}… ({len(text)} characters)"


class Lines(logging.Handler):
    """Writes what is logged in one pass of the loop in one piece when the pass is over: thousands of clients that come
    and go cost one system call, not thousands. Warnings, and lines from outside of a loop, leave at once."""

    def __init__(self, stream: TextIO, as_json: bool = False) -> None:
        super().__init__()
        self._stream: Final = stream
        self._layout: Final = _Json() if as_json else _Stamped("%(asctime)s %(levelname)-7s %(message)s")
        self.setFormatter(self._layout)
        self._waiting: Final[list[str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.append(self.format(record) + "\n")
        except Exception:  # a template that its values do not fit
            self.handleError(record)
            return
        loop = None
        if record.levelno < logging.WARNING:
            with contextlib.suppress(RuntimeError):
                loop = asyncio.get_running_loop()
        if loop is None:
            self.flush()
        elif len(self._waiting) == 1:
            loop.call_soon(self.flush)

    def say(self, loop: asyncio.AbstractEventLoop, logger: str, message: str, fields: dict[str, object]) -> None:
        """Write what `info` would, without a record: in a storm of connects that was a quarter of the work."""
        with self.lock or contextlib.nullcontext():  # other threads may flush
            self._waiting.append(self._layout.info(time.time(), logger, message, fields) + "\n")
            if len(self._waiting) == 1:
                loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what waits. Called at the end of the program, too."""
        with self.lock or contextlib.nullcontext():
            if not self._waiting:
                return
            text = "".join(self._waiting)
            self._waiting.clear()
            with contextlib.suppress(OSError, ValueError):  # nobody reads the log any more
                self._stream.write(text)
                self._stream.flush()


class _Stamped(logging.Formatter):
    """Writes the date and time down once for each second."""

    def __init__(self, template: str) -> None:
        super().__init__(template)
        self._second = 0
        self._text = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 the library's name
        return self._date(record.created)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 the library's name
        record.message = shortened(record.message)
        return super().formatMessage(record)

    def info(self, now: float, _logger: str, message: str, _fields: dict[str, object]) -> str:
        return f"{self._date(now)} INFO    {shortened(message)}"

    def _date(self, at: float) -> str:
        second = int(at)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._text},{int((at - second) * 1000):03d}"


class _Json(logging.Formatter):
    """One object for each line. Its keys are listed in docs/howto/monitor.md."""

    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._text = ""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        if record.exc_info:  # which is not shortened
            fields = {**fields, "exception": self.formatException(record.exc_info)}
        return self._line(record.created, record.levelname.lower(), record.name, record.getMessage(), fields)

    def info(self, now: float, logger: str, message: str, fields: dict[str, object]) -> str:
        return self._line(now, "info", logger, message, fields)

    def _line(self, at: float, level: str, logger: str, message: str, fields: dict[str, object]) -> str:
        second = int(at)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        line = {
            "time": f"{self._text}.{int((at - second) * 1000):03d}Z",
            "level": level,
            "logger": logger,
            "message": shortened(message),
            **{
                name: shortened(value) if isinstance(value, str) and name != "exception" else value
                for name, value in fields.items()
            },
        }
        try:
            return msgspec.json.encode(line).decode()
        except UnicodeEncodeError:  # the name of a file may be no text
            return json.dumps(line)


class Calm(logging.Filter):
    """For a handler. A kind is the place in the code that a line comes from; lines below a warning are all let through,
    for they are about clients that were let in."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: Final[dict[tuple[str, int], _Kind]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        place = record.pathname, record.lineno
        kind = self._kinds.get(place)
        if kind is None:
            kind = self._kinds[place] = _Kind()
        if record.created >= kind.until or record.created < kind.until - 1:  # the clock may have been set back
            kind.until = record.created + 1
            kind.lines = 0
        kind.lines += 1
        if kind.lines > LINES_PER_S:
            kind.left_out += 1
            return False
        if kind.left_out:
            record.msg = f"{record.msg} ({kind.left_out} more like this were left out before)"
            kind.left_out = 0
        return True


class _Kind:
    __slots__ = ("left_out", "lines", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.lines = 0
        self.left_out = 0
