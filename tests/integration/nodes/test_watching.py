"""Nodes as an operator watches them: an alarm, and a page of the dashboard."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mqttlite.event_hub import NODE_AWAY, Listener
from mqttlite.extensions.nodes import nodes as nodes_module
from mqttlite.extensions.nodes.options import NodesOptions
from mqttlite.gateway.caller import Role
from tests.integration.nodes.test_nodes import Fleet, air, client_of, connected, fleet
from tests.support.air import Air
from tests.support.device import until
from tests.support.gateway import nobody_without_credentials, routes_of, running_gateway

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

__all__ = ["air", "fleet"]


class Alarms(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[bool, str]] = []

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        if alarm == NODE_AWAY:
            self.heard.append((active, detail))


async def test_an_alarm_is_active_while_a_node_is_away(fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_module, "AWAY_S", 0.05)
    a, b, c = await fleet.together("a", "b", "c")
    alarms = Alarms()
    a._assembly.hub.register(alarms)
    await b.stop()
    await until(lambda: alarms.heard == [(True, "node b is away: It was stopped.")])
    air.cut.add(frozenset("ac"))
    await until(lambda: len(alarms.heard) == 2)
    active, detail = alarms.heard[1]
    assert active
    assert re.fullmatch(r"node b is away: It was stopped\. node c is away: .*silent for 3 s\.", detail)
    air.cut.clear()
    await until(lambda: len(alarms.heard) == 3)
    assert alarms.heard[2] == alarms.heard[0]
    await connected(a, c, await fleet.start("b"))
    await until(lambda: alarms.heard[-1] == (False, ""))


async def test_a_node_that_nothing_waits_for_any_more_is_no_reason_for_an_alarm(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "AWAY_S", 0.05)
    a, b = [await fleet.start(name, keep_s=1) for name in "ab"]
    await connected(a, b)
    alarms = Alarms()
    a._assembly.hub.register(alarms)
    await b.stop()
    await until(lambda: [active for active, _ in alarms.heard] == [True, False])


async def test_the_dashboard_shows_the_other_nodes(fleet: Fleet, tmp_path: Path) -> None:
    options = NodesOptions(servers=("nats://127.0.0.1:4222",), node="a")
    async with running_gateway(tmp_path, nodes=options, **nobody_without_credentials(tmp_path)) as gateway:
        viewer = gateway.client(Role.VIEWER)
        assert "No other node was heard of yet." in (await viewer.get("/ui/nodes")).text
        b = await fleet.start("b")
        await connected(gateway.broker, b)
        page = await viewer.get("/ui/nodes")
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.text)).split())
        assert "This is node a." in text
        assert "b connected 0 0 0 0 0 0 0 B" in text
        assert 'href="/ui/nodes" aria-current="page"' in page.text
        statuses = [(await gateway.client(role).get("/ui/nodes")).status_code for role in (None, *Role)]
        assert statuses == [401, *(200 if role >= Role.VIEWER else 403 for role in Role)]


async def test_a_broker_alone_has_no_page_of_nodes(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        assert not [path for _, path in routes_of(gateway.gateway.app) if "ui/nodes" in path]
        assert "/ui/nodes" not in (await gateway.client(Role.VIEWER).get("/")).text


async def test_the_datasets_of_nodes_have_their_names_and_what_crosses(fleet: Fleet, tmp_path: Path) -> None:
    hidden = {"pseudonymise": ["client_ids"], "pseudonym_key_file": str(tmp_path / "key")}
    folders = {name: {"telemetry": {"directory": str(tmp_path / name), "format": "jsonl", **hidden}} for name in "ab"}
    a, b = [await fleet.start(name, **options) for name, options in folders.items()]
    await connected(a, b)
    async with client_of(b, "sub") as subscriber, client_of(a, "pub") as publisher:
        await subscriber.subscribe("t", qos=1)
        await publisher.publish("t", "x", qos=1)
        await anext(subscriber.messages)
    await a.stop()
    await b.stop()
    for table in ("sessions", "events", "activity"):
        rows = {name: rows_of(tmp_path / name, table) for name in "ab"}
        assert all(each.get("node", name) == name for name in "ab" for each in rows[name]), table
        crossed = {name: [each for each in rows[name] if each["client_id"] == f"$node/{other}"] for name, other in AB}
        assert all(crossed.values()), table
        if table == "activity":
            assert sum(each["messages_sent"] for each in crossed["a"]) == 1
            assert sum(each["messages_received"] for each in crossed["b"]) == 1


AB = (("a", "b"), ("b", "a"))


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    files = sorted(folder.rglob(f"table={table}/**/*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]
