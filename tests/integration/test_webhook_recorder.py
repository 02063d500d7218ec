"""A receiver that is no socket is a callback and one line of assembly: here it posts each message to an HTTP server.

It stands for webhooks, bridges and gateways, and shows what they get from a local link without code of their own: a
window, a queue behind it, refusals that are counted, and publishers that do not wait.
"""

import asyncio

from mqttlite import Broker, Message
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of


class Recorder:
    """An HTTP server that remembers what was posted to it, and answers when and what the test says."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, bytes]] = []
        self.status = 200
        self.answers = asyncio.Event()
        self.answers.set()
        self._server: asyncio.Server

    async def __aenter__(self) -> "Recorder":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.split("Content-Length: ")[1].split("\r\n")[0])
        self.posted.append((head.split()[1], await reader.readexactly(length)))
        await self.answers.wait()
        writer.write(f"HTTP/1.1 {self.status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


class Webhook:
    """Posts a message, and refuses it where the server does not take it."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __call__(self, message: Message) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head = f"POST /{message.topic} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(message.payload)}\r\n\r\n"
            writer.write(head.encode() + message.payload)
            status = int((await reader.readline()).split()[1])
            if status >= 300:
                raise ConnectionError(f"the server answers {status}")
        finally:
            writer.close()
            await writer.wait_closed()


async def test_a_webhook_gets_every_message_in_order_and_its_window_holds(rig: Rig) -> None:
    broker: Broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    async with Recorder() as recorder:
        webhook = broker.subscribe("alarms/#", Webhook(recorder.port), qos=1, receive_maximum=3)
        recorder.answers.clear()
        for number in range(10):  # the publisher does not wait for the slow server
            assert await device.published(f"alarms/{number}", b"fire") == 0
        (connection,) = [each for each in core_of(broker).connections.values() if each.client_id == webhook.client_id]
        session = connection.session
        assert session is not None
        assert (session.window.quota, session.queued) == (0, 7)
        recorder.answers.set()
        await until(lambda: session.window.quota == 3)
        assert recorder.posted == [(f"/alarms/{number}", b"fire") for number in range(10)]


async def test_a_message_that_the_server_refuses_is_counted_and_the_next_one_follows(rig: Rig) -> None:
    broker: Broker = await rig.broker()
    async with Recorder() as recorder:
        webhook = broker.subscribe("alarms/#", Webhook(recorder.port), qos=1)
        recorder.status = 503
        await broker.publish("alarms/1", "fire", qos=1)
        await until(lambda: webhook.nacked == 1)
        recorder.status = 200
        await broker.publish("alarms/2", "flood", qos=1)
        await until(lambda: len(recorder.posted) == 2)
    assert [body for _, body in recorder.posted] == [b"fire", b"flood"]
