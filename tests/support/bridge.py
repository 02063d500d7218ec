"""A broker with a bridge out and a bridge in, in a process that tests kill: kept `LocalSession`s here, kept sessions at
another broker.

Run as `python -m tests.support.bridge FOLDER OUT_PORT IN_PORT QOS MESSAGES`. Invariant: a bridge acknowledges a message
after the broker on its other side took it, and both use one packet identifier, which is released there first.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.changes import Change
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.server import Broker
from mqttlite.store.sqlite.writer import Writer
from mqttlite.wire.constants import NEVER_EXPIRES, PUBCOMP, PUBREL
from mqttlite.wire.packets import Ack, Publish, SubscriptionRequest
from mqttlite.wire.properties import Properties
from tests.support.device import Device
from tests.support.inside import core_of, loop_driver_of

WINDOW: Final = 20
GROUP: Final = 10
"""Messages that are published together, and share a commit."""

COMMIT_S: Final = 0.03
LATEST_S: Final = 0.02
"""Acknowledgements are up to this late, in any order, so that a kill often comes before some of them."""


class BridgeOut:
    """Takes the messages of a kept session to another broker, over a connection whose session that broker keeps."""

    def __init__(self, broker: Broker, remote: Device) -> None:
        self._readable: Final = asyncio.Event()
        self._session: Final = LocalSession(core_of(broker), loop_driver_of(broker), self._readable.set)
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
            while (packet := self._session.link.receive()) is not None:
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


class BridgeIn:
    """Publishes the messages of a session at the other broker here, in a session that this broker keeps."""

    def __init__(self, broker: Broker, remote: Device) -> None:
        self._readable: Final = asyncio.Event()
        self._session: Final = LocalSession(core_of(broker), loop_driver_of(broker), self._readable.set)
        self._remote: Final = remote

    def begin(self) -> None:
        """Begin, or go on where the last process ended."""
        client = LocalClient(client_id="in", clean_start=False, session_expiry_s=NEVER_EXPIRES, is_trusted=True)
        self._session.connect(client, WINDOW)

    async def hear(self) -> None:
        """Publish what comes from the other broker, and pass its releases on."""
        while True:
            packet = await self._remote.next()
            if isinstance(packet, Publish):
                self._session.publish(packet)
            elif isinstance(packet, Ack):
                self._session.release(packet.packet_id)

    async def send(self) -> None:
        """Pass the acknowledgements of this broker on."""
        while not self._session.is_over:
            self._readable.clear()
            while (packet := self._session.receive()) is not None:
                if isinstance(packet, Ack):
                    self._remote.send(Ack(packet.packet_type, packet.packet_id))
            await self._readable.wait()


def slow_down_the_disk() -> None:
    """Let each commit take a while, so that a kill comes before many of them."""
    commit = Writer.commit

    def commit_slowly(writer: Writer, changes: Iterable[Change]) -> None:
        time.sleep(COMMIT_S)
        commit(writer, changes)

    Writer.commit = commit_slowly  # type: ignore[method-assign]


async def main(folder: Path, out_port: int, in_port: int, qos: int, messages: int) -> None:
    """Publish messages here, and note each whose publish has returned; then a last one, and go on until the kill."""
    slow_down_the_disk()
    config = Config(listeners=(ListenerOptions(port=0),), data_dir=str(folder / "data"))
    notes = os.open(folder / "published", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    done = len((folder / "published").read_text().split())
    to_remote, from_remote = await Device.dial(out_port), await Device.dial(in_port)
    await to_remote.connect("out", clean_start=False, expiry=1_000)
    async with Broker(config) as broker:
        sink = LocalSession(core_of(broker), loop_driver_of(broker), lambda: None)  # keeps what comes in
        sink.connect(LocalClient(client_id="sink", clean_start=False, session_expiry_s=NEVER_EXPIRES), WINDOW)
        sink.subscribe_at_once(SubscriptionRequest(b"cmd/#", 1))
        sink.end()
        out, into = BridgeOut(broker, to_remote), BridgeIn(broker, from_remote)
        out.begin(b"work/#", qos)
        into.begin()
        properties = Properties(session_expiry_interval=1_000, receive_maximum=WINDOW)
        await from_remote.connect("in", clean_start=False, properties=properties)
        tasks = [asyncio.create_task(each) for each in (out.send(), out.hear(), into.hear(), into.send())]
        (folder / "port").write_text(str(broker.port))
        for first in range(done, messages, GROUP):
            # A number that was not noted is published again, as another message.
            group = [f"{number}/{os.getpid()}" for number in range(first, min(first + GROUP, messages))]
            await asyncio.gather(*(broker.publish("work/a", payload, qos=qos) for payload in group))
            os.write(notes, "".join(f"{payload}\n" for payload in group).encode())
        await broker.publish("work/a", f"end/{os.getpid()}", qos=qos)
        await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
