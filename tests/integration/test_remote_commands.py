"""The commands of an operator give the same by the admin socket and over HTTP, with the role that their key has."""

import asyncio
import contextlib
import json
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.core.limits import Limits
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.gateway.topic_routes import NewTopic
from mqttlite.security.api_keys import FILE_NAME, KeyRole, add
from mqttlite.server import Broker
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish
from tests.integration.conftest import Rig
from tests.support.device import until

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:
        yield Path(found)


class Operator:
    """Somebody at a shell; `ways` are how to reach the broker."""

    def __init__(self, broker: Broker, directory: Path, keys: dict[KeyRole, str]) -> None:
        assert broker.gateway is not None
        self.broker = broker
        self.url = broker.gateway.urls[0]
        self.socket = ("--data-dir", str(directory))
        self.http = ("--url", self.url, "--token", keys["operator"])
        self.keys = keys

    async def run(self, way: tuple[str, ...], *arguments: str) -> Result:
        """In a thread, while the broker's loop goes on."""
        at = 3 if arguments[1] == "snapshot" else 1 if arguments[0] == "kick" else 2
        words = (*arguments[:at], *way, *arguments[at:])
        return await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)

    async def prints(self, way: tuple[str, ...], *arguments: str) -> str:
        result = await self.run(way, *arguments)
        assert (result.exit_code, result.stderr) == (0, ""), result.stderr
        return result.stdout


@pytest.fixture
async def operator(rig: Rig, directory: Path) -> Operator:
    roles: tuple[KeyRole, ...] = ("user", "viewer", "operator", "admin")
    keys = {role: add(directory / FILE_NAME, role, role, None)[0] for role in roles}
    config = Config(
        listeners=(ListenerOptions(port=0, name="front"),),
        data_dir=str(directory),
        http=HttpOptions(port=0),
        limits=Limits(max_inflight=1),
    )
    return Operator(await rig.broker(config), directory, keys)


@pytest.mark.long
@pytest.mark.parametrize("way", ["socket", "http"])
async def test_an_operator_does_the_same_either_way(rig: Rig, operator: Operator, way: str) -> None:
    reach, port, admin = getattr(operator, way), operator.broker.port, operator.broker.admin
    near = await rig.device(port, "a/b", username="anna")
    away = await rig.device(port, "away", expiry=99)
    await away.subscribe("t/#", 1)
    await away.disconnect()
    await operator.broker.publish("t/1", b"text", qos=1, retain=True)
    await operator.broker.publish("t/2", b"\xff", retain=True)
    await operator.broker.publish("$delayed/60/t", b"x", qos=1)
    line = await operator.prints(reach, "clients", "ls", "--user", "anna")
    assert re.fullmatch(rf"a/b\tanna\t{near.address}\tfront\t5\.0\t\S+\t0\n", line)
    assert await operator.prints(reach, "clients", "ls", "--backlog") == ""
    assert "user              anna\n" in await operator.prints(reach, "clients", "show", "a/b")
    assert (await operator.prints(reach, "sessions", "ls")).splitlines()[1].startswith("away\toffline\t1\t1")
    assert (await operator.prints(reach, "sessions", "peek", "away")).endswith("t/1\ttext\n")
    assert await operator.prints(reach, "sessions", "purge", "away", "--dry-run") == "Would drop 1 message.\n"
    assert await operator.prints(reach, "sessions", "purge", "away") == "1 message dropped.\n"
    assert [each.split("\t")[0] for each in (await operator.prints(reach, "retained", "ls", "t/+")).splitlines()] == [
        "t/1",
        "t/2",
    ]
    assert await operator.prints(reach, "retained", "get", "t/1") == "text\n"
    assert await operator.prints(reach, "retained", "get", "t/2") == "/w==\n"
    assert json.loads(await operator.prints(reach, "retained", "get", "t/1", "--json"))["payload"] == "text"
    assert (await operator.run(reach, "retained", "get", "t/3")).exit_code == 3
    assert await operator.prints(reach, "retained", "rm", "t/#") == "2 retained messages removed.\n"
    [delayed] = (await operator.prints(reach, "delayed", "ls")).splitlines()
    assert await operator.prints(reach, "delayed", "cancel", delayed.split("\t")[0]) == "1 message cancelled.\n"
    assert await operator.prints(reach, "sessions", "rm", "away") == "1 session ended.\n"

    result = await operator.run(reach, "kick", "a/b", "nobody")
    assert (result.exit_code, result.stdout) == (3, "1 client disconnected.\n")
    assert "is not connected" in result.stderr
    assert await near.goodbye() == 0x98
    found = json.loads((await operator.run(reach, "kick", "nobody", "--json")).stdout)
    assert found == {"disconnected": [], "not_connected": ["nobody"]}

    near = await rig.device(port, "c")
    added = await operator.prints(reach, "ban", "add", "--client", "c", "--for", "10m", "--reason", "too loud")
    assert re.fullmatch(r"Ban 1: the client c until \S+Z; 1 client disconnected\.\n", added)
    assert await near.goodbye() == 0x98
    by = "admin socket" if way == "socket" else "operator"
    assert re.fullmatch(rf"1\tclient\tc\t\S+Z\t{by}\ttoo loud\n", await operator.prints(reach, "ban", "ls"))
    assert len(json.loads(await operator.prints(reach, "ban", "ls", "--json"))["entries"]) == 1
    assert await operator.prints(reach, "ban", "rm", "1") == "Ban 1 was lifted.\n"
    assert (await operator.run(reach, "ban", "rm", "1")).exit_code == 3
    result = await operator.run(reach, "ban", "add", "--address", "house")
    assert (result.exit_code, "is no IP address" in result.stderr) == (2, True)
    assert json.loads(await operator.prints(reach, "ban", "add", "--user", "u", "--json"))["disconnected"] == 0
    assert json.loads(await operator.prints(reach, "ban", "rm", "2", "--json")) == {"lifted": 2}
    assert admin.bans.list() == []


async def test_a_long_list_comes_in_pages_over_http(
    rig: Rig, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.cli.asker.PAGE", 2)
    for name in "abcde":
        await rig.device(operator.broker.port, name)
    found = await operator.prints(operator.http, "clients", "ls", "--limit", "0")
    assert [line[0] for line in found.splitlines()] == ["a", "b", "c", "d", "e"]
    found = json.loads(await operator.prints(operator.http, "clients", "ls", "--limit", "3", "--json"))
    assert found["cursor"] == "d"


@pytest.mark.long
async def test_topics_are_made_and_listed_over_http(operator: Operator) -> None:
    user = ("--url", operator.url, "--token", operator.keys["user"])
    topic = (await operator.prints(user, "topics", "new", "rooms/1", "--member", "bob", "--presence")).strip()
    assert re.fullmatch(rf"{topic}\trooms/1\tuser\tPUBLIC\t0\t\S+Z\n", await operator.prints(user, "topics", "ls"))
    assert json.loads(await operator.prints(user, "topics", "ls", "--json"))["entries"][0]["members"] == ["bob"]
    assert await operator.prints(user, "topics", "subscribers", topic) == ""
    assert await operator.prints(user, "topics", "rm", topic) == f"Topic {topic} is forgotten.\n"
    result = await operator.run(operator.socket, "topics", "ls")
    assert (result.exit_code, "--url" in result.stderr) == (2, True)


async def test_a_topic_is_made_with_all_that_it_can_have(operator: Operator) -> None:
    user = ("--url", operator.url, "--token", operator.keys["user"])
    given = {
        "permissions": "PRIVATE",
        "member": "bob",
        "group": "staff",
        "class": "ephemeral",
        "ttl": 60,
        "min-qos": 1,
        "max-qos": 1,
        "max-payload-bytes": 9,
        "message-retention-days": 3,
        "description": "the door",
        "schema": "door:2",
    }
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    found = await operator.prints(user, "topics", "new", "a/b", "--json", "--presence", "--tell-publisher", *options)
    kept = json.loads(found)
    renamed = {"member": "members", "group": "groups", "ttl": "ttl_s"}
    wanted = {renamed.get(name, name).replace("-", "_"): value for name, value in given.items()}
    wanted |= {"name": "a/b", "members": ["bob"], "groups": ["staff"], "presence": True, "tell_publisher": True}
    assert {name: kept[name] for name in wanted} == wanted
    assert set(NewTopic.__struct_encode_fields__) == set(wanted)
    assert (
        "message_retention_days"
        in (await operator.run(user, "topics", "new", "c", "--message-retention-days", "32")).stderr
    )


@pytest.mark.long
async def test_a_topic_and_its_members_are_changed(operator: Operator) -> None:
    user = ("--url", operator.url, "--token", operator.keys["user"])
    topic = (await operator.prints(user, "topics", "new", "a/b", "--presence")).strip()
    options = ("--no-presence", "--permissions", "PRIVATE", "--ttl", "60")
    assert await operator.prints(user, "topics", "set", topic, *options) == f"Topic {topic} is changed.\n"
    kept = json.loads(await operator.prints(user, "topics", "set", topic, "--description", "x", "--json"))
    assert (kept["presence"], kept["permissions"], kept["ttl_s"], kept["description"]) == (False, "PRIVATE", 60, "x")
    assert "Change what?" in (await operator.run(user, "topics", "set", topic)).stderr
    added = ("--add", "bob", "--add", "a/b", "--add-group", "staff")
    assert await operator.prints(user, "topics", "members", topic, *added) == "bob\tuser\na/b\tuser\nstaff\tgroup\n"
    removed = ("--remove", "a/b", "--remove-group", "staff")
    assert await operator.prints(user, "topics", "members", topic, *removed) == "bob\tuser\n"
    assert json.loads(await operator.prints(user, "topics", "members", topic, "--json"))["members"] == ["bob"]
    assert "is none of the members" in (await operator.run(user, "topics", "members", topic, "--remove", "x")).stderr


@pytest.mark.long
async def test_queues_and_dead_letters_are_looked_after_over_http(rig: Rig, operator: Operator) -> None:
    admin = ("--url", operator.url, "--token", operator.keys["admin"])
    reach, broker = operator.http, operator.broker
    made = await operator.prints(
        admin, "queue", "create", "jobs", "work/#", "--max-attempts", "1", "--retry-min", "0", "--retry-max", "0"
    )
    assert made == "Queue jobs made: consumers subscribe to $queue/jobs.\n"
    assert (await operator.run(admin, "queue", "create", "jobs", "work/#")).exit_code == 4
    assert (await operator.run(admin, "queue", "create", "other", "a/#/b")).exit_code == 2
    assert (await operator.run(reach, "queue", "create", "more", "more/#")).exit_code == 1
    await broker.publish("work/a", b"one", qos=1)
    assert await operator.prints(reach, "queue", "ls") == "jobs\t1\t0\t0\t0s\t0\t0\tno consumer\twork/#\n"
    assert (await operator.prints(reach, "queue", "peek", "jobs")).endswith("\t3\twork/a\tone\n")
    assert await operator.prints(reach, "queue", "pause", "jobs") == "Queue jobs paused.\n"
    assert "paused\tTrue\n" in await operator.prints(reach, "queue", "show", "jobs")
    assert await operator.prints(reach, "queue", "resume", "jobs") == "Queue jobs resumed.\n"
    consumer = await rig.device(broker.port, "c")
    await consumer.subscribe("$queue/jobs", 1)
    for payload in (b"2", b"600"):
        await broker.publish("work/a", payload, qos=1)
    for _ in range(3):
        consumer.send(Ack(PUBACK, (await consumer.expect(Publish)).packet_id, 0x80))
    await until(lambda: len(broker.queues.dead_letters("jobs")) == 3)
    await consumer.disconnect()
    assert await operator.prints(reach, "dlq", "ls") == "jobs\t3\t3\n"
    letters = await operator.prints(reach, "dlq", "ls", "jobs", "--filter", "payload = 600")
    assert re.fullmatch(r"3\t\d+\tnacked\t1\t\S+\t3\twork/a\n", letters)
    assert "payload\t2\n" in await operator.prints(reach, "dlq", "show", "jobs", "2")
    dry = await operator.prints(reach, "dlq", "replay", "jobs", "1", "--dry-run")
    assert dry == "Would replay 1 dead letter.\n"
    assert await operator.prints(reach, "dlq", "replay", "jobs", "1") == "1 dead letter replayed.\n"
    assert await operator.prints(reach, "dlq", "drop", "jobs", "--filter", "payload = 2") == "1 dead letter dropped.\n"
    assert (await operator.run(reach, "dlq", "show", "jobs", "2")).exit_code == 3
    assert (await operator.run(reach, "queue", "snapshot", "create", "jobs", "s")).exit_code == 1
    assert (await operator.prints(admin, "queue", "snapshot", "create", "jobs", "s")).startswith("Snapshot s of 1 mes")
    assert (await operator.run(admin, "queue", "snapshot", "create", "jobs", "a/b")).exit_code in (2, 3)
    assert (await operator.prints(reach, "queue", "snapshot", "ls")).startswith("s\tjobs\t1\t")
    assert (await operator.prints(reach, "queue", "snapshot", "ls", "jobs")).startswith("s\tjobs\t1\t")
    assert await operator.prints(admin, "queue", "seek", "jobs", "--snapshot", "s") == (
        "Queue jobs is at s: 1 message in it.\n"
    )
    assert (await operator.run(admin, "queue", "seek", "jobs", "--time", "x")).exit_code == 2
    assert await operator.prints(admin, "queue", "snapshot", "rm", "s") == "Snapshot s deleted.\n"
    assert await operator.prints(reach, "queue", "purge", "jobs", "--dry-run") == "Would drop 1 message.\n"
    assert await operator.prints(reach, "queue", "purge", "jobs", "--yes") == "1 message dropped.\n"
    assert await operator.prints(admin, "queue", "delete", "jobs", "--yes") == "Queue jobs deleted.\n"
    assert (await operator.run(reach, "queue", "show", "jobs")).exit_code == 3


async def test_a_viewer_does_not_search_in_payloads(operator: Operator) -> None:
    operator.broker.queues.create(QueueOptions(name="jobs", filters=("work/#",)))
    viewer = ("--url", operator.url, "--token", operator.keys["viewer"])
    assert await operator.prints(viewer, "dlq", "ls", "jobs") == ""
    result = await operator.run(viewer, "dlq", "ls", "jobs", "--filter", "payload = 1")
    assert (result.exit_code, "This needs the role operator" in result.stderr) == (1, True)


@pytest.mark.slow
async def test_schemas_are_looked_after_over_http(operator: Operator, tmp_path: Path) -> None:
    admin = ("--url", operator.url, "--token", operator.keys["admin"])
    file, other = tmp_path / "a.json", tmp_path / "b.json"
    file.write_text('{"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}')
    other.write_text('{"type": "string"}')
    assert await operator.prints(admin, "schema", "register", "rooms/queue", str(file)) == (
        "rooms/queue:1 has the id 1.\n"
    )
    assert await operator.prints(operator.http, "schema", "list") == "rooms/queue\t1\t1\tJSON\tBACKWARD\n"
    assert json.loads(await operator.prints(operator.http, "schema", "show", "rooms/queue"))["type"] == "object"
    assert (await operator.run(admin, "schema", "register", "rooms/queue", str(other))).exit_code == 4
    assert (await operator.run(admin, "schema", "check", str(other), "--subject", "rooms/queue")).exit_code == 4
    assert await operator.prints(admin, "schema", "level", "rooms/queue", "--set", "NONE") == "NONE\n"
    assert (await operator.run(operator.http, "schema", "delete", "rooms/queue")).exit_code == 1
    assert await operator.prints(admin, "schema", "delete", "rooms/queue") == "1 version of rooms/queue deleted.\n"
    assert (await operator.run(admin, "schema", "show", "rooms/queue")).exit_code == 3


@pytest.mark.long
async def test_keys_are_made_listed_and_revoked_over_http(operator: Operator) -> None:
    admin = ("--url", operator.url, "--token", operator.keys["admin"])
    made = await operator.run(
        admin, "token", "new", "--role", "viewer", "--user", "ann", "--expires", "90d", "--note", "wall"
    )
    assert made.exit_code == 0
    key = made.stdout.strip()
    listed = await operator.prints(admin, "token", "list")
    [line] = [each for each in listed.splitlines() if each.endswith("wall")]
    assert re.fullmatch(r"\w{8}  viewer    ann               expires \S+Z  wall", line)
    assert key not in listed
    as_json = [json.loads(each) for each in (await operator.prints(admin, "token", "list", "--json")).splitlines()]
    [made_key] = [each for each in as_json if each["note"] == "wall"]
    assert made_key["expires_at"] - made_key["created_at"] in range(90 * 86_400 - 2, 90 * 86_400 + 3)
    viewer = ("--url", operator.url, "--token", key)
    assert await operator.prints(viewer, "clients", "ls") == ""
    assert (await operator.run(viewer, "token", "new", "--role", "admin")).exit_code == 1
    assert (await operator.run(admin, "token", "revoke", line[:8])).exit_code == 0
    assert (await operator.run(admin, "token", "revoke", line[:8])).exit_code == 3
    await asyncio.sleep(0.5)  # how long a login is remembered
    assert (await operator.run(viewer, "clients", "ls")).exit_code == 1
    result = await operator.run((*admin, "--file", "keys.json"), "token", "list")
    assert (result.exit_code, "each name a place" in result.stderr) == (2, True)


async def test_a_key_without_the_role_is_refused(operator: Operator) -> None:
    for key, sentence in (("user", "This needs the role viewer"), ("wrong", "The credentials are not accepted")):
        way = ("--url", operator.url, "--token", operator.keys.get(key, "mqk_wrong"))  # type: ignore[call-overload]
        result = await operator.run(way, "clients", "ls")
        assert (result.exit_code, sentence in result.stderr) == (1, True), result.stderr


async def test_an_unreachable_broker_is_reported(operator: Operator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        result = await operator.run(("--url", f"http://127.0.0.1:{port}", "--timeout", "0.1"), "clients", "ls")
        assert (result.exit_code, "does not answer within 0.1 s" in result.stderr) == (1, True)
    result = await operator.run(("--url", f"http://127.0.0.1:{port}"), "clients", "ls")
    assert (result.exit_code, "Nothing listens at" in result.stderr) == (1, True)
    for way, sentence in (
        (("--url", "broker.example"), "write an address such as"),
        (("--url", "https://x", "--cafile", "/nowhere"), "No such file"),
        (("--url", "http://x", *operator.socket), "two brokers"),
    ):
        result = await operator.run(way, "clients", "ls")
        assert result.exit_code == 2
        assert sentence in result.stderr.replace("\n", " ")


async def test_a_server_that_is_no_broker_is_told_from_one(operator: Operator) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        result = await operator.run(("--url", f"http://127.0.0.1:{port}"), "clients", "ls")
        assert (result.exit_code, "does not answer as a broker does" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ban", "add"], "name one of"),
        (["ban", "add", "--client", "c", "--user", "u"], "name one of"),
        (["ban", "add", "--client", "c", "--for", "soon"], "write a number and s, m, h or d"),
    ],
)
async def test_a_ban_names_one_and_for_how_long(operator: Operator, arguments: list[str], sentence: str) -> None:
    result = await operator.run(operator.socket, *arguments)
    assert (result.exit_code, sentence in result.stderr) == (2, True)
