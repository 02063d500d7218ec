"""An operator's actions on clients, sessions and retained messages, on a core without sockets."""

import asyncio
from datetime import UTC, datetime

import pytest

from mqttlite.core.limits import KEPT_MESSAGES, Limits
from mqttlite.core.reasons import CloseReason
from mqttlite.filters import Filters
from mqttlite.operations import admin, admin_messages
from mqttlite.operations.admin import Admin, Page, Removal
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import NEVER_EXPIRES
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.packets import Disconnect
from tests.support.core_driver import Client, World
from tests.unit.telemetry.watched import Link


class Administered(World):
    """A world with an admin, whose links are those of open connections."""

    def __init__(self, limits: Limits | None = None, store: MemoryStore | None = None) -> None:
        super().__init__(limits, store, filters=Filters())
        self.links: dict[int, Link] = {}
        self.admin = Admin(
            self.broker,
            self.links,
            self.settle,
            lambda: self.now,
            lambda at: datetime.fromtimestamp(at, UTC),
            self.store.page,
        )

    def join(self, client_id: str, **options: object) -> Client:
        client = self.connect(client_id, **options)  # type: ignore[arg-type]
        self.links[client.connection.number] = Link(client.connection, unsent_bytes=3)
        return client

    def retain(self, *topics: str) -> None:
        for topic in topics:
            self.publish(topic, "x", 1, retain=True)


@pytest.fixture
def world() -> Administered:
    return Administered()


# ── clients ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def names(world: Administered, limit: int) -> list[list[str]]:
    """The identifiers on each page."""
    pages = [await world.admin.clients(limit=limit)]
    while pages[-1].cursor:
        pages.append(await world.admin.clients(pages[-1].cursor, limit))
    return [[each.client_id for each in page.entries] for page in pages]


async def test_without_sessions_there_is_one_empty_page(world: Administered) -> None:
    assert await names(world, 10) == [[]]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
async def test_each_client_is_on_one_page_in_the_order_of_the_names(
    world: Administered, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "SLICE", 2)
    for name in ("d", "a", "c", "b"):
        world.join(name)
    expected = ["a", "b", "c", "d"]
    assert await names(world, limit) == [expected[start : start + limit] for start in range(0, 4, limit)]


async def test_a_look_at_a_queue_sees_what_is_in_the_store_alone() -> None:
    world = Administered(store=MemoryStore(pages=True))
    waiting_for(world, *(str(at) for at in range(KEPT_MESSAGES + 5)))
    found = await world.admin.peek_queue("c", KEPT_MESSAGES + 2)
    assert found is not None
    assert found.waiting == KEPT_MESSAGES + 5
    assert [(each.sequence, int(each.payload)) for each in found.messages] == [(at, at) for at in range(252)]


@pytest.mark.parametrize(("limit", "length"), [(0, 1), (-5, 1), (1, 1), (3, 3), (4, 3)])
async def test_a_page_has_a_limit(
    world: Administered, limit: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_PAGE", 3)
    for name in "abcde":
        world.join(name)
    assert len((await world.admin.clients(limit=limit)).entries) == length


async def test_a_client_that_ends_between_two_pages_costs_no_other_its_place(world: Administered) -> None:
    for name in "abcd":
        world.join(name)
    first = await world.admin.clients(limit=2)
    assert first.cursor == "c"
    world.admin.end_session("c")
    assert [each.client_id for each in (await world.admin.clients(first.cursor, 2)).entries] == ["d"]


async def test_an_entry_tells_who_is_connected_and_what_waits(world: Administered) -> None:
    world.join("here", username="anna", password=b"x")
    offline = world.join("offline", expiry=100, username="bob", password=b"x")
    offline.subscribe("t", qos=1)
    offline.lose()
    world.publish("t", "x", 1)
    here, away = (await world.admin.clients()).entries
    assert (here.client_id, here.connected, here.username, here.peer) == ("here", True, "anna", "192.0.2.7:1234")
    assert (here.protocol_version, here.connected_at) == ("5.0", datetime.fromtimestamp(world.now, UTC))
    assert (away.client_id, away.connected, away.peer, away.connection_id) == ("offline", False, None, None)
    assert (away.subscriptions, away.queued, away.username) == (1, 1, "bob")


def test_details_name_the_subscriptions_and_what_the_connection_did(
    world: Administered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_SUBSCRIPTIONS", 2)
    client = world.join("c", expiry=100, keep_alive=30)
    client.subscribe("a", qos=1, where="qos = 1")
    client.subscribe("$share/g/b", "c", qos=1)
    client.block()
    found = world.admin.client("c")
    assert found is not None
    assert found.topic_filters == {"a": 1, "$share/g/b": 1}
    assert found.message_filters == {"a": "qos = 1"}
    assert (found.entry.subscriptions, found.session_expiry_s, found.keep_alive_s) == (3, 100, 30)
    assert (found.bytes_received, found.blocked) == (client.connection.bytes_received, True)
    assert found.outbox_bytes == 3
    client.lose()
    offline = world.admin.client("c")
    assert offline is not None
    assert (offline.keep_alive_s, offline.bytes_received, offline.blocked) == (None, 0, False)


def test_details_count_drops(world: Administered) -> None:
    client = world.join("c", expiry=0xFFFFFFFF)
    client.subscribe("t")
    client.lose()
    world.publish("t", "x")
    found = world.admin.client("c")
    assert found is not None
    assert (found.drops, found.session_expiry_s) == ({"qos0_offline": 1}, None)
    assert world.admin.client("nobody") is None


def test_a_kicked_client_is_told_and_keeps_its_session(world: Administered) -> None:
    client = world.join("c", expiry=100)
    assert world.admin.kick("c")
    (packet,) = client.received()
    assert isinstance(packet, Disconnect)
    assert (packet.reason_code, packet.properties.reason_string) == (0x98, "an administrator closed the connection")
    assert client.connection.close_reason == CloseReason.ADMINISTRATIVE
    assert world.connect("c", clean_start=False).connection.session_present
    assert not world.admin.kick("nobody")


@pytest.mark.parametrize("expiry", [0, 100])
@pytest.mark.parametrize("connected", [True, False])
def test_an_ended_session_is_gone_whether_its_client_is_connected_or_not(
    world: Administered, connected: bool, expiry: int
) -> None:
    client = world.join("c", expiry=expiry)
    client.subscribe("t", qos=1)
    if not connected:
        client.lose()
    assert world.admin.end_session("c") is (connected or expiry > 0)
    assert world.admin.client("c") is None
    assert world.broker.subscriptions == 0
    assert not world.connect("c", clean_start=False).connection.session_present


@pytest.mark.parametrize("connected", [True, False])
async def test_a_queue_is_purged_and_each_message_counted(world: Administered, connected: bool) -> None:
    client = world.join("c", expiry=100, receive_maximum=2, auto_ack=False)
    client.subscribe("t", qos=1)
    for number in range(5):
        world.publish("t", str(number), 1)
    sent = client.messages()
    if not connected:
        client.lose()
    assert await world.admin.purge_queue("c", dry_run=True) == Removal(3, True)
    assert await world.admin.purge_queue("c", dry_run=False) == Removal(3, True)
    found = world.admin.client("c")
    assert found is not None
    assert found.drops == {"purged": 3}
    assert sent == [("t", "0"), ("t", "1")]
    assert found.entry.queued == (0 if connected else 2), "what was sent is sent again"
    world.publish("t", "5", 1)
    if not connected:
        again = world.connect("c", clean_start=False, receive_maximum=9)
        assert [payload for _, payload in again.messages()] == ["0", "1", "5"]
    assert await world.admin.purge_queue("nobody", dry_run=False) is None


@pytest.mark.parametrize(("messages", "complete"), [(3, True), (4, True), (5, False)])
async def test_one_call_purges_no_more_than_its_limit(
    world: Administered, messages: int, complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_PURGED", 4)
    monkeypatch.setattr(admin, "SLICE", 3)
    client = world.join("c", expiry=100)
    client.subscribe("t", qos=1)
    client.lose()
    for number in range(messages):
        world.publish("t", str(number), 1)
    expected = Removal(min(4, messages), complete)
    assert await world.admin.purge_queue("c", dry_run=True) == expected
    assert await world.admin.purge_queue("c", dry_run=False) == expected


async def test_a_session_that_ends_during_a_purge_is_no_trouble(
    world: Administered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "SLICE", 1)
    client = world.join("c", expiry=100)
    client.subscribe("t", qos=1)
    client.lose()
    for _ in range(3):
        world.publish("t", "x", 1)
    purge = asyncio.create_task(world.admin.purge_queue("c", dry_run=False))
    await asyncio.sleep(0)
    world.admin.end_session("c")
    removed = await purge
    assert removed is not None
    assert removed.messages == 1


async def test_clients_are_found_by_a_part_of_their_names(world: Administered) -> None:
    for name in ("sensor-1", "sensor-2", "reader"):
        world.join(name)
    page = await world.admin.clients(contains="sensor", limit=1)
    assert ([each.client_id for each in page.entries], page.cursor) == (["sensor-1"], "sensor-2")


@pytest.mark.parametrize(("connected", "expected"), [(True, ["here"]), (False, ["away"]), (None, ["away", "here"])])
async def test_clients_that_are_connected_or_offline_are_found(
    world: Administered, connected: bool | None, expected: list[str]
) -> None:
    world.join("here")
    world.join("away", expiry=100).lose()
    page = await world.admin.clients(connected=connected)
    assert [each.client_id for each in page.entries] == expected


async def test_an_offline_session_says_when_it_ends(world: Administered) -> None:
    away = world.join("away", expiry=100)
    world.join("forever", expiry=NEVER_EXPIRES).lose()
    [entry] = (await world.admin.clients(contains="away")).entries
    assert entry.session_ends_at is None, "not while it is connected"
    away.lose()
    ends = {each.client_id: each.session_ends_at for each in (await world.admin.clients()).entries}
    assert ends == {"away": datetime.fromtimestamp(world.now + 100, UTC), "forever": None}


# ── queues ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def waiting_for(world: Administered, *payloads: str) -> None:
    client = world.join("c", expiry=100)
    client.subscribe("t", qos=1)
    client.lose()
    for payload in payloads:
        world.publish("t", payload, 1)


async def test_a_look_at_a_queue_shows_its_first_messages_and_changes_nothing(world: Administered) -> None:
    waiting_for(world, "a", "b", "c")
    for _ in range(2):
        found = await world.admin.peek_queue("c", limit=2)
        assert found is not None
        assert found.waiting == 3
        assert [(each.sequence, each.topic, each.qos, each.payload) for each in found.messages] == [
            (0, "t", 1, b"a"),
            (1, "t", 1, b"b"),
        ]
    assert await world.admin.peek_queue("nobody") is None


async def test_sequences_stay_when_messages_before_them_are_gone(world: Administered) -> None:
    waiting_for(world, "a", "b", "c")
    world.broker.purge("c", 1, world.now)
    found = await world.admin.peek_queue("c")
    assert found is not None
    assert [(each.sequence, each.payload) for each in found.messages] == [(1, b"b"), (2, b"c")]


async def test_a_look_at_a_queue_says_when_a_message_expires(world: Administered) -> None:
    waiting_for(world, "a")
    world.publish("t", "b", 1, message_expiry_interval=10)
    found = await world.admin.peek_queue("c")
    assert found is not None
    assert [each.expires_at for each in found.messages] == [None, datetime.fromtimestamp(world.now + 10, UTC)]


@pytest.mark.parametrize(("limit", "length"), [(-1, 1), (0, 1), (2, 2), (3, 3), (4, 3)])
async def test_a_look_at_a_queue_has_a_limit_of_messages(
    world: Administered, limit: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_PAGE", 3)
    waiting_for(world, *"abcde")
    found = await world.admin.peek_queue("c", limit)
    assert found is not None
    assert (len(found.messages), found.waiting) == (length, 5)


@pytest.mark.parametrize(
    ("room", "payloads"),
    [(1, []), (2, [b"a"]), (11, [b"aaaaaaaaaa"]), (12, [b"aaaaaaaaaa"]), (13, [b"aaaaaaaaaa", b"b"])],
)
async def test_a_look_at_a_queue_has_a_limit_of_bytes(
    world: Administered, room: int, payloads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_PEEK_BYTES", room)
    waiting_for(world, "a" * 10, "b")
    found = await world.admin.peek_queue("c")
    assert found is not None
    assert [each.payload for each in found.messages] == payloads
    assert [each.payload_bytes for each in found.messages] == [10, 1][: len(payloads)]


# ── retained messages ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_retained_messages_are_listed_by_filter_and_page(
    world: Administered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_messages, "SLICE", 1)
    world.retain("a/2", "a/1", "b", "a/3")
    first = await world.admin.retained("a/+", limit=2)
    assert [(each.topic, each.qos, each.payload_bytes) for each in first.entries] == [("a/1", 1, 1), ("a/2", 1, 1)]
    second = await world.admin.retained("a/+", first.cursor, 2)
    assert ([each.topic for each in second.entries], second.cursor) == (["a/3"], "")


async def test_a_dry_run_counts_and_removes_nothing(world: Administered) -> None:
    world.retain("a/1", "a/2", "b")
    assert await world.admin.remove_retained("a/#", dry_run=True) == Removal(2, True)
    assert len((await world.admin.retained("#")).entries) == 3


async def test_a_removed_message_is_gone_and_subscribers_are_told(world: Administered) -> None:
    world.retain("a/1", "a/2", "b")
    watcher = world.join("watcher")
    watcher.subscribe("a/#")
    watcher.messages()
    assert await world.admin.remove_retained("a/#", dry_run=False) == Removal(2, True)
    assert [each.topic for each in (await world.admin.retained("#")).entries] == ["b"]
    assert watcher.messages() == [("a/1", ""), ("a/2", "")]


@pytest.mark.parametrize(("messages", "complete"), [(3, True), (4, True), (5, False)])
async def test_one_call_removes_no_more_than_its_limit(
    world: Administered, messages: int, complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_messages, "MAX_REMOVED", 4)
    monkeypatch.setattr(admin_messages, "REMOVE_SLICE", 3)
    world.retain(*(f"a/{number}" for number in range(messages)))
    assert await world.admin.remove_retained("#", dry_run=False) == Removal(min(4, messages), complete)
    assert len((await world.admin.retained("#")).entries) == max(0, messages - 4)


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a+"])
async def test_a_filter_that_is_none_is_an_error(world: Administered, topic_filter: str) -> None:
    with pytest.raises(TopicFilterInvalid):
        await world.admin.retained(topic_filter)
    with pytest.raises(TopicFilterInvalid):
        await world.admin.remove_retained(topic_filter, dry_run=True)


# ── delayed messages ───────────────────────────────────────────────────────────────────────────────────────────────


def test_delayed_messages_are_listed_by_their_numbers_and_page(
    world: Administered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_messages, "MAX_PAGE", 2)
    for seconds in (30, 20, 10):
        world.publish(f"$delayed/{seconds}/a/{seconds}", "xyz", seconds // 10 - 1)
    first = world.admin.delayed()
    assert [(each.number, each.topic, each.qos, each.payload_bytes) for each in first.entries] == [
        (1, "a/30", 2, 3),
        (2, "a/20", 1, 3),
    ]
    assert first.entries[0].due_at == datetime.fromtimestamp(world.now + 30, UTC)
    second = world.admin.delayed(first.cursor, 0)
    assert ([each.topic for each in second.entries], second.cursor) == (["a/10"], "")
    assert world.admin.delayed("4") == Page([], "")
    with pytest.raises(ValueError, match="x"):
        world.admin.delayed("x")


def test_a_delayed_message_is_cancelled_once(world: Administered) -> None:
    reader = world.join("reader")
    reader.subscribe("a")
    world.publish("$delayed/30/a", "x", 1)
    assert world.admin.cancel_delayed(1)
    assert not world.admin.cancel_delayed(1)
    world.advance(60)
    assert reader.messages() == []
    assert world.broker.router.drops.by_reason == {"purged": 1}
