"""The carrier on NATS: one subject for all nodes, and one for each. JetStream is not needed."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from mqttlite.extensions.cluster.engine.nats.connection import (
    CLOSE_TIMEOUT_S,
    PING_S,
    PING_TIMEOUT_S,
    RECONNECT_S,
    TOO_MANY,
    close,
    connect_to,
)
from mqttlite.extensions.cluster.engine.nats.servers import NatsOptions
from mqttlite.extensions.cluster.options import shown
from mqttlite.extensions.nodes.carrier import MAX_BLOB_BYTES, CarrierLost

_log = logging.getLogger("mqttlite.nodes")

LEAST_PAYLOAD_BYTES: Final = 2 * MAX_BLOB_BYTES
"""What NATS must carry: a blob, and the topic filters in it."""


class NatsCarrier:
    """Implements `Carrier`. `options.cluster` is the name of all nodes together."""

    def __init__(self, options: NatsOptions) -> None:
        self._options: Final = options
        self._prefix: Final = f"mqttlite.{options.cluster}.nodes"
        self._client: Client | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_closed = False
        self._tried: Final = asyncio.Event()
        self._said = ""
        """What was logged last of why there is no connection."""

    async def open(self, node: str, on_blob: Callable[[bytes], None]) -> None:
        async def receive(message: Msg) -> None:
            on_blob(message.data)

        subjects = (f"{self._prefix}.all", f"{self._prefix}.of.{node}")
        self._keeper = asyncio.create_task(self._keep_connected(subjects, receive), name="connection of the nodes")
        await self._tried.wait()

    async def send(self, node: str, blob: bytes) -> None:
        await self._send(f"{self._prefix}.of.{node}", blob)

    async def send_all(self, blob: bytes) -> None:
        await self._send(f"{self._prefix}.all", blob)

    async def close(self) -> None:
        self._is_closed = True
        while self._keeper is not None and not self._keeper.done():  # nats-py may swallow a cancellation
            self._keeper.cancel()
            await asyncio.wait({self._keeper}, timeout=CLOSE_TIMEOUT_S)

    async def _send(self, subject: str, blob: bytes) -> None:
        client = self._client
        if client is None:
            raise CarrierLost(self._said)
        try:
            await client.publish(subject, blob)
        except (NatsError, OSError) as error:
            raise CarrierLost(str(error) or type(error).__name__) from error

    async def _keep_connected(self, subjects: tuple[str, ...], receive: Callable[[Msg], object]) -> None:
        while not self._is_closed:
            for url in self._options.servers:
                broken = asyncio.Event()
                try:
                    client = await connect_to(self._options, self._options.login, url, broken)
                    try:
                        await self._use(client, broken, subjects, receive)
                    finally:
                        self._client = None
                        await close(client)
                except Exception as error:  # whatever nats-py raises: without this task nothing would ever connect
                    self._say(f"{shown(url)}: {str(error) or type(error).__name__}")
            self._tried.set()
            await asyncio.sleep(RECONNECT_S)

    async def _use(
        self, client: Client, broken: asyncio.Event, subjects: tuple[str, ...], receive: Callable[[Msg], object]
    ) -> None:
        """Use a connection until it breaks. A server that does not answer a ping raises."""
        if client.max_payload < LEAST_PAYLOAD_BYTES:
            raise CarrierLost(f"its max_payload is {client.max_payload}, and {LEAST_PAYLOAD_BYTES} at least are needed")
        for subject in subjects:
            await client.subscribe(subject, cb=receive, pending_bytes_limit=TOO_MANY)  # type: ignore[arg-type]
        await client.flush(PING_TIMEOUT_S)  # type: ignore[arg-type]
        self._client = client
        self._tried.set()
        if self._said:
            self._said = ""
            _log.info("connected to NATS again")
        while not (broken.is_set() or self._is_closed):
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_S):
                    await broken.wait()
            if not broken.is_set():
                await client.flush(PING_TIMEOUT_S)  # type: ignore[arg-type]
        self._say("the connection was lost")

    def _say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            _log.warning("no connection to NATS, trying again: %s", why)
