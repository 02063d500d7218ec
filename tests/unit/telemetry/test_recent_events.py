"""What the broker remembers of single clients: the latest events, up to a limit."""

from datetime import UTC, datetime

from mqttlite.event_hub import Jailed
from mqttlite.telemetry.recent_events import MAX_SHOWN, MAX_TEXT, RecentEvents

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def denied(events: RecentEvents, client_id: str, topic: bytes = b"a") -> None:
    events.on_denied(client_id, None, "publish", topic, "acl:1")


def test_the_latest_events_of_a_client_come_first() -> None:
    events = RecentEvents(lambda: NOW)
    denied(events, "c", b"a/1")
    denied(events, "other")
    events.on_jailed(Jailed("client_id", "192.0.2.1", "192.0.2.1:5", None, "c", "tcp", 5, 60.0))
    found = events.of_client("c")
    assert [event.what for event in found] == [
        "logins from 192.0.2.1 are refused for 60 s: 5 failed",
        "may not publish a/1: acl:1",
    ]
    assert all(event.is_bad for event in found)


def test_there_is_a_limit_for_all_events_those_shown_and_their_texts() -> None:
    events = RecentEvents(lambda: NOW, max_events=MAX_SHOWN + 2)
    denied(events, "first")
    for _ in range(MAX_SHOWN + 1):
        denied(events, "c", b"x" * 2 * MAX_TEXT)
    assert len(events.of_client("first")) == 1
    assert len(events.of_client("c")) == MAX_SHOWN
    assert {len(event.what) for event in events.of_client("c")} == {MAX_TEXT}
    denied(events, "x" * (MAX_TEXT + 1))
    assert events.of_client("x" * (MAX_TEXT + 1)) == []
    denied(events, "last")
    assert events.of_client("first") == []
