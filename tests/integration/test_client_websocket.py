"""Our client over WebSocket: at our broker, and at servers that are something else."""

import asyncio

import pytest

from mqttlite import Client
from mqttlite.client.errors import ConnectError
from mqttlite.config import Config, ListenerOptions
from tests.integration.conftest import Rig
from tests.support.device import until

pytestmark = pytest.mark.slow


def web(**options: object) -> Config:
    return Config(listeners=(ListenerOptions(port=0, websocket=True, **options),))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 125, 70_000])
async def test_a_message_comes_back_over_websocket(rig: Rig, size: int) -> None:
    broker = await rig.broker(web())
    async with Client("127.0.0.1", broker.port, transport="websocket") as client:
        await client.subscribe("a", qos=2)
        for qos in (0, 1, 2):
            await client.publish("a", b"x" * size, qos=qos)
        for _ in range(3):
            message = await anext(client.messages)
            assert message.payload == b"x" * size


async def test_both_sides_close_the_websocket(rig: Rig) -> None:
    broker = await rig.broker(web())
    async with Client("127.0.0.1", broker.port, transport="websocket"):
        assert broker.listeners[0].open == 1
    await until(lambda: broker.listeners[0].open == 0)


async def test_a_connection_that_the_broker_ends_comes_back(rig: Rig) -> None:
    broker = await rig.broker(web())
    back = asyncio.Event()
    async with Client(
        *("127.0.0.1", broker.port),
        transport="websocket",
        client_id="c",
        min_reconnect_delay=0.05,
        on_reconnected=lambda present: back.set(),
    ):
        assert broker.admin.kick("c")
        await asyncio.wait_for(back.wait(), 10)


async def test_a_path_that_the_server_does_not_have_is_said(rig: Rig) -> None:
    broker = await rig.broker(web())
    with pytest.raises(ConnectError, match=r"ws://127.0.0.1:\d+/other .* HTTP 404; are port and path right"):
        async with Client("127.0.0.1", broker.port, transport="websocket", path="/other"):
            pass


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x20\x02\x00\x05", "does not speak WebSocket here"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "it answered HTTP 200"),
        (b"", "closed the connection"),
    ],
)
async def test_a_server_that_is_none_is_said(answer: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError, match=said):
            async with Client("127.0.0.1", port, transport="websocket"):
                pass
