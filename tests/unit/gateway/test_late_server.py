"""The server that is built at the first connection: how many connections wait for it, and what a stop leaves."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from mqttlite.gateway.late_server import MAX_EARLY, LateServer
from mqttlite.net.endpoints import TcpEndpoint


class Endpoint:
    """Connections come when a test makes them."""

    factory: Callable[[], asyncio.Protocol]

    async def listen(self, name: str, factory: Callable[[], asyncio.Protocol]) -> None:
        self.factory = factory

    def close(self) -> None:
        pass

    def connect(self) -> "Transport":
        transport = Transport()
        self.factory().connection_made(transport)
        return transport


class Transport(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


async def test_one_connection_more_than_may_wait_closes_the_oldest_and_a_stop_closes_all() -> None:
    endpoint = Endpoint()
    server = LateServer(cast(TcpEndpoint, endpoint), cast(Any, lambda: None))
    await server.start("metrics")
    transports = [endpoint.connect() for _ in range(MAX_EARLY + 2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [each.aborted for each in transports] == [True, True, *[False] * MAX_EARLY]
    await server.stop()
    assert all(each.aborted for each in transports)
