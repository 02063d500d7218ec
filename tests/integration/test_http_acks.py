"""An HTTP caller that finishes messages of a group and publishes their result in one commit."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.gateway.caller import Role
from mqttlite.wire.packets import Publish
from tests.integration.conftest import Rig
from tests.support.gateway import GatewayUnderTest, running_gateway

STREAMS = (StreamOptions(name="jobs", filters=("work/#",), partitions=1), StreamOptions(name="out", partitions=1))
GROUP = "$share/g/$stream/jobs@earliest"
PUBLISH = "/topics/$stream/out"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with running_gateway(tmp_path, streams=STREAMS) as under_test:
        yield under_test


async def lag(gateway: GatewayUnderTest) -> int:
    async with gateway.client(Role.VIEWER) as client:
        (group,) = (await client.get("/api/v1/streams/jobs/groups")).json()["items"]
    return int(group["lag"])


async def results(gateway: GatewayUnderTest) -> list[str]:
    async with gateway.client(Role.OPERATOR) as client:
        found = (await client.get("/api/v1/streams/out/messages")).json()
    return [each["payload"] for each in found["messages"]]


@pytest.mark.long
async def test_a_result_and_what_it_was_made_of_are_one_request(rig: Rig, gateway: GatewayUnderTest) -> None:
    for each in "abc":
        await gateway.broker.publish("work/a", each.encode(), qos=1)
    member = await rig.device(gateway.broker.port, "m")
    assert await member.subscribe(GROUP, 1) == b"\x01"
    assert (await member.expect(Publish)).payload == b"a"
    async with gateway.client(Role.USER) as client:
        busy = await client.post(PUBLISH, params={"acks": f"{GROUP} 0:0"}, content=b"A")
        assert busy.status_code != 200, busy.text
        assert "of a member" in busy.json()["detail"]
        assert await results(gateway) == []
        await member.disconnect()

        one = await client.post(PUBLISH, params={"acks": f"{GROUP} 0:1", "dedup_id": "x"}, content=b"AB")
        assert one.status_code == 200, one.text
        assert await lag(gateway) == 1
        again = await client.post(PUBLISH, params={"acks": f"{GROUP} 0:1", "dedup_id": "x"}, content=b"AB")
        assert again.status_code == 200, "the answer was lost"
        other = await client.post(PUBLISH, params={"acks": f"{GROUP} 0:1"}, content=b"AB")
        assert "is finished" in other.json()["detail"], "another worker was faster"
        slow = await client.post(PUBLISH, params={"acks": f"{GROUP} 0:0-2"}, content=b"ABC")
        assert (slow.status_code, "position of the group, which is 2" in slow.json()["detail"]) == (422, True)
        message = {"topic": "$stream/out", "payload": "C", "encoding": "text", "qos": 1, "acks": [f"{GROUP} 0:2-2"]}
        bulk = await client.post("/api/v1/publish/bulk", json=[message, message])
        assert (bulk.json()["published"], bulk.json()["refused"]) == (1, 1), bulk.text
        assert await lag(gateway) == 0
        for wrong in (f"{GROUP} 0:3", f"{GROUP} 1:0", "$share/none/$stream/jobs 0:0", "work/a 0:0", f"{GROUP} x"):
            refused = await client.post(PUBLISH, params={"acks": wrong}, content=b"D")
            assert "acks: " in refused.json()["detail"], wrong
        for topic in ("plain", "work/a", "$stream/$create/out2"):
            elsewhere = await client.post(f"/topics/{topic}", params={"acks": f"{GROUP} 0:3"}, content=b"D")
            assert elsewhere.status_code == 422, (topic, elsewhere.text)
            assert "only a message to $stream/<name> finishes others" in elsewhere.json()["detail"], topic
            message = {"topic": topic, "acks": [f"{GROUP} 0:3"]}
            assert (await client.post("/api/v1/publish/bulk", json=[message])).json()["refused"] == 1, topic
        many = await client.post(PUBLISH, params={"acks": ["x"] * 101}, content=b"D")
        assert "100 at most" in many.json()["detail"]
    assert await results(gateway) == ["AB", "C"]


@pytest.mark.long
async def test_a_caller_that_may_not_read_the_stream_finishes_nothing(tmp_path: Path, rig: Rig) -> None:
    access = tmp_path / "acl"
    access.write_text("user key-user\ntopic write $stream/out\n")
    async with running_gateway(tmp_path / "data", streams=STREAMS, acl_file=str(access)) as gateway:
        await gateway.broker.publish("work/a", b"a", qos=1)
        async with gateway.client(Role.USER) as client:
            refused = await client.post(PUBLISH, params={"acks": f"{GROUP} 0:0"}, content=b"A")
            assert refused.status_code != 200
            assert "no subscription of this client" in refused.json()["detail"], refused.text
