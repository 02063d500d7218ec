"""A broker with a bridge out, in a process that tests kill: a kept `LocalSession` whose messages go to another broker.

Run as `python -m tests.support.bridge FOLDER PORT QOS MESSAGES`. Invariant: the bridge acknowledges a message after the
other broker took it, and both use one packet identifier, which is released there before it is released here.
"""

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Final

from mqttlite.config import Config, ListenerOptions
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.server import Broker
from mqttlite.wire.constants import NEVER_EXPIRES, PUBCOMP, PUBREL
from mqttlite.wire.packets import Ack, Publish, SubscriptionRequest
from tests.support.device import Device
from tests.support.inside import core_of, loop_driver_of

WINDOW: Final = 20
LATEST_S: Final = 0.02
"""Acknowledgements are up to this late, in any order, so that a kill often comes before some of them."""


class BridgeOut:
    """Takes the messages of a kept session to another broker, over a connection whose session that broker keeps."""

    def __init__(self, broker: Broker, remote: Device) -> None:
        self._readable: Final = asyncio.Event()
        self._session: Final = LocalSession(
            core_of(broker), loop_driver_of(broker), self._readable.set, reads_releases=True
        )
        self._remote: Final = remote
        self._sent: Final[dict[int, Publish]] = {}
        """Messages that the other broker has not taken yet, by packet identifier."""

    def begin(self, topic_filter: bytes, qos: int) -> None:
        """Begin, or go on where the last process ended."""
        client = LocalClient(client_id="out", clean_start=False, session_expiry_s=NEVER_EXPIRES, is_trusted=True)
        self._session.connect(client, WINDOW)
        self._session.subscribe_at_once(SubscriptionRequest(topic_filter, qos))

    async def send(self) -> None:
        """Send messages and releases to the other broker."""
        while not self._session.is_over:
            self._readable.clear()
            while (packet := self._session.receive()) is not None:
                if isinstance(packet, Publish):
                    self._sent[packet.packet_id] = packet
                    self._remote.send(packet)
                elif isinstance(packet, Ack):
                    self._remote.send(Ack(PUBREL, packet.packet_id))
            await self._readable.wait()

    async def hear(self) -> None:
        """Acknowledge, a little later, what the other broker has taken."""
        loop, session = asyncio.get_running_loop(), self._session
        while True:
            packet = await self._remote.expect(Ack)
            if packet.packet_type == PUBCOMP:
                loop.call_later(LATEST_S * random.random(), session.complete, packet.packet_id)
            else:
                message = self._sent.pop(packet.packet_id)
                loop.call_later(LATEST_S * random.random(), session.acknowledge, message, packet.reason_code)


async def main(folder: Path, port: int, qos: int, messages: int) -> None:
    """Publish messages here, and note each whose publish has returned; then a last one, and go on until the kill."""
    config = Config(listeners=(ListenerOptions(port=0),), data_dir=str(folder / "data"))
    notes = os.open(folder / "published", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    done = len((folder / "published").read_text().split())
    remote = await Device.dial(port)
    await remote.connect("bridge", clean_start=False, expiry=1_000)
    async with Broker(config) as broker:
        bridge = BridgeOut(broker, remote)
        bridge.begin(b"work/#", qos)
        tasks = [asyncio.create_task(bridge.send()), asyncio.create_task(bridge.hear())]
        for number in range(done, messages):
            payload = f"{number}/{os.getpid()}"  # a number that was not noted is published again, as another message
            await broker.publish("work/a", payload, qos=qos)
            os.write(notes, payload.encode() + b"\n")
        await broker.publish("work/a", f"end/{os.getpid()}", qos=qos)
        await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
