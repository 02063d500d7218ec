"""Rude bytes through real sockets, for as long as one likes: `python -m tests.fuzz.sockets --seconds 600`.

Mutated sessions and garbage come from many connections at once while a polite pair exchanges messages. The broker must
answer or end each of them, log no error, and not grow; the pair must not notice.
"""

import argparse
import asyncio
import logging
import random
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Connect, Disconnect, Packet, Pingreq, Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import NONE, Properties
from tests.fuzz.test_wire import FRAMES, hurt
from tests.support.device import Device, Gone

LIMITS = Limits(
    max_packet_bytes=65_536,
    max_queued_messages=100,
    max_outbox_bytes=65_536,
    max_sessions=500,
    max_retained_messages=200,
    max_session_expiry_s=1,
    connect_timeout_s=0.5,
    server_keep_alive_s=1,
)
ENDS_WITHIN_S = 5.0
"""A connection that neither answers nor ends for that long is forgotten by the broker."""

MAX_GROWTH_BYTES = 64 * 1_048_576
"""What the process may grow by: the limits above, many times over, and less than an hour of leaks."""

AT_ONCE = 12
"""Rude connections at a time."""


@dataclass
class Report:
    connections: int = 0
    exchanged: int = 0
    """Messages that the polite pair sent and received."""
    growth_bytes: int = 0
    errors: list[str] = field(default_factory=list)
    """What was logged as an error, or reached the loop's handler."""
    of_the_polite: list[str] = field(default_factory=list)
    """What was logged of the polite pair: why it was sent away, if it was."""


class _Listener(logging.Handler):
    def __init__(self, report: Report) -> None:
        super().__init__(logging.INFO)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self._report.errors.append(self.format(record))
        elif "polite-" in (said := self.format(record)):
            self._report.of_the_polite.append(said)


def session(rng: random.Random) -> bytes:
    """What a client might say, well-formed."""
    version = rng.choice([V311, V5])
    packets: list[Packet] = []
    properties = NONE
    if version == V5:
        properties = Properties(
            session_expiry_interval=rng.choice([None, 0, 1]),
            receive_maximum=rng.choice([None, 1, 5]),
            maximum_packet_size=rng.choice([None, 200]),
            topic_alias_maximum=rng.choice([None, 3]),
        )
    name = f"rude{rng.randrange(30)}"
    packets.append(Connect(name, version, rng.random() < 0.5, rng.choice([0, 1]), properties=properties))
    filters = [b"rude/#", b"rude/+", b"$share/g/rude/a"]
    for _ in range(rng.randint(0, 12)):
        topic = rng.choice([b"rude/a", b"rude/b", b"rude", b"$x/rude"])
        packet_id = rng.randint(1, 5)
        qos = rng.randint(0, 2)
        payload = rng.randbytes(rng.choice([0, 3, 200, 3_000]))
        packets.append(
            rng.choice(
                [
                    Publish(topic, payload, qos, packet_id=packet_id if qos else 0),
                    Publish(topic, b"kept", 1, True, False, packet_id),
                    Subscribe(packet_id, (SubscriptionRequest(rng.choice(filters), qos),)),
                    Ack(rng.choice([4, 5, 6, 7]), packet_id),
                    Pingreq(),
                    Disconnect(),
                ]
            )
        )
    return b"".join([encode(packet, version) for packet in packets])


def rudeness(rng: random.Random) -> list[bytes]:
    """Chunks: a session, a hurt one, or garbage, cut anywhere."""
    dice = rng.random()
    if dice < 0.3:
        stream = session(rng)
    elif dice < 0.6:
        stream = hurt(session(rng), rng)
    elif dice < 0.9:
        stream = session(rng) + b"".join(hurt(rng.choice(FRAMES), rng) for _ in range(rng.randint(1, 5)))
    else:
        stream = rng.randbytes(rng.choice([1, 10, 1_000]))
    cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randint(0, 3)))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


async def be_rude(port: int, rng: random.Random) -> None:
    """One connection. Raises `TimeoutError` when the broker neither answers nor ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sock: socket.socket = writer.get_extra_info("socket")
    try:
        for chunk in rudeness(rng):
            writer.write(chunk)
            if rng.random() < 0.3:
                await asyncio.sleep(0)
        way = rng.random()
        if way < 0.4:  # it has said what it had to say
            writer.write_eof()
            async with asyncio.timeout(ENDS_WITHIN_S):
                while await reader.read(65_536):
                    pass
        elif way < 0.6:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()
        elif way < 0.65:
            async with asyncio.timeout(ENDS_WITHIN_S):  # half open it may stay, but it has an answer
                await reader.read(65_536)
    except TimeoutError:
        raise
    except OSError:  # it was reset, for it said more behind its DISCONNECT: nothing can be done with such a socket
        pass
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass


async def be_polite(port: int, until: float, report: Report) -> None:
    """A pair that exchanges messages of QoS 1, one at a time, and loses none."""
    async with AsyncExitStack() as stack:
        listener = await Device.dial(port, V5)
        stack.push_async_callback(listener.close)
        await listener.connect("polite-listener")
        speaker = await Device.dial(port, V311)  # only now: it may be silent for no longer than `connect_timeout_s`
        stack.push_async_callback(speaker.close)
        await speaker.connect("polite-speaker")
        await listener.subscribe("polite", 1)
        while time.monotonic() < until:
            payload = str(report.exchanged).encode()
            assert await speaker.published("polite", payload) == 0
            assert await listener.message() == ("polite", payload)
            report.exchanged += 1
            speaker.send(Pingreq())
            listener.send(Pingreq())
            await speaker.next()
            await listener.next()
            await asyncio.sleep(0.002)


async def fuzz(seconds: float, seed: int) -> Report:
    """Be rude for that long."""
    report = Report()
    handler = _Listener(report)
    logger = logging.getLogger("mqttlite")
    logger.addHandler(handler)
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False  # what rude clients are told is logged, and there is much of it
    loop = asyncio.get_running_loop()
    former = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, context: report.errors.append(str(context)))
    rng = random.Random(seed)
    try:
        async with Broker(Config(listeners=(ListenerOptions(port=0),), limits=LIMITS)) as broker:
            until = time.monotonic() + seconds
            polite = asyncio.create_task(be_polite(broker.port, until, report))

            async def keep_on(own: random.Random) -> None:
                while time.monotonic() < until:
                    await be_rude(broker.port, own)
                    report.connections += 1

            rude = [asyncio.create_task(keep_on(random.Random(rng.random()))) for _ in range(AT_ONCE)]
            await asyncio.sleep(seconds / 4)
            before = rss_bytes()
            try:
                await asyncio.gather(polite, *rude)
            except (Gone, AssertionError, TimeoutError) as error:
                said = "\n".join(report.of_the_polite)
                raise AssertionError(f"after {report.connections} rude connections: {error!r}\n{said}") from error
            report.growth_bytes = rss_bytes() - before
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
        loop.set_exception_handler(former)
    return report


def rss_bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4_096 if statm.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="the same rudeness again, as far as sockets allow")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    report = asyncio.run(fuzz(options.seconds, seed))
    print(f"seed {seed}: {report.connections} rude connections, {report.exchanged} polite messages")
    print(f"grown by {report.growth_bytes / 1_048_576:.1f} MiB; {len(report.errors)} errors")
    for error in report.errors[:10]:
        print(error)
    if report.errors or report.growth_bytes > MAX_GROWTH_BYTES:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
