"""The dashboard's page of a cluster and its route, of a machine that has heard of two others."""

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from mqttlite.engine.memory import MemoryServers
from mqttlite.engine.port import Bounds, Entry
from mqttlite.extensions.cluster import keys, lease, status
from mqttlite.extensions.cluster.disk import DataDirectory
from mqttlite.extensions.cluster.figures import ClusterFigures
from mqttlite.extensions.cluster.node import Node
from mqttlite.extensions.cluster.options import ClusterOptions
from mqttlite.gateway.caller import Role
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, routes_of, running_gateway

REASON = "cannot listen on <127.0.0.1:1883>: the port is in use"

SAID: tuple[tuple[str, status.Role, str, int], ...] = (
    ("a", "serves", "", 90),
    ("b", "cannot serve", REASON, 60),
    ("c", "follows", "", 95),
)
"""The name, role, problem and position of each machine. The last has said so after the log was looked at."""


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    """A machine that has the lease, for the third time."""
    options = ClusterOptions(servers=("nats://127.0.0.1:4222",), node="a")
    servers = MemoryServers()
    engine = servers.connect()
    node = Node(options, DataDirectory(tmp_path / "data"), engine)
    await engine.put(keys.LEASE, lease.encode(lease.Holder("b", "r", 2)), 0)
    for revision, (name, role, problem, position) in enumerate(SAID, 1):
        said = status.NodeStatus(
            node=name,
            run="r",
            role=role,
            problem=problem,
            position=position,
            durable=position - 10,
            addresses=(f"{name}:1883",),
            build="1.2",
            at=0.0,
        )
        node.machines.see(Entry(keys.NODES + name, status.encode(said), revision))
    node.log_room.bounds = Bounds(41, 90, 1 << 20, 4 << 20)
    entry = await engine.get(keys.LEASE)
    assert entry is not None
    node._lease.see(entry, 0.0)
    assert await node.turn.take()
    entry = await engine.get(keys.LEASE)
    assert entry is not None
    node._lease.see(entry, 0.0)
    return node


@pytest.fixture
async def gateway(tmp_path: Path, node: Node) -> AsyncIterator[GatewayUnderTest]:
    options = nobody_without_credentials(tmp_path)
    async with running_gateway(tmp_path, around=ClusterFigures(node), **options) as under_test:
        yield under_test


def text_of(page: httpx.Response) -> str:
    """What a person reads of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.text)).split())


async def test_the_route_shows_machines_lease_and_log(gateway: GatewayUnderTest) -> None:
    found = (await gateway.client(Role.VIEWER).get("/api/v1/cluster")).json()
    assert (found["machine"], found["serving"], found["turn"]) == ("a", "a", 3)
    assert 0.0 <= found["lease_age_s"] < 60.0
    assert found["serving_since"].startswith("20")
    assert (found["first"], found["last"], found["log_bytes"], found["log_limit_bytes"]) == (41, 90, 1 << 20, 4 << 20)
    assert found["servers_away"] == []
    machines = found["machines"]
    assert [(each["name"], each["role"], each["behind"], each["safe_up_to"]) for each in machines] == [
        ("a", "serves", 0, 80),
        ("b", "cannot serve", 30, 50),
        ("c", "follows", 0, 85),
    ]
    assert [each["problem"] for each in machines] == ["", REASON, ""]
    assert machines[1]["addresses"] == ["b:1883"]
    assert found["problem"] == f"the machine b could not serve: {REASON}"


async def test_the_page_names_a_machine_that_could_not_serve_with_its_reason(gateway: GatewayUnderTest) -> None:
    page = await gateway.client(Role.VIEWER).get("/ui/cluster")
    assert page.status_code == 200
    text = text_of(page)
    assert f"weak the machine b could not serve: {REASON}." in text
    assert f"b cannot serve 30 50 0 s ago b:1883 1.2 {REASON}" in text
    assert re.search(r"Has the lease a Lease renewed [\d.]+ s ago", text)
    assert "Size of the log 1.0 MiB of 4.0 MiB" in text
    assert "Turn 3" in text
    assert 'href="/ui/cluster" aria-current="page"' in page.text


async def test_a_lease_that_was_not_renewed_is_late(gateway: GatewayUnderTest, node: Node) -> None:
    held = node.turn._held
    assert held is not None
    held.renew(held.revision, node._loop.time() - lease.LEASE_S)
    page = text_of(await gateway.client(Role.VIEWER).get("/ui/cluster"))
    found = re.search(r"Lease renewed late ([\d.]+) s ago", page)
    assert found, page
    assert float(found[1]) >= lease.LEASE_S


@pytest.mark.parametrize("address", ["/ui/cluster", "/api/v1/cluster"])
async def test_viewers_and_higher_roles_see_the_cluster(gateway: GatewayUnderTest, address: str) -> None:
    statuses = [(await gateway.client(role).get(address)).status_code for role in (None, *Role)]
    assert statuses == [401, *(200 if role >= Role.VIEWER else 403 for role in Role)]


async def test_figures_are_those_of_the_page(node: Node) -> None:
    figures = ClusterFigures(node)
    assert figures.values()["cluster_behind"] == [
        ({"machine": "a"}, 0.0),
        ({"machine": "b"}, 30.0),
        ({"machine": "c"}, 0.0),
    ]
    assert dict(figures.sys_values())["cluster/machines/b/behind"] == "30"


async def test_a_broker_alone_shows_nothing_of_a_cluster(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        assert not [path for _, path in routes_of(gateway.gateway.app) if "cluster" in path]
        viewer = gateway.client(Role.VIEWER)
        assert "/ui/cluster" not in (await viewer.get("/")).text
        assert (await viewer.get("/ui/cluster")).status_code == 404
        assert (await viewer.get("/api/v1/cluster")).status_code == 404
