"""The screen of `mqttlite top`: what is on it in 80 columns and 24 lines, and what keys do. No terminal is used."""

from typing import Any

import pytest

from mqttlite.cli.top_screen import ALL, BAD, CLIENT, MARKED, OVERVIEW, TABLE, Answers, Screen
from mqttlite.cli.top_words import overload_words, short

EMPTY: dict[str, list[dict[str, Any]]] = {"bytes": [], "outbox": [], "queue": [], "drops": []}


def ranked(client_id: str, **values: Any) -> dict[str, Any]:
    known = {"bytes": 0, "outbox_bytes": 0, "blocked": False, "queued": 0, "inflight": 0, "dropped": 0}
    away = {"connection_id": None, "peer": None, "listener": None}
    return {"client_id": client_id, "value": 0, **known, **away, **values}


def status(**top: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "compiled": True,
        "python": "3.11",
        "uptime_s": 100.0,
        "not_ready": None,
        "clients": {"connected": 1_234_567, "sessions": 2_000_000, "blocked": 12_345, "subscriptions": 9_999_999},
        "held": {
            "queued_messages": 123_456_789,
            "queued_bytes": 10**12,
            "inflight_messages": 123_456,
            "outbox_bytes": 10**10,
            "memory_bytes": 10**9,
            "memory_limit_bytes": 10**11,
            "oldest_unacknowledged_s": 4_000.0,
        },
        "rates": {"messages_received": 1e7, "messages_sent": 1e8, "bytes_received": 1e10, "bytes_sent": 1e11},
        "interval_s": 2.0,
        "drops": {"queue_full": 123_456_789, "buffer_full": 12_345, "qos0_offline": 1_234_567, "expired": 1},
        "loop_lag_s": {"p50": 0.001, "p99": 0.0123, "max": 1.234},
        "overload": {"stage": 0, "load": 0.25, "slowed": 0},
        "store": {"p99_s": 0.1, "failing": False, "commits": 1, "failures": 0},
        "top": {**EMPTY, **top},
    }  # fmt: skip


SLOW = ranked("slow", outbox_bytes=4_000_000, blocked=True, connection_id=1, peer="10.0.0.1:5", listener="tcp-1883")
GREEDY = ranked("greedy", bytes=2_000_000, connection_id=2, peer="[::1]:7", listener="tcp-1883")
QUEUED = ranked("queued", queued=1_234, inflight=20)
DROPPED = ranked("dropped", dropped=77)
FOUR = status(outbox=[SLOW], bytes=[GREEDY], queue=[QUEUED], drops=[DROPPED])


def shown(screen: Screen, answers: Answers) -> list[str]:
    lines = [line.text for line in screen.lines(answers, "12:00:00")]
    assert len(lines) == screen.height
    assert all(len(line) <= screen.width for line in lines), lines
    return lines


def press(screen: Screen, answers: Answers, *keys: str) -> None:
    for key in keys:
        screen.on_key(key, answers)


def marked(screen: Screen, answers: Answers) -> list[str]:
    """What is highlighted, but for the line of keys."""
    lines = screen.lines(answers, "")[:-1]
    return [text.strip() for line in lines for text, style in line.pieces if style == MARKED]


def test_the_four_things_are_on_one_screen() -> None:
    text = "\n".join(shown(Screen(), Answers(FOUR)))
    assert "  slow                         3.8 MiB!" in text
    assert "greedy                      977 KiB/s" in text
    assert "  queued                          1 234" in text
    assert "dropped                            77" in text
    assert "broker   memory 954 MiB of 93.1 GiB; loop lag p99 12.3 ms; commit p99 100 ms" in text
    assert "1 slow 2 greedy 3 queue 4 dropped 5 all" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (80, 2), (1, 1)])
@pytest.mark.parametrize("keys", ["", "1", "4", "5", "/", "/x"])
def test_any_screen_fits_any_terminal(width: int, height: int, keys: str) -> None:
    many = [ranked(f"client-{number:03}" * 9, queued=number, connection_id=number, peer="a:1") for number in range(20)]
    answers = Answers(status(outbox=many, bytes=many, queue=many, drops=many), error="x" * 300)
    screen = Screen(width=width, height=height)
    press(screen, answers, *keys)
    shown(screen, answers)
    press(screen, answers, "enter", "enter")
    shown(screen, answers)


def test_the_client_with_the_most_unacknowledged_messages_is_named() -> None:
    assert "(most:" not in "\n".join(shown(Screen(width=200), Answers(FOUR)))
    text = "\n".join(shown(Screen(width=200), Answers(status(inflight=[ranked("viewer", inflight=664)]))))
    assert "unacknowledged for 1 h 6 min (most: viewer, 664)" in text


def test_a_table_is_sorted_by_the_column_of_a_key() -> None:
    screen, answers = Screen(), Answers(FOUR)
    for key, first in (("1", "slow"), ("2", "greedy"), ("3", "queued"), ("4", "dropped")):
        press(screen, answers, key)
        lines = shown(screen, answers)
        assert screen.mode == TABLE
        assert lines[9].startswith(f"{first} ")
        assert "(4 clients)" in lines[7]
    assert "[::1]" in "\n".join(lines)


def test_the_arrows_move_and_enter_looks_at_a_client() -> None:
    screen, answers = Screen(), Answers(FOUR)
    press(screen, answers, "tab")
    assert marked(screen, answers) == ["QUEUE: messages that wait", "queued                          1 234"]
    press(screen, answers, "enter")
    assert (screen.mode, screen.client_id, screen.wanted()) == (CLIENT, "queued", {"id": "queued"})
    assert "asking …" in "\n".join(shown(screen, answers))
    press(screen, answers, "escape")
    assert screen.mode == OVERVIEW
    press(screen, answers, "1", "down", "down", "down", "down", "up")
    assert screen.selected == 2
    press(screen, answers, "enter", "escape")
    assert (screen.mode, screen.client_id) == (TABLE, "greedy")
    press(screen, answers, "escape")
    assert screen.mode == OVERVIEW
    press(screen, answers, "q")
    assert screen.is_over


def test_long_tables_scroll() -> None:
    answers = Answers(status(queue=[ranked(f"c{number:02}", queued=99 - number) for number in range(20)]))
    screen = Screen()
    press(screen, answers, "3")
    assert "c12" in "\n".join(shown(screen, answers))
    assert "c13" not in "\n".join(shown(screen, answers))
    press(screen, answers, "page down")
    assert marked(screen, answers)[0].startswith("c13")
    press(screen, answers, "page down")
    assert marked(screen, answers)[0].startswith("c19")
    press(screen, answers, "page up", "page up")
    assert marked(screen, answers)[0].startswith("c00")


def test_a_filter_is_typed_kept_and_cleared() -> None:
    screen, answers = Screen(), Answers(FOUR)
    press(screen, answers, "/", "Q", "x", "backspace", "U")
    assert "filter: QU█" in "\n".join(shown(screen, answers))
    press(screen, answers, "enter")
    text = "\n".join(shown(screen, answers))
    assert "queued" in text
    assert "greedy  " not in text
    assert "filter: QU" in text
    press(screen, answers, "escape")
    assert "greedy  " in "\n".join(shown(screen, answers))
    press(screen, answers, "/", "q", "escape")
    assert (screen.filter, screen.is_typing, screen.is_over) == ("", False, False)


def test_all_clients_come_page_by_page() -> None:
    screen = Screen()
    answers = Answers(FOUR)
    press(screen, answers, "5")
    assert screen.wanted() == {"cursor": "", "limit": "13", "contains": ""}
    assert "asking …" in "\n".join(shown(screen, answers))
    entry = {"client_id": "c1", "username": None, "queued": 1, "inflight": 123_456, "subscriptions": 2, "peer": "a:1"}
    answers.page = {"entries": [entry, {**entry, "client_id": "c2", "username": "ann", "peer": None}], "cursor": "c3"}
    text = "\n".join(shown(screen, answers))
    assert "All clients, page 1, more behind" in text
    assert "123k" in text
    press(screen, answers, "down", "page down")
    assert (screen.wanted()["cursor"], screen.selected) == ("c3", 0)
    press(screen, answers, "page down")
    assert screen.cursors == ["", "c3"], "the page that is shown is still the first"
    answers.page["cursor"] = ""
    press(screen, answers, "page down", "page up", "page up", "page up")
    assert screen.wanted()["cursor"] == ""
    press(screen, answers, "down", "enter")
    assert screen.wanted() == {"id": "c2"}
    press(screen, answers, "escape")
    assert screen.mode == ALL


DETAILS = {
    "entry": {
        "client_id": "c", "connected": True, "connection_id": 5, "username": "ann", "peer": "10.0.0.1:5",
        "listener": "tcp-1883", "protocol_version": "5.0", "connected_at": "2026-11-21T12:03:14.201Z",
        "subscriptions": 30, "queued": 7, "inflight": 3,
    },
    "session_expiry_s": 3_600, "keep_alive_s": 60, "transport": "tls", "tls_version": "TLSv1.3",
    "bytes_received": 1_000, "bytes_sent": 2_000, "blocked": True, "outbox_bytes": 5_000, "queued_bytes": 70,
    "drops": {"queue_full": 5}, "topic_filters": {f"a/{number}": 1 for number in range(30)},
    "message_filters": {"a/0": "qos = 1"},
}  # fmt: skip


def test_a_client_is_told_with_its_connection_and_its_subscriptions() -> None:
    answers = Answers(FOUR, client=DETAILS)
    screen = Screen(mode=CLIENT, client_id="c")
    text = "\n".join(shown(screen, answers))
    for fact in (
        "connected     10.0.0.1:5 on tcp-1883, since 2026-11-21T12:03:14Z",
        "protocol      MQTT 5.0 over tls, TLSv1.3",
        "socket        takes nothing now, 4.9 KiB wait for it",
        "dropped       5 queue_full",
        "session       expires 1 h 0 min after the connection",
        "subscribes to 30 filters:",
        "QoS 1  a/0 where qos = 1",
    ):
        assert fact in text
    press(screen, answers, "down", *["page down"] * 9)
    assert "QoS 1  a/29" in "\n".join(shown(screen, answers))
    press(screen, answers, *["up"] * 99)
    assert screen.scroll == 0


def test_a_client_that_is_away_has_no_connection() -> None:
    details = {**DETAILS, "entry": {**DETAILS["entry"], "connected": False}, "session_expiry_s": None, "drops": {}}  # type: ignore[dict-item]
    text = "\n".join(shown(Screen(mode=CLIENT, client_id="c"), Answers(FOUR, client=details)))
    assert "connected     no" in text
    assert "expires never" in text
    assert "dropped       nothing" in text
    assert "socket" not in text


def test_trouble_is_red() -> None:
    failing = status()
    failing["store"]["failing"] = True
    stopping = {**status(), "not_ready": "the broker stops"}
    for answers, said in (
        (Answers(failing), "COMMITS FAIL NOW"),
        (Answers(stopping), "NOT READY: the broker stops"),
        (Answers(status(), error="Nothing listens at x."), "Nothing listens at x."),
    ):
        red = [line.text for line in Screen().lines(answers, "") if line.pieces[0][1] == BAD]
        assert len(red) == 1
        assert said in red[0]


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (0, "none (load 95 %)"),
        (1, "stage 1, clients that send most are read more slowly (load 95 %, 7 clients slowed)"),
        (4, "stage 4, new connections are refused (load 95 %, 7 clients slowed)"),
    ],
)
def test_the_stage_of_an_overload_is_shown(stage: int, words: str) -> None:
    overload = {"stage": stage, "load": 0.95, "slowed": 7 if stage else 0}
    assert overload_words(overload) == words
    lines = Screen(width=120, height=24).lines(Answers({**FOUR, "overload": overload}), "12:00:00")
    assert [line.text for line in lines if line.text.startswith("OVERLOAD")] == [f"OVERLOAD {words}"] * (stage > 0)


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (99_999, "99 999"), (100_000, "100k"), (9_999_999, "9999k"), (10_000_000, "10M")]
)
def test_counts_are_short(value: int, expected: str) -> None:
    assert short(value) == expected
