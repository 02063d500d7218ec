"""Links with more packets than an iteration of the loop has room for continue in turn."""

import asyncio
from typing import Any

from mqttlite.core.broker import Broker
from mqttlite.core.connection import Connection, Peer
from mqttlite.core.limits import ITERATION_WORK, PACKET_WORK, Limits
from mqttlite.net.link import Link
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Pingreq

CLIENTS = 5
PINGS = 20_000


class Transport:
    """Takes every byte and keeps none."""

    def write(self, data: bytes) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _name: str) -> None:
        return None


async def test_every_client_has_its_part_of_the_budget() -> None:
    broker = Broker(Limits())
    driver = LoopDriver(
        broker,
        MemoryStore(),
        on_connected=lambda _: None,
        on_closed=lambda _: None,
        on_question=lambda *_: None,
        on_memory_short=lambda *_: None,
    )
    loop = asyncio.get_running_loop()

    def open_connection(_link: Link) -> Connection:
        return broker.open(Peer(), loop.time())

    links = []
    for number in range(CLIENTS):
        link = Link("test", "tcp", broker, driver, open_connection, lambda _: None)
        transport: Any = Transport()
        link.connection_made(transport)
        link.data_received(encode(Connect(f"c{number}"), V5))
        links.append(link)
    await asyncio.sleep(0)
    for link in links:
        link.data_received(encode(Pingreq(), V5) * PINGS)
    slice_of_one = ITERATION_WORK // PACKET_WORK + 1
    iterations = 0
    answers = [0] * CLIENTS
    while min(answers) < PINGS:
        await asyncio.sleep(0)
        iterations += 1
        before, answers = answers, [link.connection.outbox.answers - 1 for link in links]
        assert sum(answers) - sum(before) <= 2 * slice_of_one, "an iteration does not exceed its budget"
        assert max(answers) - min(answers) <= 2 * slice_of_one, "no client has a third part before all have had one"
    assert iterations >= CLIENTS * PINGS // slice_of_one
    await driver.stop()
