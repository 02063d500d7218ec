"""Messages through a bridge, over a socket: from the event loop's wake-up to the last acknowledgement.

The other broker is the other end of the socket, in the same thread. What it does is not counted, as in `alone`, nor is
what the store does, which would be most of it.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Literal

import uvloop

from bench.guard.alone import LIMIT, PAUSE_S, TOPICS, Mark, Steps, driver_of, read_now
from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change
from mqttlite.core.limits import Limits
from mqttlite.extensions.bridge.bridge import Bridge
from mqttlite.extensions.bridge.last_address import LastAddress
from mqttlite.extensions.bridge.options import BridgeOptions, BridgeTopic
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Connack, Packet, Publish, Suback, Subscribe, SubscriptionRequest

MESSAGES: Final = 50
PAYLOAD: Final = b"0123456789abcdef"


class UncountedStore(MemoryStore):
    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self._mark: Final = mark

    def commit(self, changes: list[Change]) -> None:
        self._mark.counting_pauses()
        try:
            super().commit(changes)
        finally:
            self._mark.counting_goes_on()


class Bridging:
    """One broker with a bridge in one direction, and the broker at its other end. What comes in has a reader here."""

    def __init__(self, mark: Mark, direction: Literal["out", "in"]) -> None:
        self._is_out: Final = direction == "out"
        self._store: Final = UncountedStore(mark)
        self._loop: Final = uvloop.new_event_loop()
        self._later: Final = Steps(mark, self._loop).later
        self._framer: Final = Framer(65_536)
        self._received: list[int] = []
        self._looks = 0
        self._loop.run_until_complete(self._begin(BridgeTopic(pattern="t/#", direction=direction)))

    def work(self) -> None:
        """Pass `MESSAGES` messages of QoS 1 on."""
        self._received, self._looks = [], 0
        self._later(self._publish if self._is_out else self._send)
        self._loop.run_forever()

    def close(self) -> None:
        """Close the sockets and the loop."""
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _begin(self, topic: BridgeTopic) -> None:
        self._broker = Broker(Limits())
        self._driver = driver_of(self._broker, self._store)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            options = BridgeOptions(
                name="guard", addresses=(f"127.0.0.1:{server.getsockname()[1]}",), topics=(topic,), keep_alive_s=3_600
            )
            last = LastAddress(options.endpoints, None)
            self._bridge = Bridge(
                *(options, self._broker, self._driver, "0123456789abcdef", None, lambda _: None), last, "config"
            )
            self._bridge.start()
            self._peer, _address = await self._loop.sock_accept(server)
        await self._next()
        self._peer.send(encode(Connack(False), V5))
        if not self._is_out:
            subscribe = await self._next()
            assert isinstance(subscribe, Subscribe)
            self._peer.send(encode(Suback(subscribe.packet_id, b"\1"), V5))
            self._reader = LocalSession(self._broker, self._driver, self._read)
            self._reader.connect(LocalClient(), 1)
            self._reader.subscribe_at_once(SubscriptionRequest(b"t/#", 0))
        while self._bridge.state != "connected":
            await asyncio.sleep(PAUSE_S)

    async def _next(self) -> Packet:
        """The packet that comes alone."""
        while not (found := self._packets()):
            await asyncio.sleep(PAUSE_S)
        return found[0]

    async def _end(self) -> None:
        await self._bridge.stop()
        self._peer.close()
        await self._driver.stop()

    def _read(self) -> None:
        self._reader.link.take()

    def _packets(self) -> list[Packet]:
        """What the bridge has sent."""
        return [decode(first, body, V5) for first, body in self._framer.split(read_now(self._peer))]

    # ------------------------------------------------------------------ what is not counted

    def _publish(self) -> None:
        for number in range(MESSAGES):
            self._broker.publish(_topic(number), PAYLOAD, 1, False, self._loop.time())
        self._driver.wake()
        self._later(self._acknowledge)

    def _acknowledge(self) -> None:
        """Acknowledge the messages, once all have come."""
        self._received += [each.packet_id for each in self._packets() if isinstance(each, Publish)]
        if len(self._received) < MESSAGES:
            self._look_again(self._acknowledge)
            return
        self._peer.send(b"".join([encode(Ack(PUBACK, each), V5) for each in self._received]))
        self._later(self._settle)

    def _settle(self) -> None:
        if self._bridge.waiting:
            self._look_again(self._settle)
        else:
            self._loop.stop()

    def _send(self) -> None:
        messages = [Publish(_topic(number), PAYLOAD, 1, packet_id=number + 1) for number in range(MESSAGES)]
        self._peer.send(b"".join([encode(each, V5) for each in messages]))
        self._later(self._receive)

    def _receive(self) -> None:
        self._received += [each.packet_id for each in self._packets() if isinstance(each, Ack)]
        if len(self._received) < MESSAGES:
            self._look_again(self._receive)
        else:
            self._loop.stop()

    def _look_again(self, step: Callable[[], None]) -> None:
        self._looks += 1
        assert self._looks < LIMIT, f"{len(self._received)} of {MESSAGES} came"
        self._later(step)


def _topic(number: int) -> bytes:
    return b"t/%d" % (number % TOPICS)
