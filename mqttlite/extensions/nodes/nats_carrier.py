"""The carrier on NATS: one subject for all nodes, and one for each. JetStream is not needed."""

import logging
from collections.abc import Callable
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from mqttlite.engine.nats.lasting_connection import PING_TIMEOUT_S, TOO_MANY, LastingConnection
from mqttlite.engine.nats.servers import NatsOptions
from mqttlite.extensions.nodes.carrier import MAX_BLOB_BYTES, CarrierLost

_log = logging.getLogger("mqttlite.nodes")

LEAST_PAYLOAD_BYTES: Final = 2 * MAX_BLOB_BYTES
"""What NATS must carry: a blob, and the topic filters in it."""


class NatsCarrier:
    """Implements `Carrier`. `options.cluster` is the name of all nodes together."""

    def __init__(self, options: NatsOptions) -> None:
        self._prefix: Final = f"mqttlite.{options.cluster}.nodes"
        self._lasting: Final = LastingConnection(options, options.login, self._begin, lambda: None, self._complain)
        self._node = ""
        self._on_blob: Callable[[bytes], None]
        self._said = ""
        """What was logged last of why there is no connection."""

    async def open(self, node: str, on_blob: Callable[[bytes], None]) -> None:
        self._node, self._on_blob = node, on_blob
        await self._lasting.open("connection of the nodes")

    async def send(self, node: str, blob: bytes) -> None:
        await self._send(f"{self._prefix}.of.{node}", blob)

    async def send_all(self, blob: bytes) -> None:
        await self._send(f"{self._prefix}.all", blob)

    async def close(self) -> None:
        await self._lasting.close()

    async def _send(self, subject: str, blob: bytes) -> None:
        client = self._lasting.client
        if client is None:
            raise CarrierLost(self._said)
        try:
            await client.publish(subject, blob)
        except (NatsError, OSError) as error:
            raise CarrierLost(str(error) or type(error).__name__) from error

    async def _begin(self, client: Client) -> None:
        if client.max_payload < LEAST_PAYLOAD_BYTES:
            raise CarrierLost(f"its max_payload is {client.max_payload}, and {LEAST_PAYLOAD_BYTES} at least are needed")
        for subject in (f"{self._prefix}.all", f"{self._prefix}.of.{self._node}"):
            await client.subscribe(subject, cb=self._receive, pending_bytes_limit=TOO_MANY)
        await client.flush(PING_TIMEOUT_S)  # type: ignore[arg-type]
        if self._said:
            self._said = ""
            _log.info("connected to NATS again")

    async def _receive(self, message: Msg) -> None:
        self._on_blob(message.data)

    def _complain(self, why: str) -> None:
        if why != self._said:
            self._said = why
            _log.warning("no connection to NATS, trying again: %s", why)
