"""Streams are made, looked at, moved and deleted by publishing, with answers, also from clients of MQTT 3.1.1."""

import json
from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.streams.limits import MAX_COMMAND_BYTES
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish
from tests.integration.conftest import Rig
from tests.integration.test_queues_over_mqtt import NO_SUBSCRIBERS, POLICY, UNAUTHORIZED, tell, told
from tests.support.device import Device

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

JOBS = StreamOptions(name="jobs", filters=("work/#",), partitions=2)

OPERATOR = """
topic readwrite ops/#
topic readwrite work/#
topic readwrite mine/#
topic write $stream/+/$create
topic write $stream/+/$delete
topic write $stream/+/$seek
topic write $stream/+/$offsets
topic write $stream/+/$snapshot
topic read $stream/jobs
"""


async def ask(device: Device, stream: str, command: str, payload: str = "") -> dict[str, Any]:
    assert await tell(device, f"$stream/{stream}/{command}/ops/answers", payload) == 0
    return await told(device)


async def test_an_operator_makes_moves_and_deletes_a_stream_by_publishing(rig: Rig, tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text(OPERATOR)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), acl_file=str(acl)))
    client = await rig.device(broker.port, "c", V311)
    await client.subscribe("ops/#", 0)
    wanted = {"filters": ["work/#"], "partitions": 2, "last_value": True}
    found = await ask(client, "jobs", "$create", json.dumps(wanted))
    assert (found["name"], found["filters"], found["last_value"], found["origin"]) == (
        "jobs",
        ["work/#"],
        True,
        "admin",
    )
    for body, error in (
        (wanted, "there is a stream jobs already"),
        (wanted | {"filters": ["secret/#"]}, "takes the permission to subscribe to that"),
        (wanted | {"name": "other"}, "name is 'other', and the topic says 'jobs'"),
        (wanted | {"partitions": 0}, "partitions is 0"),
        (wanted | {"colour": "red"}, "colour"),
        ([], "no JSON of the form the options of a stream"),
    ):
        assert error in (await ask(client, "jobs", "$create", json.dumps(body)))["error"]
    for payload in ("1", "2", "3"):
        await tell(client, "work/a", payload)
    member = await rig.device(broker.port, "member")
    await member.subscribe("$share/billing/$stream/jobs@earliest", 0)
    assert [(await member.expect(Publish)).payload for _ in range(3)] == [b"1", b"2", b"3"]

    snapshot = (await ask(client, "jobs", "$snapshot"))["positions"]
    assert snapshot in ("0:3,1:0", "0:0,1:3")
    found = await ask(client, "jobs", "$offsets")
    assert sorted(each["messages"] for each in found["partitions"]) == [0, 3]
    assert found["groups"] == [{"name": "billing", "positions": snapshot, "lag": 0}]
    assert await ask(client, "jobs", "$offsets", '{"at": "earliest"}') == {"at": "earliest", "positions": "0:0,1:0"}
    assert (await ask(client, "jobs", "$offsets", '{"at": "2020-01-01"}'))["positions"] == "0:0,1:0"
    assert (await ask(client, "jobs", "$offsets", '{"at": "2120-01-01"}'))["positions"] == snapshot
    assert (await ask(client, "jobs", "$offsets", '{"at": "0:9,1:0"}'))["positions"] == snapshot.replace("1:3", "1:0")
    moved = {"group": "billing", "positions": "0:0,1:0"}
    assert await ask(client, "jobs", "$seek", '{"group": "billing", "to": "earliest"}') == moved
    assert [(await member.expect(Publish)).payload for _ in range(3)] == [b"1", b"2", b"3"]
    back = json.dumps({"group": "billing", "to": snapshot})
    assert await ask(client, "jobs", "$seek", back) == {"group": "billing", "positions": snapshot}
    assert await ask(client, "jobs", "$offsets", '{"group": "billing"}') == {"group": "billing", "positions": snapshot}
    for command, payload, error in (
        ("$seek", '{"group": "other", "to": "earliest"}', "has no group 'other'"),
        ("$seek", '{"group": "billing", "to": "noon"}', "'noon' is no position"),
        ("$seek", '{"group": "billing"}', "no JSON of the form"),
        ("$offsets", '{"group": "other"}', "has no group 'other'"),
        ("$offsets", '{"at": "7:0"}', "jobs has the partitions 0 to 1"),
        ("$offsets", "\xff", "no JSON of the form"),
    ):
        assert error in (await ask(client, "jobs", command, payload))["error"], command
    assert await ask(client, "jobs", "$delete") == {"deleted": True}
    assert broker._assembly.streams is not None
    assert broker._assembly.streams.names == []


async def test_an_answer_comes_to_the_response_topic(rig: Rig) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), streams=(JOBS,)))
    client = await rig.device(broker.port, "c", V5)
    await client.subscribe("ops/here", 0)
    assert await tell(client, "$stream/jobs/$snapshot", response_topic="ops/here", correlation_data=b"7") == 0
    packet = await client.expect(Publish)
    assert packet.properties.correlation_data == b"7"
    assert json.loads(packet.payload) == {"stream": "jobs", "positions": "0:0,1:0"}
    assert await tell(client, "$stream/jobs/$seek", '{"group": "g", "to": "latest"}') == 0, "nobody asks for an answer"


async def test_a_forbidden_command_is_refused_at_once(rig: Rig, tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text(
        "topic write $stream/jobs\ntopic write $stream/jobs/$seek\ntopic write $stream/nothing/$seek\n"
        "topic readwrite work/ops/ok\n"
    )
    listeners = tuple(ListenerOptions(port=0, mount_point=each) for each in ("", "work/", "x/"))
    broker = await rig.broker(Config(listeners=listeners, streams=(JOBS,), acl_file=str(acl)))
    client = await rig.device(broker.port, "c")
    seek = '{"group": "g", "to": "earliest"}'
    for topic, payload, code in (
        ("$stream/jobs/$seek", seek, 0),
        ("$stream/jobs/$seek/ops/other", seek, UNAUTHORIZED),
        ("$stream/jobs/$seek/$stream/jobs", seek, UNAUTHORIZED),
        ("$stream/jobs/$offsets", "", UNAUTHORIZED),
        ("$stream/jobs/$create", "{}", UNAUTHORIZED),
        ("$stream/new/$create", "{}", UNAUTHORIZED),
        ("$stream/jobs/$delete", "", UNAUTHORIZED),
        ("$stream/nothing/$seek", seek, NO_SUBSCRIBERS),
        ("$stream/jobs/$seek", " " * MAX_COMMAND_BYTES + seek, POLICY),
    ):
        assert await tell(client, topic, payload) == code, topic
    outside = await rig.device(broker.listeners[2].port, "outside")
    assert await tell(outside, "$stream/jobs/$seek", seek) == NO_SUBSCRIBERS
    inside = await rig.device(broker.listeners[1].port, "inside")
    await inside.subscribe("ops/ok", 0)
    assert await tell(inside, "$stream/jobs/$seek/ops/ok", seek) == 0
    assert "has no group" in (await told(inside))["error"]


async def test_a_group_of_a_thousand_partitions_is_moved_by_one_command(rig: Rig) -> None:
    many = StreamOptions(name="many", filters=("many/#",), partitions=1_000)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), streams=(many,)))
    client = await rig.device(broker.port, "c", V5)
    await client.subscribe("$share/g/$stream/many", 1)
    await client.subscribe("ops/here", 0)
    everywhere = ",".join(f"{partition}:{0:015d}" for partition in range(1_000))
    seek = json.dumps({"group": "g", "to": everywhere})
    assert len(seek) > 4_096
    assert await tell(client, "$stream/many/$seek", seek, response_topic="ops/here") == 0
    assert "positions" in json.loads((await client.expect(Publish)).payload)


async def test_without_rules_no_client_makes_or_deletes_a_stream(rig: Rig) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), streams=(JOBS,)))
    client = await rig.device(broker.port, "c", V5)
    assert await tell(client, "$stream/jobs/$delete") == UNAUTHORIZED
    assert await tell(client, "$stream/new/$create", "{}") == UNAUTHORIZED
    assert await tell(client, "$stream/jobs/$offsets") == 0


async def test_a_client_below_a_mount_point_makes_streams_there(rig: Rig, tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text(OPERATOR)
    listeners = (ListenerOptions(port=0, mount_point="mine/"),)
    broker = await rig.broker(Config(listeners=listeners, acl_file=str(acl)))
    client = await rig.device(broker.port, "c", V5)
    await client.subscribe("ops/#", 0)
    assert (await ask(client, "jobs", "$create", '{"filters": ["a/#"]}'))["filters"] == ["a/#"]
    streams = broker._assembly.streams
    assert streams is not None
    assert streams.state("jobs").filters == ("mine/a/#",)
