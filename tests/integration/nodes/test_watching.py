"""Nodes as an operator watches them: an alarm, and a page of the dashboard."""

import html
import re
from pathlib import Path

import pytest

from mqttlite.event_hub import NODE_AWAY, Listener
from mqttlite.extensions.nodes import nodes as nodes_module
from mqttlite.extensions.nodes.options import NodesOptions
from mqttlite.gateway.caller import Role
from tests.integration.nodes.test_nodes import Fleet, air, connected, fleet
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
        assert "b connected 0 0 0 B" in text
        assert 'href="/ui/nodes" aria-current="page"' in page.text
        statuses = [(await gateway.client(role).get("/ui/nodes")).status_code for role in (None, *Role)]
        assert statuses == [401, *(200 if role >= Role.VIEWER else 403 for role in Role)]


async def test_a_broker_alone_has_no_page_of_nodes(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        assert not [path for _, path in routes_of(gateway.gateway.app) if "ui/nodes" in path]
        assert "/ui/nodes" not in (await gateway.client(Role.VIEWER).get("/")).text
