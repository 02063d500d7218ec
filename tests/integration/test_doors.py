"""One message through every door: the same verdict, and nothing lost that a client would not lose."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from mqttlite.client import Client, MqttError
from mqttlite.core.limits import Limits
from mqttlite.gateway.caller import Role
from mqttlite.security.topic_policies import TopicPolicyOptions
from tests.support.gateway import GatewayUnderTest, running_gateway

pytestmark = pytest.mark.slow

POLICIES = (
    TopicPolicyOptions(prefix="private", access="PRIVATE"),
    TopicPolicyOptions(prefix="small", max_payload_bytes=1),
    TopicPolicyOptions(prefix="full", on_overflow="reject"),
    TopicPolicyOptions(prefix="blocked", on_overflow="block"),
    TopicPolicyOptions(prefix="low", priority="low"),
)
LIMITS = Limits(max_queued_messages=1, max_block_s=0.2)
BURST = 300


class Door(NamedTuple):
    name: str
    publish: Callable[[str, bytes], Awaitable[int]]
    """Publishes at QoS 1. The code is that of a PUBACK."""


STATUS = {200: 0, 403: 0x87, 422: 0x83, 429: 0x97}


@asynccontextmanager
async def doors(gateway: GatewayUnderTest) -> AsyncIterator[list[Door]]:
    http = gateway.client(Role.ADMIN)

    async def over_http(topic: str, payload: bytes) -> int:
        answer = await http.put(f"/topics/{topic}?qos=1", content=payload)
        code = STATUS[answer.status_code]
        return 0x10 if answer.status_code == 200 and answer.json()["reason"] == "no_subscribers" else code

    async def in_bulk(topic: str, payload: bytes) -> int:
        body = [{"topic": topic, "payload": payload.decode(), "encoding": "text", "qos": 1}]
        answer = (await http.post("/api/v1/publish/bulk", json=body)).json()
        if not answer["refused"]:
            return 0x10 if "no_subscribers" in answer["reasons"] else 0
        return {"not_authorized": 0x87, "policy_refuses": 0x83, "quota_exceeded": 0x97}[answer["errors"][0]["code"]]

    async with Client("127.0.0.1", gateway.broker.port) as client:

        async def over_mqtt(topic: str, payload: bytes) -> int:
            try:
                return int((await client.publish(topic, payload, qos=1)).reason_code)
            except MqttError as error:
                return int(getattr(error, "reason_code", 0) or 0)

        async def by_the_program(topic: str, payload: bytes) -> int:
            return int(await gateway.broker.publish(topic, payload, qos=1))

        yield [
            Door("MQTT", over_mqtt),
            Door("HTTP", over_http),
            Door("bulk", in_bulk),
            Door("program", by_the_program),
        ]


@pytest.mark.parametrize(
    ("topic", "payload", "code", "not_for"),
    [
        ("plain", b"x", 0, ""),
        ("nobody", b"x", 0x10, ""),
        ("private/a", b"x", 0x87, "program"),  # which the rules do not bind
        ("small", b"xx", 0x83, ""),
        ("full", b"x", 0x97, ""),
        ("blocked", b"x", 0x97, ""),
        ("low", b"x", 0x97, ""),
    ],
)
async def test_every_door_gives_the_same_verdict(
    tmp_path: Path, topic: str, payload: bytes, code: int, not_for: str
) -> None:
    async with running_gateway(tmp_path, topic_policies=POLICIES, limits=LIMITS) as gateway:
        async with Client("127.0.0.1", gateway.broker.port, client_id="away", session_expiry_interval=60) as away:
            for each in ("full", "blocked"):
                await away.subscribe(each, qos=1)
        async with doors(gateway) as found, Client("127.0.0.1", gateway.broker.port) as reader:
            for each in ("plain", "low", "small"):
                await reader.subscribe(each, qos=1)
            if topic in ("full", "blocked"):
                assert await gateway.broker.publish("full", b"the one for which there is room", qos=1) == 0
            gateway.broker._core.effects.sheds_low_priority = topic == "low"
            verdicts = {door.name: await door.publish(topic, payload) for door in found if door.name != not_for}
        assert verdicts == dict.fromkeys(verdicts, code)


@pytest.mark.parametrize("at", range(4))
async def test_no_door_loses_a_burst_that_a_client_reads(tmp_path: Path, at: int) -> None:
    limits = Limits(max_queued_messages=100, max_inflight=10, max_block_s=60.0, min_drain_rate=1)
    async with running_gateway(tmp_path, limits=limits) as gateway:
        async with doors(gateway) as found, Client("127.0.0.1", gateway.broker.port, receive_maximum=10) as reader:
            await reader.subscribe("burst", qos=1)
            publishing = asyncio.gather(*(found[at].publish("burst", b"%d" % number) for number in range(BURST)))
            messages = aiter(reader.messages)
            async with asyncio.timeout(30):
                got = {(await anext(messages)).payload for _ in range(BURST)}
                assert set(await publishing) == {0}
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
