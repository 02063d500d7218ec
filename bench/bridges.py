"""Messages a second through a bridge between two brokers: `python -m bench bridge`.

Clients publish at the first broker, and one with a kept session acknowledges what comes at the second. They send blocks
that were made before, so that the brokers are what is measured. Invariant: all messages are of one size.
"""

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.request import urlopen

from bench.streams import LIMIT_S, Broker, broker
from mqttlite.wire.blocks import PUBRELS, counted
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Connect, Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties

Direction = Literal["out", "in"]

TOPICS: Final = 1_000
PAYLOAD: Final = b"x" * 64
PUBLISHERS: Final = 4
BLOCK: Final = 500
"""Messages that each publisher sends together, and then waits for their acknowledgements."""

AHEAD: Final = 20_000
"""How many messages the publishers may be ahead of the subscriber."""

WARM_UP_S: Final = 1.0

_LIMITS: Final = "[limits]\nmax_queued_messages = 1_000_000\nmax_queued_bytes = 1_000_000_000\n"
_TOPIC_BYTES: Final = len(b"t/0000")


class Rate(NamedTuple):
    """What one bridge reached."""

    by_clock: float
    """Messages a second."""
    cpu_s: float
    """Seconds of the processor that the broker with the bridge used for each message."""


def measure(source: Path, *, rounds: int, seconds: float, say: Callable[[str], None]) -> dict[str, Rate]:
    """Each direction and QoS, with the build that lies in a folder; the medians of some rounds."""
    found: dict[str, Rate] = {}
    for qos in (0, 1, 2):
        for direction in ("out", "in"):
            rates = [_rate(source, qos, direction, seconds) for _ in range(rounds)]
            rate = found[f"{direction} QoS {qos}"] = Rate(
                statistics.median(each.by_clock for each in rates), statistics.median(each.cpu_s for each in rates)
            )
            say(f"{direction} at QoS {qos}: {rate.by_clock:.0f}/s, {rate.cpu_s * 1e6:.1f} µs of its broker each")
    return found


def _rate(source: Path, qos: int, direction: Direction, seconds: float) -> Rate:
    with broker(source, lambda _: (_LIMITS, "")) as there:
        bridge = (
            f'[[bridges]]\nname = "b"\naddresses = ["127.0.0.1:{there.mqtt_port}"]\n'
            f'topics = [{{pattern = "t/#", direction = "{direction}", qos = {qos}}}]\n'
        )
        with broker(source, lambda _: (_LIMITS + bridge, "")) as here:
            first, second = (here, there) if direction == "out" else (there, here)
            subscriber = _Subscriber(second, min(qos, 1))
            publishers = _Publishers(first, qos)
            try:
                _await(here)
                publishers.publish_for(WARM_UP_S, subscriber)
                began, received, cpu_s = time.perf_counter(), subscriber.received, here.cpu_s()
                publishers.publish_for(seconds, subscriber)
                messages = subscriber.received - received
                return Rate(messages / (time.perf_counter() - began), (here.cpu_s() - cpu_s) / messages)
            finally:
                subscriber.close()
                publishers.close()


def _await(running: Broker) -> None:
    """Wait until its bridge is connected."""
    until = time.monotonic() + LIMIT_S
    while True:
        with urlopen(f"http://127.0.0.1:{running.port}/api/v1/bridges") as answer:
            (bridge,) = json.load(answer)["items"]
        if bridge["state"] == "connected":
            return
        assert time.monotonic() < until, bridge["reason"]
        time.sleep(0.1)


def _dial(running: Broker, name: str, *, is_kept: bool) -> socket.socket:
    """A client that has its CONNACK."""
    kernel = socket.create_connection(("127.0.0.1", running.mqtt_port), timeout=LIMIT_S)
    kernel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    properties = Properties(session_expiry_interval=3_600 if is_kept else 0)
    kernel.sendall(encode(Connect(name, V5, not is_kept, 0, properties=properties), V5))
    kernel.recv(1_000)
    return kernel


class _Publishers:
    def __init__(self, running: Broker, qos: int) -> None:
        self._kernels: Final = [_dial(running, f"publisher-{at}", is_kept=False) for at in range(PUBLISHERS)]
        self._qos: Final = qos
        self._sent = 0
        self._block: Final = b"".join(
            [
                encode(Publish(b"t/%04d" % (number * 7 % TOPICS), PAYLOAD, qos, packet_id=number if qos else 0), V5)
                for number in range(1, BLOCK + 1)
            ]
        )

    def publish_for(self, seconds: float, subscriber: "_Subscriber") -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._sent - subscriber.received > AHEAD:
                time.sleep(0.001)
            else:
                self._publish()

    def _publish(self) -> None:
        self._send(self._block)
        self._sent += PUBLISHERS * BLOCK
        if self._qos:
            self._await_answers()
        if self._qos == 2:
            self._send(counted(PUBRELS, 1, BLOCK))
            self._await_answers()

    def _send(self, packets: bytes) -> None:
        for each in self._kernels:
            each.sendall(packets)

    def _await_answers(self) -> None:
        """PUBACKs, PUBRECs or PUBCOMPs. Without a reason code each has four bytes."""
        for each in self._kernels:
            left = 4 * BLOCK
            while left:
                answers = each.recv(left)
                assert answers, "the broker closed the connection"
                left -= len(answers)

    def close(self) -> None:
        for each in self._kernels:
            each.close()


class _Subscriber(threading.Thread):
    """Counts messages, and acknowledges those of QoS 1."""

    def __init__(self, running: Broker, qos: int) -> None:
        super().__init__(daemon=True)
        self.received = 0
        self._qos: Final = qos
        self._kernel: Final = _dial(running, "subscriber", is_kept=True)
        self._kernel.sendall(encode(Subscribe(1, (SubscriptionRequest(b"t/#", qos),)), V5))
        self._kernel.recv(1_000)
        self._kernel.settimeout(None)
        self.start()

    def run(self) -> None:
        """Until the connection ends."""
        rest, size, at = b"", 0, 0
        while data := self._kernel.recv(1_048_576):
            rest += data
            if not size:
                size = packet_size(rest, 0)
                at = (2 if size < 130 else 3) + 2 + _TOPIC_BYTES
            count = len(rest) // size
            whole, rest = rest[: count * size], rest[count * size :]
            if self._qos and count:
                answers = bytearray(b"\x40\x02\0\0" * count)
                answers[2::4], answers[3::4] = whole[at::size], whole[at + 1 :: size]
                with suppress(OSError):  # the measurement has ended
                    self._kernel.sendall(answers)
            self.received += count

    def close(self) -> None:
        self._kernel.shutdown(socket.SHUT_RDWR)
        self.join(LIMIT_S)
        self._kernel.close()
