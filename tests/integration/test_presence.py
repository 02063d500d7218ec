"""Presence by topic over real sockets: dead links, restarts, reloads, and what it costs where nobody asks."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.server import Broker
from mqttlite.wire.packets import Unsuback, Unsubscribe
from tests.integration.conftest import Rig
from tests.support.device import Device
from tests.support.inside import core_of

ON_JUMPING_LOOP = pytest.mark.asyncio(loop_factories=["asyncio"])
ROOMS = TopicPolicyOptions(prefix="rooms", presence=True)
SNAPSHOT, EVENT = "$SYS/broker/presence/rooms/1", "$SYS/broker/presence_events/rooms/1"


def config_with(*policies: TopicPolicyOptions, **options: Any) -> Config:
    return Config(listeners=(ListenerOptions(port=0),), topic_policies=policies, **options)


async def until_count(device: Device, count: int) -> dict[str, Any]:
    """The first snapshot with so many members."""
    while True:
        topic, payload = await device.message()
        if topic == SNAPSHOT and payload and json.loads(payload)["count"] == count:
            return json.loads(payload)  # type: ignore[no-any-return]


@ON_JUMPING_LOOP
async def test_a_dead_link_is_gone_after_its_keep_alive(rig: Rig, jump: Callable[[float], None]) -> None:
    broker = await rig.broker(config_with(ROOMS))
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe(SNAPSHOT)
    dead = await rig.device(broker.port, "dead", keep_alive=30)
    await dead.subscribe("rooms/1")
    assert (await until_count(watcher, 1))["members"][0]["client_id"] == "dead"
    jump(46)
    await until_count(watcher, 0)


@pytest.mark.long
async def test_a_dead_broker_leaves_no_client_behind(rig: Rig, tmp_path: Path) -> None:
    config = config_with(ROOMS, data_dir=str(tmp_path))
    async with Broker(config) as broker:
        anna = await rig.device(broker.port, "anna", expiry=3_600)
        await anna.subscribe("rooms/1", qos=1)
        watcher = await rig.device(broker.port, "watcher")
        await watcher.subscribe(SNAPSHOT)
        await until_count(watcher, 1)
    async with Broker(config) as broker:
        assert core_of(broker).sessions.get("anna") is not None
        watcher = await rig.device(broker.port, "watcher")
        await watcher.subscribe(SNAPSHOT)
        await until_count(watcher, 0)
        await rig.device(broker.port, "anna", clean_start=False, expiry=3_600)
        await until_count(watcher, 1)
        await watcher.disconnect()


async def test_a_reload_turns_it_on_and_off(rig: Rig) -> None:
    config = config_with(TopicPolicyOptions(prefix="rooms"))
    broker = await rig.broker(config)
    anna = await rig.device(broker.port, "anna")
    await anna.subscribe("rooms/1")
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("$SYS/broker/presence/#")
    assert core_of(broker).effects.tracer is None, "it costs nothing where no policy asks for it"
    await broker.reload(replace_policies(config, ROOMS))
    await until_count(watcher, 1)
    await broker.reload(replace_policies(config))
    while await watcher.message() != (SNAPSHOT, b""):
        pass


def replace_policies(config: Config, *policies: TopicPolicyOptions) -> Config:
    return msgspec.structs.replace(config, topic_policies=policies)


async def test_a_subscriber_inside_the_program_sees_it_too(rig: Rig) -> None:
    broker = await rig.broker(config_with(ROOMS))
    anna = await rig.device(broker.port, "anna")
    async with broker.subscribe(EVENT) as subscription:
        await anna.subscribe("rooms/1")
        event = json.loads((await anext(subscription)).payload)
    assert [each["client_id"] for each in event["joined"]] == ["anna"]


@pytest.mark.slow
@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_a_client_that_comes_and_goes_is_seen_within_a_second(rig: Rig) -> None:
    """1,000 clients come to a room and leave it, two seconds apart; the watcher has each latency."""
    broker = await rig.broker(config_with(ROOMS))
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("$SYS/broker/presence_events/rooms/+")
    loop = asyncio.get_running_loop()
    changes: dict[tuple[str, str], float] = {}
    latencies: list[float] = []

    async def come_and_go(number: int) -> None:
        chance = random.Random(number)
        device = await rig.device(broker.port, f"c{number}")
        topic = f"rooms/{number % 10}"
        for _ in range(2):
            await asyncio.sleep(chance.uniform(1.5, 3))
            changes[(device.client_id, "joined")] = loop.time()
            await device.subscribe(topic)
            await asyncio.sleep(chance.uniform(1.5, 3))
            changes[(device.client_id, "left")] = loop.time()
            device.send(Unsubscribe(device.packet_id(), (topic.encode(),)))
            await device.expect(Unsuback)

    async def watch() -> None:
        while True:
            event = json.loads((await watcher.message())[1])
            for what in ("joined", "left"):
                assert len(event[what]) == event[f"{what}_count"], "each is named"
                latencies.extend(loop.time() - changes.pop((each["client_id"], what)) for each in event[what])

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(come_and_go(number) for number in range(1_000)))
    await asyncio.sleep(2)
    watching.cancel()
    latencies.sort()
    print(f"p50 {latencies[len(latencies) // 2]:.3f} s, p99 {latencies[len(latencies) * 99 // 100]:.3f} s")
    assert len(latencies) == 4_000
    assert not changes
    assert latencies[len(latencies) // 2] < 1, "the slowest depend on what else the machine does"
