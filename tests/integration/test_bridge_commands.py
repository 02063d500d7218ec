"""`mqttlite bridge` beside a real broker, the routes behind it, and the alarm."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.config.file import parse_config
from mqttlite.event_hub import BRIDGE_AWAY, Listener
from mqttlite.server import Broker
from tests.integration.conftest import Rig
from tests.integration.test_bridges import Seen, bridge, bridges_of, is_connected, start
from tests.support.device import until

pytestmark = [pytest.mark.asyncio(loop_factories=["asyncio"]), pytest.mark.slow]


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:
        yield Path(found)


async def run(directory: Path, *arguments: str) -> Result:
    words = ("bridge", arguments[0], "--data-dir", str(directory), *arguments[1:])
    return await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)


async def test_bridges_are_listed_shown_paused_and_resumed(rig: Rig, directory: Path) -> None:
    there = await start(rig)
    here = await start(rig, directory, bridges=[bridge(there.port)])
    seen = Seen(there)
    await until(is_connected(here))
    assert (await run(directory, "ls")).stdout == f"b\tconnected\t127.0.0.1:{there.port}\t0\t0\t0\t0\t-\n"
    paused = await run(directory, "pause", "b")
    assert "Bridge b is paused since " in paused.stdout
    await here.publish("a", "x", qos=1)
    assert "1 messages wait for the other broker" in (await run(directory, "show", "b")).stdout
    resumed = json.loads((await run(directory, "resume", "b", "--json")).stdout)
    assert (resumed["name"], resumed["state"] in ("away", "connected")) == ("b", True)
    await until(lambda: seen.payloads == ["x"])
    shown = (await run(directory, "show", "b")).stdout.splitlines()
    assert shown[-1] == "both\t2\t#\t#\tyes\t-"
    missing = await run(directory, "show", "c")
    assert missing.stderr == "Error: There is no bridge 'c'.\n"


class Alarms(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[bool, str]] = []

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        if alarm == BRIDGE_AWAY:
            self.heard.append((active, detail))


async def test_an_alarm_is_active_while_a_bridge_is_away(rig: Rig, unused_tcp_port: int) -> None:
    broker = Broker(parse_config({"listeners": [{"port": 0}], "bridges": [bridge(unused_tcp_port)]}))
    alarms = Alarms()
    broker.event_listeners.append(alarms)
    await rig.enter(broker)
    await until(lambda: len(alarms.heard) == 1)
    is_active, detail = alarms.heard[0]
    assert is_active
    assert detail.startswith("b: Nobody listens on 127.0.0.1:")
    await start(rig, port=unused_tcp_port)
    await until(is_connected(broker))
    assert alarms.heard[1:] == [(False, "")]


async def test_a_bridge_that_says_why_it_refuses_messages_counts_them(rig: Rig) -> None:
    there = await start(rig, limits={"max_packet_bytes": 1_000})
    here = await start(rig, bridges=[bridge(there.port)])
    seen = Seen(there)
    await until(is_connected(here))
    await here.publish("a", "x" * 2_000, qos=1)
    await here.publish("a", "y", qos=1)
    await until(lambda: seen.payloads == ["y"])
    found = bridges_of(here).get("b").view()
    assert found.dropped == {"too large for the other broker": 1}
    assert dict(bridges_of(here).figures())["bridge_dropped"] == [
        ({"bridge": "b", "reason": "too large for the other broker"}, 1)
    ]


async def test_a_rate_is_kept_and_the_other_messages_wait(rig: Rig) -> None:
    there = await start(rig)
    here = await start(rig, bridges=[bridge(there.port, max_rate_per_s=10.0)])
    seen = Seen(there)
    await until(is_connected(here))
    began = asyncio.get_running_loop().time()
    for number in range(25):
        await here.publish("a", str(number), qos=1)
    assert bridges_of(here).get("b").waiting > 5
    await until(lambda: len(seen.messages) == 25)
    assert asyncio.get_running_loop().time() - began > 1.0
