"""`mqttlite bridge` beside a real broker, the routes behind it, and the alarm."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.config import ConfigError
from mqttlite.config.file import parse_config
from mqttlite.event_hub import BRIDGE_AWAY, Listener
from mqttlite.extensions.bridge.added import FILE_NAME, AddedBridges
from mqttlite.extensions.bridge.bridges import ADDRESS_FILE, ID_FILE
from mqttlite.extensions.bridge.errors import BridgeRefused
from mqttlite.extensions.bridge.options import BridgeOptions, BridgeTls, BridgeTopic
from mqttlite.extensions.bridge.routes import problems
from mqttlite.gateway.problems import Problem
from mqttlite.server import Broker
from tests.integration.conftest import Rig
from tests.integration.test_bridges import Seen, bridge, bridges_of, is_connected, start
from tests.support.device import until
from tests.support.inside import core_of

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


ADDED = """
[[bridges]]
name = "added"
addresses = ["127.0.0.1:{port}"]
password = "secret"
topics = [{{ pattern = "#", direction = "both", qos = 2 }}]
"""


async def test_a_bridge_is_added_kept_over_a_restart_and_removed(rig: Rig, directory: Path, tmp_path: Path) -> None:
    there = await start(rig)
    file = tmp_path / "added.toml"
    file.write_text(ADDED.format(port=there.port))
    async with Broker(parse_config({"listeners": [{"port": 0}], "data_dir": str(directory)})) as here:
        assert "Bridge added is " in (await run(directory, "add", str(file))).stdout
        await until(is_connected(here, "added"))
        again = await run(directory, "add", str(file))
        assert (again.exit_code, again.stderr) == (4, "Error: There is a bridge 'added' already.\n")
        seen = Seen(there)
        await here.publish("a", "1", qos=2)
        await until(lambda: seen.payloads == ["1"])
    assert "secret" in (directory / FILE_NAME).read_text()
    assert (directory / FILE_NAME).stat().st_mode & 0o077 == 0
    (directory / f"{ADDRESS_FILE}gone").touch()
    async with Broker(parse_config({"listeners": [{"port": 0}], "data_dir": str(directory)})) as here:
        await until(is_connected(here, "added"))
        assert not (directory / f"{ADDRESS_FILE}gone").exists()
        assert core_of(here).sessions.get("$bridge/added") is not None
        assert core_of(there).sessions.get(f"{broker_id_of(directory)}.added") is not None
        assert (await run(directory, "rm", "added", "--yes")).stdout == "Removed: bridge added.\n"
        assert core_of(here).sessions.get("$bridge/added") is None
        await until(lambda: core_of(there).sessions.get(f"{broker_id_of(directory)}.added") is None)
        state = Seen(here, "$SYS/broker/connection/#")
        assert (await run(directory, "ls")).stdout == ""
        assert (await run(directory, "rm", "added", "--yes")).stderr == "Error: There is no bridge 'added'.\n"
        assert state.messages == []
    async with Broker(parse_config({"listeners": [{"port": 0}], "data_dir": str(directory)})) as here:
        assert bridges_of(here).states() == []


def broker_id_of(directory: Path) -> str:
    return (directory / ID_FILE).read_text().strip()


async def test_a_bridge_of_the_configuration_is_not_removed_at_run_time(rig: Rig, directory: Path) -> None:
    await start(rig, directory, bridges=[bridge(1)])
    refused = await run(directory, "rm", "b", "--yes")
    assert (refused.exit_code, refused.stderr) == (
        4,
        "Error: The bridge 'b' is in the configuration: take it out there, and start the broker again.\n",
    )


TOPICS = (BridgeTopic(pattern="a"),)


async def test_an_added_bridge_without_its_tls_file_is_away_at_the_next_start(rig: Rig, directory: Path) -> None:
    tls = BridgeTls(ca_file=str(directory / "gone.crt"))
    lost = BridgeOptions(name="lost", addresses=("127.0.0.1:1",), topics=TOPICS, tls=tls)
    AddedBridges(str(directory)).save([lost])
    here = Broker(parse_config({"listeners": [{"port": 0}], "data_dir": str(directory)}))
    alarms = Alarms()
    here.event_listeners.append(alarms)
    await rig.enter(here)
    await until(lambda: len(alarms.heard) == 1)
    assert "lost: tls: " in alarms.heard[0][1]
    found = bridges_of(here).get("lost").view()
    assert (found.state, "gone.crt: no such file" in found.reason) == ("away", True)
    await bridges_of(here).remove("lost")
    assert (bridges_of(here).states(), alarms.heard[1:]) == ([], [(False, "")])


async def test_a_bridge_that_is_removed_is_not_paused_or_resumed(rig: Rig) -> None:
    bridges = bridges_of(await start(rig))
    removed = await bridges.add(BridgeOptions(name="c", addresses=("127.0.0.1:1",), topics=TOPICS))
    results = await asyncio.gather(bridges.remove("c"), removed.pause(), removed.resume(), return_exceptions=True)
    assert [type(each) for each in results] == [type(None), KeyError, KeyError]
    assert bridges.states() == []
    with pytest.raises(Problem, match="there is no bridge 'c'"), problems("c"):
        await removed.pause()


async def test_the_query_of_an_address_is_not_shown(rig: Rig) -> None:
    bridges = bridges_of(await start(rig))
    found = await bridges.add(BridgeOptions(name="c", addresses=("ws://127.0.0.1:1/mqtt?token=secret",), topics=TOPICS))
    await until(lambda: found.has_tried)
    view = found.view()
    assert view.addresses == ("ws://127.0.0.1:1/mqtt?…",)
    assert "ws://127.0.0.1:1/mqtt?…" in view.reason
    assert "secret" not in str(view)


async def test_the_configuration_holds_for_a_bridge_that_was_added_before(rig: Rig, directory: Path) -> None:
    AddedBridges(str(directory)).save([BridgeOptions(name="b", addresses=("a",), topics=(BridgeTopic(pattern="a"),))])
    here = await start(rig, directory, bridges=[bridge(1)])
    assert [(each.origin, each.addresses) for each in bridges_of(here).states()] == [("config", ("127.0.0.1:1",))]


async def test_a_file_of_added_bridges_that_cannot_be_read_is_named(rig: Rig, directory: Path) -> None:
    (directory / FILE_NAME).write_text('{"bridges": [{"name": "a/b"}]}')
    with pytest.raises(ConfigError, match=r"bridges\.json cannot be used: .*addresses"):
        await start(rig, directory)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[bridges", "is no TOML"),
        ("port = 1", "has port: sections [[bridges]] are meant"),
        ("", "has none: sections [[bridges]] are meant"),
        ("[[bridges]]\nname = 'a/b'\naddresses = ['a']\ntopics = [{pattern = 'a'}]", "name is 'a/b'"),
        (
            "[[bridges]]\nname = 'b'\naddresses = ['a']\ntopics = [{pattern = 'a'}]\ntls = {ca_file = '/nowhere'}",
            "Bridges: b.tls: ",
        ),
    ],
)
async def test_a_wrong_file_adds_nothing(rig: Rig, directory: Path, tmp_path: Path, text: str, said: str) -> None:
    here = await start(rig, directory)
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    found = await run(directory, "add", str(file))
    assert found.exit_code != 0
    assert said in found.stderr
    assert bridges_of(here).states() == []
    assert not (directory / FILE_NAME).exists()


async def test_one_bridge_more_than_the_limit_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttlite.extensions.bridge.bridges.MAX_BRIDGES", 2)
    bridges = bridges_of(await start(rig, bridges=[bridge(1)]))
    topics = (BridgeTopic(pattern="a"),)
    await bridges.add(BridgeOptions(name="c", addresses=("a",), topics=topics))
    with pytest.raises(BridgeRefused, match="which is the limit"):
        await bridges.add(BridgeOptions(name="d", addresses=("a",), topics=topics))
