"""Nodes on one machine that share a port: the system gives each new connection to one of them."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mqttlite import Client
from mqttlite.cli.main import main
from mqttlite.server import Broker
from tests.integration.nodes.test_nodes import Fleet, Reader, air, client_of, connected, fleet
from tests.support.device import until
from tests.support.inside import core_of

__all__ = ("air", "fleet")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])]

CLIENTS = 40
"""As many that by chance nearly never all of them are at the same of two nodes."""


def on(port: int) -> dict[str, Any]:
    return {"listeners": [{"port": port, "reuse_port": True}]}


def clients_at(broker: Broker) -> int:
    """Without other nodes."""
    return sum(not session.client_id.startswith("$") for session in core_of(broker).sessions.values())


async def test_each_of_two_nodes_on_one_port_gets_clients_and_one_that_stops_leaves_them_to_the_other(
    fleet: Fleet, unused_tcp_port: int
) -> None:
    port = unused_tcp_port
    a = await fleet.start("a", **on(port))
    b = await fleet.start("b", **on(port))
    await connected(a, b)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(a)) for _each in range(CLIENTS)]
        at_b = clients_at(b)
        assert 0 < at_b < CLIENTS
        assert clients_at(a) + at_b == CLIENTS
        reader = Reader(clients[0])
        await clients[0].subscribe("t", qos=1)
        for number, client in enumerate(clients):
            await client.publish("t", str(number), qos=1)
        await reader.gets(*map(str, range(CLIENTS)))
    await b.stop()
    async with AsyncExitStack() as stack:
        for _each in range(CLIENTS):
            await stack.enter_async_context(Client("127.0.0.1", port))
        await until(lambda: clients_at(a) == CLIENTS)


async def test_a_broker_that_does_not_share_its_port_does_not_start_beside_nodes_that_do(
    fleet: Fleet, unused_tcp_port: int
) -> None:
    port = unused_tcp_port
    await fleet.start("a", **on(port))
    with pytest.raises(OSError, match="the port is in use"):
        await fleet.start("b", listeners=[{"port": port}])


async def test_check_says_nothing_of_a_port_that_another_node_shares(
    fleet: Fleet, tmp_path: Path, unused_tcp_port: int
) -> None:
    port = unused_tcp_port
    await fleet.start("a", **on(port))
    config = tmp_path / "b.toml"
    for reuses, said in (("true", False), ("false", True)):
        config.write_text(
            f'data_dir = ""\n[[listeners]]\nport = {port}\nreuse_port = {reuses}\n'
            '[nodes]\nservers = ["nats://127.0.0.1:4222"]\nnode = "b"\n'
        )
        result = await asyncio.to_thread(CliRunner().invoke, main, ["config", "check", str(config)])
        assert (f"port {port} of 127.0.0.1 is in use now" in result.stderr) is said
