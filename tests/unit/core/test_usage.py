"""What the sessions of a user, of an address or of all have together: subscriptions, and bytes in queues."""

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.load.quotas import Quotas
from mqttlite.core.session.usage import UsageLimits, Usages, UsageTable
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.packets import Ack, Unsubscribe
from tests.support.core_driver import Client, World
from tests.support.recorder import Everything

ADDRESS = "192.0.2.1"


class Group:
    """Quotas of one scope, and what they refused."""

    def __init__(self, scope: str, subscriptions: int = 0, queued_bytes: int = 0) -> None:
        self.refused: dict[str, int] = {}
        prefix = scope if scope in ("user", "address") else "all"
        self.table = UsageTable(UsageLimits(prefix, subscriptions, queued_bytes, self.refused))
        scopes = {"user": "users", "address": "addresses"}
        self.quotas = Quotas(usages=Usages(**{scopes.get(scope, scope): self.table}))

    def member(self, world: World, client_id: str, username: str | None = "ann", expiry_s: int = 0) -> Client:
        client = world.open(quotas=self.quotas)
        client.connection.quota_address = ADDRESS
        client.connect(client_id, clean_start=False, username=username, expiry=expiry_s)
        return client


SCOPES = pytest.mark.parametrize("scope", ["user", "address", "listener", "broker"])


@SCOPES
def test_a_group_has_so_many_subscriptions_and_no_more(scope: str) -> None:
    world = World()
    group = Group(scope, subscriptions=3)
    one, other = group.member(world, "one"), group.member(world, "other")
    assert [one.subscribe("a"), one.subscribe("b"), other.subscribe("a")] == [b"\0", b"\0", b"\0"]
    assert one.subscribe("a") == b"\0", "it has that one already"
    refused = one.suback("c")
    assert refused.reason_codes == b"\x97"
    limit = "all_subscriptions" if scope in ("listener", "broker") else f"{scope}_subscriptions"
    assert refused.properties.reason_string == f"3 subscriptions, at most 3 ({limit})"
    assert world.broker.planner.subscribe("one", "ann", b"c", 0).code == 0x97
    assert group.refused == {limit: 1}, "what is only asked about does not count"
    other.disconnect()
    assert one.subscribe("c") == b"\0"
    one.disconnect()
    world.settle()
    assert len(group.table) == 0
    world.end()


def test_others_have_groups_of_their_own_and_who_has_no_name_has_none() -> None:
    world = World()
    group = Group("user", subscriptions=1)
    for client_id, username in (("a", "ann"), ("b", "bob"), ("n", None)):
        assert group.member(world, client_id, username).subscribe("t") == b"\0"
    assert len(group.table) == 2


@SCOPES
def test_the_queues_of_a_group_have_room_for_so_much(scope: str) -> None:
    world = World()
    recorder = Everything()
    world.broker.watch(recorder)
    group = Group(scope, queued_bytes=3_000)
    readers = [group.member(world, f"r{number}", expiry_s=100) for number in range(2)]
    for reader in readers:
        reader.subscribe("t", qos=1)
        reader.disconnect()
    publisher = world.connect("p")
    for _ in range(5):
        publisher.publish("t", "x" * 100, 1)
    codes = [each.reason_code for each in publisher.received() if isinstance(each, Ack)]
    usage = group.table.of("" if scope in ("listener", "broker") else {"user": "ann", "address": ADDRESS}[scope])
    queued = [world.session(f"r{number}").queued for number in range(2)]
    assert sum(queued) == 6
    assert usage.queued_bytes == sum(world.session(f"r{number}").queued_bytes for number in range(2)) <= 3_000
    assert codes[:3] == [0, 0, 0]
    assert codes[3:] == [0x97, 0x97]
    limit = "all_queued_bytes" if scope in ("listener", "broker") else f"{scope}_queued_bytes"
    assert group.refused == {limit: 4}
    assert world.session("r0").drops == {"queue_full": 2}
    assert recorder.details == [("t", f"{limit}: {usage.queued_bytes}/3000")] * 4
    back = group.member(world, "r0", expiry_s=100)
    assert back.payloads() == ["x" * 100] * 3
    publisher.publish("t", "y", 1)
    assert world.session("r1").queued == 4, "there is room again"


def test_a_session_makes_room_with_what_it_has_itself() -> None:
    world = World(Limits(on_overflow="drop_oldest"))
    group = Group("user", queued_bytes=1_600)
    reader = group.member(world, "r", expiry_s=100)
    reader.subscribe("t", qos=1)
    reader.disconnect()
    for number in range(9):
        world.publish("t", str(number), 1)
    assert group.member(world, "r").payloads() == ["5", "6", "7", "8"]


def test_a_session_counts_for_the_user_and_address_from_which_its_client_came_last() -> None:
    world = World()
    first, second = Group("user", subscriptions=9), Group("listener", subscriptions=9)
    client = first.member(world, "c", "ann", expiry_s=100)
    client.subscribe("t", qos=1)
    client.disconnect()
    world.publish("t", "x", 1)
    ann = first.table.of("ann")
    assert (ann.sessions, ann.subscriptions, ann.queued_bytes > 0) == (1, 1, True)
    client = first.member(world, "c", "ann", expiry_s=100)
    client.disconnect()
    assert (ann.sessions, ann.subscriptions, ann.queued_bytes) == (1, 1, 0)
    assert first.table.of("ann") is ann
    second.member(world, "c", "ann", expiry_s=100).disconnect()
    assert (len(first.table), len(second.table), second.table.of("").subscriptions) == (0, 1, 1)
    world.connect("c", username="ann", clean_start=False)
    assert len(second.table) == 0, "this listener has no quotas"


def test_unsubscribing_and_long_queues_are_counted() -> None:
    world = World(Limits(max_queued_messages=100_000, max_inflight=50), MemoryStore(pages=True))
    group = Group("broker", subscriptions=5, queued_bytes=10_000_000)
    client = group.member(world, "c", expiry_s=100)
    client.subscribe("t", qos=1)
    client.subscribe("u")
    client.send(Unsubscribe(9, (b"u",)))
    usage = group.table.of("")
    assert usage.subscriptions == 1
    client.disconnect()
    for _ in range(1_000):
        world.publish("t", "x" * 200, 1)
    session = world.session("c")
    assert session.queue.stored > 0
    assert usage.queued_bytes == session.queued_bytes > 200_000
    assert session.purge(990) == 990
    assert (usage.queued_bytes, session.queued) == (session.queued_bytes, 10)
    client = group.member(world, "c", expiry_s=100)
    assert usage.queued_bytes == 0
    client.disconnect()
    world.publish("t", "x", 1)
    world.broker.sessions.end(session)
    world.settle()
    assert (usage.sessions, usage.subscriptions, usage.queued_bytes) == (0, 0, 0)
    world.end()
