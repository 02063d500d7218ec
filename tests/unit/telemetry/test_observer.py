"""Rows of what happens in a broker, beside what the clients count themselves."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.memory import ENTRY_BYTES, MESSAGE_BYTES
from mqttlite.core.tracer import NO_SAMPLES
from mqttlite.extensions.dataset import intervals
from mqttlite.extensions.dataset.intervals import SLICE
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.extensions.dataset.recorder import BATCH
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.telemetry.histograms import STAGES
from mqttlite.wire.constants import V311
from mqttlite.wire.packets import Unsubscribe
from tests.support.core_driver import Client
from tests.unit.telemetry.watched import BROKER, Watched

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def watched(limits: Limits | None = None, **options: Any) -> AsyncIterator[Watched]:
    world = Watched(limits, **options).begin()
    try:
        yield world
    finally:
        await world.stop()


def some(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in rows]


# ------------------------------------------------------------------ events


async def test_a_run_is_told_with_its_limits_and_its_end() -> None:
    async with watched(Limits(max_sessions=77)) as world:
        world.advance(12.5)
    first, *_, last = world.table("events")
    assert (first["event"], first["at"], first["broker_id"]) == ("broker_started", "1970-01-12T13:46:40Z", BROKER)
    assert first["numbers"]["max_sessions"] == 77
    assert first["numbers"]["max_connections"] == 99
    assert "on_overflow" not in first["numbers"]
    assert (last["event"], last["duration_s"]) == ("broker_stopped", 12.5)


async def test_connections_are_told_with_all_that_is_known_of_them() -> None:
    async with watched() as world:
        client = world.open(V311)
        world.advance(0.5)
        client.connect("c7", keep_alive=30, username="ann")
        world.hub.on_connected(world.links[client.connection.number])
        world.advance(2)
        client.disconnect()
        world.connect("taken")
        world.connect("taken")
        world.connect("silent", keep_alive=10)
        world.advance(15.1)
        stranger = world.open()
        stranger.send_bytes(b"GET / HTTP/1.1\r\n")
        world.open().lose()
    events = world.table("events")[1:-1]
    assert some(events, "event", "connection_id", "client_id", "reason", "reason_code") == [
        ("connected", 1, "c7", None, None),
        ("disconnected", 1, "c7", "client_disconnected", 0),
        ("connected", 2, "taken", None, None),
        ("taken_over", 2, "taken", "taken_over", 0x8E),
        ("connected", 3, "taken", None, None),
        ("connected", 4, "silent", None, None),
        ("keep_alive_timeout", 4, "silent", "keep_alive_timeout", 0x8D),
        ("refused", 5, None, "protocol_error", 0x82),
        ("refused", 6, None, "connection_lost", 0),
    ]
    assert events[0] == {
        "schema_version": 2,
        "broker_id": BROKER,
        "at": "1970-01-12T13:46:40.500000Z",
        "event": "connected",
        "connection_id": 1,
        "client_id": "c7",
        "username": "ann",
        "listener": "door",
        "transport": "tcp",
        "peer": "192.0.2.7:1234",
        "protocol_version": "3.1.1",
        "reason": None,
        "reason_code": None,
        "detail": None,
        "topic_filter": None,
        "qos": None,
        "duration_s": 0.5,
        "numbers": {"keep_alive_s": 30, "clean_start": 1, "session_present": 0},
        "node": None,
    }
    assert events[1]["duration_s"] == 2.0
    assert "HTTP" in events[7]["detail"]
    assert events[8]["detail"] == "the client left before CONNECT"
    assert events[8]["protocol_version"] is None


async def test_subscriptions_are_told_granted_refused_and_ended() -> None:
    async with watched(Limits(max_subscriptions=1)) as world:
        client = world.connect("c7")
        client.subscribe("plant/#", qos=1)
        client.subscribe("plant/#", qos=2)
        client.subscribe("lab")
        client.send(Unsubscribe(client.packet_id(), (b"plant/#", b"never")))
    found = [row for row in world.table("events") if "subscribed" in row["event"]]
    assert some(found, "event", "client_id", "topic_filter", "qos", "reason_code", "numbers") == [
        ("subscribed", "c7", "plant/#", 1, 1, {"existing": 0}),
        ("subscribed", "c7", "plant/#", 2, 2, {"existing": 1}),
        ("subscribed", "c7", "lab", None, 0x97, {"existing": 0}),
        ("unsubscribed", "c7", "plant/#", None, None, {}),
    ]


async def test_back_pressure_and_the_first_drops_of_an_interval_are_told() -> None:
    async with watched(Limits(max_outbox_messages=2, max_queued_messages=1)) as world:
        slow, away, publisher = world.connect("slow"), world.connect("away", expiry=60), world.connect("publisher")
        slow.subscribe("x")
        away.subscribe("y", qos=1)
        away.disconnect()
        slow.block()
        for _ in range(2):
            world.flood(publisher, "x", [b"1"] * 5)
            for _ in range(3):
                publisher.publish("y", qos=1)
            world.interval()
        world.advance(3)
        slow.unblock()
    found = [row for row in world.table("events") if row["event"][:4] in ("back", "drop")]
    assert some(found, "event", "connection_id", "client_id", "reason", "duration_s", "numbers") == [
        ("backpressure_began", 1, "slow", None, None, {}),
        ("drop_burst", 1, "slow", "buffer_full", None, {"messages": found[1]["numbers"]["messages"]}),
        ("drop_burst", None, "away", "queue_full", None, {"messages": 1}),
        ("drop_burst", 1, "slow", "buffer_full", None, {"messages": found[3]["numbers"]["messages"]}),
        ("drop_burst", None, "away", "queue_full", None, {"messages": 1}),
        ("backpressure_ended", 1, "slow", None, 3.0, {"waiting_bytes": found[-1]["numbers"]["waiting_bytes"]}),
    ]
    assert 1 <= found[1]["numbers"]["messages"] <= 3
    assert found[-1]["numbers"]["waiting_bytes"] > 0
    assert found[2]["detail"] == "1/1"


async def test_a_clock_that_jumps_is_told_and_followed() -> None:
    async with watched() as world:
        world.wall_s += 3_600
        world.observer.tick()
        world.observer.tick()
        world.connect("after")
    started, jumped, connected, *_ = world.table("events")
    assert (jumped["event"], jumped["duration_s"]) == ("clock_jumped", 3_600.0)
    assert started["at"] == "1970-01-12T13:46:40Z"
    assert connected["at"] == "1970-01-12T14:46:40Z"


async def test_a_client_that_does_not_read_is_named_with_the_time_since_when() -> None:
    async with watched() as world:
        slow = world.connect("slow")
        assert world.observer.cuts_of("slow") == []
        slow.block()
        world.advance(192)
        (said,) = world.observer.cuts_of("slow")
        slow.unblock()
        assert world.observer.cuts_of("slow") == []
    assert said.startswith("the socket of slow takes nothing, since 13:46:40.000 (3 min 12 s ago): the client does not")


async def test_a_standstill_is_an_event_with_its_length() -> None:
    async with watched() as world:
        world.hub.on_stood_still(20.0)
    _, stood_still, *_ = world.table("events")
    assert (stood_still["event"], stood_still["duration_s"]) == ("stood_still", 20.0)


# ------------------------------------------------------------------ intervals


async def test_traffic_activity_and_drops_add_up_to_the_counts_of_the_clients() -> None:
    """Everything is counted once, whatever the interval in which it happens."""
    limits = Limits(max_queued_messages=3, max_inflight=2)
    async with watched(limits) as world:
        plain, slow, old = world.connect("plain"), world.connect("slow", auto_ack=False), world.connect("old", V311)
        away = world.connect("away", expiry=600)
        publisher = world.connect("publisher")
        for client, topic_filter, qos in ((plain, "a/#", 0), (slow, "a/1", 1), (old, "#", 2), (away, "a/2", 0)):
            client.subscribe(topic_filter, qos=qos)
        away.disconnect()
        published: Counter[tuple[str, int]] = Counter()
        payload_bytes: Counter[str] = Counter()
        lengths = [1, 7, 30]
        for number in range(60):
            topic, qos = ("a/1", "a/2", "nobody")[number % 3], number % 4 % 3
            payloads = [b"x" * lengths[number % 3]] * (1 + number % 5)
            if topic == "nobody":
                old.send(Unsubscribe(old.packet_id(), (b"#",)))
            elif number % 3 == 0:
                old.subscribe("#", qos=2)
            world.flood(publisher, topic, payloads, qos)
            published[topic, qos] += len(payloads)
            payload_bytes[topic] += sum(map(len, payloads))
            world.advance(1)
            if number % 7 == 0:
                world.interval()
        received = {client: len(client.payloads()) for client in (plain, slow, old)}
        numbers = {client: client.connection.number for client in received}
        for client in (plain, slow, old, publisher):
            client.disconnect()
    traffic: Counter[tuple[str, int]] = Counter()
    deliveries: Counter[str] = Counter()
    for row in world.table("traffic"):
        for qos in range(3):
            traffic[row["topic"], qos] += row[f"messages_qos{qos}"]
        payload_bytes[row["topic"]] -= row["payload_bytes"]
        deliveries[row["topic"]] += row["deliveries"]
        assert row["topics"] == 1
        assert row["payload_bytes_max"] == lengths[("a/1", "a/2", "nobody").index(row["topic"])]
    assert +traffic == +published
    assert not any(payload_bytes.values())
    drops: Counter[tuple[str, str | None]] = Counter()
    for row in world.table("drops"):
        drops[row["reason"], row["client_id"]] += row["messages"]
    of = {name: sum(published[name, qos] for qos in range(3)) for name in ("a/1", "a/2", "nobody")}
    assert drops["no_subscribers", None] == of["nobody"]
    assert drops["qos0_offline", "away"] == of["a/2"]
    assert drops["queue_full", "slow"] > 0
    assert +deliveries == Counter({"a/1": 3 * of["a/1"], "a/2": 3 * of["a/2"]})
    activity: Counter[tuple[int, str]] = Counter()
    for row in world.table("activity"):
        for column in ("messages_received", "messages_sent", "dropped"):
            activity[row["connection_id"], column] += row[column]
    assert activity[5, "messages_received"] == sum(published.values())
    for client, messages in received.items():
        assert activity[numbers[client], "messages_sent"] == messages > 0
    assert activity[2, "dropped"] == drops["queue_full", "slow"]
    assert drops["session_expired", "slow"] == 5, "when its connection was over"


async def test_an_interval_has_its_real_length_and_the_messages_that_wait_at_its_end() -> None:
    async with watched(Limits(max_inflight=2)) as world:
        slow, publisher = world.connect("slow", auto_ack=False), world.connect("publisher")
        slow.subscribe("x", qos=1)
        for _ in range(5):
            publisher.publish("x", "12345", qos=1)
        world.advance(7.5)
        slow.block()
        world.advance(2.5)
        world.interval()
        world.advance(4)
        slow.unblock()
        world.interval()
        first, second = (row for row in world.table("activity") if row["client_id"] == "slow")
    assert first == {
        "schema_version": 2,
        "broker_id": BROKER,
        "interval_start": "1970-01-12T13:46:40Z",
        "interval_s": 10.0,
        "connection_id": 1,
        "client_id": "slow",
        "listener": "door",
        "messages_received": 0,
        "messages_sent": 2,
        "bytes_received": slow.connection.bytes_received,
        "bytes_sent": slow.connection.outbox.bytes_sent,
        "dropped": 0,
        "queued": 3,
        "queued_bytes": 3 * (ENTRY_BYTES + MESSAGE_BYTES + 6),
        "inflight": 2,
        "backpressure_s": 2.5,
    }
    assert some([second], "interval_start", "interval_s", "messages_sent", "bytes_sent", "queued") == [
        ("1970-01-12T13:46:50Z", 4.0, 0, 0, 3)
    ]
    assert second["backpressure_s"] == 4.0


async def test_an_idle_client_has_no_row() -> None:
    async with watched() as world:
        idle = world.connect("idle")
        world.open()
        world.interval()
        idle.disconnect()
    assert world.table("activity") == []
    assert world.table("traffic") == []
    assert world.table("drops") == []
    assert world.table("latency") == []


async def test_a_connection_that_ends_while_an_interval_is_written_is_in_the_interval_it_was_in() -> None:
    async with watched() as world:
        clients = [world.connect(f"c{number}") for number in range(3 * SLICE)]
        for client in clients:
            client.publish("x")
        world.advance(10)
        intervals = world.recorder.intervals
        sweep = intervals.sweep(world.now)
        next(sweep)
        next(sweep)
        world.advance(1)
        clients[0].publish("x")
        clients[0].disconnect()
        clients[-1].disconnect()
        fresh = world.connect("fresh")
        fresh.publish("x")
        fresh.disconnect()
        for _ in sweep:
            pass
    activity = world.table("activity")
    assert sum(row["messages_received"] for row in activity) == 3 * SLICE + 2
    by_client = {name: [row for row in activity if row["client_id"] == name] for name in ("c0", "c149", "fresh")}
    first, second = "1970-01-12T13:46:40Z", "1970-01-12T13:46:50Z"
    assert some(by_client["c0"], "interval_start", "interval_s") == [(first, 10.0), (second, 1.0)]
    assert some(by_client["c149"], "interval_start", "interval_s") == [(first, 11.0)]
    assert some(by_client["fresh"], "interval_start", "interval_s") == [(second, 1.0)]


@pytest.mark.long
async def test_an_interval_is_written_in_slices() -> None:
    async with watched(max_topics=500) as world:
        clients = [world.connect(f"c{number}") for number in range(300)]
        for number, client in enumerate(clients):
            client.publish(f"t/{number}")
        written: list[int] = []
        intervals = world.recorder.intervals
        for _ in intervals.sweep(world.now):
            written.append(sum(map(len, world.rows.values())))
        assert max(after - before for before, after in itertools.pairwise(written)) <= SLICE
        assert len(world.table("traffic")) == 300


@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_drops_beyond_the_limit_are_summed_up(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "MAX_DROPS", 4)
    async with watched() as world:
        for number in range(4 + beyond):
            world.hub.on_dropped(0, f"c{number}", b"t", "queue_full", 10, "")
    rows = world.table("drops")
    assert sum(row["messages"] for row in rows) == 10 * (4 + beyond)
    assert some(rows, "client_id", "topic")[4:] == [(None, "#")] * (beyond > 0)


async def test_topics_of_drops_beyond_the_limit_share_their_first_level() -> None:
    async with watched(max_topics=1) as world:
        for topic in (b"a", b"b/1", b"b/2", b""):
            world.hub.on_dropped(0, "c7", topic, "queue_full", 1, "")
    assert some(world.table("drops"), "topic", "messages") == [("a", 1), ("b/#", 2), (None, 1)]


# ------------------------------------------------------------------ single messages


async def test_while_there_are_few_messages_each_is_measured_in_every_stage() -> None:
    async with watched(samples_per_s=50) as world:
        plain, one, two = world.connect("plain"), world.connect("one"), world.connect("two", V311)
        publisher = world.connect("publisher")
        for qos, client in enumerate((plain, one, two)):
            client.subscribe("x", qos=qos)
        for number in range(30):
            publisher.publish("x", "12345", qos=number % 3)
            world.advance(0.1)
        publisher.publish("nobody")
    latency = world.table("latency")
    messages = {(row["stage"], row["qos"]): row["messages"] for row in latency if row["topic"] == "x"}
    assert messages == {
        **{("route", qos): 10 for qos in range(3)},
        **{(stage, 0): 10 * 3 + 10 + 10 for stage in ("queue", "write", "total")},
        **{(stage, 1): 10 * 2 + 10 for stage in ("queue", "write", "total", "acknowledge")},
        **{(stage, 2): 10 for stage in ("queue", "write", "total", "acknowledge")},
    }
    for row in latency:
        assert sum(row["counts"]) == row["messages"]
        assert row["buckets"] == sorted(row["buckets"])
    assert [world.observer.latency[stage].messages for stage in STAGES] == [31, 90, 90, 90, 40]
    samples = world.table("samples")
    assert Counter(some(samples, "receiver", "outcome")) == {
        ("plain", "sent"): 30,
        ("one", "sent"): 10,
        ("one", "acknowledged"): 20,
        ("two", "sent"): 10,
        ("two", "acknowledged"): 20,
        (None, "dropped"): 1,
    }
    assert {row["one_in"] for row in samples} == {1}
    assert len({row["message_id"] for row in samples}) == 31
    assert samples[-1] == {
        "schema_version": 2,
        "broker_id": BROKER,
        "message_id": str(world.broker.effects.numbers.latest),
        "at": "1970-01-12T13:46:43Z",
        "topic": "nobody",
        "qos": 0,
        "payload_bytes": 0,
        "publisher": "publisher",
        "receiver": None,
        "outcome": "dropped",
        "reason": "no_subscribers",
        "routed_us": 0,
        "queued_us": None,
        "written_us": None,
        "acknowledged_us": None,
        "one_in": 1,
    }


async def test_stages_are_as_long_as_they_take() -> None:
    async with watched(Limits(max_inflight=1)) as world:
        slow, publisher = world.connect("slow", auto_ack=False), world.connect("publisher")
        slow.subscribe("x", qos=1)
        publisher.publish("x", qos=1)
        publisher.publish("x", qos=1)
        world.advance(2)
        slow.auto_ack = True
        slow.send_bytes(bytes.fromhex("40020001"))
        assert world.table("samples") == [], "they are handed over together"
        world.observer.tick()
        assert len(world.table("samples")) == 2
    first, second = world.table("samples")
    assert some([first, second], "queued_us", "written_us", "acknowledged_us") == [(0, 0, 2_000_000), (2_000_000, 0, 0)]


@pytest.mark.long
@pytest.mark.parametrize("qos", [0, 1])
async def test_of_many_messages_some_are_followed_and_stand_for_all(qos: int) -> None:
    async with watched(samples_per_s=50) as world:
        reader, publisher = world.connect("reader"), world.connect("publisher")
        reader.subscribe("x", qos=qos)
        for _ in range(20):
            world.flood(publisher, "x", [b"12345"] * 500, qos)
            world.advance(0.5)
            world.observer.tick()
        assert len(reader.payloads()) == 10_000
    samples = world.table("samples")
    assert 300 <= len(samples) <= 800
    assert sum(row["one_in"] for row in samples) == pytest.approx(10_000, rel=0.1)
    assert {row["outcome"] for row in samples} == {"acknowledged" if qos else "sent"}


async def test_samples_are_handed_over_before_they_are_too_many() -> None:
    async with watched(samples_per_s=2_000) as world:
        publisher = world.connect("publisher")
        for messages in (BATCH - 1, 1, 1):
            world.flood(publisher, "nobody", [b"1"] * messages)
            assert len(world.table("samples")) == (0 if messages > 1 else BATCH)


async def test_unfinished_messages_are_written_as_unfinished_when_the_broker_stops() -> None:
    async with watched() as world:
        away, publisher = world.connect("away", expiry=60), world.connect("publisher")
        away.subscribe("x", qos=1)
        away.disconnect()
        for _ in range(3 * SLICE):
            publisher.publish("x", qos=1)
        assert world.observer.traced == 3 * SLICE
    assert Counter(some(world.table("samples"), "receiver", "outcome")) == {("away", "unfinished"): 3 * SLICE}
    assert world.observer.evicted == 3 * SLICE
    publisher.publish("x", qos=1)
    assert len(world.table("samples")) == 3 * SLICE, "nobody watches any more"


async def test_drops_and_the_oldest_unacknowledged_message_are_told_live() -> None:
    async with watched() as world:
        slow, publisher = world.connect("slow", auto_ack=False), world.connect("publisher")
        slow.subscribe("x", qos=1)
        assert world.observer.oldest_unacknowledged_s() == 0
        publisher.publish("x", qos=1)
        world.advance(7)
        publisher.publish("x", qos=1)
        publisher.publish("nobody")
        world.advance(1)
        assert world.observer.oldest_unacknowledged_s() == 8
        assert world.observer.drops == {"no_subscribers": 1}
        assert world.observer.one_in == 1


async def test_a_message_that_a_filter_rejects_is_no_drop() -> None:
    async with watched() as world:
        client = world.connect("c7")
        client.subscribe("x", where="qos = 1")
        world.connect("publisher").publish("x")
        assert world.observer.drops == {"filter_mismatch": 1}, "once, for nobody got it"
    assert some(world.table("samples"), "receiver", "outcome", "reason") == [("c7", "dropped", "filter_mismatch")]
    assert some(world.table("drops"), "client_id", "reason") == [(None, "filter_mismatch")]


async def test_names_are_written_as_pseudonyms_where_that_is_wanted() -> None:
    names = Pseudonyms(("client_ids", "usernames", "addresses", "topics"), b"k" * 32)
    async with watched(Limits(max_queued_messages=1), names=names) as world:
        client = world.open()
        client.connect("secret-id", username="secret-user", expiry=60)
        world.hub.on_connected(world.links[client.connection.number])
        client.subscribe("secret/topic", qos=1)
        client.disconnect(4)
        publisher = world.connect("secret-publisher")
        for _ in range(3):
            publisher.publish("secret/topic", qos=1)
        publisher.disconnect()
    written = str({name: world.table(name) for name in world.rows})
    assert "secret" not in written
    assert "192.0.2.7" not in written
    assert {"events", "traffic", "activity", "latency", "drops", "samples"} == set(world.rows)
    assert names.topic("secret/topic") in written
    assert names.client_id("secret-id") in written


# ------------------------------------------------------------------ the delivery log


async def why(act: Callable[[Client, Client], None], target: str = "x", **options: Any) -> list[str]:
    """What the delivery log says of messages on `x` for `c7`, without their heads."""
    delivery_log = DeliveryLogOptions(topics=("x",), **options)
    async with watched(
        Limits(max_queued_messages=2, max_inflight=2, min_drain_rate=0), delivery_log=delivery_log, dataset=False
    ) as world:
        receiver, publisher = world.connect("c7", expiry=60), world.connect("c3")
        act(receiver, publisher)
        assert world.observer.answers is not None
        sentences: list[str] = world.observer.answers.why(target)["sentences"]
        assert world.rows == {}
        return [sentence.partition(": ")[2] for sentence in sentences]


async def test_the_delivery_log_says_why_a_queue_was_full_and_since_when() -> None:
    def act(receiver: Client, publisher: Client) -> None:
        receiver.auto_ack = False
        receiver.subscribe("x", qos=1)
        for _ in range(5):
            publisher.publish("x", qos=1)
            receiver.world.advance(1)

    assert await why(act) == [
        "handed to the socket of c7 at QoS 1 after 0.00 ms, unacknowledged for 5.0 s",
        "handed to the socket of c7 at QoS 1 after 0.00 ms, unacknowledged for 4.0 s",
        *(
            f"waits for c7 since 13:46:4{at}.000, for {5 - at}.0 s: 2 of 2 were unacknowledged since 13:46:40.000"
            f" ({at - 1} of 2 waited then)"
            for at in (2, 3)
        ),
        "dropped for c7: queue_full (2/2), because 2 of 2 were unacknowledged since 13:46:40.000;"
        " see limits.max_queued_messages, limits.max_queued_bytes, limits.on_overflow",
    ]


async def test_the_delivery_log_says_no_more_than_it_knows() -> None:
    """What fills the window may be messages that are not traced, and others may wait though there is room."""
    delivery_log = DeliveryLogOptions(topics=("x",), sampled=False)
    async with watched(Limits(max_inflight=2), delivery_log=delivery_log, dataset=False) as world:
        receiver, publisher = world.connect("c7", auto_ack=False), world.connect("c3")
        receiver.subscribe("#", qos=1)
        trace = 1
        world.observer.on_received(trace, b"x", 1, 1, "c3")
        world.observer.on_queued(trace, "c7", "window_full", 1, 9)
        for _ in range(2):
            publisher.publish("y", qos=1)
        publisher.publish("x", qos=1)
        assert world.observer.answers is not None
        first, second = world.observer.answers.why("x")["sentences"]
        assert ": others had waited for c7 before (1 of 9 waited then)" in first
        assert ": 2 of 2 were unacknowledged (1 of 10000 waited then)" in second


async def test_the_delivery_log_says_that_a_socket_took_nothing() -> None:
    def act(receiver: Client, publisher: Client) -> None:
        receiver.subscribe("x", qos=1)
        receiver.block()
        receiver.world.advance(3)
        publisher.publish("x", qos=1)
        publisher.publish("x", qos=0)

    first, second = await why(act)
    assert first.startswith(
        "waits for c7 since 13:46:43.000, for 0.00 ms: the socket of c7 had taken nothing for 3.0 s"
    )
    assert second.startswith(
        "waits for c7 since 13:46:43.000, for 0.00 ms: the socket of c7 had taken nothing for 3.0 s"
    )


async def test_the_delivery_log_names_the_absent_client() -> None:
    def act(receiver: Client, publisher: Client) -> None:
        receiver.subscribe("x", qos=1)
        receiver.disconnect()
        publisher.publish("x", qos=1)
        publisher.publish("x", qos=0)

    assert await why(act) == [
        "waits for c7 since 13:46:40.000, for 0.00 ms: c7 was not connected (1 of 2 waited then)",
        "dropped for c7: qos0_offline, because the receiver was not connected, and messages of QoS 0 do not wait;"
        " see QoS",
    ]


async def test_the_delivery_log_knows_a_client_wherever_it_subscribes_and_nothing_else_where_that_is_wanted() -> None:
    options = DeliveryLogOptions(clients=("c7",), sampled=False)
    async with watched(delivery_log=options, dataset=False) as world:
        receiver, other, publisher = world.connect("c7"), world.connect("c8"), world.connect("c3")
        receiver.subscribe("x/#")
        other.subscribe("#")
        assert world.broker.effects.until_sample > NO_SAMPLES // 2
        for topic in ("x/1", "y/1"):
            publisher.publish(topic)
        receiver.publish("z")
        answers = world.observer.answers
        assert answers is not None
        assert len(answers.why("x/1")["sentences"]) == 2
        assert answers.why("y/1")["known"] is False
        assert answers.why("z")["known"] is True


@pytest.mark.long
async def test_chosen_messages_are_in_the_dataset_no_more_often_than_others() -> None:
    async with watched(delivery_log=DeliveryLogOptions(topics=("x",)), samples_per_s=20) as world:
        reader, publisher = world.connect("reader"), world.connect("publisher")
        reader.subscribe("x")
        for _ in range(50):
            for _ in range(40):
                publisher.publish("x")
            world.advance(0.2)
            world.observer.tick()
        assert world.observer.delivery_log is not None
        assert len(world.observer.delivery_log) == 2_000
    samples = world.table("samples")
    assert 100 <= len(samples) <= 400
    assert sum(row["one_in"] for row in samples) == pytest.approx(2_000, rel=0.1)


# ------------------------------------------------------------------ on its own


async def test_intervals_end_by_themselves_and_the_last_at_the_stop() -> None:
    world = Watched(interval_s=0.1).begin()
    publisher = world.connect("publisher")
    publisher.publish("x")
    world.advance(0.1)
    async with asyncio.timeout(60):
        while not world.table("traffic"):
            await asyncio.sleep(0.01)
    publisher.publish("y")
    await world.stop()
    await world.stop()
    assert some(world.table("traffic"), "topic", "messages_qos0") == [("x", 1), ("y", 1)]


@pytest.mark.long
async def test_a_stop_finishes_the_interval_that_was_being_written() -> None:
    world = Watched(interval_s=0.1).begin()
    for number in range(3 * SLICE):
        world.connect(f"c{number}").publish(f"t/{number}")
    world.advance(0.1)
    async with asyncio.timeout(60):
        while not world.table("activity"):
            await asyncio.sleep(0)
    assert len(world.table("activity")) < 3 * SLICE
    await world.stop()
    assert len(world.table("activity")) == 3 * SLICE
    assert sum(row["messages_qos0"] for row in world.table("traffic")) == 3 * SLICE


async def test_an_interval_of_many_rows_is_spread_over_half_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def recorded(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    world = Watched()
    link = world.links[world.connect("c7").connection.number]
    world.links.update((-number, link) for number in range(1, 100 * SLICE))
    monkeypatch.setattr(asyncio, "sleep", recorded)
    await world.recorder.finish_sweep(world.recorder.intervals.sweep(world.now), 0.5)
    assert len(pauses) == 1 + 100
    assert 0 < pauses[0] < 0.5 / 100
    assert max(pauses) == 0.02, "and less than that is not rushed"
