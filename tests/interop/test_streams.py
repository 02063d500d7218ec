"""The how-to of streams with clients of others, which know topics and QoS alone: mosquitto, paho, MQTT.js. The broker
is a process, and is killed, as clients are.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.peers import Agent, MqttJsPeer, PahoPeer
from tests.interop.support import HOST, PATIENCE_S, READY, Line, MosquittoSub, mosquitto, published
from tests.support.killed import free_port

CONFIG = """
data_dir = "{data}"
[[listeners]]
port = {port}
[[streams]]
name = "orders"
filters = ["shop/orders/#"]
partitions = 4
"""


class KilledBroker:
    """`mqttlite serve` with the stream of the how-to."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._config = folder / "broker.toml"
        self._config.write_text(CONFIG.format(data=folder / "data", port=self.port))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it listens."""
        command = (sys.executable, "-m", "mqttlite", "serve", "-c", str(self._config))
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while subprocess.run(self._sub("-W", "1", "-t", "none", "-E"), capture_output=True).returncode:
            assert time.monotonic() < until, "the broker does not listen"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def line(self) -> Line:
        return Line(self.port)

    def read(self, *arguments: str) -> list[str]:
        """What mosquitto_sub prints until it has nothing more for two seconds."""
        done = subprocess.run(self._sub("-W", "2", *arguments), capture_output=True, text=True, timeout=PATIENCE_S)
        return done.stdout.splitlines()

    def lag(self) -> int:
        """Messages that the group has not finished."""
        command = (sys.executable, "-m", "mqttlite", "stream", "groups", "-c", str(self._config), "orders", "--json")
        done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S)
        return int(json.loads(done.stdout)["items"][0]["lag"])

    def _sub(self, *arguments: str) -> list[str]:
        return [mosquitto("mosquitto_sub"), "-h", HOST, "-p", str(self.port), *arguments]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KilledBroker]:
    running = KilledBroker(tmp_path)
    running.start()
    yield running
    running.kill()


def publish(broker: KilledBroker, *numbers: int) -> None:
    for number in numbers:
        published(broker.line, "-t", f"shop/orders/{number % 50}", "-m", str(number), "-q", "1")


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_sub_reads_from_the_beginning_and_goes_on_after_kills(broker: KilledBroker, version: str) -> None:
    publish(broker, 1, 2)
    billing = ("-t", "$stream/orders@earliest", "-q", "1", "-i", "billing", "-c", "-V", version)
    if version == "mqttv5":
        billing += ("-x", "3600")
    assert sorted(broker.read(*billing)) == ["1", "2"]
    publish(broker, 3)
    broker.kill()
    broker.start()
    publish(broker, 4)
    assert sorted(broker.read(*billing)) == ["3", "4"], "the position is kept"
    assert sorted(broker.read("-t", "$stream/orders@earliest", "-q", "1", "-V", version)) == ["1", "2", "3", "4"]


def test_a_group_of_mosquitto_subs_goes_on_when_a_member_and_the_broker_are_killed(broker: KilledBroker) -> None:
    published(broker.line, "-t", READY, "-m", "1", "-r", "-q", "1")
    topic, arguments = "$share/billing/$stream/orders@earliest", ("-q", "1", "-V", "mqttv311")
    publish(broker, *range(20))
    with MosquittoSub(broker.line, topic, *arguments) as first:
        got = taken(20, first)
        finish(broker)
        with MosquittoSub(broker.line, topic, *arguments) as other:
            publish(broker, *range(20, 40))
            got += taken(20, first, other)
            finish(broker)
            first.kill()
            publish(broker, *range(40, 60))
            got += taken(20, other)
            finish(broker)
            broker.kill()
            broker.start()
            publish(broker, *range(60, 80))
            got += taken(20, other)
    assert sorted(got) == list(range(80)), "each message came once"


def finish(broker: KilledBroker) -> None:
    """Wait until the group has finished all, and that is on disk: what is not would come again after a kill."""
    until = time.monotonic() + PATIENCE_S
    while broker.lag():
        assert time.monotonic() < until, "the group does not finish"
    published(broker.line, "-t", "after", "-m", "x", "-q", "1")


def taken(count: int, *readers: MosquittoSub) -> list[int]:
    """The numbers of the next messages that some of them have in all."""
    got: list[int] = []
    until = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < until:
        for each in readers:
            got += map(int, each.rest())
        time.sleep(0.05)
    return got


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
async def test_paho_and_mqtt_js_go_on_where_they_were_after_a_kill(
    broker: KilledBroker, agent: Agent, version: str
) -> None:
    MqttJsPeer.agent = agent
    publish(broker, *range(3))
    for kind in (PahoPeer, MqttJsPeer):
        async with kind(broker.line, kind.__name__, version, keep_session=True) as peer:
            await peer.subscribe("$stream/orders@earliest", qos=1)
            assert sorted(await peer.take(3)) == [b"0", b"1", b"2"]
    published(broker.line, "-t", "after", "-m", "x", "-q", "1")  # then what they acknowledged is on disk
    broker.kill()
    broker.start()
    publish(broker, 3)
    for kind in (PahoPeer, MqttJsPeer):
        async with kind(broker.line, kind.__name__, version, keep_session=True) as peer:
            await peer.subscribe("$stream/orders@earliest", qos=1)
            assert await peer.take(1) == [b"3"]
            assert peer.rest() == []


async def test_clients_of_all_kinds_share_the_partitions(broker: KilledBroker, agent: Agent) -> None:
    MqttJsPeer.agent = agent
    published(broker.line, "-t", READY, "-m", "1", "-r", "-q", "1")
    topic = "$share/g/$stream/orders@earliest"
    with MosquittoSub(broker.line, topic, "-q", "1") as sub:
        async with PahoPeer(broker.line, "paho") as python, MqttJsPeer(broker.line, "js", "3.1.1") as script:
            for each in (python, script):
                await each.subscribe(topic, qos=1)
            publish(broker, *range(60))
            until = time.monotonic() + PATIENCE_S
            while broker.lag() and time.monotonic() < until:
                await asyncio.sleep(0.1)
        shares = [sub.rest(), python.rest(), script.rest()]
    assert sorted(int(each) for share in shares for each in share) == list(range(60))
    assert all(shares), "each has partitions"
