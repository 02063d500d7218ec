"""Google Pub/Sub's REST API: bodies, defaults, errors, permissions, and what a resource is in MQTT."""

import asyncio
import base64
import logging
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from mqttlite.client import Client as MqttClient
from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.core.limits import Limits
from mqttlite.extensions.pubsub import errors, iam_policies, subscriptions
from mqttlite.extensions.push.options import PushOptions
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from mqttlite.files import atomic_file
from mqttlite.gateway.caller import Role
from mqttlite.gateway.problems import Code
from mqttlite.security.api_keys import FILE_NAME, add
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.server import Broker
from tests.support.device import until
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway
from tests.support.receiver import Receiver
from tests.support.stores import SlowStore

SHOP = "/v1/projects/shop"
ORDERS = f"{SHOP}/topics/orders"
MAIL = f"{SHOP}/subscriptions/mail"
OF_ORDERS = {"topic": "projects/shop/topics/orders"}

INVALID = (400, "INVALID_ARGUMENT")
UNIMPLEMENTED = (501, "UNIMPLEMENTED")

Json = dict[str, Any]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def failure(response: httpx.Response) -> tuple[int, str]:
    """The status of an error, of which HTTP and body have to agree."""
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert (error["code"], sorted(error)) == (response.status_code, ["code", "message", "status"])
    return response.status_code, error["status"]


def message_of(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


async def done(request: Any) -> Json:
    response = await request
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


async def orders(gateway: GatewayUnderTest, **subscription: Any) -> httpx.AsyncClient:
    """An admin's client, where the topic and its subscription are."""
    client = gateway.client(Role.ADMIN)
    await done(client.put(ORDERS, json={}))
    await done(client.put(MAIL, json={**OF_ORDERS, **subscription}))
    return client


async def publish(client: httpx.AsyncClient, *messages: Json) -> list[str]:
    ids: list[str] = (await done(client.post(f"{ORDERS}:publish", json={"messages": list(messages)})))["messageIds"]
    return ids


async def pull(client: httpx.AsyncClient, most: int = 100, at_once: bool = True) -> list[Json]:
    body = {"maxMessages": most, "returnImmediately": at_once}
    found: list[Json] = (await done(client.post(f"{MAIL}:pull", json=body))).get("receivedMessages", [])
    return found


# ── the life of a message ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_a_message_is_published_pulled_and_acknowledged(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    sent: Json = {"data": encoded(b"\0\xff"), "attributes": {"country": "US"}, "orderingKey": "k"}
    [message_id] = await publish(client, sent)
    [received] = await pull(client)
    message = received["message"]
    assert message.pop("publishTime").endswith("Z")
    assert message == {**sent, "messageId": message_id}
    assert received["deliveryAttempt"] == 1
    assert await pull(client) == []  # it is leased
    assert await done(client.post(f"{MAIL}:acknowledge", json={"ackIds": [received["ackId"]]})) == {}
    state = gateway.broker.queues.state("shop.mail")
    assert (state.depth, state.ends["acknowledged"]) == (0, 1)
    again = await client.post(f"{MAIL}:acknowledge", json={"ackIds": [received["ackId"], "nonsense"]})
    assert again.status_code == 200  # as with Google
    assert again.json() == {"unknownAckIds": [received["ackId"], "nonsense"]}


async def test_the_deadline_is_extended_and_ended(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    await publish(client, {"data": encoded(b"x")})
    [first] = await pull(client)
    modify = f"{MAIL}:modifyAckDeadline"
    await done(client.post(modify, json={"ackIds": [first["ackId"]], "ackDeadlineSeconds": 600}))
    assert await pull(client) == []
    await done(client.post(modify, json={"ackIds": [first["ackId"]], "ackDeadlineSeconds": 0}))
    [second] = await pull(client)  # at once, for there is no retryPolicy
    assert second["deliveryAttempt"] == 2
    assert second["ackId"] != first["ackId"]


async def test_the_same_with_a_slash(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    await done(client.post(f"{ORDERS}/publish", json={"messages": [{"data": encoded(b"x")}]}))
    [received] = (await done(client.post(f"{MAIL}/pull", json={"maxMessages": 1})))["receivedMessages"]
    ids = [received["ackId"]]
    await done(client.post(f"{MAIL}/modifyAckDeadline", json={"ackIds": ids, "ackDeadlineSeconds": 20}))
    await done(client.post(f"{MAIL}/acknowledge", json={"ackIds": ids}))
    assert gateway.broker.queues.state("shop.mail").depth == 0


async def test_mqtt_on_the_other_side(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    heard = gateway.broker.subscribe("shop/orders", qos=1)
    await publish(client, {"data": encoded(b"x"), "attributes": {"a": "1"}, "orderingKey": "k"})
    message = await asyncio.wait_for(anext(aiter(heard)), 60)
    assert (message.topic, message.payload) == ("shop/orders", b"x")
    assert message.properties.user_properties == [("a", "1"), ("ordering-key", "k")]
    assert await done(client.put("/topics/shop/orders?qos=1", content=b""))
    assert "data" not in (await pull(client))[1]["message"]


async def test_each_message_has_an_id_also_without_a_receiver(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.ADMIN)
    await done(client.put(ORDERS, json={}))
    ids = await publish(client, *[{"data": encoded(b"x")}] * 150)
    assert len(set(ids)) == 150


@pytest.mark.long
async def test_an_answered_request_holds_after_a_restart(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        client = await orders(gateway)
        await publish(client, {"data": encoded(b"1")}, {"data": encoded(b"2")})
        [received] = await pull(client, most=1)
        await done(client.post(f"{MAIL}:acknowledge", json={"ackIds": [received["ackId"]]}))
    async with running_gateway(tmp_path) as gateway:
        client = gateway.client(Role.ADMIN)
        assert (await done(client.get(MAIL)))["topic"] == OF_ORDERS["topic"]
        assert [each["message"]["data"] for each in await pull(client)] == [encoded(b"2")]


@pytest.mark.long
async def test_carrying_messages_is_no_change_of_the_broker(
    gateway: GatewayUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    client = await orders(gateway)
    with caplog.at_level(logging.INFO, "mqttlite.audit"):
        await publish(client, {"data": encoded(b"x")})
        [received] = await pull(client)
        await done(client.post(f"{MAIL}:acknowledge", json={"ackIds": [received["ackId"]]}))
        assert [each for each in caplog.records if each.name == "mqttlite.audit"] == []
        await done(client.delete(MAIL))
    assert [each.name for each in caplog.records].count("mqttlite.audit") == 1


@pytest.fixture
def a_pull_waits(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set while a pull waits, or since one did. It waits long."""
    monkeypatch.setattr(subscriptions, "PULL_WAIT_S", 60.0)
    waits, wait = asyncio.Event(), subscriptions.Pulls._wait

    async def _wait(*arguments: Any) -> Any:
        waits.set()
        return await wait(*arguments)

    monkeypatch.setattr(subscriptions.Pulls, "_wait", _wait)
    return waits


# ── a pull that waits ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_a_pull_waits_for_a_message(gateway: GatewayUnderTest, a_pull_waits: asyncio.Event) -> None:
    client = await orders(gateway)
    waiting = asyncio.ensure_future(pull(client, at_once=False))
    await a_pull_waits.wait()
    assert not waiting.done()
    await publish(client, {"data": encoded(b"x")})
    assert len(await asyncio.wait_for(waiting, 60)) == 1


@pytest.mark.long
async def test_a_pull_waits_for_a_bounded_time(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await orders(gateway)
    monkeypatch.setattr(subscriptions, "PULL_WAIT_S", 0.1)
    assert await asyncio.wait_for(pull(client, at_once=False), 60) == []


@pytest.mark.long
async def test_a_bounded_number_of_pulls_wait(
    gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch, a_pull_waits: asyncio.Event
) -> None:
    client = await orders(gateway)
    monkeypatch.setattr(subscriptions, "MAX_WAITING_PULLS", 1)
    waiting = asyncio.ensure_future(pull(client, at_once=False))
    await a_pull_waits.wait()
    refused = await client.post(f"{MAIL}:pull", json={"maxMessages": 1})
    assert failure(refused) == (503, "UNAVAILABLE")
    assert refused.headers["retry-after"] == "1"
    await publish(client, {"data": encoded(b"x")})
    assert len(await waiting) == 1
    monkeypatch.setattr(subscriptions, "PULL_WAIT_S", 0.05)
    assert await pull(client, at_once=False) == []  # it has its turn again


async def test_a_pull_ends_with_its_queue(gateway: GatewayUnderTest, a_pull_waits: asyncio.Event) -> None:
    client = await orders(gateway)
    waiting = asyncio.ensure_future(client.post(f"{MAIL}:pull", json={"maxMessages": 1}))
    await a_pull_waits.wait()
    await done(client.delete(MAIL))
    assert failure(await asyncio.wait_for(waiting, 60)) == (404, "NOT_FOUND")


@pytest.mark.slow
async def test_a_pull_that_waits_gets_nothing_with_credentials_that_ended(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        client = await orders(gateway)
        reader = gateway.client(Role.USER)
        waiting = asyncio.ensure_future(reader.post(f"{MAIL}:pull", json={"maxMessages": 1}))
        await asyncio.sleep(0.1)
        (gateway.data_dir / "api-keys.json").write_text('{"version": 1, "keys": []}')
        await asyncio.sleep(1.0)  # within which a revoked key is refused
        await gateway.broker.publish("shop/orders", b"x", qos=1)
        assert failure(await asyncio.wait_for(waiting, 60)) == (401, "UNAUTHENTICATED")
        assert gateway.broker.queues.state("shop.mail").leased == 0
        assert failure(await client.get(MAIL)) == (401, "UNAUTHENTICATED")


# ── topics and subscriptions ─────────────────────────────────────────────────────────────────────────────────────────


async def test_the_defaults_of_a_subscription(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway, ackDeadlineSeconds=0, pushConfig={}, expirationPolicy={}, labels={}, filter="")
    assert await done(client.get(MAIL)) == {
        "name": "projects/shop/subscriptions/mail",
        "topic": "projects/shop/topics/orders",
        "ackDeadlineSeconds": 10,
        "messageRetentionDuration": "604800s",
        "expirationPolicy": {},
        "deadLetterPolicy": {"maxDeliveryAttempts": 100},
        "state": "ACTIVE",
    }
    options = gateway.broker.queues.options("shop.mail")
    assert options == QueueOptions(
        name="shop.mail", filters=("shop/orders",), max_attempts=100, retry=RetryOptions(min_s=0, max_s=0)
    )


async def test_a_subscription_keeps_messages_as_long_as_its_topic_says(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.ADMIN)
    for name, project, days in (("shop/orders", "shop", 3), ("shop/a/b", None, 7)):
        given = {} if days == 7 else {"message_retention_days": days}
        made = (await client.post("/api/v1/topics", json={"name": name, **given})).json()
        assert (made["project_id"], made["message_retention_days"]) == (project, days)
    subscriptions = "/v1/projects/shop/subscriptions"
    for said, kept in (({}, "259200s"), ({"messageRetentionDuration": "600s"}, "600s")):
        body = {"topic": "projects/shop/topics/orders", **said}
        made = (await client.put(f"{subscriptions}/s-{kept}", json=body)).json()
        assert made["messageRetentionDuration"] == kept


@pytest.mark.long
async def test_a_subscription_shows_the_options_that_its_queue_follows(gateway: GatewayUnderTest) -> None:
    said = {
        "ackDeadlineSeconds": 30,
        "messageRetentionDuration": "3600s",
        "enableMessageOrdering": True,
        "retryPolicy": {"minimumBackoff": "0.5s", "maximumBackoff": "60s"},
        "deadLetterPolicy": {"maxDeliveryAttempts": 7},
    }
    client = await orders(gateway, **said)
    found = await done(client.get(MAIL))
    assert {name: found[name] for name in said} == said
    assert gateway.broker.queues.options("shop.mail") == QueueOptions(
        name="shop.mail",
        filters=("shop/orders",),
        ack_deadline_s=30,
        expiry_s=3600,
        ordering=True,
        max_attempts=7,
        retry=RetryOptions(min_s=0.5, max_s=60),
    )


async def test_a_subscription_is_changed(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway, enableMessageOrdering=True, ackDeadlineSeconds=30)
    change = {"subscription": {"deadLetterPolicy": {}, "ackDeadlineSeconds": 50}, "updateMask": "deadLetterPolicy"}
    found = await done(client.patch(MAIL, json=change))
    assert (found["deadLetterPolicy"], found["ackDeadlineSeconds"]) == ({"maxDeliveryAttempts": 5}, 30)
    assert found["enableMessageOrdering"] is True
    for mask in ("", "enableMessageOrdering", "nonsense"):
        refused = await client.patch(MAIL, json={"subscription": {}, "updateMask": mask})
        assert failure(refused) == (400, "INVALID_ARGUMENT")
        assert "updateMask" in message_of(refused)


async def test_a_topic_that_exists_is_not_made_again(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    assert failure(await client.put(ORDERS, json={})) == (409, "ALREADY_EXISTS")


async def test_a_put_of_a_subscription_changes_its_mutable_members(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway, ackDeadlineSeconds=30, filter='attributes.a = "b"')
    await done(client.put(f"{SHOP}/topics/others", json={}))
    same = {**OF_ORDERS, "ackDeadlineSeconds": 30, "filter": 'attributes.a = "b"'}
    assert await done(client.put(MAIL, json=same)) == await done(client.get(MAIL))
    for change, what in (
        ({"enableMessageOrdering": True}, "enableMessageOrdering"),
        ({"filter": ""}, "filter"),
        ({"topic": "projects/shop/topics/others"}, "topic"),
    ):
        refused = await client.put(MAIL, json={**same, **change, "ackDeadlineSeconds": 50})
        assert failure(refused) == (409, "ALREADY_EXISTS")
        assert f"its {what} cannot be changed" in message_of(refused)
    assert (await done(client.get(MAIL)))["ackDeadlineSeconds"] == 30
    changed = await done(client.put(MAIL, json={**same, "ackDeadlineSeconds": 50}))
    assert changed["ackDeadlineSeconds"] == 50
    assert changed == await done(client.get(MAIL))


async def test_a_pull_says_in_its_query_how_many_messages_it_wants(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    await publish(client, *({"data": encoded(b"%d" % at)} for at in range(3)))
    assert await done(client.get(f"{MAIL}/snapshot")) == {
        "subscription": "projects/shop/subscriptions/mail",
        "position": "0",
        "messages": 3,
    }
    pulled = (await done(client.post(f"{MAIL}/pull?maxMessages=2")))["receivedMessages"]
    assert len(pulled) == 2
    assert failure(await client.post(f"{MAIL}/pull?maxMessages=0")) == INVALID
    await done(client.post(f"{MAIL}:acknowledge", json={"ackIds": [each["ackId"] for each in pulled]}))
    found = await done(client.get(f"{MAIL}/snapshot"))
    assert (found["position"], found["messages"]) == ("2", 1)


@pytest.mark.parametrize("method", ["acknowledge", "modifyAckDeadline"])
async def test_an_unknown_ack_id_is_named(gateway: GatewayUnderTest, method: str) -> None:
    client = await orders(gateway)
    await publish(client, {"data": encoded(b"x")})
    (pulled,) = (await done(client.post(f"{MAIL}:pull?maxMessages=1")))["receivedMessages"]
    ids = {"ackIds": ["nonsense", pulled["ackId"]]}
    assert await done(client.post(f"{MAIL}:{method}", json=ids)) == {"unknownAckIds": ["nonsense"]}


async def test_a_deleted_topic_leaves_its_subscriptions_their_messages(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    await publish(client, {"data": encoded(b"1")})
    await done(client.delete(ORDERS))
    assert failure(await client.get(ORDERS)) == (404, "NOT_FOUND")
    assert (await done(client.get(MAIL)))["topic"] == "_deleted-topic_"
    await done(client.put(ORDERS, json={}))
    await publish(client, {"data": encoded(b"2")})
    assert [each["message"]["data"] for each in await pull(client)] == [encoded(b"1")]
    assert await done(client.delete(MAIL)) == {}
    assert failure(await client.get(MAIL)) == (404, "NOT_FOUND")


@pytest.mark.long
async def test_lists_come_in_pages_of_one_project(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.ADMIN)
    names = [f"topic-{number}" for number in range(5)]
    for project in ("shop", "shop2", "sho"):
        for name in names:
            await done(client.put(f"/v1/projects/{project}/topics/{name}"))
            topic = f"projects/{project}/topics/topic-0"
            await done(client.put(f"/v1/projects/{project}/subscriptions/sub-{name}", json={"topic": topic}))
    await client.post("/api/v1/topics", json={"name": "shop/not/googles"})
    gateway.broker.queues.create(QueueOptions(name="shop.wide", filters=("shop/#",)))
    gateway.broker.queues.create(QueueOptions(name="shop.foreign", filters=("shop2/topic-0",)))
    subscribed = [f"projects/shop/subscriptions/sub-{name}" for name in names]
    for path, member, expected in (
        ("topics", "topics", [f"projects/shop/topics/{name}" for name in names]),
        ("subscriptions", "subscriptions", subscribed),
        ("topics/topic-0/subscriptions", "subscriptions", subscribed),
    ):
        found: list[Any] = []
        pages, token = 0, ""
        while pages == 0 or token:
            page = await done(client.get(f"{SHOP}/{path}", params={"pageSize": 2, "pageToken": token}))
            found += [each if isinstance(each, str) else each["name"] for each in page[member]]
            pages, token = pages + 1, page.get("nextPageToken", "")
        assert (found, pages) == (expected, 3)
        foreign = await client.get(f"{SHOP}/{path}", params={"pageToken": "shop2/topic-0"})
        assert failure(foreign) == (400, "INVALID_ARGUMENT")
    assert failure(await client.get(f"{SHOP}/topics?pageSize=-1")) == (400, "INVALID_ARGUMENT")
    for name in ("wide", "foreign"):  # a queue of other topics is no subscription
        assert failure(await client.get(f"{SHOP}/subscriptions/{name}")) == (404, "NOT_FOUND")


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


REFUSED_MESSAGES: list[tuple[list[Json], str]] = [
    ([], "messages has 0 messages"),
    ([{"data": "eA=="}] * 1001, "messages has 1001 messages"),
    ([{}], "neither data nor attributes"),
    ([{"data": "?"}], "$.messages[0].data"),
    ([{"data": "eA==", "colour": 1}], "colour"),
    ([{"attributes": {str(number): "" for number in range(101)}}], "101 attributes"),
    ([{"attributes": {"": "x"}}], "an attribute ''"),
    ([{"attributes": {"a" * 257: "x"}}], "256 bytes"),
    ([{"attributes": {"goog-a": "x"}}], "goog"),
    ([{"attributes": {"a": "x" * 1025}}], "1024 bytes"),
    ([{"attributes": {"a": "\0"}}], "no text of MQTT"),
    ([{"attributes": {"ordering-key": "x"}}], "orderingKey"),
    ([{"data": "eA==", "orderingKey": "x" * 1025}], "orderingKey"),
    ([{"data": "eA==", "orderingKey": "a"}, {"data": "eA=="}], "several values of orderingKey"),
]


async def test_messages_that_are_refused(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    for messages, part in REFUSED_MESSAGES:
        refused = await client.post(f"{ORDERS}:publish", json={"messages": messages})
        assert (failure(refused), part in message_of(refused)) == (INVALID, True), refused.text
    assert gateway.broker.queues.state("shop.mail").depth == 0


REFUSED_SUBSCRIPTIONS: list[tuple[Json, tuple[int, str], str]] = [
    ({}, INVALID, "topic"),
    ({"topic": "orders"}, INVALID, "topic"),
    ({"topic": "projects/other/topics/orders"}, INVALID, "a topic of shop"),
    ({"topic": "projects/shop/topics/none"}, (404, "NOT_FOUND"), "there is no topic"),
    ({"ackDeadlineSeconds": 9}, INVALID, "ackDeadlineSeconds is 9"),
    ({"ackDeadlineSeconds": 601}, INVALID, "ackDeadlineSeconds is 601"),
    ({"ackDeadlineSeconds": "ten"}, INVALID, "ackDeadlineSeconds"),
    ({"messageRetentionDuration": "599s"}, INVALID, "messageRetentionDuration"),
    ({"messageRetentionDuration": "1h"}, INVALID, "messageRetentionDuration"),
    ({"retryPolicy": {"minimumBackoff": "601s", "maximumBackoff": "601s"}}, INVALID, "retryPolicy"),
    ({"retryPolicy": {"maximumBackoff": "1s"}}, INVALID, "retryPolicy"),
    ({"deadLetterPolicy": {"maxDeliveryAttempts": 4}}, INVALID, "maxDeliveryAttempts is 4"),
    ({"deadLetterPolicy": {"maxDeliveryAttempts": 101}}, INVALID, "maxDeliveryAttempts is 101"),
    ({"deadLetterPolicy": {"deadLetterTopic": "dead"}}, INVALID, "deadLetterTopic is 'dead'"),
    ({"deadLetterPolicy": {"deadLetterTopic": "projects/shop/topics/dead"}}, (404, "NOT_FOUND"), "for dead letters"),
    ({"deadLetterPolicy": {"deadLetterTopic": "projects/shop/topics/orders"}}, INVALID, "messages of 'shop/orders'"),
    ({"filter": 'attributes.a == "b"'}, INVALID, "filter: position 15"),
    ({"filter": "attributes.a"}, INVALID, "filter: position"),
    ({"expirationPolicy": {"ttl": "86399s"}}, INVALID, "expirationPolicy.ttl is 86399s"),
    ({"expirationPolicy": {"ttl": "a day"}}, INVALID, "expirationPolicy.ttl is 'a day'"),
    ({"pushConfig": {"pushEndpoint": "http://example.com/"}}, INVALID, "allowed_hosts"),
    ({"pushConfig": {"pushEndpoint": "https://127.1/"}}, INVALID, "four decimal numbers"),
    ({"pushConfig": {"noWrapper": {}}}, INVALID, "pushEndpoint is missing"),
    ({"pushConfig": {"pushEndpoint": "https://a.example", "noWrapper": {"writeMetadata": True}}}, UNIMPLEMENTED, "no"),
    ({"pushConfig": {"pushEndpoint": "https://a.example", "attributes": {"a": "b"}}}, UNIMPLEMENTED, "x-goog-version"),
    ({"pushConfig": {"pushEndpoint": "https://a.example", "oidcToken": {"audience": "a"}}}, UNIMPLEMENTED, "oidc"),
    ({"bigqueryConfig": {"table": "a.b.c"}}, UNIMPLEMENTED, "bigqueryConfig"),
    ({"cloudStorageConfig": {"bucket": "b"}}, UNIMPLEMENTED, "cloudStorageConfig"),
    ({"bigtableConfig": {"table": "b"}}, UNIMPLEMENTED, "bigtableConfig"),
    ({"retainAckedMessages": "yes"}, INVALID, "retainAckedMessages"),
    ({"labels": {"a": "b"}}, UNIMPLEMENTED, "labels"),
    ({"enableExactlyOnceDelivery": True}, UNIMPLEMENTED, "enableExactlyOnceDelivery"),
    ({"messageTransforms": [{}]}, UNIMPLEMENTED, "messageTransforms"),
    ({"tags": {"a": "b"}}, UNIMPLEMENTED, "tags"),
    ({"detached": True}, UNIMPLEMENTED, "detached"),
    ({"colour": 1}, INVALID, "colour"),
]


@pytest.mark.long
async def test_messages_of_a_subscription_with_an_endpoint_are_pushed_and_not_pulled(tmp_path: Path) -> None:
    async with (
        Receiver() as receiver,
        running_gateway(tmp_path, push=PushOptions(allowed_hosts=("127.0.0.1",))) as gateway,
    ):
        config = {"pushEndpoint": receiver.url("/in"), "attributes": {"x-goog-version": "v1"}}
        client = await orders(gateway, pushConfig=config)
        assert (await done(client.get(MAIL)))["pushConfig"] == config
        await done(client.post(f"{ORDERS}:publish", json={"messages": [{"data": "eA=="}]}))
        await until(lambda: len(receiver.requests) == 1)
        assert receiver.requests[0].json["subscription"] == "projects/shop/subscriptions/mail"
        refused = await client.post(f"{MAIL}:pull", json={"maxMessages": 1})
        assert failure(refused) == (400, "FAILED_PRECONDITION")
        bare = {"pushEndpoint": receiver.url("/bare"), "noWrapper": {"writeMetadata": False}}
        body = {"subscription": {"pushConfig": bare}, "updateMask": "pushConfig"}
        changed = await done(client.patch(MAIL, json=body))
        assert changed["pushConfig"] == {**bare, "attributes": {"x-goog-version": "v1"}}
        await done(client.post(f"{ORDERS}:publish", json={"messages": [{"data": "eQ=="}]}))
        await until(lambda: [each.body for each in receiver.of("/bare")] == [b"y"])
        await done(client.post(f"{MAIL}:modifyPushConfig", json={"pushConfig": {}}))
        assert "pushConfig" not in await done(client.get(MAIL))
        await done(client.post(f"{ORDERS}:publish", json={"messages": [{"data": "eg=="}]}))
        pulled = await done(client.post(f"{MAIL}:pull", json={"maxMessages": 5}))
        assert [each["message"]["data"] for each in pulled["receivedMessages"]] == ["eg=="]
        await done(client.post(f"{MAIL}/modifyPushConfig", json={"pushConfig": config}))
        assert gateway.broker.queues.options("shop.mail").push is not None


@pytest.mark.long
async def test_subscriptions_that_are_refused(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.ADMIN)
    await done(client.put(ORDERS, json={}))
    for body, expected, part in REFUSED_SUBSCRIPTIONS:
        whole = body if not body or "topic" in body else {**OF_ORDERS, **body}
        refused = await client.put(MAIL, json=whole)
        assert (failure(refused), part in message_of(refused)) == (expected, True), refused.text
    assert gateway.broker.queues.names == []


REFUSED_REQUESTS: list[tuple[str, str, bytes, tuple[int, str]]] = [
    ("PUT", f"{SHOP}/topics/ab", b"{}", INVALID),
    ("PUT", f"{SHOP}/topics/google", b"{}", INVALID),
    ("PUT", f"{SHOP}/topics/a%2Bb", b"{}", INVALID),
    ("PUT", "/v1/projects/a.b/topics/orders", b"{}", INVALID),
    ("PUT", f"{SHOP}/topics/fine", b'{"labels": {"a": "b"}}', UNIMPLEMENTED),
    ("PUT", f"{SHOP}/topics/fine", b"[", INVALID),
    ("PUT", f"{SHOP}/subscriptions/a%25b", b'{"topic": "projects/shop/topics/orders"}', INVALID),
    ("PUT", f"{SHOP}/subscriptions/{'a' * 124}", b'{"topic": "projects/shop/topics/orders"}', INVALID),
    ("POST", f"{SHOP}/topics/none:publish", b'{"messages": [{"data": "eA=="}]}', (404, "NOT_FOUND")),
    ("POST", f"{SHOP}/subscriptions/none:pull", b'{"maxMessages": 1}', (404, "NOT_FOUND")),
    ("POST", f"{MAIL}:pull", b"{}", INVALID),
    ("POST", f"{MAIL}:acknowledge", b"{}", INVALID),
    ("POST", f"{MAIL}:acknowledge", b'{"ackIds": [%s]}' % b",".join([b'"x"'] * 1001), INVALID),
    ("POST", f"{MAIL}:modifyAckDeadline", b'{"ackIds": ["x"], "ackDeadlineSeconds": 601}', INVALID),
    ("POST", f"{MAIL}:modifyAckDeadline", b'{"ackIds": ["x"], "ackDeadlineSeconds": -1}', INVALID),
    ("POST", f"{MAIL}:modifyPushConfig", b'{"pushConfig": {"pushEndpoint": "https://10.0.0.1"}}', INVALID),
    ("POST", f"{SHOP}/subscriptions/none:modifyPushConfig", b"{}", (404, "NOT_FOUND")),
    ("POST", f"{MAIL}:seek", b"{}", INVALID),
    ("POST", f"{MAIL}:seek", b'{"time": "yesterday"}', INVALID),
    ("POST", f"{MAIL}:seek", b'{"time": "2026-11-24T12:00:00"}', INVALID),
    ("POST", f"{MAIL}:seek", b'{"time": "2026-11-24T12:00:00Z", "snapshot": "projects/shop/snapshots/mine"}', INVALID),
    ("POST", f"{MAIL}:seek", b'{"snapshot": "mine"}', INVALID),
    ("POST", f"{MAIL}:seek", b'{"snapshot": "projects/shop/snapshots/none"}', (404, "NOT_FOUND")),
    ("POST", f"{SHOP}/subscriptions/none:seek", b'{"time": "2026-11-24T12:00:00Z"}', (404, "NOT_FOUND")),
    ("POST", f"{SHOP}/subscriptions/none:detach", b"{}", (404, "NOT_FOUND")),
    ("GET", f"{SHOP}/topics/none:getIamPolicy", b"", (404, "NOT_FOUND")),
    ("GET", f"{SHOP}/snapshots/none:getIamPolicy", b"", (404, "NOT_FOUND")),
    ("POST", f"{ORDERS}:setIamPolicy", b'{"policy": {"bindings": [{"role": "editor"}]}}', INVALID),
    ("POST", f"{ORDERS}:setIamPolicy", b'{"policy": {"version": 3}}', INVALID),
    ("POST", f"{ORDERS}:setIamPolicy", b'{"policy": {"bindings": [{"role": "roles/a", "members": ["ann"]}]}}', INVALID),
    ("POST", f"{ORDERS}:setIamPolicy", b'{"policy": {"etag": "b2xk"}}', (409, "ALREADY_EXISTS")),
    ("POST", f"{ORDERS}:testIamPermissions", b'{"permissions": ["pubsub.*"]}', INVALID),
    ("PUT", f"{SHOP}/snapshots/mine", b"{}", INVALID),
    ("PUT", f"{SHOP}/snapshots/mine", b'{"subscription": "projects/other/subscriptions/mail"}', INVALID),
    ("PUT", f"{SHOP}/snapshots/mine", b'{"subscription": "projects/shop/subscriptions/none"}', (404, "NOT_FOUND")),
    ("PUT", f"{SHOP}/snapshots/mine", b'{"labels": {"a": "b"}}', UNIMPLEMENTED),
    ("PUT", f"{SHOP}/snapshots/{'a' * 124}", b'{"subscription": "projects/shop/subscriptions/mail"}', INVALID),
    ("GET", f"{SHOP}/snapshots/none", b"", (404, "NOT_FOUND")),
    ("DELETE", f"{SHOP}/snapshots/none", b"", (404, "NOT_FOUND")),
    ("GET", f"{SHOP}/topics/none/snapshots", b"", (404, "NOT_FOUND")),
    ("GET", f"{SHOP}/schemas/mine:getIamPolicy", b"", UNIMPLEMENTED),
    ("GET", "/v1/projects", b"", (404, "NOT_FOUND")),
    ("POST", ORDERS, b"{}", (404, "NOT_FOUND")),
]


@pytest.mark.long
async def test_requests_that_are_refused(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    for method, path, body, expected in REFUSED_REQUESTS:
        refused = await client.request(method, path, content=body)
        assert failure(refused) == expected, (method, path, refused.text)


async def test_a_body_that_is_too_large_is_refused_in_googles_words(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"max_body_bytes": 1_000}) as gateway:
        client = await orders(gateway)
        refused = await client.post(f"{ORDERS}:publish", json={"messages": [{"data": "A" * 2_000}]})
        assert failure(refused) == INVALID
        assert "max_body_bytes" in message_of(refused)


async def test_other_paths_answer_with_problems(gateway: GatewayUnderTest) -> None:
    answer = await gateway.client(Role.ADMIN).get("/v2/projects")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.long
async def test_queues_are_limited(tmp_path: Path) -> None:
    from mqttlite.extensions.queues.options import DeliveryOptions

    async with running_gateway(tmp_path, delivery=DeliveryOptions(max_queues=1)) as gateway:
        client = await orders(gateway)
        refused = await client.put(f"{SHOP}/subscriptions/second", json=OF_ORDERS)
        assert failure(refused) == (429, "RESOURCE_EXHAUSTED")


def test_each_code_has_a_status_of_google() -> None:
    assert errors.STATUS.keys() == set(Code)


# ── permissions ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_the_rules_decide_about_publishing_and_consuming(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(
        "user pub\ntopic write shop/orders\nuser con\ntopic read $queue/shop.mail\nuser key-admin\ntopic readwrite #\n"
    )
    async with running_gateway(
        tmp_path / "data", users=("pub", "con"), acl_file=str(tmp_path / "acl"), allow_anonymous=True
    ) as gateway:
        admin = await orders(gateway)
        publisher, consumer = gateway.user("pub"), gateway.user("con")
        body = {"messages": [{"data": encoded(b"x")}]}
        denied = (403, "PERMISSION_DENIED")
        assert failure(await consumer.post(f"{ORDERS}:publish", json=body)) == denied
        assert failure(await consumer.post(f"{SHOP}/topics/none:publish", json=body)) == denied  # nor does it tell
        await done(publisher.post(f"{ORDERS}:publish", json=body))
        for method, request in (
            ("pull", {"maxMessages": 1}),
            ("acknowledge", {"ackIds": ["x"]}),
            ("modifyAckDeadline", {"ackIds": ["x"], "ackDeadlineSeconds": 10}),
        ):
            assert failure(await publisher.post(f"{MAIL}:{method}", json=request)) == denied
            assert failure(await consumer.post(f"{SHOP}/subscriptions/other:{method}", json=request)) == denied
        [received] = await pull(consumer)
        await done(consumer.post(f"{MAIL}:acknowledge", json={"ackIds": [received["ackId"]]}))
        assert failure(await consumer.delete(MAIL)) == denied
        assert (await done(admin.get(MAIL)))["state"] == "ACTIVE"


IAM_POLICY: Json = {
    "bindings": [
        {"role": "roles/pubsub.editor", "members": ["domain:example.com"]},
        {"role": "roles/pubsub.viewer", "members": ["group:logs@example.com", "allUsers"]},
    ]
}


@pytest.mark.long
async def test_a_policy_is_kept_with_its_resource_and_gives_no_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway(tmp_path, users=("uma",)) as gateway:
        client = await orders(gateway)
        await done(client.put(f"{SHOP}/snapshots/mine", json={"subscription": "projects/shop/subscriptions/mail"}))
        for path in (ORDERS, MAIL, f"{SHOP}/snapshots/mine"):
            empty = await done(client.get(f"{path}:getIamPolicy"))
            assert empty["bindings"] == []
            wanted = {"policy": {**IAM_POLICY, "etag": empty["etag"]}}
            kept = await done(client.post(f"{path}:setIamPolicy", json=wanted))
            assert kept == {**IAM_POLICY, "version": 1, "etag": kept["etag"]}
            again = await client.post(f"{path}/setIamPolicy", json=wanted)
            assert failure(again) == (409, "ALREADY_EXISTS")
        assert failure(await gateway.user("uma").get(ORDERS)) == (403, "PERMISSION_DENIED")
        monkeypatch.setattr(iam_policies, "MAX_POLICIES", 3)
        monkeypatch.setattr(iam_policies, "MAX_MEMBERS", 2)
        await done(client.put(f"{SHOP}/topics/second", json={}))
        refused = await client.post(f"{SHOP}/topics/second:setIamPolicy", json={"policy": {}})
        assert failure(refused) == (429, "RESOURCE_EXHAUSTED")
        assert failure(await client.post(f"{ORDERS}:setIamPolicy", json={"policy": IAM_POLICY})) == INVALID
    async with running_gateway(tmp_path) as gateway:
        client = gateway.client(Role.ADMIN)
        assert (await done(client.get(f"{MAIL}/getIamPolicy"))) == kept
        await done(client.delete(MAIL))
        await done(client.put(MAIL, json=OF_ORDERS))
        assert (await done(client.get(f"{MAIL}:getIamPolicy")))["bindings"] == []
    (tmp_path / iam_policies.FILE_NAME).write_bytes(b"{")
    with pytest.raises(ConfigError, match=r"iam\.json cannot be used: .*\. Put back a copy"):
        async with running_gateway(tmp_path):
            pass


@pytest.mark.long
async def test_a_policy_goes_with_its_queue_and_snapshot_however_these_are_deleted(tmp_path: Path) -> None:
    kept = tmp_path / iam_policies.FILE_NAME

    def resources() -> set[str]:
        return {each.rpartition("/")[2] for each in msgspec.json.decode(kept.read_bytes())}

    async with running_gateway(tmp_path) as gateway:
        client = await orders(gateway)
        queues = gateway.broker.queues
        for name in ("second", "third"):
            await done(client.put(f"{SHOP}/subscriptions/{name}", json=OF_ORDERS))
        for name, queue in (("mine", "mail"), ("other", "third")):
            body = {"subscription": f"projects/shop/subscriptions/{queue}"}
            await done(client.put(f"{SHOP}/snapshots/{name}", json=body))
        policies = (ORDERS, MAIL, *(f"{SHOP}/subscriptions/{each}" for each in ("second", "third")))
        for path in (*policies, *(f"{SHOP}/snapshots/{each}" for each in ("mine", "other"))):
            await done(client.post(f"{path}:setIamPolicy", json={"policy": IAM_POLICY}))
        assert (await client.delete("/api/v1/queues/shop.mail")).status_code == 200
        await until(lambda: resources() == {"orders", "second", "third", "other"})
        queues.snapshots.delete("shop.other")
        queues.delete("shop.second")
        await until(lambda: resources() == {"orders", "third"})
        assert (await client.post("/api/v1/queues", json={"name": "shop.mail", "filters": ["shop/orders"]})).is_success
        assert (await done(client.get(f"{MAIL}:getIamPolicy")))["bindings"] == []
    (tmp_path / iam_policies.FILE_NAME).write_bytes(
        kept.read_bytes().replace(b"subscriptions/third", b"subscriptions/gone")
    )
    async with running_gateway(tmp_path):
        await until(lambda: resources() == {"orders"})


async def test_where_the_file_cannot_be_written_policies_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with running_gateway(tmp_path) as gateway:
        client = await orders(gateway)
        await done(client.post(f"{MAIL}:setIamPolicy", json={"policy": IAM_POLICY}))
        monkeypatch.setattr(atomic_file, "save", fail)
        gateway.broker.queues.delete("shop.mail")
        await until(lambda: "policies of deleted resources stay" in caplog.text)


@pytest.mark.long
async def test_a_caller_asks_for_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(
        "user pub\ntopic write shop/orders\nuser con\ntopic read $queue/shop.mail\ntopic write $queue/shop.mail/$seek\n"
        "user key-viewer\ntopic read shop/orders\n"
    )
    async with running_gateway(tmp_path / "data", users=("pub", "con"), acl_file=str(tmp_path / "acl")) as gateway:
        await orders(gateway)
        publish, consume, seek = "pubsub.topics.publish", "pubsub.subscriptions.consume", "pubsub.snapshots.seek"
        snapshot = f"{SHOP}/snapshots/mine"
        await done(gateway.client(Role.ADMIN).put(snapshot, json={"subscription": "projects/shop/subscriptions/mail"}))
        mine = {"snapshot": "projects/shop/snapshots/mine"}
        await done(gateway.user("con").post(f"{MAIL}:seek", json=mine))
        assert failure(await gateway.user("pub").post(f"{MAIL}/seek", json=mine)) == (403, "PERMISSION_DENIED")
        looks, acts = ["pubsub.topics.get"], ["pubsub.topics.getIamPolicy", "pubsub.topics.delete"]
        for client, path, held in (
            (gateway.user("pub"), ORDERS, [publish]),
            (gateway.user("con"), ORDERS, []),
            (gateway.user("con"), MAIL, [consume]),
            (gateway.user("con"), snapshot, [seek]),
            (gateway.user("pub"), snapshot, []),
            (gateway.user("pub"), MAIL, []),
            (gateway.client(Role.VIEWER), ORDERS, looks),
            (gateway.client(Role.VIEWER), MAIL, []),
            (gateway.client(Role.VIEWER), snapshot, []),
            (gateway.client(Role.ADMIN), ORDERS, [*looks, *acts]),
            (gateway.client(Role.ADMIN), f"{SHOP}/topics/none", []),
        ):
            asked = {"permissions": [publish, consume, seek, *looks, *acts, "storage.buckets.get"]}
            assert (await done(client.post(f"{path}:testIamPermissions", json=asked))).get("permissions", []) == held
        many = {"permissions": [publish] * 101}
        assert failure(await gateway.user("pub").post(f"{ORDERS}:testIamPermissions", json=many)) == INVALID


@pytest.mark.long
async def test_a_reader_sees_the_topics_that_the_rules_allow_its_user(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("user key-viewer\ntopic read shop/orders\ntopic read $queue/shop.mail\n")
    nobody = add(tmp_path / "data" / FILE_NAME, "viewer", None, None)[0]
    async with running_gateway(tmp_path / "data", acl_file=str(tmp_path / "acl")) as gateway:
        admin = await orders(gateway)
        made = {"subscription": "projects/shop/subscriptions/mail"}
        await done(admin.put(f"{SHOP}/snapshots/mine", json=made))
        for topic, subscription, snapshot in (("invoices", "print", "its"),):
            await done(admin.put(f"{SHOP}/topics/{topic}", json={}))
            await done(
                admin.put(f"{SHOP}/subscriptions/{subscription}", json={"topic": f"projects/shop/topics/{topic}"})
            )
            made = {"subscription": f"projects/shop/subscriptions/{subscription}"}
            await done(admin.put(f"{SHOP}/snapshots/{snapshot}", json=made))
        await done(admin.put(f"{SHOP}/subscriptions/audit", json={"topic": "projects/shop/topics/orders"}))
        seen = ["topics/orders", "subscriptions/mail", "snapshots/mine"]
        hidden = ["topics/invoices", "subscriptions/print", "subscriptions/audit", "snapshots/its"]

        async def listed(client: httpx.AsyncClient, path: str) -> list[str]:
            (entries,) = (await done(client.get(f"{SHOP}/{path}"))).values() or ((),)
            names = [each if isinstance(each, str) else each["name"] for each in entries]
            return [name.removeprefix("projects/shop/") for name in names]

        viewer = gateway.client(Role.VIEWER)
        for each in seen:
            assert (await done(viewer.get(f"{SHOP}/{each}")))["name"] == f"projects/shop/{each}"
        for each in (*hidden, "topics/invoices/subscriptions", "topics/invoices/snapshots"):
            assert failure(await viewer.get(f"{SHOP}/{each}")) == (404, "NOT_FOUND")
        for kind in ("topics", "subscriptions", "snapshots"):
            assert await listed(viewer, kind) == [each for each in seen if each.startswith(kind)]
            everything = sorted(each for each in seen + hidden if each.startswith(kind))
            for client in (gateway.client(key=nobody), gateway.client(Role.OPERATOR), admin):
                assert sorted(await listed(client, kind)) == everything
        assert await listed(viewer, "topics/orders/subscriptions") == ["subscriptions/mail"]
        assert await listed(viewer, "topics/orders/snapshots") == ["snapshots/mine"]


@pytest.mark.long
async def test_bodies_may_have_any_form_of_the_json_of_protocol_buffers(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.ADMIN)
    await done(client.put(ORDERS, json={"labels": None}))
    wanted = {**OF_ORDERS, "ack_deadline_seconds": "20", "retry_policy": {"minimum_backoff": "1s"}, "push_config": None}
    made = await done(client.put(MAIL, json=wanted))
    assert (made["ackDeadlineSeconds"], made["retryPolicy"]["minimumBackoff"]) == (20, "1s")
    change = {"subscription": {"ack_deadline_seconds": 30}, "update_mask": "ack_deadline_seconds"}
    assert (await done(client.patch(MAIL, json=change)))["ackDeadlineSeconds"] == 30
    sent = [{"data": "-_8", "ordering_key": "k"}, {"attributes": {"ack_id": "x"}, "data": None, "orderingKey": "k"}]
    await done(client.post(f"{ORDERS}:publish", json={"messages": sent}))
    found = await done(client.post(f"{MAIL}:pull", json={"max_messages": "10", "return_immediately": True}))
    assert [each["message"].get("data") for each in found["receivedMessages"]] == ["+/8=", None]
    assert found["receivedMessages"][1]["message"]["attributes"] == {"ack_id": "x"}
    for wrong in ({"max_messages": "x"}, {"max_messages": "9" * 30}, {"maximum": 1}, ["maxMessages"]):
        assert failure(await client.post(f"{MAIL}:pull", json=wrong)) == INVALID


@pytest.mark.long
async def test_a_detached_subscription_has_no_messages_and_gets_none(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway)
    await publish(client, {"data": encoded(b"x")})
    await done(client.post(f"{MAIL}:detach"))
    await publish(client, {"data": encoded(b"y")})
    assert failure(await client.post(f"{MAIL}:pull", json={"maxMessages": 1})) == (400, "FAILED_PRECONDITION")
    shown = await done(client.get(MAIL))
    assert (shown["topic"], shown["detached"]) == ("projects/shop/topics/orders", True)
    assert (await done(client.get(f"{ORDERS}/subscriptions"))) == {"subscriptions": []}
    await done(client.post(f"{MAIL}/detach"))
    assert (await done(client.get(MAIL)))["topic"] == shown["topic"]


@pytest.mark.long
async def test_nothing_is_pushed_once_a_subscription_is_detached(tmp_path: Path) -> None:
    async with (
        Receiver() as receiver,
        running_gateway(tmp_path, push=PushOptions(allowed_hosts=("127.0.0.1",))) as gateway,
    ):
        client = await orders(gateway, pushConfig={"pushEndpoint": receiver.url("/hang")})
        await publish(client, {"data": encoded(b"x")})
        await until(lambda: len(receiver.requests) == 1)
        detached = asyncio.create_task(done(client.post(f"{MAIL}:detach")))
        await until(lambda: gateway.broker.queues.state("shop.mail").depth == 0)
        await publish(client, {"data": encoded(b"y")})  # which waits for a commit, as the other does
        assert not detached.done()  # the request is still open
        receiver.released.set()
        await detached
        assert len(receiver.requests) == 1


async def test_a_pull_that_is_open_during_a_seek_is_answered_before_it(tmp_path: Path) -> None:
    store = SlowStore()
    store.patient = False
    queue = QueueOptions(name="shop.mail", filters=("shop/orders",))
    config = Config(listeners=(ListenerOptions(port=0),), http=HttpOptions(port=0), queues=(queue,))
    async with Broker(config, store=store) as broker:
        client = GatewayUnderTest(broker, tmp_path, {}, {}).client()
        for _ in range(4):
            await broker.publish("shop/orders", b"x", qos=1)
        answered: list[str] = []

        async def ask(verb: str, body: Json) -> Json:
            found = await done(client.post(f"{MAIL}:{verb}", json=body))
            answered.append(verb)
            return found

        def leased() -> int:
            return broker.queues.state("shop.mail").leased

        store.patient = True
        asked = [asyncio.create_task(ask("pull", {"maxMessages": 1}))]
        await until(lambda: leased() == 1 and store.busy)
        asked.append(asyncio.create_task(ask("pull", {"maxMessages": 2})))  # the next commit holds it, and the seek
        await until(lambda: leased() == 3)
        asked.append(asyncio.create_task(ask("seek", {"time": "2100-01-01T00:00:00Z"})))
        await until(lambda: leased() == 0)
        assert answered == []
        store.finish()
        await asked[0]
        assert answered == ["pull"]
        store.hurry()
        assert len((await asked[1])["receivedMessages"]) == 2
        await asked[2]
        assert answered == ["pull", "pull", "seek"]
        assert await pull(client) == []
        await client.aclose()


# ── filters and dead letters ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expression", "passing"),
    [
        ("attributes:domain", "com net org iana"),
        ('attributes.domain = "com"', "com"),
        ('attributes.domain != "com"', "net org iana none"),
        ("NOT attributes:domain", "none"),
        ('attributes:domain AND NOT attributes.domain = "com"', "net org iana"),
        ('hasPrefix(attributes.domain, "co")', "com"),
        ('hasPrefix(attributes.domain, "co") OR hasPrefix(attributes.domain, "org")', "com org"),
        ('attributes:"iana.org/language_tag"', "iana"),
        ('(attributes.domain = "com" OR attributes.domain = "net") AND -attributes:none', "com net"),
        ("", "com net org iana none"),
    ],
)
async def test_a_subscription_has_a_filter(gateway: GatewayUnderTest, expression: str, passing: str) -> None:
    """As in the examples of Google's documentation."""
    client = await orders(gateway, filter=expression)
    assert (await done(client.get(MAIL))).get("filter", "") == expression
    domains: dict[str, Json] = {name: {"domain": name} for name in ("com", "net", "org")}
    domains |= {"iana": {"domain": "iana", "iana.org/language_tag": "en"}, "none": {"other": "x"}}
    await publish(client, *[{"data": encoded(name.encode()), "attributes": each} for name, each in domains.items()])
    got = [base64.b64decode(each["message"]["data"]).decode() for each in await pull(client)]
    assert got == passing.split()


@pytest.mark.long
async def test_a_filter_cannot_be_changed(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway, filter="attributes:a")
    change = {"subscription": {"filter": "attributes:b"}, "updateMask": "filter"}
    response = await client.patch(MAIL, json=change)
    assert failure(response) == INVALID
    assert "cannot be changed" in message_of(response)
    await done(
        client.patch(MAIL, json={"subscription": {"ackDeadlineSeconds": 50}, "updateMask": "ackDeadlineSeconds"})
    )
    assert (await done(client.get(MAIL)))["filter"] == "attributes:a"


@pytest.mark.long
async def test_dead_letters_are_published_to_their_topic(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.ADMIN)
    dead = {"topic": "projects/shop/topics/dead"}
    await done(client.put(f"{SHOP}/topics/dead", json={}))
    await done(client.put(f"{SHOP}/subscriptions/dead-mail", json=dead))
    policy = {"deadLetterTopic": dead["topic"], "maxDeliveryAttempts": 5}
    await orders(gateway, deadLetterPolicy=policy)
    assert (await done(client.get(MAIL)))["deadLetterPolicy"] == policy
    [message_id] = await publish(client, {"data": encoded(b"x"), "attributes": {"a": "b"}, "orderingKey": "k"})
    for attempt in range(1, 6):
        [received] = await pull(client)
        assert received["deliveryAttempt"] == attempt
        nack = {"ackIds": [received["ackId"]], "ackDeadlineSeconds": 0}
        await done(client.post(f"{MAIL}:modifyAckDeadline", json=nack))
    assert await pull(client) == []
    body = {"maxMessages": 10, "returnImmediately": True}
    [letter] = (await done(client.post(f"{SHOP}/subscriptions/dead-mail:pull", json=body)))["receivedMessages"]
    message = letter["message"]
    assert (base64.b64decode(message["data"]), message["orderingKey"]) == (b"x", "k")
    assert message["messageId"] != message_id, "it is another message"
    said = message["attributes"]
    assert (said["a"], said["message-id"], said["dead-letter-cause"]) == ("b", message_id, "nacked")
    assert {name: value for name, value in said.items() if name.startswith("Cloud")} == {
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "mail",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "shop",
        "CloudPubSubDeadLetterSourceTopicPublishTime": said["publish-time"],
    }
    change = {"subscription": {}, "updateMask": "deadLetterPolicy"}
    assert (await done(client.patch(MAIL, json=change)))["deadLetterPolicy"] == {"maxDeliveryAttempts": 100}


@pytest.mark.long
async def test_an_unused_subscription_expires(gateway: GatewayUnderTest) -> None:
    client = await orders(gateway, expirationPolicy={"ttl": "90210s"})
    assert (await done(client.get(MAIL)))["expirationPolicy"] == {"ttl": "90210s"}
    assert gateway.broker.queues.options("shop.mail").idle_expiry_s == 90_210
    change = {"subscription": {"expirationPolicy": {}}, "updateMask": "expirationPolicy"}
    assert (await done(client.patch(MAIL, json=change)))["expirationPolicy"] == {}


@pytest.mark.slow
async def test_an_overload_and_a_policy_refuse_messages_and_google_s_client_tries_again(tmp_path: Path) -> None:
    policies = (
        TopicPolicyOptions(prefix="shop/orders", priority="low"),
        TopicPolicyOptions(prefix="shop/full", on_overflow="reject"),
    )
    limits = Limits(max_queued_messages=1)
    async with running_gateway(tmp_path, topic_policies=policies, limits=limits) as gateway:
        async with MqttClient("127.0.0.1", gateway.broker.port, client_id="x", session_expiry_interval=60) as away:
            await away.subscribe("shop/full", qos=1)
        client = await orders(gateway)
        effects = gateway.broker._core.effects
        effects.sheds_low_priority = True
        messages = {"messages": [{"data": "eA=="}]}
        refused = await client.post(f"{ORDERS}:publish", json=messages)
        assert failure(refused) == (429, "RESOURCE_EXHAUSTED")
        assert refused.headers["retry-after"] == "1"
        assert gateway.broker._core.router.drops.by_reason["overload_low_priority"] == 1
        effects.sheds_low_priority = False
        await publish(client, *messages["messages"])
        await done(client.put(f"{SHOP}/topics/full", json={}))
        url = f"{SHOP}/topics/full:publish"
        await done(client.post(url, json=messages))
        assert failure(await client.post(url, json=messages)) == (429, "RESOURCE_EXHAUSTED")
