"""Routes: what a publisher, a subscriber and the metrics see of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mqttlite import Broker, Client, Config, ListenerOptions
from mqttlite.client import Message, Properties, PublishRefused
from mqttlite.config import ConfigError
from mqttlite.config.file import parse_config
from mqttlite.extensions.routes.options import RouteOptions
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.security.topic_policies import TopicPolicyOptions

BY_REGION = RouteOptions(
    name="by-region",
    filters=("pickups/#", "pickups/+/new"),
    where="payload.weight > 2",
    to="regions/{payload.region}/{topic[1]}",
)


@asynccontextmanager
async def running(*routes: RouteOptions, **options: object) -> AsyncIterator[tuple[Broker, Client]]:
    config = Config(listeners=(ListenerOptions(port=0),), routes=routes, **options)  # type: ignore[arg-type]
    async with Broker(config) as broker, Client("127.0.0.1", broker.port) as us:
        yield broker, us


async def received(us: Client, count: int) -> list[Message]:
    """So many messages, and none behind them."""
    await us.publish("end", qos=1)
    found = []
    async for message in us.messages:
        if message.topic == "end":
            break
        found.append(message)
    assert len(found) == count, found
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_goes_to_both_topics_once(qos: int) -> None:
    async with running(BY_REGION) as (broker, us):
        await us.subscribe("#", qos=2)
        properties = Properties(content_type="json", user_properties=[("a", "b")])
        await us.publish("pickups/7/new", '{"weight": 3, "region": "eu"}', qos, properties=properties)
        await us.publish("pickups/7/new", '{"weight": 1, "region": "eu"}', qos)
        await us.publish("other", '{"weight": 3, "region": "eu"}', qos)
        copy, first, *_others = await received(us, 4)
        assert (copy.topic, first.topic) == ("regions/eu/7", "pickups/7/new")
        assert copy.payload == first.payload
        assert (copy.qos, first.qos) == (qos, qos)
        assert copy.properties.content_type == "json"
        assert copy.properties.user_properties == first.properties.user_properties
        figures = dict(broker._assembly.telemetry.reports.of_extensions.sys_values())
        assert figures["messages/routed"] == "1"


async def test_a_retained_message_is_retained_at_both(caplog: pytest.LogCaptureFixture) -> None:
    async with running(RouteOptions(name="copy", filters=("a/+",), to="copies/{topic}")) as (_, us):
        await us.publish("a/b", "x", 1, retain=True)
        await us.subscribe("#", qos=1)
        assert {(each.topic, each.retain) for each in await received(us, 2)} == {("a/b", True), ("copies/a/b", True)}


async def test_a_copy_is_not_routed_again() -> None:
    ping = RouteOptions(name="ping", filters=("ping",), to="pong")
    pong = RouteOptions(name="pong", filters=("pong",), to="ping")
    async with running(ping, pong) as (_, us):
        await us.subscribe("#", qos=1)
        await us.publish("ping", "x", 1)
        assert [each.topic for each in await received(us, 2)] == ["pong", "ping"]


async def test_a_message_without_the_field_is_published_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with running(RouteOptions(name="r", filters=("a",), to="b/{payload.x}")) as (_, us):
        await us.subscribe("#", qos=1)
        for payload in ("{}", '{"x": "no/level"}', '{"x": 1}'):
            await us.publish("a", payload, 1)
        assert [each.topic for each in await received(us, 4)] == ["a", "a", "b/1", "a"]
    assert caplog.text.count("route r: ") == 1
    assert "there is no payload.x that is text or a number: a message to 'a' is not routed" in caplog.text


async def test_a_copy_does_not_take_effect_in_a_stream_in_place_of_its_message() -> None:
    streams = (StreamOptions(name="s", filters=("a", "copies/#"), partitions=1),)
    async with running(RouteOptions(name="r", filters=("a",), to="copies/{topic}"), streams=streams) as (_, us):
        properties = Properties(user_properties=[("dedup-id", "1"), ("other", "x")])
        await us.publish("a", "x", 1, properties=properties)
        await us.publish("a", "x", 1, properties=properties)
        assert [each.topic async for each in us.stream("s").read()] == ["copies/a", "a", "copies/a"]


async def test_a_message_whose_copy_is_refused_is_refused() -> None:
    policy = TopicPolicyOptions(filter="small", max_payload_bytes=1)
    async with running(RouteOptions(name="r", filters=("a",), to="small"), topic_policies=(policy,)) as (_, us):
        await us.subscribe("#", qos=1)
        with pytest.raises(PublishRefused, match="the route r to 'small' is refused"):
            await us.publish("a", "too large", 1)
        await us.publish("a", "x", 1)
        assert [each.topic for each in await received(us, 2)] == ["small", "a"]


def test_names_are_told_apart_and_errors_have_their_path() -> None:
    route = {"name": "r", "filters": ["a"], "to": "b"}
    with pytest.raises(ConfigError, match="routes has 'r' twice"):
        parse_config({"routes": [route, route]})
    with pytest.raises(ConfigError, match=r"routes\[0\].*to: 'a/#' is no topic"):
        parse_config({"routes": [route | {"to": "a/#"}]})
