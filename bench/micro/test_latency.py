"""From a publisher's `send` to a subscriber's `recv`, over real sockets, through a broker in a process of its own.

One message at a time: what is measured is the way through an idle broker, and not a queue. mosquitto goes the same way
where it is installed. The clients are blocking sockets in this process, so that the figure holds two system calls, two
wake-ups and the broker, and little else.
"""

import socket
import ssl
import statistics
from collections.abc import Iterator
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import brokers, entrants
from bench.brokers import Broker, Spec
from bench.micro.conftest import Note
from bench.micro.timing import in_rounds
from mqttlite.wire.constants import PUBACK, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Connect, Publish, Subscribe, SubscriptionRequest

ROUNDS: Final = 2_000
WARM_UP: Final = 200
LIMIT_S: Final = 10.0
"""A message that takes longer is lost, and with it the benchmark."""
TOPIC: Final = b"latency/probe"
PAYLOAD: Final = b"0123456789abcdef"


@pytest.fixture(scope="module", params=["mqttlite", "mosquitto"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spec]:
    """A broker that runs."""
    home = tmp_path_factory.mktemp("home")
    spec = entrants.installed(home) if request.param == "mqttlite" else entrants.mosquitto(home)
    if spec is None:
        pytest.skip("mosquitto is not installed")
    broker = Broker(spec, home)
    broker.ready()
    try:
        yield spec
    finally:
        broker.stop()


class Client:
    """A blocking client that reads packet by packet."""

    def __init__(self, port: int, context: ssl.SSLContext | None, client_id: str) -> None:
        link = socket.create_connection((brokers.LOOPBACK, port), LIMIT_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link: Final = link if context is None else context.wrap_socket(link, server_hostname="localhost")
        self._framer: Final = Framer(65_536)
        self.send(encode(Connect(client_id, V311), V311))
        first, body = self.receive()
        assert (first, body) == (0x20, b"\0\0")

    def send(self, frame: bytes) -> None:
        self._link.sendall(frame)

    def receive(self) -> tuple[int, bytes]:
        """The one packet that is expected now."""
        while True:
            data = self._link.recv(65_536)
            assert data, "the broker closed the connection"
            packets = list(self._framer.split(data))
            if packets:
                [packet] = packets
                return packet

    def close(self) -> None:
        self._link.close()


@pytest.mark.parametrize("transport", ["tcp", "tls"])
@pytest.mark.parametrize("qos", [0, 1], ids=["q0", "q1"])
def test_publish_to_deliver(benchmark: BenchmarkFixture, note: Note, served: Spec, transport: str, qos: int) -> None:
    benchmark.group = f"publish to deliver, QoS {qos} over {transport}"
    context, port = None, served.port
    if transport == "tls":
        assert served.folder is not None
        assert served.tls_port is not None
        context, port = ssl.create_default_context(cafile=str(served.folder / "certs" / "ca.crt")), served.tls_port
    reader, writer = Client(port, context, "reader"), Client(port, context, "writer")
    reader.send(encode(Subscribe(1, (SubscriptionRequest(TOPIC, qos),)), V311))
    assert reader.receive()[0] == 0x90
    frame = encode(Publish(TOPIC, PAYLOAD, qos, packet_id=1 if qos else 0), V311)
    delivered: list[bytes] = []

    def acknowledge() -> None:
        """Finish the exchange of the message before, outside of the time."""
        if qos and delivered:
            assert writer.receive() == (0x40, b"\0\1")
            body = delivered.pop()
            packet_id = int.from_bytes(body[2 + len(TOPIC) :][:2], "big")
            reader.send(encode(Ack(PUBACK, packet_id), V311))

    def deliver() -> bytes:
        writer.send(frame)
        body = reader.receive()[1]
        delivered.append(body)
        return body

    body = in_rounds(benchmark, deliver, before=acknowledge, rounds=ROUNDS, warm_up=WARM_UP)
    reader.close()
    writer.close()
    assert body.endswith(PAYLOAD)
    if benchmark.stats is not None:
        cuts = statistics.quantiles(benchmark.stats.stats.data, n=100)
        note(p50_us=cuts[49] * 1e6, p95_us=cuts[94] * 1e6, p99_us=cuts[98] * 1e6)
