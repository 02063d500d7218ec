"""What nodes say of themselves and of each other: alarms, load and rankings of all, seen at any."""

import asyncio
import json

import pytest

from mqttlite import Client
from mqttlite.event_hub import BRIDGE_AWAY
from mqttlite.gateway.caller import Role
from tests.integration.nodes.test_nodes import air, client_of, fleet, nodes_of
from tests.integration.nodes.test_operated import Three, three
from tests.support.air import Air
from tests.support.device import until
from tests.support.inside import assembly_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

__all__ = ["air", "fleet", "three"]


async def test_alarms_of_all_nodes_are_listed_at_any_of_them(three: Three) -> None:
    assert (await three.viewer.get("/api/v1/alarms")).json()["items"] == []
    assembly_of(three.b).hub.on_alarm(BRIDGE_AWAY, True, "site is away.")
    found = (await three.viewer.get("/api/v1/alarms")).json()
    ((alarm,), silent) = found["items"], found["silent"]
    assert (alarm["alarm"], alarm["detail"], alarm["node"], silent) == ("bridges", "site is away.", "b", [])
    shown = (await three.run("alarms")).stdout.rstrip("\n").split("\t")
    assert (shown[0], shown[2:]) == ("bridges", ["site is away.", "b"])
    page = (await three.viewer.get("/")).text
    assert "<strong>Node b, bridges:</strong> site is away." in page
    since = alarm["since"]
    assembly_of(three.b).hub.on_alarm(BRIDGE_AWAY, True, "two are away.")
    (alarm,) = (await three.viewer.get("/api/v1/alarms")).json()["items"]
    assert (alarm["since"], alarm["detail"]) == (since, "two are away.")
    assembly_of(three.b).hub.on_alarm(BRIDGE_AWAY, False, "")
    assert (await three.viewer.get("/api/v1/alarms", params={"node": "b"})).json()["items"] == []


async def test_a_silent_node_is_named_beside_the_alarms_of_others(three: Three, air: Air) -> None:
    air.cut.add(frozenset("ab"))
    found = (await three.viewer.get("/api/v1/alarms")).json()
    assert [each["node"] for each in found["silent"]] == ["b"]
    assert "its alarms are missing here" in (await three.viewer.get("/")).text


async def test_top_sums_up_all_nodes_and_shows_one_on_demand(three: Three) -> None:
    async def publish(client: Client, size: int) -> None:
        while True:
            await client.publish("t", b"x" * size, qos=1)
            await asyncio.sleep(0.05)

    async with client_of(three.b, "big") as big, client_of(three.c, "small") as small:
        tasks = [asyncio.create_task(publish(big, 50_000)), asyncio.create_task(publish(small, 500))]
        status = json.loads((await three.run("top", "--json")).stdout)
        assert status["nodes"] == ["a", "b", "c"]
        assert status["clients"]["sessions"] == 8  # those of nodes are six
        busy = [(each["client_id"], each["node"]) for each in status["top"]["bytes"] if "$" not in each["client_id"]]
        assert busy == [("big", "b"), ("small", "c")]
        alone = json.loads((await three.run("top", "--json", "--node", "c")).stdout)
        assert "nodes" not in alone
        assert alone["rates"]["bytes_received"] < 25_000 < status["rates"]["bytes_received"]
        text = (await three.run("top", "--once")).stdout
        assert "nodes      a, b, c" in text
        assert " at b\n" in text
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_each_node_knows_what_the_others_have_to_do(three: Three) -> None:
    async with client_of(three.b, "one"), client_of(three.b, "two"):
        await until(lambda: [each.clients for each in nodes_of(three.a).states()] == [4, 2])
        (b, _c) = (await three.viewer.get("/api/v1/nodes")).json()["items"]
        assert (b["clients"], b["sessions"], b["release"] != "") == (4, 4, True)
        told = dict(nodes_of(three.a).sys_values())
        assert (told["nodes/b/state"], told["nodes/b/clients"], told["nodes/a/state"]) == (
            "connected",
            "4",
            "connected",
        )
        nodes_of(three.b).drain.begin()
        await until(lambda: dict(nodes_of(three.a).sys_values())["nodes/b/state"] == "drained")


async def test_a_caller_who_may_not_see_the_status_sees_that_of_no_other_node(three: Three) -> None:
    assert (await three.gateway.client(Role.USER).get("/api/v1/alarms")).status_code == 403
    assert (await three.gateway.client(Role.USER).get("/api/v1/status")).status_code == 403
