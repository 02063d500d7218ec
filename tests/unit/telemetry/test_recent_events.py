"""What the broker remembers of single clients: the latest events, up to a limit."""

from datetime import UTC, datetime

from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import BucketTable, Rate
from mqttlite.event_hub import Jailed
from mqttlite.telemetry.recent_events import MAX_SHOWN, MAX_TEXT, RecentEvents
from mqttlite.telemetry.why import held_in_words
from tests.support.core_driver import World
from tests.unit.telemetry.watched import Link

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def denied(events: RecentEvents, client_id: str, topic: bytes = b"a") -> None:
    events.on_denied(client_id, None, "publish", topic, "acl:1", None)


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


def test_trouble_of_a_client_is_reported_with_the_remedy() -> None:
    world = World()
    quotas = Quotas(Rates(BucketTable(Rate(messages_per_s=1))), disconnects=True)
    client = world.open(quotas=quotas)
    client.connect("c")
    link = Link(client.connection)
    events = RecentEvents(lambda: NOW)
    events.on_connected(link)
    events.on_shed(link, 70_000, 24)
    for _ in range(5):
        client.publish("t")
    events.on_closed(link)
    assert events.bad_of("c") == [
        "c at 00:00:00.000: memory was short, and it was one of those that held most: it reads too slowly, and 24 "
        "QoS 0 messages that waited for it (70000 bytes) were dropped; see limits.max_memory_bytes",
        "c at 00:00:00.000: connection ended, quota_exceeded: the client sends more messages a second than its quota "
        "allows (quotas.messages_per_s); see quotas and connects",
    ]


def test_quotas_that_hold_something_back_are_named() -> None:
    world = World()
    rate = Rate(messages_per_s=1)
    incoming, outgoing = Rates(users=BucketTable(rate)), Rates(BucketTable(rate))
    client = world.open(quotas=Quotas(incoming, outgoing))
    client.connect("c", username="ann")
    assert held_in_words("c", client.connection) == []
    client.subscribe("t")
    client.publish("t")
    client.publish("t")
    said = held_in_words("c", client.connection)
    assert said == [
        "c is not read now, and was not once since it connected, for more came than the quota of its user allows; see "
        "quotas.user_messages_per_s, quotas.user_bytes_per_s",
        "c was sent nothing for a while once since it connected, for more was for it than the quota of its client "
        "allows: QoS 0 messages are dropped then (rate_limited), others wait; see quotas.to_client_messages_per_s, "
        "quotas.to_client_bytes_per_s",
    ]
    world.advance(9)
    for _ in range(2):
        client.publish("t")
    world.advance(9)
    assert held_in_words("c", client.connection)[0].startswith("c was not read 2 times since it connected, for more")
