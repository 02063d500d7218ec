"""Publishing over HTTP: how many messages a second come to a subscriber of MQTT, one by one and in bulk.

`python -m bench publishing`. The requests are rendered before, and the clients only send them, read answers and count
bytes, so that the broker is what is measured. Invariant: each message that was published is counted at the subscriber.
"""

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bench.streams import LIMIT_S, Broker, StreamsError, broker
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Publish, Subscribe, SubscriptionRequest

TOPIC: Final = "plant/7/temperature"
PAYLOAD: Final = b'{"t":21.5}'
IN_BULK: Final = 10_000
"""Messages of one request."""

_ANSWER_ENDS: Final = b"}"
"""Each answer is one JSON object in the end; heads have none."""


class Rate(msgspec.Struct, frozen=True):
    """Messages a second."""

    by_clock: float
    by_cpu: float
    """For each second of the processor that the broker used."""


def measure(source: Path, *, rounds: int, seconds: float, say: Callable[[str], None]) -> dict[str, Rate]:
    """Each form of publishing, with the build that lies in a folder; the best of some rounds."""
    packet = encode(Publish(TOPIC.encode(), PAYLOAD), V5)
    found: dict[str, Rate] = {}
    with broker(source) as running, _subscriber(running) as subscriber:
        for name, request, messages, connections in _forms():
            rates = [
                _rate(running, subscriber, request, messages, connections, len(packet), seconds) for _ in range(rounds)
            ]
            found[name] = Rate(max(each.by_clock for each in rates), max(each.by_cpu for each in rates))
            say(f"{name}: {found[name].by_clock:.0f}/s, {found[name].by_cpu:.0f} for each second of the processor")
    return found


def _forms() -> list[tuple[str, bytes, int, int]]:
    """Name, request, messages in it, and connections that send it."""
    line = msgspec.json.encode({"topic": TOPIC, "payload": msgspec.Raw(PAYLOAD)})
    lines = b"\n".join([line] * IN_BULK)
    array = b"[%b]" % b",".join([line] * IN_BULK)
    return [
        ("PUT /topics/…", _request(f"PUT /topics/{TOPIC}", "application/octet-stream", PAYLOAD), 1, 20),
        ("bulk, an array", _request("POST /api/v1/publish/bulk", "application/json", array), IN_BULK, 3),
        ("bulk, lines", _request("POST /api/v1/publish/bulk", "application/x-ndjson", lines), IN_BULK, 3),
    ]


def _request(what: str, kind: str, body: bytes) -> bytes:
    head = f"{what} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _subscriber(running: Broker) -> socket.socket:
    kernel = socket.create_connection(("127.0.0.1", running.mqtt_port), timeout=LIMIT_S)
    kernel.sendall(
        encode(Connect("subscriber", V5, keep_alive=0), V5)
        + encode(Subscribe(1, (SubscriptionRequest(TOPIC.encode(), 0),)), V5)
    )
    answers = b""
    while b"\x90" not in answers[1:]:  # SUBACK
        answers += kernel.recv(1_000)
    return kernel


class _Sender:
    """One connection, which sends the next request when the last is answered."""

    def __init__(self, port: int, request: bytes) -> None:
        self.kernel: Final = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._request: Final = request
        self._answer = b""
        self.answered: int = 0

    def send(self) -> None:
        self.kernel.sendall(self._request)

    def read(self) -> bool:
        """Read some of an answer; whether it is whole."""
        self._answer += self.kernel.recv(65_536)
        if not self._answer.startswith(b"HTTP/1.1 200"):
            raise StreamsError(f"a request was not answered: {self._answer[:300]!r}")
        if not self._answer.endswith(_ANSWER_ENDS):
            return False
        self._answer = b""
        self.answered += 1
        return True


def _rate(
    running: Broker,
    subscriber: socket.socket,
    request: bytes,
    messages: int,
    connections: int,
    packet_bytes: int,
    seconds: float,
) -> Rate:
    senders = {each.kernel: each for each in (_Sender(running.port, request) for _ in range(connections))}
    poll = select.epoll()
    by_number = {kernel.fileno(): kernel for kernel in (*senders, subscriber)}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    received = 0
    open_requests = len(senders)
    began, cpu = time.perf_counter(), running.cpu_s()
    for sender in senders.values():
        sender.send()
    until = began + seconds
    while open_requests or received < messages * packet_bytes * sum(each.answered for each in senders.values()):
        for number, _ in poll.poll(LIMIT_S):
            kernel = by_number[number]
            if kernel is subscriber:
                received += len(kernel.recv(1_048_576))
                continue
            if not senders[kernel].read():
                continue
            if time.perf_counter() < until:
                senders[kernel].send()
            else:
                open_requests -= 1
        if time.perf_counter() > until + LIMIT_S:
            raise StreamsError("messages are missing at the subscriber")
    ended = time.perf_counter()
    used = max(0.01, running.cpu_s() - cpu)
    for kernel in senders:
        kernel.close()
    poll.close()
    count = messages * sum(each.answered for each in senders.values())
    return Rate(count / (ended - began), count / used)
