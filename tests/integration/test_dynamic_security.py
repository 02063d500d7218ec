"""Dynamic security over real sockets: what an administrator changes holds at once, also after a restart."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.config.checks import file_problems, warnings
from mqttlite.security.dynamic_security import DynamicSecurityOptions, path_of
from mqttlite.security.dynamic_security.document import dump, load
from mqttlite.security.dynamic_security.model import Acl, Client, Role, State
from mqttlite.security.dynamic_security.passwords import Passwords
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack
from tests.integration.conftest import Rig
from tests.support.device import Device

TOPIC = "$CONTROL/dynamic-security/v1"
ALL = {"acltype": "publishClientSend", "topic": "#", "allow": True}


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A file with an administrator, whose password is "secret"; everybody may subscribe, and receive everything."""
    passwords = Passwords()
    role = Role("admin")
    role.add("publishClientSend", Acl("$CONTROL/dynamic-security/#", 0, allow=True))
    role.add("subscribePattern", Acl("$CONTROL/dynamic-security/#", 0, allow=True))
    state = State(roles={"admin": role})
    state.clients["admin"] = Client("admin", password=await passwords.make("secret"), roles={"admin": 1})
    state.default_access |= {"subscribe": True, "publishClientReceive": True}
    passwords.close()
    path = tmp_path / "dynamic-security.json"
    path.write_bytes(dump(state))
    return path


async def broker_of(rig: Rig, file: Path, **options: object) -> Broker:
    listener = ListenerOptions(port=0, **options)  # type: ignore[arg-type]
    return await rig.broker(Config(listeners=(listener,), dynamic_security=DynamicSecurityOptions(file=str(file))))


async def login(rig: Rig, broker: Broker, username: str, client_id: str = "", version: int = V5) -> Device:
    return await rig.device(broker.port, client_id or username, version, username=username)


async def admin_of(rig: Rig, broker: Broker, client_id: str = "admin", version: int = V5) -> Device:
    admin = await login(rig, broker, "admin", client_id, version)
    assert await admin.subscribe(f"{TOPIC}/#") == b"\0"
    return admin


async def ask(admin: Device, *commands: dict[str, Any]) -> list[Any]:
    """The responses to a request."""
    admin.publish(TOPIC, json.dumps({"commands": commands}).encode())
    topic, payload = await admin.message()
    assert topic == f"{TOPIC}/response"
    responses = json.loads(payload)["responses"]
    assert isinstance(responses, list)
    return responses


async def do(admin: Device, *commands: dict[str, Any]) -> None:
    assert [each["error"] for each in await ask(admin, *commands) if "error" in each] == []


def create(username: str) -> dict[str, Any]:
    return {"command": "createClient", "username": username, "password": "secret"}


@pytest.mark.long
@pytest.mark.parametrize("version", [V311, V5])
async def test_the_sender_alone_hears_the_response(rig: Rig, file: Path, version: int) -> None:
    broker = await broker_of(rig, file)
    admin, other = await admin_of(rig, broker, version=version), await admin_of(rig, broker, "other", version)
    (response,) = await ask(admin, {"command": "listClients", "correlationData": "7"})
    assert response["data"] == {"totalCount": 1, "clients": ["admin"]}
    assert response["correlationData"] == "7"
    await other.ping()
    assert other.waiting() == []


@pytest.mark.long
async def test_only_clients_whose_rules_allow_it_give_commands(rig: Rig, file: Path) -> None:
    broker = await broker_of(rig, file, allow_anonymous=True)
    admin = await admin_of(rig, broker)
    await do(
        admin,
        {"command": "setDefaultACLAccess", "acls": [{"acltype": "publishClientSend", "allow": True}]},
        create("ann"),
    )
    for device in (await login(rig, broker, "ann"), await rig.device(broker.port, "anonymous")):
        assert await device.published("a") == 0x10
        assert await device.published(TOPIC, b'{"commands":[{"command":"deleteClient","username":"admin"}]}') == 0x87
    assert "admin" in load(file).clients


@pytest.mark.long
async def test_a_change_holds_for_connected_clients_at_once(rig: Rig, file: Path) -> None:
    broker = await broker_of(rig, file)
    admin = await admin_of(rig, broker)
    await do(admin, {"command": "createRole", "rolename": "r", "acls": [ALL]}, create("ann"))
    ann = await login(rig, broker, "ann")
    assert await ann.published("a") == 0x87
    allow = {"command": "setDefaultACLAccess", "acls": [{"acltype": "publishClientSend", "allow": True}]}
    await do(admin, allow)
    assert await ann.published("a") == 0x10


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        {"command": "deleteClient", "username": "ann"},
        {"command": "disableClient", "username": "ann"},
        {"command": "setClientPassword", "username": "ann", "password": "secret"},
        {"command": "addClientRole", "username": "ann", "rolename": "admin"},
    ],
    ids=lambda command: command["command"],
)
async def test_commands_that_change_clients_disconnect_them(rig: Rig, file: Path, command: dict[str, Any]) -> None:
    broker = await broker_of(rig, file)
    admin = await admin_of(rig, broker)
    await do(admin, create("ann"), create("bob"))
    ann, bob = await login(rig, broker, "ann"), await login(rig, broker, "bob")
    await do(admin, command)
    assert await ann.goodbye() == 0x98
    await bob.ping()


@pytest.mark.long
async def test_its_rules_stay_in_force_when_the_files_are_read_again(rig: Rig, file: Path) -> None:
    broker = await broker_of(rig, file)
    admin = await admin_of(rig, broker)
    await do(admin, create("ann"))
    ann = await login(rig, broker, "ann")
    for _ in range(2):
        assert await ann.published("plant/7") == 0x87
        await broker.reload(broker.config)


@pytest.mark.long
@pytest.mark.parametrize("denied", [{"allow": False}, {"access": "deny"}])
async def test_a_caller_without_permission_gets_nothing_of_a_topic(
    rig: Rig, file: Path, denied: dict[str, object]
) -> None:
    broker = await broker_of(rig, file)
    admin = await admin_of(rig, broker)
    role = {"command": "createRole", "rolename": "r", "acls": [ALL | {"acltype": "publishClientReceive"}]}
    await do(admin, create("ann"), role, {"command": "addClientRole", "username": "ann", "rolename": "r"})
    default = {"acltype": "publishClientReceive", **denied}
    await do(admin, {"command": "setDefaultACLAccess", "acls": [default]})
    await do(admin, create("bob"))
    ann, bob = await login(rig, broker, "ann"), await login(rig, broker, "bob")
    for device in (ann, bob):
        assert await device.subscribe("plant/#") == b"\0"
    await broker.publish("plant/7", "x")
    assert await ann.message() == ("plant/7", b"x")
    await bob.ping()
    assert bob.waiting() == []


@pytest.mark.long
async def test_administrators_hear_the_response_before_they_are_disconnected(rig: Rig, file: Path) -> None:
    broker = await broker_of(rig, file)
    admin = await admin_of(rig, broker)
    await do(admin, {"command": "modifyRole", "rolename": "admin", "textname": "A"})
    assert await admin.goodbye() == 0x98
    await admin_of(rig, broker)


@pytest.mark.long
async def test_several_administrators_lose_no_change(rig: Rig, file: Path) -> None:
    broker = await broker_of(rig, file)
    admins = [await admin_of(rig, broker, f"admin{number}") for number in range(4)]

    async def create_many(number: int) -> None:
        for each in range(10):
            await do(admins[number], {"command": "createGroup", "groupname": f"{number}-{each}"})

    await asyncio.gather(*(create_many(number) for number in range(4)))
    assert len(load(file).groups) == 40
    await broker.stop()
    again = await broker_of(rig, file)
    (response,) = await ask(await admin_of(rig, again), {"command": "listGroups"})
    assert response["data"]["totalCount"] == 40


BROKEN = '{"clients": [{"username": 7}]}'


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.json"
    path.write_text(BROKEN)
    return path


def content(path: Path) -> str:
    return path.read_text()


async def test_a_broken_file_stops_the_start_and_stays(rig: Rig, broken: Path) -> None:
    config = Config(listeners=(ListenerOptions(port=0),), dynamic_security=DynamicSecurityOptions(file=str(broken)))
    expected = f"dynamic_security.file: {broken}: clients[0].username must be a text"
    with pytest.raises(ConfigError, match="clients"):
        await rig.broker(config)
    (problem,) = file_problems(config)
    assert str(problem).startswith(expected)
    assert content(broken) == BROKEN


async def test_options_that_contradict_it_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^dynamic_security.file is missing, and so is data_dir"):
        Broker(Config(dynamic_security=DynamicSecurityOptions(), data_dir=""))
    with pytest.raises(ConfigError, match=r"^dynamic_security.file is missing, and so is data_dir"):
        await Broker(Config(dynamic_security=DynamicSecurityOptions())).start()
    config = Config(
        dynamic_security=DynamicSecurityOptions(), data_dir=str(tmp_path), listeners=(ListenerOptions(host="0.0.0.0"),)
    )
    assert path_of(DynamicSecurityOptions(), str(tmp_path)) == tmp_path / "dynamic-security.json"
    assert not config.lets_anybody_in(config.listeners[0])
    assert any("passwords over the network without encryption" in sentence for sentence in warnings(config))
    Broker(config)


async def test_without_it_the_topic_is_refused_with_a_reason(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "c")
    packet_id = device.publish(TOPIC, b"{}", 1)
    ack = await device.expect(Ack)
    assert (ack.packet_id, ack.reason_code) == (packet_id, 0x90)
    assert "dynamic_security" in (ack.properties.reason_string or "")
