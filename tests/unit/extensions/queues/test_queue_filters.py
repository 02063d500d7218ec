"""Filters of queues, what a first subscriber says of a queue, what else becomes a dead letter, and idle queues."""

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.message import Message
from mqttlite.core.route.outlook import FILTERED
from mqttlite.extensions.queues.forwarding import Forwarding
from mqttlite.extensions.queues.limits import MAX_FORWARDED
from mqttlite.extensions.queues.options import DeliveryOptions, QueueOptions, RetryOptions
from mqttlite.filters import Filters
from mqttlite.filters.build import parse
from mqttlite.wire.constants import V311
from mqttlite.wire.packets import Publish, Suback, Subscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, publishes, request
from tests.support.queues import QueueWorld, options, told

US = 'attributes.region = "us"'
CREATE = DeliveryOptions(create_by_subscribing=True)


def region(name: str) -> Properties:
    return Properties(user_properties=[("region", name)])


def world_of(*queues: QueueOptions, **fields: object) -> QueueWorld:
    return QueueWorld(queues, filters=Filters(), **fields)  # type: ignore[arg-type]


def subscribe(client: Client, topic_filter: str, **said: str) -> tuple[int, str]:
    """The code, and the reason."""
    pairs = [(name.replace("_", "-"), value) for name, value in said.items()]
    client.send(Subscribe(1, (request(topic_filter, 1),), Properties(user_properties=pairs)))
    suback = next(each for each in client.received() if isinstance(each, Suback))
    return suback.reason_codes[0], suback.properties.reason_string or ""


def say(client: Client, payload: str, properties: Properties) -> None:
    client.send(Publish(b"a/1", payload.encode(), 1, packet_id=client.packet_id(), properties=properties))


# a filter


def test_the_filter_of_a_queue_is_parsed_once() -> None:
    before = parse.cache_info().misses
    world = world_of(options(filter='attributes.parsed = "once"'))
    assert parse.cache_info().misses == before + 1
    world.restart()
    assert parse.cache_info().misses == before + 1


def test_a_queue_takes_what_passes_its_filter() -> None:
    world = world_of(options(filter=US))
    client = world.connect("c", auto_ack=True)
    client.subscribe("$queue/q", qos=1)
    publisher = world.connect("p")
    say(publisher, "x", region("us"))
    say(publisher, "y", region("eu"))
    codes = [each.reason_code for each in publisher.received()]  # type: ignore[attr-defined]
    assert codes == [0, 0x10], "a message that nobody's filter lets pass has no subscribers"
    assert client.payloads() == ["x"]
    state = world.queues.state("q")
    assert (state.published, state.filtered, state.depth, world.ends()) == (1, 1, 0, {"acknowledged": 1})
    world.end()


def test_an_explanation_says_what_the_filter_of_a_queue_does() -> None:
    world = world_of(options("us", filter=US), options("large", filter="payload.n > 1"))
    for properties, payload, expected in (
        (region("us"), None, {"$queue/us": "consumers that take messages: 0", "$queue/large": FILTERED}),
        (region("eu"), '{"n": 1}', {"$queue/us": US, "$queue/large": "payload.n > 1"}),
    ):
        plan = world.broker.planner.publish(
            *("", None, b"a/1", (payload or "").encode(), 1, False),
            properties=properties,
            knows_payload=payload is not None,
        )
        assert {each.sink: each.detail for each in plan.receivers} == expected
    assert world.queues.state("us").filtered == 0
    world.end()


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("expression", ["payload.n > 2", 'topic = "a/1"', 'topic = "a/2"'])
def test_batches_are_filtered_message_by_message(qos: int, expression: str) -> None:
    world = world_of(options(filter=expression))
    publisher = world.connect("p", auto_ack=True)
    payloads = [f'{{"n": {number}}}' for number in range(5)]
    publisher.send(*[Publish(b"a/1", each.encode(), qos, packet_id=at + 1) for at, each in enumerate(payloads)])
    world.settle()
    taken = [each.message.payload.decode() for each in world.queues.pull("q", 10)]
    expected = payloads[3:] if "n" in expression else payloads if "1" in expression else []
    assert taken == expected
    assert world.queues.state("q").filtered == 5 - len(expected)
    world.end()


def test_a_message_that_does_not_pass_holds_up_no_other_of_its_key() -> None:
    world = world_of(options(filter=US, ordering=True))
    publisher = world.connect("p")
    for payload, name in (("1", "us"), ("2", "eu"), ("3", "us")):
        properties = Properties(user_properties=[("region", name), ("ordering-key", "k")])
        say(publisher, payload, properties)
    got = []
    while pulled := world.queues.pull("q", 10):
        assert len(pulled) == 1
        got.append(pulled[0].message.payload)
        world.queues.ack("q", [pulled[0].ack_id])
        world.settle()
    assert got == [b"1", b"3"]
    world.end()


def test_a_filter_is_kept_and_changed() -> None:
    world = world_of()
    world.queues.create(options(filter=US))
    world.settle()
    again = QueueWorld((), world.store, world.now, filters=Filters())
    publisher = again.connect("p")
    say(publisher, "x", region("eu"))
    assert again.queues.state("q").depth == 0
    again.queues.change(options(filter='attributes.region = "eu"'))
    say(publisher, "x", region("eu"))
    assert again.queues.state("q").depth == 1
    again.queues.change(options())
    say(publisher, "x", region("us"))
    assert again.queues.state("q").depth == 2
    again.end()


@pytest.mark.parametrize("dead_letter", [False, True])
def test_a_message_that_a_schema_rejects_may_be_a_dead_letter_and_replayed(dead_letter: bool) -> None:
    world = world_of(options(filter=US, dead_letter_on=("filter",) if dead_letter else ()))
    watcher = world.connect("w", auto_ack=True)
    watcher.subscribe("$dlq/#", qos=1)
    say(world.connect("p"), "x", region("eu"))
    letters = publishes(watcher.received())
    assert len(letters) == world.queues.state("q").dead_letters == int(dead_letter)
    if dead_letter:
        said = told(letters[0])
        assert (said["dead-letter-cause"], said["delivery-attempts"], said["region"]) == ("filtered", "0", "eu")
        [letter] = world.queues.dead_letters("q").letters()
        assert world.queues.replay("q", letter.number)
        [pulled] = world.queues.pull("q", 10)
        assert (pulled.message.topic, pulled.message.payload) == (b"a/1", b"x"), "an operator overrules the filter"
    world.end()


def test_an_expired_message_may_be_a_dead_letter() -> None:
    world = world_of(options(expiry_s=60, dead_letter_on=("expiry",)))
    world.connect("p").publish("a/1", "x", qos=1)
    world.advance(61)
    assert world.ends() == {"dead_lettered": 1}
    [letter] = world.queues.dead_letters("q").letters()
    assert letter.value("dead-letter-cause") == "expired"
    world.end()


# a topic for dead letters


def test_a_dead_letter_is_published_to_the_topic_of_its_queue() -> None:
    world = world_of(options(max_attempts=1, dead_letter_topic="dead/q"))
    watcher = world.connect("w", auto_ack=True)
    watcher.subscribe("dead/#", qos=1)
    watcher.subscribe("$dlq/#", qos=1)
    say(world.connect("p"), "x", region("eu"))
    [pulled] = world.queues.pull("q", 1)
    world.queues.nack("q", [pulled.ack_id])
    world.settle()
    letters = publishes(watcher.received())
    assert sorted(each.topic for each in letters) == [b"$dlq/q", b"dead/q"]
    assert all(
        (each.payload, told(each)["original-topic"], told(each)["region"]) == (b"x", "a/1", "eu") for each in letters
    )
    world.end()


def test_queues_that_take_each_others_dead_letters_end() -> None:
    first = options("one", "a/#", max_attempts=1, dead_letter_topic="b/1", max_messages=1, on_overflow="dead_letter")
    second = options("two", "b/#", max_attempts=1, dead_letter_topic="a/1", max_messages=1, on_overflow="dead_letter")
    world = world_of(first, second)
    publisher = world.connect("p")
    for number in range(20):
        publisher.publish("a/1", str(number), qos=1)
    for _ in range(10):
        world.settle()
    one, two = world.queues.state("one"), world.queues.state("two")
    assert (one.depth, two.depth) == (1, 1)
    assert 19 <= two.published <= 20, "each message comes once from the other queue"
    assert one.published <= 20 + 20
    for each in (one, two):
        assert each.published == each.depth + each.ends["dead_lettered"]
    world.end()


def test_dead_letters_on_their_way_are_limited() -> None:
    world = world_of()
    broker = world.broker
    published: list[Message] = []
    forwarding = Forwarding(broker.effects, broker.jobs, broker.router.drops, published.append)
    letters = [Message(b"dead", b"%d" % number, 1, False) for number in range(MAX_FORWARDED + 1)]
    for each in letters:
        forwarding.add(each)
    assert published == [], "not in the midst of what is being done"
    assert broker.router.drops.by_reason["queue_full"] == 1
    world.settle()
    assert published == letters[:MAX_FORWARDED]
    forwarding.add(letters[-1])
    world.settle()
    assert published == letters, "there is room again"
    world.end()


# by subscribing


def test_the_first_subscriber_says_what_the_queue_is() -> None:
    world = world_of(delivery=CREATE)
    said = {
        "filter": US,
        "ack_deadline": "30",
        "max_attempts": "7",
        "retry_min": "2",
        "ordering": "true",
        "priority": "false",
        "max_messages": "100",
        "expiry": "3600",
        "dead_letter_on": "filter, expiry",
        "on_overflow": "drop_oldest",
    }
    assert subscribe(world.connect("c"), "$queue/mine/a/#", traceparent="00-1", **said) == (1, "")
    assert world.queues.options("mine") == QueueOptions(
        name="mine",
        filters=("a/#",),
        filter=US,
        ack_deadline_s=30.0,
        max_attempts=7,
        retry=RetryOptions(min_s=2.0, max_s=600.0),
        ordering=True,
        max_messages=100,
        expiry_s=3600,
        idle_expiry_s=3600,
        dead_letter_on=("filter", "expiry"),
        on_overflow="drop_oldest",
    )
    assert subscribe(world.connect("d"), "$queue/mine", **said) == (1, ""), "who says the same is welcome"
    assert subscribe(world.connect("e"), "$queue/mine/a/#") == (1, ""), "and so is who says nothing"
    assert subscribe(world.connect("f"), "$queue/mine", max_attempts="8") == (
        0x8F,
        "$queue/…: mine has max_attempts = 7, and not 8",
    )
    assert subscribe(world.connect("g"), "$queue/mine", filter="qos = 1")[0] == 0x8F
    world.end()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"ack_deadline": "soon"}, "the user property ack-deadline is 'soon': it is a number"),
        ({"ack_deadline": "5"}, "ack_deadline_s is 5: it may be 10 to 600 seconds"),
        ({"ack_deadline": "nan"}, "it is a number"),
        ({"max_attempts": "101"}, "max_attempts is 101: it may be 1 to 100"),
        ({"max_attempts": "²"}, "it is a whole number"),
        ({"max_messages": "1000001"}, "a subscriber may ask for 1 to 1000000"),
        ({"expiry": "0"}, "a subscriber may ask for 1 to 604800"),
        ({"ordering": "yes"}, "it is true or false"),
        ({"on_overflow": "explode"}, "on-overflow is drop_newest"),
        ({"dead_letter_on": "boredom"}, "dead-letter-on is filter"),
        ({"dead_letter_on": "filter"}, "there is no filter"),
        ({"retry_max": "5", "retry_min": "6"}, "retry.min_s is 6"),
        ({"filter": "region = us"}, "filter: position 1"),
    ],
)
def test_impossible_queues_are_refused_with_a_reason(said: dict[str, str], reason: str) -> None:
    world = world_of(delivery=CREATE)
    code, why = subscribe(world.connect("c"), "$queue/mine/a/#", **said)
    assert code == 0x8F
    assert reason in why
    assert world.queues.names == []
    world.end()


def test_a_shorter_wait_at_most_shortens_the_first() -> None:
    world = world_of(delivery=CREATE)
    assert subscribe(world.connect("c"), "$queue/mine/a/#", retry_max="5") == (1, "")
    assert world.queues.options("mine").retry == RetryOptions(min_s=5.0, max_s=5.0)
    world.end()


def test_a_property_that_comes_twice_is_refused() -> None:
    world = world_of(delivery=CREATE)
    client = world.connect("c")
    twice = Properties(user_properties=[("max-attempts", "5"), ("max-attempts", "6")])
    client.send(Subscribe(1, (request("$queue/mine/a/#", 1),), twice))
    [suback] = client.received()
    assert isinstance(suback, Suback)
    assert "max-attempts comes twice" in (suback.properties.reason_string or "")
    world.end()


def test_a_subscriber_may_not_have_the_broker_publish_for_it() -> None:
    world = world_of(delivery=CREATE)
    assert subscribe(world.connect("c"), "$queue/mine/a/#", dead_letter_topic="secret") == (1, "")
    assert world.queues.options("mine").dead_letter_topic == ""
    world.end()


def test_where_subscribers_make_no_queues_options_make_none() -> None:
    world = world_of()
    code, why = subscribe(world.connect("c"), "$queue/mine/a/#", max_attempts="7")
    assert (code, why) == (0x8F, "$queue/…: there is no queue 'mine'")
    world.end()


def test_a_client_of_3_1_1_says_it_all_in_the_topic() -> None:
    world = world_of(delivery=CREATE, limits=Limits())
    client = world.connect("c", V311, auto_ack=True)
    assert client.subscribe("$queue/mine/a/#", qos=1) == b"\x01"
    world.connect("p").publish("a/1", "x", qos=1)
    assert client.payloads() == ["x"]
    world.end()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"filter": "region ="}, "filter: position 1"),
        ({"dead_letter_on": ("filter",)}, "there is no filter"),
        ({"dead_letter_on": ("expiry",), "dead_letter": False}, "dead_letter is false"),
        ({"dead_letter_topic": "a/b"}, "takes messages of 'a/b' itself, by 'a/#'"),
        ({"dead_letter_topic": "b/#"}, "dead_letter_topic"),
        ({"dead_letter_topic": "$SYS/x"}, "begins with a reserved name"),
        ({"idle_expiry_s": 59}, "idle_expiry_s is 59"),
    ],
)
def test_options_that_cannot_be_are_named(fields: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        options(**fields)


# idle queues


def test_a_queue_that_nobody_uses_ends() -> None:
    world = world_of(options(idle_expiry_s=3_600))
    world.connect("p").publish("a/1", "x", qos=1)
    world.advance(3_600)
    assert world.queues.names == ["q"], "not before its time"
    world.advance(361)
    assert world.queues.names == []
    assert QueueWorld((), world.store, world.now, filters=Filters()).queues.names == []
    world.end()


def test_each_use_begins_the_time_anew() -> None:
    world = world_of(options(idle_expiry_s=3_600))
    for _ in range(5):
        world.advance(3_000)
        world.queues.pull("q", 1)
    assert world.queues.names == ["q"]
    client = world.connect("c", clean_start=False, expiry=100_000, keep_alive=0)
    client.subscribe("$queue/q", qos=1)
    world.advance(20_000)
    assert world.queues.names == ["q"], "it has a consumer"
    client.disconnect()
    for _ in range(36):
        world.advance(100)
    assert world.queues.names == ["q"], "the time begins when the last consumer leaves"
    world.advance(800)
    assert world.queues.names == []
    world.end()


def test_the_time_is_changed_and_taken_away() -> None:
    world = world_of(options(idle_expiry_s=60))
    world.queues.change(options(idle_expiry_s=3_600))
    world.advance(300)
    assert world.queues.names == ["q"]
    world.queues.change(options())
    world.advance(100_000)
    assert world.queues.names == ["q"]
    world.queues.delete("q")
    world.advance(100_000)
    world.end()
