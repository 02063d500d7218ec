"""Machines of a cluster: one serves, and another goes on where it ends."""

from pathlib import Path

from mqttlite.client import Client
from mqttlite.extensions.cluster.engine.memory import MemoryServers
from tests.support.cluster import Machine


async def test_another_machine_goes_on_with_the_sessions_of_one_that_stops(tmp_path: Path) -> None:
    servers = MemoryServers()
    a = Machine("a", servers, tmp_path / "a")
    b = Machine("b", servers, tmp_path / "b")
    await a.start()
    broker = await a.serves()
    await b.start()
    async with Client(
        "127.0.0.1", broker.port, client_id="s", clean_start=False, session_expiry_interval=600
    ) as client:
        await client.subscribe("t/#", qos=1)
    async with Client("127.0.0.1", broker.port) as client:
        for number in range(100):
            await client.publish(f"t/{number}", b"x", qos=1)
    await a.stop()
    broker = await b.serves()
    got = []
    async with Client(
        "127.0.0.1", broker.port, client_id="s", clean_start=False, session_expiry_interval=600
    ) as client:
        async for message in client.messages:
            got.append(message.topic)
            if len(got) == 100:
                break
    assert got == [f"t/{number}" for number in range(100)]
    await b.stop()
