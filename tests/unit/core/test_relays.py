"""Messages that a relay brings were published at another broker; and what is subscribed here, for others to know."""

from collections.abc import Callable
from typing import Final

import pytest

from mqttlite.core.changes import SaveRetained
from mqttlite.core.interest import NOBODY, HeldSuback, Interest
from mqttlite.core.limits import MAX_HELD_SUBACKS, Limits
from mqttlite.core.message import Delivery, Message
from mqttlite.core.route.relayed import RETAINED_COPY, numbers_of
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.extensions.queues.namespace import QUEUES
from mqttlite.extensions.streams.namespace import STREAMS
from mqttlite.filters import Filters
from mqttlite.topics.namespaces import Syntax
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.packets import Ack, Disconnect, Publish, Suback, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.core_driver import Client, World, publishes, request
from tests.unit.core.test_hooks import Hooks
from tests.unit.core.test_permissions import Writers, world_with
from tests.unit.core.test_publish_order import at
from tests.unit.core.test_sink import Recorder
from tests.unit.core.test_topic_overflow import away, world_of

RELAYS: Final = "$other/"


def relay(world: World, name: str, *filters: str, qos: int = 2) -> Client:
    """The session of another broker here, which subscribes to what is subscribed there."""
    client = world.open(V5, is_trusted=True, is_relay=True)
    client.connect(f"{RELAYS}{name}", clean_start=False, expiry=1_000)
    if filters:
        client.subscribe(*(request(each, qos, no_local=True, retain_as_published=True) for each in filters))
    return client


def copy(client: Client, topic: str, payload: str, seconds: float, qos: int = 1) -> int:
    """A copy of a retained message that was published so many seconds after the beginning; the code of its PUBACK."""
    properties = Properties(subscription_identifiers=[RETAINED_COPY], user_properties=at(seconds)["user_properties"])
    client.send(Publish(topic.encode(), payload.encode(), qos, True, False, client.packet_id(), properties))
    answer = client.received()[-1]
    assert isinstance(answer, Ack)
    return answer.reason_code


def payloads_of(sink: Recorder) -> list[bytes]:
    return [payload for _topic, payload, _qos in sink.messages]


class Members:
    """A `Namespace` of which each client may be a member."""

    def __init__(self, syntax: Syntax = QUEUES) -> None:
        self.syntax = syntax

    def admit(self, *_args: object) -> str:
        return ""

    def add(self, session: Session, subscription: Subscription) -> None:
        session.pull_with(Giver(session))

    def remove(self, subscription: object) -> None: ...

    def restored(self) -> None: ...


class Giver:
    """A `Puller`: gives its session one message."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._has_given = False

    def on_room(self) -> None:
        if not self._has_given:
            self._has_given = True
            self._session.lend(Delivery(Message(b"given", b"", 1), 1, False))

    def on_gone(self) -> None: ...


def kept(world: World, topic: str) -> str | None:
    """The payload of the retained message of a topic."""
    found = world.broker.router.retained.get(topic.encode())
    return None if found is None else found.payload.decode()


# ---------------------------------------------------------------------- what relays bring


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("burst", [1, 3])
def test_a_relayed_message_reaches_sessions_and_no_other_relay(qos: int, burst: int) -> None:
    world = World()
    reader = world.connect("s")
    reader.subscribe("t", qos=qos)
    first, second = relay(world, "a", "t", "+"), relay(world, "b", "t", "#")
    packets = [Publish(b"t", b"x", qos, packet_id=first.packet_id() if qos else 0) for _ in range(burst)]
    first.send(*packets)
    assert reader.payloads() == ["x"] * burst
    assert first.payloads() == second.payloads() == []
    reader.publish("t", "here", qos=qos)
    assert first.payloads() == second.payloads() == ["here"]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_relayed_message_reaches_no_group_and_no_sink_but_sessions_with_filters(qos: int) -> None:
    world = World(filters=Filters())
    member, careful = world.connect("m"), world.connect("f")
    member.subscribe("$share/g/t", qos=1)
    assert careful.subscribe("t", qos=1, where="payload > 6") == bytes([1])
    sink = Recorder()
    world.broker.bind(b"t", sink)
    source = relay(world, "a")
    source.publish("t", "7", qos=qos)
    source.publish("t", "5", qos=qos)
    assert (member.payloads(), careful.payloads(), sink.messages) == ([], ["7"], [])
    careful.publish("t", "7", qos=qos)
    assert member.payloads() == ["7"]
    assert len(sink.messages) == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("burst", [1, 3])
def test_a_relayed_message_reaches_a_sink_that_hears_other_brokers(qos: int, burst: int) -> None:
    world = World()
    hears, alone = Recorder(), Recorder()
    world.broker.bind(b"t", hears, hears_others=True)
    world.broker.bind(b"t", alone)
    source = relay(world, "a")
    source.send(*[Publish(b"t", b"x", qos, packet_id=source.packet_id() if qos else 0) for _ in range(burst)])
    assert payloads_of(hears) == [b"x"] * burst
    assert alone.messages == []
    world.connect("c").publish("t", "here", qos=qos)
    assert len(hears.messages) == burst + 1
    assert len(alone.messages) == 1


def test_a_sink_of_its_own_gets_what_is_published_to_something_of_another_broker() -> None:
    world = World()
    general, own = Recorder(), Recorder()
    world.broker.bind(b"$queue/+/$ack", general, hears_others=True)
    world.broker.bind(b"$queue/far/#", own, is_alone=True)
    client, source = world.connect("c"), relay(world, "a")
    for sender in (client, source):
        for name in ("far", "here"):
            sender.publish(f"$queue/{name}/$ack", name, qos=1)
    assert payloads_of(own) == [b"far"]
    assert payloads_of(general) == [b"here", b"here"]
    world.broker.unbind(b"$queue/far/#", own)
    client.publish("$queue/far/$ack", "again", qos=1)
    assert payloads_of(general)[-1] == b"again"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_run_of_messages_of_a_relay_goes_to_no_group(qos: int) -> None:
    world = World()
    reader, member = world.connect("s"), world.connect("m")
    reader.subscribe("t", qos=qos)
    member.subscribe("$share/g/t", qos=qos)
    source = relay(world, "a")
    source.send(*[Publish(b"t", b"%d" % number, qos, packet_id=number * (qos > 0)) for number in range(1, 4)])
    assert reader.payloads() == ["1", "2", "3"]
    assert member.payloads() == []


@pytest.mark.parametrize("qos", [0, 1])
def test_a_relay_names_a_sink_by_its_numbers(qos: int) -> None:
    world = World()
    reader, sink = world.connect("s"), Recorder()
    reader.subscribe("t", qos=1)
    source = relay(world, "a")
    world.broker.name(b"$queue/jobs", sink)
    properties = Properties(subscription_identifiers=list(numbers_of(b"$queue/jobs")))
    source.send(Publish(b"t", b"x", qos, packet_id=source.packet_id() if qos else 0, properties=properties))
    assert payloads_of(sink) == [b"x"]
    world.broker.unname(b"$queue/jobs", sink)
    properties = Properties(subscription_identifiers=list(numbers_of(b"$queue/jobs")))
    source.send(Publish(b"t", b"y", qos, packet_id=source.packet_id() if qos else 0, properties=properties))
    assert len(sink.messages) == 1
    assert reader.payloads() == []


def test_a_sink_that_gives_up_its_name_late_takes_it_from_no_other_one() -> None:
    world = World()
    former, sink = Recorder(), Recorder()
    source = relay(world, "a")
    world.broker.name(b"$queue/jobs", former)
    world.broker.name(b"$queue/jobs", sink)
    world.broker.unname(b"$queue/jobs", former)
    properties = Properties(subscription_identifiers=list(numbers_of(b"$queue/jobs")))
    source.send(Publish(b"t", b"x", 0, properties=properties))
    assert (payloads_of(former), payloads_of(sink)) == ([], [b"x"])


def test_no_hook_is_asked_again_about_a_relayed_message() -> None:
    world = World()
    hooks = Hooks(world)
    reader = world.connect("s")
    reader.subscribe("h/#")
    relay(world, "a").publish("h/1", "x", qos=1)
    assert (reader.payloads(), hooks.asked) == (["x"], [])
    reader.publish("h/1", "y", qos=1)
    assert len(hooks.asked) == 1


def test_a_client_that_is_no_relay_may_not_name_a_target() -> None:
    client = World().connect("c")
    client.send(Publish(b"t", b"x", properties=Properties(subscription_identifiers=[RETAINED_COPY])))
    assert client.closed
    (last,) = client.received()
    assert isinstance(last, Disconnect)
    assert last.reason_code == ReasonCode.PROTOCOL_ERROR


# ---------------------------------------------------------------------- retained messages


def test_a_relayed_message_is_delivered_with_retain_and_is_not_retained() -> None:
    world = World(newest_retained=True)
    reader = world.connect("s")
    reader.subscribe(request("t", retain_as_published=True))
    relay(world, "a").publish("t", "x", qos=1, retain=True)
    (packet,) = publishes(reader.received())
    assert packet.retain
    assert kept(world, "t") is None


def test_a_copy_is_retained_and_delivered_to_nobody() -> None:
    world = World(newest_retained=True)
    reader = world.connect("s")
    reader.subscribe("#")
    assert copy(relay(world, "a"), "t", "x", 1) == 0
    assert reader.payloads() == []
    assert kept(world, "t") == "x"
    later = world.connect("later")
    later.subscribe("t")
    (packet,) = publishes(later.received())
    assert not packet.properties.subscription_identifiers


def test_the_newer_of_two_copies_is_retained_and_the_same_one_is_not_written_again() -> None:
    world = World(newest_retained=True)
    source = relay(world, "a")
    for payload, seconds in (("new", 5), ("old", 4)):
        assert copy(source, "t", payload, seconds) == 0
        assert kept(world, "t") == "new"
    world.changes.clear()
    assert copy(source, "t", "new", 5) == 0
    assert not [each for each in world.changes if isinstance(each, SaveRetained)]
    assert copy(source, "t", "newer", 6) == 0
    assert kept(world, "t") == "newer"


def test_a_copy_of_a_removal_removes_and_an_older_message_does_not_come_back() -> None:
    world = World(newest_retained=True)
    source = relay(world, "a")
    copy(source, "t", "x", 5)
    copy(source, "t", "", 7)
    assert kept(world, "t") is None
    copy(source, "t", "x", 6)
    assert kept(world, "t") is None


def test_a_copy_for_which_there_is_no_room_is_refused() -> None:
    world = World(Limits(max_retained_messages=1), newest_retained=True)
    source = relay(world, "a")
    assert copy(source, "t", "x", 5) == 0
    assert copy(source, "u", "x", 5) == ReasonCode.QUOTA_EXCEEDED


def test_each_message_that_is_retained_here_is_told_and_none_of_a_relay() -> None:
    told: list[tuple[str, str]] = []
    world = World(Limits(max_retained_messages=2), newest_retained=True)
    world.broker.copy_retained(lambda message: told.append((message.topic.decode(), message.payload.decode())))
    client = world.connect("c")
    client.publish("t", "1", retain=True)
    client.publish("t", "2", qos=1)
    client.publish("u", "3", qos=2, retain=True)
    client.publish("no/room", "4", retain=True)
    client.publish("$own", "5", retain=True)
    client.publish("t", "", retain=True)
    copy(relay(world, "a"), "t", "6", 1_000)
    assert told == [("t", "1"), ("u", "3"), ("t", "")]


def test_a_session_gets_copies_of_all_retained_messages_and_removals() -> None:
    world = World(newest_retained=True)
    client = world.connect("c")
    client.publish("t", "x", qos=1, retain=True)
    client.publish("gone", "x", retain=True)
    client.publish("gone", "", retain=True)
    other = relay(world, "a")
    world.broker.send_copies(f"{RELAYS}a", world.now)
    world.broker.send_copies("nobody", world.now)
    world.settle()
    found = publishes(other.received())
    assert {each.topic: each.payload for each in found} == {b"t": b"x", b"gone": b""}
    for each in found:
        assert each.retain
        assert each.properties.subscription_identifiers == [RETAINED_COPY]
        assert dict(each.properties.user_properties)["mqttlite-published"]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_session_gets_a_copy_while_it_is_connected(qos: int) -> None:
    world = World(newest_retained=True)
    sent: list[bool] = []
    world.broker.copy_retained(lambda message: sent.append(world.broker.send_copy(f"{RELAYS}a", message)))
    client = world.connect("c")
    client.publish("t", "before", qos=qos, retain=True)
    other = relay(world, "a")
    client.publish("t", "x", qos=qos, retain=True)
    (found,) = publishes(other.received())
    assert (found.payload, found.qos, found.properties.subscription_identifiers) == (b"x", qos, [RETAINED_COPY])
    other.lose()
    client.publish("t", "away", qos=qos, retain=True)
    assert not world.session(f"{RELAYS}a").queued
    assert sent == [False, True, False]


# ---------------------------------------------------------------------- what is subscribed here


class Told:
    """Takes the news of a broker, and then sends each SUBACK that waits for that."""

    def __init__(self, world: World, me: str = "me") -> None:
        self.world = world
        self.calls = 0
        self.held: list[HeldSuback] = []
        self.interest = Interest(RELAYS, f"{RELAYS}{me}", self._on_news)
        world.broker.tell_interest(self.interest)

    def _on_news(self) -> None:
        self.calls += 1

    def take(self) -> dict[bytes, int]:
        """The news since the last call."""
        news, self.held = self.interest.take()
        self.world.broker.acknowledge_subscriptions(self.held, self.world.now)
        self.world.settle()
        return news


def subscribe(client: Client, *filters: str, qos: int = 0) -> None:
    """Send SUBSCRIBE, and wait for no answer."""
    client.send(Subscribe(client.packet_id(), tuple(SubscriptionRequest(each.encode(), qos) for each in filters)))


def test_the_first_and_last_subscriber_of_a_filter_are_news_and_the_highest_qos() -> None:
    world = World()
    told = Told(world)
    clients = [world.connect(each, expiry=9 if each == "c" else None) for each in "abc"]
    steps: list[tuple[Callable[[], object], int | None]] = [
        (lambda: subscribe(clients[0], "t/+", qos=1), 1),
        (lambda: subscribe(clients[1], "t/+", qos=0), None),
        (lambda: subscribe(clients[2], "t/+", qos=2), 2),
        (lambda: subscribe(clients[2], "t/+", qos=2), None),
        (lambda: subscribe(clients[2], "t/+", qos=0), 1),
        (clients[0].disconnect, 0),
        (clients[1].disconnect, None),
        (lambda: world.broker.unsubscribe("c", b"t/+", world.now), NOBODY),
    ]
    for number, (step, news) in enumerate(steps):
        step()
        assert told.take() == ({} if news is None else {b"t/+": news}), number
    assert len(told.interest) == 0
    assert told.interest.filters() == []
    assert told.interest.qos_of(b"t/+") == NOBODY


def test_news_are_announced_once_until_they_are_taken() -> None:
    world = World()
    client = world.connect("c", expiry=9)
    client.subscribe("a", "b", "c")
    told = Told(world)
    told.take()
    for name in (b"a", b"b"):
        world.broker.unsubscribe("c", name, world.now)
    assert told.calls == 2, "what was there at the beginning was new, too"
    assert told.take() == {b"a": NOBODY, b"b": NOBODY}
    world.broker.unsubscribe("c", b"c", world.now)
    assert told.calls == 3


def test_earlier_subscriptions_are_known() -> None:
    world = World()
    client = world.connect("c")
    client.subscribe("t", qos=2)
    client.subscribe("$share/g/t", "$SYS/#")
    relay(world, "a", "#")
    told = Told(world)
    assert told.interest.filters() == [b"t"]
    assert told.interest.qos_of(b"t") == 2
    client.disconnect()
    assert len(told.interest) == 0


def test_the_filters_of_sinks_that_hear_other_brokers_are_news() -> None:
    world = World()
    early, late = Recorder(), Recorder()
    world.broker.bind(b"a/#", early, hears_others=True)
    world.broker.bind(b"z", early)
    told = Told(world)
    assert told.interest.filters() == [b"a/#"]
    assert told.interest.qos_of(b"a/#") == 2
    told.take()
    world.broker.bind(b"b", late, hears_others=True)
    world.broker.bind(b"c", late)
    world.broker.bind(b"d", late, hears_others=True, tells_others=False)
    assert told.take() == {b"b": 2}
    world.broker.unbind(b"b", late)
    world.broker.unbind(b"c", late)
    world.broker.unbind(b"d", late)
    assert told.take() == {b"b": NOBODY}


@pytest.mark.parametrize("is_kept", [False, True])
def test_messages_for_a_member_come_after_the_suback_that_waits(is_kept: bool) -> None:
    world = World(before_restore=lambda broker: broker.serve(Members()))
    told = Told(world)
    client = world.connect("c", expiry=100 if is_kept else 0)
    assert [each.syntax for each in world.broker.served] == [QUEUES]
    assert world.session("c").window.size > 0
    subscribe(client, "$queue/jobs", qos=1)
    client.publish("elsewhere", "x", qos=1)
    world.session("c").fill()
    assert [type(each) for each in client.received()] == [Ack]
    told.take()
    assert [type(each) for each in client.received()] == [Suback, Publish]


def test_members_of_groups_of_streams_are_not_told_as_members_of_a_shared_subscription() -> None:
    world = World(before_restore=lambda broker: broker.serve(Members(STREAMS)))
    told = Told(world)
    client = world.connect("c", expiry=100)
    subscribe(client, "$share/g/t", "$share/g/$stream/s", qos=1)
    assert list(told.take()) == [b"$share/g/t"]
    client.lose()
    assert list(told.take()) == [b"$share/g/t"]


def test_a_member_that_left_before_its_suback_gets_messages_when_it_is_back() -> None:
    world = World(before_restore=lambda broker: broker.serve(Members()))
    told = Told(world)
    client = world.connect("c", expiry=100)
    subscribe(client, "$queue/jobs", qos=1)
    client.lose()
    client = world.open(V5)
    client.connect("c", clean_start=False, expiry=100)
    assert [type(each) for each in client.received()] == [Publish]
    told.take()
    assert client.received() == []


@pytest.mark.parametrize("version", [V311, V5])
def test_a_suback_that_waits_tells_what_another_broker_has_refused(version: int) -> None:
    world = World(before_restore=lambda broker: broker.serve(Members()))
    told = Told(world)
    client = world.connect("c", version=version)
    subscribe(client, "t", "$queue/jobs", "$queue/other")
    _news, (held,) = told.interest.take()
    assert held.refuse(b"$queue/jobs", 0x80 if version == V311 else 0x8F, "no such queue")
    assert not held.refuse(b"t", 0x80, "")
    world.broker.acknowledge_subscriptions([held], world.now)
    world.settle()
    suback, *_messages = client.received()
    assert isinstance(suback, Suback)
    assert suback.reason_codes == bytes([0, 0x80 if version == V311 else 0x8F, 0])
    assert suback.properties.reason_string == (None if version == V311 else "no such queue")


def test_relays_and_own_topics_are_no_news() -> None:
    world = World()
    told = Told(world)
    client = world.connect("c")
    subscribe(client, "$share/g/$SYS/#", "$SYS/#", qos=1)
    other = relay(world, "a", "#")
    assert told.take() == {}
    other.lose()
    client.disconnect()
    world.broker.end_session(f"{RELAYS}a", world.now)
    world.settle()
    assert told.take() == {}


@pytest.mark.parametrize("filters", [1, 400])
def test_suback_waits_until_others_know(filters: int) -> None:
    world = World()
    told = Told(world)
    client = world.connect("c")
    subscribe(client, *(f"{number}" for number in range(filters)))
    assert client.received() == []
    client.publish("0", "x")
    assert client.payloads() == ["x"]
    assert len(told.take()) == filters
    (suback,) = client.received()
    assert isinstance(suback, Suback)
    assert suback.reason_codes == bytes(filters)


def test_a_suback_for_a_client_that_is_gone_is_dropped() -> None:
    world = World()
    told = Told(world)
    client = world.connect("c")
    subscribe(client, "t")
    client.lose()
    assert told.take() == {b"t": NOBODY}
    assert len(told.held) == 1


@pytest.mark.parametrize(("retain_handling", "payloads"), [(0, ["old"]), (2, [])])
def test_retained_messages_follow_a_suback_that_waited_if_they_are_asked_for(
    retain_handling: int, payloads: list[str]
) -> None:
    world = World()
    told = Told(world)
    client = world.connect("c")
    client.publish("t", "old", retain=True)
    client.send(Subscribe(client.packet_id(), (SubscriptionRequest(b"t", retain_handling=retain_handling),)))
    told.take()
    suback, *others = client.received()
    assert isinstance(suback, Suback)
    assert [each.payload.decode() for each in others if isinstance(each, Publish)] == payloads


@pytest.mark.parametrize("expiry", [0, 100])
def test_a_suback_that_waited_also_waits_for_the_commit_of_a_kept_session(expiry: int) -> None:
    world = World()
    told = Told(world)
    client = world.connect("c", expiry=expiry)
    subscribe(client, "t")
    _news, held = told.interest.take()
    world.broker.acknowledge_subscriptions(held, world.now)
    assert client.connection.outbox.awaits_commit is (expiry > 0)
    world.settle()


def test_suback_of_a_relay_waits_for_nobody() -> None:
    world = World()
    Told(world)
    assert relay(world, "a").subscribe("t") == bytes([0])


def test_more_subacks_than_may_wait_go_out_at_once() -> None:
    world = World()
    told = Told(world)
    assert all(told.interest.hold(HeldSuback(0, 1, bytearray(), "", [], [])) for _ in range(MAX_HELD_SUBACKS))
    client = world.connect("c")
    client.publish("t", "x", retain=True)
    assert client.subscribe("t") == bytes([0])
    assert client.payloads() == ["x"]


def test_no_suback_waits_before_others_are_told() -> None:
    world = World()
    told = Told(world)
    told.interest.holds = False
    client = world.connect("c")
    assert client.subscribe("t") == bytes([0])
    told.interest.holds = True
    subscribe(client, "u")
    assert client.received() == []


def test_a_retained_message_that_came_while_a_suback_waited_is_sent_after_it() -> None:
    world = World(newest_retained=True)
    told = Told(world)
    client = world.connect("c")
    subscribe(client, "t")
    copy(relay(world, "a"), "t", "x", 1)
    assert client.received() == []
    told.take()
    suback, message = client.received()
    assert isinstance(suback, Suback)
    assert isinstance(message, Publish)
    assert (message.payload, message.retain) == (b"x", True)


def test_only_the_program_may_be_a_relay() -> None:
    world = World()
    client = world.open(V5)
    Told(world)
    connack = client.connect(f"{RELAYS}a")
    assert connack is not None
    assert connack.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert relay(world, "a").subscribe("t") == bytes([0])


def test_the_limit_of_subscriptions_of_one_session_is_not_for_relays() -> None:
    world = World(Limits(max_subscriptions=2))
    assert world.connect("c").subscribe("a", "b", "c") == bytes([0, 0, 0x97])
    assert relay(world, "a").subscribe("a", "b", "c") == bytes([0, 0, 0])


def test_the_bytes_of_topic_filters_are_counted() -> None:
    interest = Interest(RELAYS, f"{RELAYS}me", lambda: None)
    interest.add("a", b"12345", 0)
    interest.add("b", b"12345", 1)
    interest.add("a", b"1", 0)
    assert interest.size_bytes == 6
    interest.remove("a", b"12345", 0)
    assert interest.size_bytes == 6
    interest.remove("b", b"12345", 1)
    assert interest.size_bytes == 1


@pytest.mark.parametrize("qos", [0, 1])
def test_rules_were_asked_where_a_relayed_message_was_published(qos: int) -> None:
    world = world_with(Writers())
    reader = world.connect("s")
    reader.subscribe("#")
    assert world.connect("c").publish("private/1", "no", qos=qos) is not None
    relay(world, "a").publish("private/1", "x", qos=qos)
    assert reader.payloads() == ["x"]


def test_a_relayed_message_waits_for_no_slow_receiver() -> None:
    world = world_of("block", Limits(max_queued_messages=2))
    away(world)
    source = relay(world, "a")
    for _ in range(3):
        source.publish("t", "x", qos=1)
    assert [each.packet_type for each in source.received() if isinstance(each, Ack)] == [PUBACK] * 3
