"""Mount points of listeners and of callers over HTTP, over sockets and over a restart."""

import json
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import connect

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.checks import conflicts
from mqttlite.config.http import HttpOptions
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.gateway.mount_point import MountPoint
from mqttlite.gateway.topics import Topics
from mqttlite.security.topic_records import TopicRecord
from mqttlite.server import Broker
from mqttlite.wire.packets import Publish
from tests.integration.conftest import Rig
from tests.integration.test_gateway_streams import stream
from tests.support.gateway import running_gateway


async def test_a_listener_puts_its_clients_below_its_mount_point(rig: Rig, tmp_path: Path) -> None:
    config = Config(
        listeners=(ListenerOptions(port=0), ListenerOptions(port=0, mount_point="site7/")), data_dir=str(tmp_path)
    )
    async with Broker(config) as broker:
        outside_port, inside_port = (listener.port for listener in broker.listeners)
        inside = await rig.device(inside_port, "inside", expiry=100)
        await inside.subscribe("t/#", 1)
        await inside.disconnect()
        outside = await rig.device(outside_port, "outside")
        outside.publish("site7/t/1", b"x", 1)
        outside.publish("t/1", b"y", 1)
        await outside.disconnect()
    async with Broker(config) as broker:
        inside = await rig.device(broker.listeners[1].port, "inside", clean_start=False, expiry=100)
        message = await inside.expect(Publish)
        assert (message.topic, message.payload) == (b"t/1", b"x")
        await inside.disconnect()


@pytest.mark.long
async def test_callers_over_http_are_below_theirs(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"mount_point": "site7/"}, users=("ann",)) as gateway:
        outside, ann = aiter(gateway.broker.subscribe("#", qos=1)), gateway.user("ann")
        for topic in ("secret", "site7/r"):
            await gateway.broker.publish(topic, b"1", retain=True)
            await anext(outside)
        assert [(await ann.get(f"/topics/{each}")).status_code for each in ("r", "secret", "site7/r")] == [
            200,
            404,
            404,
        ]
        made = (await ann.post("/api/v1/topics", json={"name": "a", "permissions": "PRIVATE"})).json()
        path = f"/api/v1/topics/{made['topic_id']}"
        assert (made["name"], (await ann.get("/api/v1/topics")).json()) == ("a", {"topics": [made], "cursor": None})
        host = f"127.0.0.1:{gateway.gateway.port}"
        token = gateway.users["ann"]
        durable = await gateway.named_stream("#", key=token, client_id="d")
        async with stream(gateway, f"{durable}&token={token}") as events:
            assert (await events.next())["topic"] == "r"
            assert (await ann.post(f"{path}/publish", json={"payload": 1, "qos": 1})).json()["delivered_to"] == 2
            assert (await anext(outside)).topic == "site7/a"
            assert (await events.next())["topic"] == "a"
        changed = await gateway.named_stream("a", key=token, client_id="d")
        async with stream(gateway, f"{changed}&token={token}"):  # only this filter remains
            found = gateway.broker.admin.client("d")
            assert found is not None
            assert found.topic_filters == {"site7/a": 1}
        async with connect(f"ws://{host}/ws/subscribe?topic_id={made['topic_id']}&token={token}") as socket:
            assert json.loads(await socket.recv())["topic"] == "a"
            await socket.send(json.dumps({"type": "publish", "topic": "a", "payload": 2, "id": 1}))
            received = [json.loads(await socket.recv()) for _ in range(2)]
            assert {each.get("topic") for each in received} == {None, "a"}
            await socket.send(json.dumps({"type": "presence", "topic": "a"}))
            assert json.loads(await socket.recv())["type"] == "subscribed"
        answers = [await ann.put(f"/topics/{each}", content=b"") for each in ("", "a/+", "$SYS/x")]
        assert [each.status_code for each in answers] == [422, 422, 403]
        assert (await ann.get("/v1/projects/p/topics")).json()["error"]["status"] == "UNIMPLEMENTED"
        assert (await gateway.client().get("/api/v1/me")).json()["role"] == "user"  # it sees no other topics


def test_a_topic_elsewhere_is_none_of_theirs() -> None:
    record = TopicRecord(topic_id="t-1", name="site7/a", owner=None, created_at=0.0)
    points = {each: MountPoint(each, NAMESPACES) for each in ("", "site7/", "site8/")}
    found = {each: Topics([record], None, None, point).get("t-1") for each, point in points.items()}
    assert found == {"": record, "site7/": record, "site8/": None}


def test_where_a_listener_has_one_the_gateway_s_has_to_be_said() -> None:
    config = Config(listeners=(ListenerOptions(mount_point="site7/"),), http=HttpOptions())
    assert [each.path for each in conflicts(config)] == ["http.mount_point"]
    for said in ("", "site7/"):
        assert not list(conflicts(msgspec.structs.replace(config, http=HttpOptions(mount_point=said))))
