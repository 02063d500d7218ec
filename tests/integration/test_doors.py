"""One message through every door: the same verdict, and nothing lost that a client would not lose."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import InvalidStatus

from mqttlite.client import Client, MqttError
from mqttlite.config.quotas import QuotaOptions
from mqttlite.core.limits import Limits
from mqttlite.core.source import THE_BROKER
from mqttlite.extensions.schemas.registry import Schema
from mqttlite.gateway.caller import Role
from mqttlite.security.topic_policies import TopicPolicyOptions
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.inside import core_of, loop_driver_of

pytestmark = pytest.mark.slow

POLICIES = (
    TopicPolicyOptions(prefix="private", access="PRIVATE"),
    TopicPolicyOptions(prefix="small", max_payload_bytes=1),
    TopicPolicyOptions(prefix="full", on_overflow="reject"),
    TopicPolicyOptions(prefix="blocked", on_overflow="block"),
    TopicPolicyOptions(prefix="low", priority="low"),
    TopicPolicyOptions(prefix="typed", schema="numbers"),
)
LIMITS = Limits(max_queued_messages=1, max_block_s=0.2, max_payload_bytes=20)
NUMBERS = Schema("JSON", '{"type": "number"}')
BURST = 300

CODES = {
    "not_authorized": 0x87,
    "policy_refuses": 0x83,
    "schema_invalid": 0x99,
    "quota_exceeded": 0x97,
    "too_large": 0x97,
}
"""The reason codes of MQTT for those of the HTTP API."""

Verdict = tuple[int, str]
"""A reason code and the reason, as a sentence."""


class Door(NamedTuple):
    name: str
    publish: Callable[[str, bytes], Awaitable[Verdict]]
    """Publishes at QoS 1. The code is that of a PUBACK."""


def verdict_of(answer: dict[str, Any]) -> Verdict:
    """The verdict in an answer of the HTTP API."""
    if "code" in answer:
        return CODES[answer["code"]], answer["detail"]
    return (0x10 if answer["reason"] == "no_subscribers" else 0), ""


@asynccontextmanager
async def doors(gateway: GatewayUnderTest) -> AsyncIterator[list[Door]]:
    http = gateway.client(Role.ADMIN)
    server = f"localhost:{gateway.gateway.port}"
    headers = {"Authorization": f"Bearer {gateway.keys[Role.ADMIN]}"}

    async def over_http(topic: str, payload: bytes) -> Verdict:
        return verdict_of((await http.put(f"/topics/{topic}?qos=1", content=payload)).json())

    async def in_bulk(topic: str, payload: bytes) -> Verdict:
        body = [{"topic": topic, "payload": payload.decode(), "encoding": "text", "qos": 1}]
        answer = (await http.post("/api/v1/publish/bulk", json=body)).json()
        if "code" in answer:
            return verdict_of(answer)
        return verdict_of(answer["errors"][0] if answer["refused"] else {"reason": next(iter(answer["reasons"]), "")})

    async def over_websocket(topic: str, payload: bytes) -> Verdict:
        body = {"type": "publish", "topic": topic, "payload": payload.decode(), "encoding": "text", "qos": 1}
        try:
            async with connect_socket(f"ws://{server}/ws/subscribe", additional_headers=headers) as socket:
                await socket.send(json.dumps(body))
                return verdict_of(json.loads(await socket.recv()))
        except InvalidStatus as error:
            return verdict_of(json.loads(error.response.body or b""))

    async def over_mqtt(topic: str, payload: bytes) -> Verdict:
        try:
            async with Client("127.0.0.1", gateway.broker.port) as client:
                return int((await client.publish(topic, payload, qos=1)).reason_code), ""
        except MqttError as error:
            return int(getattr(error, "reason_code", 0)), str(error)

    async def by_the_program(topic: str, payload: bytes) -> Verdict:
        published = await gateway.broker.publish(topic, payload, qos=1)
        return int(published), published.reason

    yield [
        Door("MQTT", over_mqtt),
        Door("HTTP", over_http),
        Door("bulk", in_bulk),
        Door("WebSocket", over_websocket),
        Door("program", by_the_program),
    ]


async def prepare(gateway: GatewayUnderTest, topic: str) -> None:
    """Make what the messages to a topic meet."""
    broker = gateway.broker
    await broker.schemas.register("numbers", NUMBERS)
    async with Client("127.0.0.1", broker.port, client_id="away", session_expiry_interval=60) as away:
        for each in ("full", "blocked"):
            await away.subscribe(each, qos=1)
    if topic in ("full", "blocked"):
        assert await broker.publish(topic, b"1", qos=1) == 0
    core_of(broker).effects.sheds_low_priority = topic == "low"
    if topic == "banned":
        await broker.admin.ban("address", "127.0.0.1", 60, "floods us")


NO_ROOM = "no room for the message"
CASES = [
    ("plain", "1", 0, "", ()),
    ("nobody", "1", 0x10, "", ()),
    ("private/a", "1", 0x87, "private", ("program",)),  # which the rules do not bind
    ("small", "22", 0x83, "2 bytes of payload: the policy of small allows 1", ()),
    ("plain", "1" * 21, 0x97, "payload of 21 bytes, at most 20 accepted", ("program",)),
    ("typed", '"x"', 0x99, '"x" is not of type "number"', ()),
    ("full", "1", 0x97, NO_ROOM, ()),
    ("blocked", "1", 0x97, NO_ROOM, ()),
    ("low", "1", 0x97, "the broker is overloaded, and the message has a low priority", ()),
    ("banned", "1", 0x87, "the address is banned", ("program", "MQTT")),
]


@pytest.mark.parametrize(("topic", "payload", "code", "reason", "not_for"), CASES)
async def test_every_door_gives_the_same_verdict(
    tmp_path: Path, topic: str, payload: str, code: int, reason: str, not_for: tuple[str, ...]
) -> None:
    async with (
        running_gateway(tmp_path, topic_policies=POLICIES, limits=LIMITS) as gateway,
        doors(gateway) as found,
        Client("127.0.0.1", gateway.broker.port) as reader,
    ):
        for each in ("plain", "low", "small", "typed"):
            await reader.subscribe(each, qos=1)
        await prepare(gateway, topic)
        for door in found:
            if door.name not in not_for:
                got, why = await door.publish(topic, payload.encode())
                assert (got, reason in why) == (code, True), (door.name, hex(got), why)


async def test_a_banned_client_is_refused_with_that_reason_before_it_can_publish(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway, doors(gateway) as found:
        await prepare(gateway, "banned")
        code, why = await found[0].publish("plain", b"1")
        assert (code, "the address is banned" in why) == (0x8A, True), why


@pytest.mark.parametrize("topic", ["private/a", "small", "typed"])
async def test_a_delayed_message_gets_the_verdict_at_once(tmp_path: Path, topic: str) -> None:
    async with running_gateway(tmp_path, topic_policies=POLICIES, limits=LIMITS) as gateway, doors(gateway) as found:
        await prepare(gateway, topic)
        expected = next((each[2], each[4]) for each in CASES if each[0] == topic)
        for door in found:
            if door.name not in expected[1]:
                name = f"$delayed/60/{topic}"
                shown = name.replace("$", "%24") if door.name == "HTTP" else name
                got, why = await door.publish(shown, b'"x"')
                assert got == expected[0], (door.name, hex(got), why)


async def test_a_publisher_over_its_quota_gets_the_same_verdict_where_its_link_is_not_held(tmp_path: Path) -> None:
    quotas = QuotaOptions(messages_per_s=0.01)
    async with running_gateway(tmp_path, quotas=quotas) as gateway, doors(gateway) as found:
        for door in found:
            if door.name not in ("MQTT", "program"):
                for _ in range(2):
                    await door.publish("a", b"1")
                got, why = await door.publish("a", b"1")
                assert (got, why) == (0x97, "the client publishes more than its quota allows (quotas)"), door.name


@pytest.mark.parametrize("name", ["MQTT", "HTTP", "bulk", "program", "answer"])
async def test_no_door_loses_a_burst_that_a_client_reads(tmp_path: Path, name: str) -> None:
    limits = Limits(max_queued_messages=100, max_inflight=10, max_block_s=60.0, min_drain_rate=1)
    async with running_gateway(tmp_path, limits=limits) as gateway:
        broker = gateway.broker

        async def answer(topic: str, payload: bytes) -> Verdict:
            """As the answer to a command is published, or a dead letter."""
            core, now = core_of(broker), asyncio.get_running_loop().time()
            ticket = core.publish(topic.encode(), payload, 1, False, now, source=THE_BROKER)
            await loop_driver_of(broker).finish(ticket)
            return ticket.tally.code, ""

        async with (
            doors(gateway) as found,
            Client("127.0.0.1", broker.port, receive_maximum=10) as reader,
            Client("127.0.0.1", broker.port) as client,
        ):

            async def over_one_connection(topic: str, payload: bytes) -> Verdict:
                return int((await client.publish(topic, payload, qos=1)).reason_code), ""

            ways = {door.name: door.publish for door in found}
            publish = {**ways, "answer": answer, "MQTT": over_one_connection}[name]
            await reader.subscribe("burst", qos=1)
            publishing = asyncio.gather(*(publish("burst", b"%d" % number) for number in range(BURST)))
            messages = aiter(reader.messages)
            async with asyncio.timeout(60):
                got = {(await anext(messages)).payload for _ in range(BURST)}
                assert set(await publishing) == {(0, "")}
        assert got == {b"%d" % number for number in range(BURST)}


async def test_a_publish_that_waits_ends_with_the_broker(tmp_path: Path) -> None:
    limits = Limits(max_queued_messages=1, max_block_s=60.0)
    async with running_gateway(tmp_path, topic_policies=POLICIES, limits=limits) as gateway:
        async with Client("127.0.0.1", gateway.broker.port, client_id="away", session_expiry_interval=60) as away:
            await away.subscribe("blocked", qos=1)
        assert await gateway.broker.publish("blocked", qos=1) == 0
        waiting = asyncio.create_task(gateway.broker.publish("blocked", qos=1))
        await asyncio.sleep(0)
        await gateway.broker.stop()
        with pytest.raises(ConnectionError, match="the broker stops"):
            await waiting
