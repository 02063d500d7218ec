"""Presence by topic on a core without sockets: who is told to be there, when, and that it is true in the end."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttlite.event_hub import CoreTracer, EventHub, NoMessages
from mqttlite.extensions.presence import members as topic_members
from mqttlite.extensions.presence import presence as topic_presence
from mqttlite.extensions.presence.presence import TopicPresence
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.security.rules import Rules
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.telemetry.publish_queue import PublishQueue
from mqttlite.topics.names import matches
from mqttlite.wire.packets import Unsubscribe
from tests.support.core_driver import Client, World
from tests.unit.telemetry.watched import Link

ROOMS = TopicPolicyOptions(prefix="rooms", presence=True)
SNAPSHOT, EVENT = "$SYS/broker/presence/", "$SYS/broker/presence_events/"


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call = at, call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Rooms(World):
    """A world whose rooms have presence, and what an assembly does in it."""

    def __init__(self, *policies: TopicPolicyOptions) -> None:
        super().__init__()
        self.timers: list[Timer] = []
        self.soon: list[Callable[[], None]] = []
        self.hub = EventHub()
        self.links: dict[int, Link] = {}
        self.rules = Rules(None, policies or (ROOMS,))
        self.broker.authorize(built_in_rules(authorizer=self.rules))
        self.queue = PublishQueue(
            *(self.broker, lambda: None, lambda: self.now), call_soon=self.soon.append, clock=lambda: 0.0
        )
        self.presence = TopicPresence(
            *(
                self.broker,
                self.queue,
                self.rules.policies,
                lambda: self.now,
                lambda at: datetime.fromtimestamp(at, UTC),
            ),
            call_later=self._call_later,
            clock=lambda: 0.0,
        )
        self.hub.register(self.presence)
        self.broker.watch(CoreTracer(self.hub, NoMessages()))
        self.presence.on_policies(self.rules.policies)
        self.look()

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self.now + delay_s, call)
        self.timers.append(timer)
        return timer

    def connect(self, client_id: str = "", version: int = 5, **options: object) -> Client:
        client = super().connect(client_id, version, **options)
        link = self.links[client.connection.number] = Link(client.connection)
        self.hub.on_connected(link)
        return client

    def settle(self) -> None:
        before = dict(self.clients)
        super().settle()
        for number in before.keys() - self.clients.keys():
            if number in self.links:
                self.hub.on_ended(self.links.pop(number))

    def use(self, *policies: TopicPolicyOptions) -> None:
        """Other policies."""
        self.rules = Rules(None, policies)
        self.broker.authorize(built_in_rules(authorizer=self.rules))
        self.presence.on_policies(self.rules.policies)

    def look(self, seconds: float = 0.25) -> None:
        """Let time pass, and timers come."""
        end = self.now + seconds
        while True:
            due = min((each for each in self.timers if each.at <= end), key=lambda each: each.at, default=None)
            if due is None:
                break
            self.timers.remove(due)
            self.advance(max(0.0, due.at - self.now))
            if not due.is_cancelled:
                due.call()
            while self.soon:
                self.soon.pop(0)()
            self.settle()
        self.advance(max(0.0, end - self.now))

    def retained(self) -> dict[str, Mapping[str, Any]]:
        """The snapshots that a new client would get, by topic."""
        search = self.broker.router.retained.search(b"$SYS/broker/presence/#")
        found = search.take(len(search))
        return {each.topic.decode().removeprefix(SNAPSHOT): json.loads(each.payload) for each in found}

    def members(self, topic: str) -> list[str]:
        return [each["client_id"] for each in self.retained()[topic]["members"]]


def said(watcher: Client) -> list[tuple[str, int, list[str], list[str]]]:
    """The events that a watcher got: topic, count, who came, who left."""
    found = [(topic, json.loads(payload)) for topic, payload in watcher.messages() if topic.startswith(EVENT)]
    return [
        (
            topic.removeprefix(EVENT),
            event["count"],
            [each["client_id"] for each in event["joined"]],
            [each["client_id"] for each in event["left"]],
        )
        for topic, event in found
    ]


def test_a_watcher_gets_a_snapshot_and_then_events() -> None:
    world = Rooms()
    anna = world.connect("anna", username="a", password=b"")
    anna.subscribe("rooms/1", "elsewhere")
    world.look()
    watcher = world.connect("watcher")
    watcher.subscribe("$SYS/broker/presence/rooms/1", "$SYS/broker/presence_events/rooms/1")
    [(topic, snapshot)] = watcher.messages()
    assert topic == SNAPSHOT + "rooms/1"
    assert json.loads(snapshot) == {
        "topic": "rooms/1",
        "count": 1,
        "members": [{"client_id": "anna", "user": "a", "since": "1970-01-12T13:46:40.450000Z"}],
        "at": "1970-01-12T13:46:40.450000Z",
    }
    bert = world.connect("bert")
    bert.subscribe("$share/g/rooms/1")
    world.look()
    anna.send(Unsubscribe(9, (b"rooms/1",)))
    world.look(1)
    bert.lose()
    world.look(1)
    assert said(watcher) == [
        ("rooms/1", 2, ["bert"], []),
        ("rooms/1", 1, [], ["anna"]),
        ("rooms/1", 0, [], ["bert"]),
    ]
    assert world.retained()["rooms/1"]["count"] == 0, "somebody watches it"
    watcher.lose()
    world.look(1)
    assert list(world.retained()) == ["rooms"], "what nobody subscribes to or watches is gone, but for what is named"
    world.end()


def test_a_filter_with_wildcards_is_in_each_topic_that_it_matches() -> None:
    world = Rooms()
    for client_id, topic_filter in (("all", "rooms/#"), ("plus", "rooms/+"), ("two", "rooms/2"), ("other", "other/#")):
        world.connect(client_id).subscribe(topic_filter)
    world.look()
    assert {topic: sorted(world.members(topic)) for topic in world.retained()} == {
        "rooms": ["all"],
        "rooms/2": ["all", "plus", "two"],
    }


def test_one_client_with_several_filters_is_one_member_since_the_first() -> None:
    world = Rooms()
    anna = world.connect("anna")
    anna.subscribe("rooms/1")
    world.look()
    since = world.retained()["rooms/1"]["members"][0]["since"]
    anna.subscribe("rooms/#", "$share/g/rooms/1")
    world.look()
    assert world.retained()["rooms/1"]["members"] == [{"client_id": "anna", "user": None, "since": since}]
    anna.send(Unsubscribe(9, (b"rooms/1", b"$share/g/rooms/1")))
    world.look(2)
    assert "rooms/1" not in world.retained()
    assert world.members("rooms") == ["anna"]


def test_a_client_that_is_away_is_not_there_and_is_again_when_it_is_back() -> None:
    world = Rooms()
    watcher = world.connect("watcher")
    watcher.subscribe(EVENT + "#", SNAPSHOT + "rooms/1")
    anna = world.connect("anna", expiry=3_600)
    anna.subscribe("rooms/1")
    world.look()
    anna.lose()
    world.look(3)
    assert world.members("rooms/1") == []
    world.connect("anna", clean_start=False, expiry=3_600)
    world.look()
    assert world.members("rooms/1") == ["anna"]
    assert [each[2:] for each in said(watcher)] == [(["anna"], []), ([], ["anna"]), (["anna"], [])]


def test_a_client_that_takes_over_its_session_is_there_all_the_time() -> None:
    world = Rooms()
    watcher = world.connect("watcher")
    watcher.subscribe(EVENT + "#")
    world.connect("anna", expiry=9).subscribe("rooms/1")
    world.look()
    world.connect("anna", clean_start=False, expiry=9)
    world.look(3)
    assert said(watcher) == [("rooms/1", 1, ["anna"], [])]
    world.connect("anna")  # a clean start: its subscription is gone
    world.look(3)
    assert said(watcher) == [("rooms/1", 0, [], ["anna"])]


def test_a_client_that_comes_and_goes_is_told_once_a_second() -> None:
    world = Rooms()
    watcher = world.connect("watcher")
    watcher.subscribe(EVENT + "#")
    anna = world.connect("anna")
    for _ in range(20):
        anna.subscribe("rooms/1")
        world.look(0.3)
        anna.send(Unsubscribe(9, (b"rooms/1",)))
        world.look(0.37)
    events = said(watcher)
    assert 4 <= len(events) <= 14, "20 times, in 13.4 seconds"
    anna.subscribe("rooms/1")
    world.look(2)
    assert world.members("rooms/1") == ["anna"]


@pytest.mark.slow
def test_a_storm_becomes_numbers() -> None:
    world = Rooms()
    watcher = world.connect("watcher")
    watcher.subscribe(EVENT + "rooms/1")
    clients = [world.connect(f"c{number:04}") for number in range(topic_members.MAX_NAMED + 1)]
    for client in clients[:-1]:
        client.subscribe("rooms/1")
    world.look()
    [(_, payload)] = watcher.messages()
    event = json.loads(payload)
    assert (event["count"], event["joined_count"], len(event["joined"])) == (1_000, 1_000, topic_presence.NAMED)
    assert len(world.members("rooms/1")) == topic_presence.NAMED
    clients[-1].subscribe("rooms/1")
    world.look(2)
    [(_, payload)] = watcher.messages()
    event = json.loads(payload)
    assert (event["count"], event["joined_count"], event["joined"]) == (1_001, 1, [])
    assert world.retained()["rooms/1"]["members"] == []
    assert world.presence.members.names == 0
    for client in clients[10:]:
        client.lose()
    world.look(2)
    assert world.members("rooms/1") == [f"c{number:04}" for number in range(10)]
    [(_, payload)] = watcher.messages()
    event = json.loads(payload)
    assert (event["count"], event["left_count"], event["left"]) == (10, 991, [])


def test_numbers_are_told_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_members, "MAX_NAMED", 1)
    world = Rooms()
    watcher = world.connect("watcher")
    watcher.subscribe(EVENT + "#")
    clients = [world.connect(f"c{number}") for number in range(6)]
    for client in clients:
        client.subscribe("rooms/1", "$share/g/rooms/1", "rooms/#")
        world.look()
    world.look(1)
    assert len([each for each in said(watcher) if each[0] == "rooms/1"]) <= 3
    assert world.retained()["rooms/1"]["count"] == 6


@pytest.mark.parametrize(
    ("limit", "value", "counts"),
    [("MAX_TOPICS", 2, {"rooms": 3, "rooms/0": 3}), ("MAX_MEMBERSHIPS", 2, {"rooms": 1, "rooms/0": 1})],
)
def test_where_a_table_is_full_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: str, value: int, counts: dict[str, int]
) -> None:
    monkeypatch.setattr(topic_members, limit, value)
    world = Rooms()
    for number in range(3):
        world.connect(f"c{number}").subscribe(f"rooms/{number}", "rooms/#")
    world.look()
    retained = world.retained()
    assert {topic: each["count"] for topic, each in retained.items()} == counts
    assert world.presence.figures()["presence_left_out"] > 0
    assert caplog.text.count("presence: a limit is reached") == 1


def test_only_so_many_topics_are_watched_that_nobody_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_members, "MAX_WATCHED", 2)
    world = Rooms()
    watcher = world.connect("watcher")
    watcher.subscribe(*(f"{SNAPSHOT}rooms/{number}" for number in range(3)), SNAPSHOT + "other")
    world.look()
    assert set(world.retained()) == {"rooms", "rooms/0", "rooms/1"}
    world.connect("anna").subscribe("rooms/2")
    world.look()
    assert world.members("rooms/2") == ["anna"]
    watcher.lose()
    world.look(2)
    assert set(world.retained()) == {"rooms", "rooms/2"}


def test_names_have_one_limit_for_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_members, "MAX_NAMES", 3)
    world = Rooms()
    for number in range(4):
        world.connect(f"c{number}").subscribe(f"rooms/{number}")
    world.look()
    assert [len(world.retained()[f"rooms/{number}"]["members"]) for number in range(4)] == [1, 1, 1, 0]
    assert world.retained()["rooms/3"]["count"] == 1
    assert world.presence.members.names == 3


def test_a_topic_without_room_for_what_stands_before_it_is_left_out() -> None:
    world = Rooms()
    world.connect("anna").subscribe("rooms/" + "x" * 65_520)
    world.look()
    assert set(world.retained()) == {"rooms"}
    assert world.presence.figures()["presence_left_out"] == 1


def test_other_policies_hold_at_once() -> None:
    world = Rooms()
    world.connect("anna").subscribe("rooms/1", "halls/1", "halls/#")
    watcher = world.connect("watcher")
    watcher.subscribe(EVENT + "#", SNAPSHOT + "rooms/2", SNAPSHOT + "halls/2")
    world.look()
    assert set(world.retained()) == {"rooms", "rooms/1", "rooms/2"}
    watcher.received()
    world.use(TopicPolicyOptions(filter="halls/+", presence=True))
    world.look()
    assert {topic: each["count"] for topic, each in world.retained().items()} == {"halls/1": 1, "halls/2": 1}
    assert sorted(said(watcher)) == [("halls/1", 1, ["anna"], []), ("halls/2", 1, ["anna"], [])]
    world.use(ROOMS, TopicPolicyOptions(prefix="rooms/1"))
    world.look()
    assert {topic: each["count"] for topic, each in world.retained().items()} == {"rooms": 0, "rooms/2": 0}
    world.use()
    world.look()
    assert world.retained() == {}


def test_a_client_without_permission_is_not_among_the_receivers() -> None:
    world = Rooms(ROOMS, TopicPolicyOptions(prefix="rooms/vip", access="PRIVATE", members=("vera",), presence=True))
    for client_id in ("vera", "bob"):
        world.connect(client_id, username=client_id, password=b"").subscribe("rooms/#")
    watcher = world.connect("watcher", username="bob", password=b"")
    assert list(watcher.subscribe(SNAPSHOT + "rooms/vip", EVENT + "rooms/vip", SNAPSHOT + "rooms")) == [0x87, 0x87, 0]
    assert list(watcher.subscribe("$SYS/#")) == [0]
    world.look()
    topics = [topic for topic, _ in watcher.messages() if "presence" in topic]
    assert topics, "what may be seen is"
    assert not [topic for topic in topics if "vip" in topic]
    world.use(ROOMS, TopicPolicyOptions(prefix="rooms/vip", access="PRIVATE", members=("bob",), presence=True))
    world.look(2)
    assert world.members("rooms/vip") == ["bob"]


def test_the_program_itself_is_not_there() -> None:
    world = Rooms()
    client = world.open(is_trusted=True)
    client.connect("program")
    client.subscribe("rooms/1")
    world.look()
    assert "rooms/1" not in world.retained()


def test_a_stopped_broker_tells_nothing() -> None:
    world = Rooms()
    client = world.connect("anna")
    client.subscribe("rooms/1")
    world.presence.stop()
    client.lose()
    world.look(2)
    assert set(world.retained()) == {"rooms"}
    world.presence.stop()


def test_full_queues_make_topics_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Rooms()
    world.connect("anna").subscribe("rooms/1")
    monkeypatch.setattr(topic_presence, "MAX_WAITING", 0)
    world.look(1)
    assert "rooms/1" not in world.retained()
    monkeypatch.undo()
    world.look(1)
    assert world.members("rooms/1") == ["anna"]


def test_looking_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_presence, "SLICE_S", 0.0)
    monkeypatch.setattr(topic_presence, "SEARCHED", 1)
    monkeypatch.setattr(topic_presence, "MAX_TOUCHED", 2)
    world = Rooms()
    anna = world.connect("anna", expiry=9)
    anna.subscribe("rooms/1", "rooms/2", "rooms/3", "rooms/+")
    world.look()
    anna.lose()
    world.look(2)
    world.connect("anna", clean_start=False)
    world.use(ROOMS)
    world.look(2)
    assert {topic: each["count"] for topic, each in world.retained().items()} == {
        "rooms": 0,
        "rooms/1": 1,
        "rooms/2": 1,
        "rooms/3": 1,
    }


FILTERS = ("rooms/1", "rooms/2", "rooms/+", "rooms/#", "$share/g/rooms/1", "#", "halls/1")
ACTIONS = ("connect", "lose", "look", *FILTERS, *(f"-{each}" for each in FILTERS))
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(ACTIONS)), max_size=40)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_in_the_end_it_is_true(steps: list[tuple[str, str]]) -> None:
    """Whatever happened: a second later, each topic has the connected clients whose filters match it."""
    world = Rooms()
    watcher = world.connect("watcher")
    watcher.subscribe(EVENT + "#", SNAPSHOT + "rooms/1", SNAPSHOT + "rooms/2")
    clients: dict[str, Client] = {}
    told: dict[str, set[str]] = {"rooms": set(), "rooms/1": set(), "rooms/2": set()}
    for name, step in steps:
        client = clients.get(name)
        if step == "look":
            world.look(0.3)
        elif step == "connect":
            clients[name] = world.connect(name, clean_start=False, expiry=99)
        elif client is None or client.closed:
            continue
        elif step == "lose":
            client.lose()
        elif step.startswith("-"):
            client.send(Unsubscribe(client.packet_id(), (step[1:].encode(),)))
        else:
            client.subscribe(step)
    world.look(3)
    for topic, _count, joined, left in said(watcher):
        told[topic] = (told[topic] | set(joined)) - set(left)
    for topic in ("rooms", "rooms/1", "rooms/2"):
        true = {
            session.client_id
            for session in world.broker.sessions.values()
            if session.outbox is not None
            and any(
                matches(topic_filter.removeprefix(b"$share/g/"), topic.encode())
                for topic_filter in session.subscriptions
            )
        }
        assert set(world.members(topic)) == told[topic] == true
