"""The carrier of nodes on real NATS servers."""

import asyncio
import logging
from pathlib import Path

import pytest

from mqttlite.engine.nats.servers import NatsOptions
from mqttlite.extensions.nodes.carrier import CarrierLost
from mqttlite.extensions.nodes.nats_carrier import NatsCarrier
from tests.support.nats_servers import NatsServers

pytestmark = pytest.mark.slow

WAIT_S = 20.0


async def test_a_carrier_names_the_server_that_it_lost_and_goes_on_at_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = NatsServers(tmp_path, number=2, has_jetstream=False)
    received: list[bytes] = []
    options = NatsOptions(servers.urls, "c")
    sender, receiver = NatsCarrier(options), NatsCarrier(options)
    try:
        servers.wait_ready()
        await sender.open("a", lambda _blob: None)
        await receiver.open("b", received.append)
        await _until_sent(sender, received, b"one")
        servers.kill(0)
        with caplog.at_level(logging.INFO, "mqttlite.nodes"):
            await _until_sent(sender, received, b"two")
        said = f"no connection to NATS, trying again: {servers.urls[0]}: the connection was lost"
        assert [each.message for each in caplog.records].count(said) == 2, "each of them says so once"
        assert "connected to NATS again" in caplog.text
    finally:
        await sender.close()
        await receiver.close()
        servers.close()
    with pytest.raises(CarrierLost):
        await sender.send("b", b"three")


async def _until_sent(sender: NatsCarrier, received: list[bytes], blob: bytes) -> None:
    """Send it until it arrives: the receiver may be on its way to another server."""
    async with asyncio.timeout(WAIT_S):
        while blob not in received:
            try:
                await sender.send("b", blob)
            except CarrierLost:
                pass
            await asyncio.sleep(0.02)
