"""`mqttlite cluster`, on the model of the engine."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.engine.memory import MemoryEngine, MemoryServers
from mqttlite.engine.port import Engine, EngineUnavailable
from mqttlite.extensions.cluster import commands, keys, lease, status
from mqttlite.extensions.cluster.options import ClusterOptions

Ask = Callable[..., Result]


async def say(engine: MemoryEngine, node: str, role: status.Role, position: int) -> None:
    said = status.NodeStatus(node=node, run="r", role=role, position=position, durable=position, build="1", at=0.0)
    await engine.put(keys.NODES + node, status.encode(said), 0)


@pytest.fixture
def servers() -> MemoryServers:
    """Of a cluster in which `a` serves and `b` follows."""
    servers = MemoryServers()

    async def prepare() -> None:
        engine = servers.connect()
        await engine.ensure_log(keys.LOG, 1 << 20)
        for expected in range(3):
            await engine.append(keys.LOG, expected, b"record")
        await engine.put(keys.LEASE, lease.encode(lease.Holder("a", "r", 4)), 0)
        await say(engine, "a", "serves", 3)
        await say(engine, "b", "follows", 1)

    asyncio.run(prepare())
    return servers


@pytest.fixture
def ask(servers: MemoryServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs a command with a configuration file."""

    async def connect(_options: ClusterOptions, *, creates: bool) -> Engine:
        assert not creates
        if not servers.is_available:
            raise EngineUnavailable("no NATS server answers")
        return servers.connect()

    monkeypatch.setattr(commands, "connect", connect)
    file = tmp_path / "a.toml"
    file.write_text('data_dir = "x"\n[cluster]\nservers = ["nats://a", "nats://b", "nats://c"]\n')

    def ask(*arguments: str) -> Result:
        return CliRunner().invoke(commands.command, [*arguments, "-c", str(file)])

    return ask


def test_status_names_servers_of_the_engine_that_are_away(ask: Ask, servers: MemoryServers) -> None:
    assert "fewer than three copies" not in ask("status").output
    servers.away = ("n1",)
    assert "the log has fewer than three copies, for servers of the engine are away: n1\n" in ask("status").output
    assert json.loads(ask("status", "--json").output)["servers_away"] == ["n1"]


def test_status_lists_machines_and_how_far_each_is(ask: Ask) -> None:
    result = ask("status")
    assert result.exit_code == 0, result.output
    assert "a serves (turn 4)" in result.output
    assert "the log has 3 records, of which 3 are kept (0 % full)" in result.output
    rows = [line.split("\t")[:4] for line in result.output.splitlines() if "\t" in line]
    assert rows == [["a", "serves", "0", "3"], ["b", "follows", "2", "1"]]
    found = json.loads(ask("status", "--json").output)
    assert (found["serving"], found["turn"], found["last"]) == ("a", 4, 3)
    assert [each["node"] for each in found["machines"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "a"), "a serves already"),
        (("--to", "c"), "c does not follow the log: b does"),
    ],
)
def test_a_hand_over_that_cannot_be_is_refused(ask: Ask, arguments: tuple[str, ...], said: str) -> None:
    result = ask("hand-over", *arguments)
    assert (result.exit_code, said in result.stderr) == (1, True), result.output


def test_a_hand_over_waits_until_another_machine_serves(ask: Ask, servers: MemoryServers) -> None:
    change = servers.change

    def also_serve(key: str, value: bytes | None, revision: int) -> int:
        """The other machine does what is asked, at once."""
        made = change(key, value, revision)
        if key == keys.HAND_OVER:
            assert value is not None
            assert lease.decode_hand_over(value) == lease.HandOver(4, "")
            taken = lease.encode(lease.Holder("b", "r", 5))
            change(keys.LEASE, taken, servers.keys[keys.LEASE].revision)
            said = status.NodeStatus(node="b", run="r", role="serves", position=3, durable=3, build="1", at=0.0)
            change(keys.NODES + "b", status.encode(said), servers.keys[keys.NODES + "b"].revision)
        return made

    servers.change = also_serve  # type: ignore[method-assign]
    result = ask("hand-over")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("b serves, after ")


def test_a_silent_engine_and_a_broker_alone_are_said_so(ask: Ask, servers: MemoryServers, tmp_path: Path) -> None:
    servers.is_available = False
    result = ask("status")
    assert (result.exit_code, result.stderr) == (1, "mqttlite cluster: no NATS server answers\n")
    alone = tmp_path / "alone.toml"
    alone.write_text('data_dir = "x"\n')
    result = CliRunner().invoke(commands.command, ["status", "-c", str(alone)])
    assert result.exit_code == 2
    assert "has no section cluster: the broker is alone" in result.stderr


def test_commands_create_and_resize_nothing(ask: Ask, servers: MemoryServers) -> None:
    assert ask("status").exit_code == 0
    assert ask("hand-over", "--to", "c").exit_code == 1
    assert servers.logs[keys.LOG].max_bytes == 1 << 20, "the configuration has another limit"
    servers.logs.clear()
    for command in ("status", "hand-over"):
        result = ask(command)
        assert (result.exit_code, result.stderr) == (1, "mqttlite cluster: the engine has no log 'log'\n")
    assert not servers.logs
