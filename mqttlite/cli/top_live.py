"""The live view of `mqttlite top`: asks the broker in a thread, draws the screen with curses, hands over keys.

`top_screen` makes the screens. Invariant: the terminal is as it was before, however this ends.
"""

import curses
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlencode

from mqttlite.cli.ask import ask, ask_status
from mqttlite.cli.asker import Place, Unreachable
from mqttlite.cli.top_screen import ALL, BAD, BOLD, MARKED, NORMAL, Answers, Line, Screen

KEY_MS: Final = 100
"""How long to wait for a key before answers are looked at: as quick as one notices."""

ESCAPE_MS: Final = 25
"""How long curses waits to see whether Escape is the beginning of another key."""

REDRAW: Final = "\x0c"
"""Ctrl-L, as everywhere: draw the whole screen again."""

_KEYS: Final = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_LEFT: "up",
    curses.KEY_RIGHT: "down",
    curses.KEY_PPAGE: "page up",
    curses.KEY_NPAGE: "page down",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
    curses.KEY_BTAB: "tab",
}
_CHARACTERS: Final = {
    "\n": "enter",
    "\r": "enter",
    "\x1b": "escape",
    "\t": "tab",
    "\x7f": "backspace",
    "\b": "backspace",
}


def run(where: Place, timeout_s: float, interval_s: float) -> None:
    """Show the broker at a URL until `q` or Ctrl-C. Raises `Unreachable` if it does not answer at the beginning."""
    answers = Answers(ask_status(where, timeout_s))
    curses.set_escdelay(ESCAPE_MS)
    curses.wrapper(lambda window: _Live(window, where, timeout_s, interval_s, answers).run())


class _Live:
    def __init__(self, window: Any, where: Place, timeout_s: float, interval_s: float, answers: Answers) -> None:
        self._window: Final = window
        self._where: Final = where
        self._timeout_s: Final = timeout_s
        self._interval_s: Final = interval_s
        self._screen: Final = Screen()
        self._answers = answers
        self._styles: Final = _styles()

    def run(self) -> None:
        self._window.timeout(KEY_MS)
        screen = self._screen
        asking: Future[Answers] | None = None
        asked: dict[str, str] = {}
        due = 0.0
        with ThreadPoolExecutor(1) as thread:
            while not screen.is_over:
                if asking is not None and asking.done():
                    self._answers, asking = asking.result(), None
                wanted = screen.wanted()
                if asking is None and (time.monotonic() >= due or wanted != asked):
                    asked, due = wanted, time.monotonic() + self._interval_s
                    asking = thread.submit(self._ask, screen.mode, wanted)
                self._draw()
                self._read_key()

    def _ask(self, mode: str, wanted: dict[str, str]) -> Answers:
        """The broker's present answer; the former one, with an error, when it does not answer."""
        try:
            answers = Answers(ask_status(self._where, self._timeout_s))
            if wanted:
                path = "/clients" if mode == ALL else "/client"
                answer = ask(self._where, f"{path}?{urlencode(wanted)}", self._timeout_s)
                if answer.status != 200:
                    answers.error = answer.sentence
                elif mode == ALL:
                    page = json.loads(answer.body)
                    answers.page = (
                        {"entries": page["items"], "cursor": page["cursor"] or ""} if "items" in page else page
                    )
                else:
                    answers.client = json.loads(answer.body)
            return answers
        except Unreachable as error:
            last = self._answers
            return Answers(last.status, last.page, last.client, str(error))

    def _read_key(self) -> None:
        try:
            pressed = self._window.get_wch()
        except curses.error:  # none in time
            return
        if pressed == REDRAW:
            self._window.clearok(True)
            return
        key = _KEYS.get(pressed, "") if isinstance(pressed, int) else _CHARACTERS.get(pressed, pressed)
        if key:
            self._screen.on_key(key, self._answers)

    def _draw(self) -> None:
        screen = self._screen
        screen.height, screen.width = self._window.getmaxyx()
        self._window.erase()
        for number, line in enumerate(screen.lines(self._answers, time.strftime("%H:%M:%S"))):
            self._draw_line(number, line)
        self._window.refresh()

    def _draw_line(self, number: int, line: Line) -> None:
        column = 0
        for text, style in line.pieces:
            try:
                self._window.addstr(number, column, text, self._styles[style])
            except curses.error:  # the cursor cannot go behind the last character of the screen
                return
            column += len(text)


def _styles() -> dict[str, int]:
    curses.curs_set(0)
    bad = curses.A_BOLD
    if curses.has_colors():
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        bad |= curses.color_pair(1)
    return {NORMAL: curses.A_NORMAL, BOLD: curses.A_BOLD, MARKED: curses.A_REVERSE, BAD: bad}
