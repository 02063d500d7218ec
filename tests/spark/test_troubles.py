"""Troubles that begin, go on and end, and what somebody at a terminal is told of them. Without Spark."""

from __future__ import annotations

import io
from typing import Any

import pytest

from spark_analytics.tell import Terminal
from spark_analytics.troubles import QUIET_US, Silences, Trouble, Troubles

MINUTE = 60_000_000


def window(kind: str = "flapping", client_id: str | None = "pump", minute: int = 0, number: int = 6) -> Trouble:
    return Trouble(kind, client_id, minute * MINUTE, (minute + 5) * MINUTE, number, f"{client_id} is in trouble")


def told(lines: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(line["id"], line["status"], line["number"]) for line in lines]


@pytest.mark.parametrize(
    ("kind", "client_id", "number", "over"),
    [
        ("flapping", "pump", 282, "pump connected 282 times in 235 min; it is steady again"),
        ("drop_burst", "pump", 282, "282 messages for pump were dropped in 235 min; no more are"),
        ("keep_alive_burst", None, 6, "up to 6 clients fell silent within 5 minutes, for 235 min; it is over"),
        ("reconnect_storm", None, 6, "up to 6 clients reconnected within 5 minutes, for 235 min; it is over"),
    ],
)
def test_forty_seven_windows_are_one_trouble(kind: str, client_id: str | None, number: int, over: str) -> None:
    troubles = Troubles()
    lines = []
    for minute in range(0, 235, 5):
        lines += troubles.take([window(kind, client_id, minute)], (minute + 5) * MINUTE)
        troubles = Troubles(troubles.state)  # as after a restart
    lines += troubles.take([], 300 * MINUTE)
    assert [line["status"] for line in lines] == ["began", *["goes_on"] * 46, "ended"]
    assert len({line["id"] for line in lines}) == 1
    assert (lines[-1]["number"], lines[-1]["sentence"]) == (number, over)
    assert troubles.take([], 400 * MINUTE) == []


@pytest.mark.parametrize(("later", "status"), [(0, "goes_on"), (1, "ended")])
def test_a_trouble_is_over_a_quarter_of_an_hour_after_its_end(later: int, status: str) -> None:
    troubles = Troubles()
    troubles.take([window()], 5 * MINUTE)
    assert troubles.take([], 5 * MINUTE + QUIET_US) == []
    again = Trouble("flapping", "pump", 5 * MINUTE + QUIET_US + later, 30 * MINUTE, 6, "again")
    lines = troubles.take([again], 30 * MINUTE)
    assert lines[0]["status"] == status
    assert [line["status"] for line in lines[1:]] == (["began"] if later else [])


def test_troubles_of_others_do_not_count() -> None:
    troubles = Troubles()
    lines = troubles.take([window(client_id="b"), window(client_id="a"), window("drop_burst", "a")], 5 * MINUTE)
    assert [line["id"].rsplit("/", 1)[0] for line in lines] == ["drop_burst/a", "flapping/a", "flapping/b"]


def test_a_silence_is_over_once_and_may_begin_again() -> None:
    silences = Silences()
    (began,) = silences.begin([Trouble("silent", "pump", 0, 40 * MINUTE, 40, "pump is silent")])
    assert (began["status"], began["sentence"]) == ("began", "pump is silent")
    assert silences.open() == {"pump": 40 * MINUTE}
    over = silences.heard("pump", 120 * MINUTE)
    assert (over["id"], over["status"]) == (began["id"], "ended")
    assert over["sentence"] == "pump publishes again, after 80 min"
    assert silences.open() == {}
    silences.begin([Trouble("silent", "pump", 120 * MINUTE, 150 * MINUTE, 30, "pump is silent")])
    assert silences.open() == {"pump": 150 * MINUTE}


# ---------------------------------------------------------------------------------------------------- the terminal


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def line(status: str, number: int = 6, client_id: str | None = "pump") -> dict[str, Any]:
    name = f"flapping/{client_id}/11:00"
    times = {"start": "11:00", "end": "11:05"}
    return (
        {"id": name, "kind": "flapping", "status": status, "client_id": client_id, "number": number}
        | {"queue": None, "ordering_key": None}
        | times
        | {"sentence": "it flaps"}
    )


def test_a_log_has_a_line_for_a_beginning_and_an_end_and_says_when_there_is_nothing() -> None:
    log = io.StringIO()
    terminal = Terminal(log)
    for lines in ([], [line("began")], [line("goes_on", 12)], [], [line("ended", 12)], []):
        terminal(lines)
    terminal.end()
    assert log.getvalue().splitlines() == [
        "Watching; nothing to tell so far.",
        "11:00  flapping began  it flaps",
        "Watching; flapping pump (12 so far) goes on.",
        "11:05  flapping ended  it flaps",
        "Watching; nothing goes wrong.",
    ]


def test_a_terminal_counts_in_its_last_line() -> None:
    screen = Screen()
    terminal = Terminal(screen)
    terminal([line("began"), line("began", client_id="\x1b[2J")])
    terminal([line("goes_on", 12)])
    last = screen.getvalue().rsplit("\r\x1b[K", 1)[1]
    assert last == "Watching; flapping pump (12 so far) and 1 more go on."
    assert screen.getvalue().count("\n") == 2
    assert "\x1b[2J" not in screen.getvalue()


def test_nothing_to_tell_is_told() -> None:
    log = io.StringIO()
    Terminal(log).end()
    assert log.getvalue() == "Nothing to tell: no trouble began or ended in what was read.\n"
