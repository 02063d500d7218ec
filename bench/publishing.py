"""Publishing over HTTP: how many messages a second come to a subscriber of MQTT, one by one and in bulk.

`python -m bench publishing`. Publishers have an API key, and an ACL file says what they may do. The requests are
rendered before, and the clients only send them, read answers and count bytes, so that the broker is what is measured.
Invariant: each message that was published is counted at the subscriber.
"""

import select
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bench.streams import LIMIT_S, Broker, StreamsError, broker
from mqttlite.security import api_keys
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Publish, Subscribe, SubscriptionRequest

TOPIC: Final = "plant/7/temperature"
PAYLOAD: Final = b'{"t":21.5}'
IN_BULK: Final = 10_000
"""Messages of one request."""

CONNECTIONS: Final = 50
"""That publish one by one, each a message at a time: with 20 the broker has nothing to do for a tenth of the time."""

USERS: Final = 1_000
"""Users of the ACL file beside the publisher and the subscriber, with a rule each."""

_ANSWER_ENDS: Final = b"}"
"""Each answer is one JSON object in the end; heads have none."""


class Rate(msgspec.Struct, frozen=True):
    """What one form of publishing reached."""

    by_clock: float
    """Messages a second."""
    by_cpu: float
    """For each second of the processor that the broker used."""
    p99_s: float
    """Of the time from sending a request until its answer is there."""


def measure(source: Path, *, rounds: int, seconds: float, say: Callable[[str], None]) -> dict[str, Rate]:
    """Each form of publishing, with the build that lies in a folder; the medians of some rounds."""
    packet = encode(Publish(TOPIC.encode(), PAYLOAD), V5)
    keys: list[str] = []
    found: dict[str, Rate] = {}
    with broker(source, lambda folder: _rules(folder, keys)) as running, _subscriber(running) as subscriber:
        for name, request, messages, connections in _forms(keys[0]):
            rates = [
                _rate(running, subscriber, request, messages, connections, len(packet), seconds) for _ in range(rounds)
            ]
            rate = found[name] = Rate(
                statistics.median(each.by_clock for each in rates),
                statistics.median(each.by_cpu for each in rates),
                statistics.median(each.p99_s for each in rates),
            )
            say(
                f"{name}: {rate.by_clock:.0f}/s, {rate.by_cpu:.0f} for each second of the processor, "
                f"99 % of the answers within {rate.p99_s * 1e3:.1f} ms"
            )
    return found


def _rules(folder: Path, keys: list[str]) -> tuple[str, str]:
    """An ACL file and the key of a publisher, which is added to `keys`."""
    others = "".join(f"user u{number}\ntopic readwrite u{number}/#\n" for number in range(USERS))
    acl = folder / "acl.conf"
    acl.write_text(f"topic read plant/#\nuser publisher\ntopic write plant/#\n{others}")
    data = folder / "data"
    data.mkdir()
    keys.append(api_keys.add(data / api_keys.FILE_NAME, "user", "publisher", None)[0])
    return f'acl_file = "{acl}"\n', ""


def _forms(key: str) -> list[tuple[str, bytes, int, int]]:
    """Name, request, messages in it, and connections that send it."""
    line = msgspec.json.encode({"topic": TOPIC, "payload": msgspec.Raw(PAYLOAD)})
    lines = b"\n".join([line] * IN_BULK)
    array = b"[%b]" % b",".join([line] * IN_BULK)
    bulk = "POST /api/v1/publish/bulk"
    return [
        ("PUT /topics/…", _request(f"PUT /topics/{TOPIC}", key, "application/octet-stream", PAYLOAD), 1, CONNECTIONS),
        ("bulk, an array", _request(bulk, key, "application/json", array), IN_BULK, 3),
        ("bulk, lines", _request(bulk, key, "application/x-ndjson", lines), IN_BULK, 3),
    ]


def _request(what: str, key: str, kind: str, body: bytes) -> bytes:
    head = (
        f"{what} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
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
        self._sent_at: float = 0.0

    def send(self, now: float) -> None:
        self._sent_at = now
        self.kernel.sendall(self._request)

    def read(self) -> float | None:
        """Read some of an answer; the seconds that it took if it is whole."""
        self._answer += self.kernel.recv(65_536)
        if not self._answer.startswith(b"HTTP/1.1 200"):
            raise StreamsError(f"a request was not answered: {self._answer[:300]!r}")
        if not self._answer.endswith(_ANSWER_ENDS):
            return None
        self._answer = b""
        return time.perf_counter() - self._sent_at


def _rate(
    running: Broker,
    subscriber: socket.socket,
    request: bytes,
    messages: int,
    connections: int,
    packet_bytes: int,
    seconds: float,
) -> Rate:
    senders = {each.kernel.fileno(): each for each in (_Sender(running.port, request) for _ in range(connections))}
    poll = select.epoll()
    poll.register(subscriber, select.EPOLLIN)
    for number in senders:
        poll.register(number, select.EPOLLIN)
    took: list[float] = []
    received = 0
    open_requests = len(senders)
    began, cpu = time.perf_counter(), running.cpu_s()
    for sender in senders.values():
        sender.send(time.perf_counter())
    until = began + seconds
    while open_requests or received < messages * packet_bytes * len(took):
        for number, _ in poll.poll(LIMIT_S):
            asking = senders.get(number)
            if asking is None:
                received += len(subscriber.recv(1_048_576))
            elif (answered_in := asking.read()) is not None:
                took.append(answered_in)
                if (now := time.perf_counter()) < until:
                    asking.send(now)
                else:
                    open_requests -= 1
        if time.perf_counter() > until + LIMIT_S:
            raise StreamsError("messages are missing at the subscriber")
    ended = time.perf_counter()
    used = max(0.01, running.cpu_s() - cpu)
    for sender in senders.values():
        sender.kernel.close()
    poll.close()
    count = messages * len(took)
    return Rate(count / (ended - began), count / used, statistics.quantiles(took, n=100)[98])
