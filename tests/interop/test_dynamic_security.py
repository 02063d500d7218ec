"""`$CONTROL/dynamic-security/v1`: our answers beside those of the plugin of Mosquitto, and mosquitto_ctrl."""

import asyncio
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mqttlite.client import Client, MqttError
from mqttlite.config import Config, ListenerOptions
from mqttlite.security.dynamic_security import DynamicSecurityOptions
from mqttlite.server import Broker

pytestmark = pytest.mark.slow

CONTROL = "$CONTROL/dynamic-security/v1"
PLUGINS = [
    Path(folder) / "mosquitto_dynamic_security.so"
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib")
]

ROLE = {"command": "createRole", "rolename": "r"}
TABLE: list[Any] = [
    {"command": "getDefaultACLAccess", "correlationData": "1"},
    {"command": "setDefaultACLAccess", "acls": [{"acltype": "subscribe", "allow": True}]},
    {"command": "setDefaultACLAccess", "acls": "x"},
    {"command": "setDefaultACLAccess"},
    {"command": "getDefaultACLAccess"},
    {"command": "getdefaultaclaccess"},
    # roles
    ROLE,
    ROLE,
    {"command": "createRole"},
    {"command": "createRole", "rolename": 7, "correlationData": "2"},
    {"command": "createRole", "rolename": "s", "textname": "S", "textdescription": "the s"},
    {"command": "createRole", "rolename": "t", "textname": 7},
    {"command": "createRole", "rolename": "t", "textdescription": 7},
    {
        "command": "createRole",
        "rolename": "t",
        "acls": [
            {"acltype": "publishClientSend", "topic": "low", "priority": 1, "allow": True},
            {"acltype": "publishClientSend", "topic": "high", "priority": 5, "allow": True},
            {"acltype": "publishClientSend", "topic": "low2", "priority": 1, "allow": False},
            {"acltype": "SUBSCRIBEPATTERN", "topic": "a/#", "allow": True},
        ],
    },
    {"command": "getRole", "rolename": "t"},
    {"command": "getRole", "rolename": "nix"},
    {"command": "getRole"},
    {"command": "listRoles"},
    {"command": "listRoles", "verbose": True, "count": 2, "offset": 1},
    {"command": "listRoles", "count": 0},
    {"command": "listRoles", "offset": 2},
    {"command": "addRoleACL", "rolename": "r", "acltype": "publishClientSend", "topic": "x/#", "allow": True},
    {"command": "addRoleACL", "rolename": "r", "acltype": "publishClientSend", "topic": "x/#", "allow": True},
    {"command": "addRoleACL", "rolename": "r", "acltype": "publishClientSend", "topic": "y", "priority": 3},
    {"command": "addRoleACL", "rolename": "r", "acltype": "publishClientSend", "topic": "x/#/y"},
    {"command": "addRoleACL", "rolename": "r", "acltype": "nix", "topic": "y"},
    {"command": "addRoleACL", "rolename": "r", "topic": "y"},
    {"command": "addRoleACL", "rolename": "r", "acltype": "subscribeLiteral"},
    {"command": "addRoleACL", "rolename": "nix", "acltype": "subscribeLiteral", "topic": "y"},
    {"command": "addRoleACL", "rolename": "r", "acltype": "subscribeLiteral", "topic": "#", "allow": True},
    {"command": "addRoleACL", "rolename": "r", "acltype": "unsubscribeLiteral", "topic": "u/+", "allow": True},
    {"command": "addRoleACL", "rolename": "r", "acltype": "unsubscribePattern", "topic": "#", "allow": True},
    {"command": "addRoleACL", "rolename": "r", "acltype": "publishClientReceive", "topic": "in/#", "allow": True},
    {"command": "getRole", "rolename": "r", "correlationData": "c"},
    {"command": "removeRoleACL", "rolename": "r", "acltype": "publishClientSend", "topic": "y"},
    {"command": "removeRoleACL", "rolename": "r", "acltype": "publishClientSend", "topic": "y"},
    {"command": "removeRoleACL", "rolename": "r", "acltype": "nix", "topic": "y"},
    {"command": "removeRoleACL", "rolename": "r", "acltype": "publishClientSend"},
    {"command": "removeRoleACL", "rolename": "nix", "acltype": "publishClientSend", "topic": "y"},
    {"command": "modifyRole", "rolename": "s", "textname": "SS", "acls": []},
    {"command": "modifyRole", "rolename": "nix"},
    {"command": "modifyRole"},
    {"command": "getRole", "rolename": "s"},
    # clients
    {"command": "createClient", "username": "c", "password": "pw", "roles": [{"rolename": "r", "priority": 2}]},
    {"command": "createClient", "username": "c"},
    {"command": "createClient"},
    {"command": "createClient", "username": "d", "password": 7},
    {"command": "createClient", "username": "d", "clientid": 7},
    {"command": "createClient", "username": "d", "textname": 7},
    {"command": "createClient", "username": "d", "textdescription": 7},
    {"command": "createClient", "username": "d", "roles": [{"rolename": "nix"}]},
    {"command": "createClient", "username": "d", "roles": 7},
    {"command": "createClient", "username": "d", "roles": [{}]},
    {"command": "createClient", "username": "d", "groups": [{"groupname": "nix"}]},
    {"command": "createClient", "username": "e", "clientid": "e1", "textname": "E", "textdescription": "the e"},
    {"command": "createClient", "username": "f", "clientid": ""},
    {"command": "getClient", "username": "c"},
    {"command": "getClient", "username": "e"},
    {"command": "getClient", "username": "nix"},
    {"command": "getClient"},
    {"command": "listClients"},
    {"command": "listClients", "count": 1, "offset": 1, "verbose": True},
    {"command": "disableClient", "username": "e"},
    {"command": "disableClient", "username": "nix"},
    {"command": "disableClient"},
    {"command": "getClient", "username": "e"},
    {"command": "enableClient", "username": "e"},
    {"command": "enableClient", "username": "nix"},
    {"command": "enableClient"},
    {"command": "setClientId", "username": "e", "clientid": "e2"},
    {"command": "setClientId", "username": "e", "clientid": 7},
    {"command": "setClientId", "username": "nix", "clientid": "x"},
    {"command": "setClientId"},
    {"command": "getClient", "username": "e"},
    {"command": "setClientId", "username": "e"},
    {"command": "getClient", "username": "e"},
    {"command": "setClientPassword", "username": "e", "password": "x"},
    {"command": "setClientPassword", "username": "e", "password": ""},
    {"command": "setClientPassword", "username": "e"},
    {"command": "setClientPassword", "username": "nix", "password": "x"},
    {"command": "setClientPassword"},
    {"command": "addClientRole", "username": "e", "rolename": "t"},
    {"command": "addClientRole", "username": "e", "rolename": "t"},
    {"command": "addClientRole", "username": "e", "rolename": "s"},
    {"command": "addClientRole", "username": "e", "rolename": "r", "priority": 9},
    {"command": "addClientRole", "username": "e", "rolename": "nix"},
    {"command": "addClientRole", "username": "nix", "rolename": "r"},
    {"command": "addClientRole", "username": "e"},
    {"command": "addClientRole", "rolename": "r"},
    {"command": "getClient", "username": "e"},
    {"command": "removeClientRole", "username": "e", "rolename": "t"},
    {"command": "removeClientRole", "username": "e", "rolename": "nix"},
    {"command": "removeClientRole", "username": "nix", "rolename": "t"},
    {"command": "removeClientRole", "username": "e"},
    {"command": "getClient", "username": "e"},
    # groups
    {"command": "createGroup", "groupname": "g", "roles": [{"rolename": "r"}, {"rolename": "s", "priority": 4}]},
    {"command": "createGroup", "groupname": "g"},
    {"command": "createGroup"},
    {"command": "createGroup", "groupname": "h", "textname": 7},
    {"command": "createGroup", "groupname": "h", "textdescription": 7},
    {"command": "createGroup", "groupname": "h", "roles": [{"rolename": "nix"}]},
    {"command": "createGroup", "groupname": "h", "textname": "H", "textdescription": "the h"},
    {"command": "addGroupClient", "groupname": "g", "username": "c"},
    {"command": "addGroupClient", "groupname": "g", "username": "c"},
    {"command": "addGroupClient", "groupname": "h", "username": "c", "priority": 5},
    {"command": "addGroupClient", "groupname": "g", "username": "e", "priority": 5},
    {"command": "addGroupClient", "groupname": "g", "username": "nix"},
    {"command": "addGroupClient", "groupname": "nix", "username": "c"},
    {"command": "addGroupClient", "groupname": "nix"},
    {"command": "addGroupClient", "username": "c"},
    {"command": "getGroup", "groupname": "g"},
    {"command": "getGroup", "groupname": "nix"},
    {"command": "getGroup"},
    {"command": "getClient", "username": "c"},
    {"command": "listGroups"},
    {"command": "listGroups", "verbose": True},
    {"command": "listGroups", "count": 1, "offset": 1},
    {"command": "addGroupRole", "groupname": "h", "rolename": "t"},
    {"command": "addGroupRole", "groupname": "h", "rolename": "t"},
    {"command": "addGroupRole", "groupname": "nix", "rolename": "t"},
    {"command": "addGroupRole", "groupname": "h", "rolename": "nix"},
    {"command": "addGroupRole", "groupname": "h"},
    {"command": "addGroupRole", "rolename": "t"},
    {"command": "removeGroupRole", "groupname": "h", "rolename": "t"},
    {"command": "removeGroupRole", "groupname": "nix", "rolename": "t"},
    {"command": "removeGroupRole", "groupname": "h", "rolename": "nix"},
    {"command": "getAnonymousGroup"},
    {"command": "setAnonymousGroup", "groupname": "h"},
    {"command": "setAnonymousGroup", "groupname": "nix"},
    {"command": "setAnonymousGroup"},
    {"command": "getAnonymousGroup", "correlationData": "z"},
    {"command": "modifyGroup", "groupname": "g", "textname": "G", "roles": [{"rolename": "t"}]},
    {"command": "modifyGroup", "groupname": "g", "roles": [{"rolename": "nix"}]},
    {"command": "modifyGroup", "groupname": "nix"},
    {"command": "modifyGroup"},
    {"command": "getGroup", "groupname": "g"},
    {"command": "modifyGroup", "groupname": "g", "clients": [{"username": "f", "priority": 1}]},
    {"command": "getGroup", "groupname": "g"},
    {"command": "modifyClient", "username": "c", "textname": "C", "textdescription": "cc", "clientid": "c1"},
    {"command": "modifyClient", "username": "c", "roles": [{"rolename": "s"}, {"rolename": "t", "priority": 1}]},
    {"command": "modifyClient", "username": "c", "groups": [{"groupname": "g", "priority": 3}]},
    {"command": "modifyClient", "username": "c", "roles": [{"rolename": "nix"}]},
    {"command": "modifyClient", "username": "c", "password": "new"},
    {"command": "modifyClient", "username": "nix"},
    {"command": "modifyClient"},
    {"command": "getClient", "username": "c"},
    {"command": "removeGroupClient", "groupname": "g", "username": "c"},
    {"command": "removeGroupClient", "groupname": "nix", "username": "c"},
    {"command": "removeGroupClient", "groupname": "g", "username": "nix"},
    {"command": "removeGroupClient", "groupname": "g"},
    {"command": "deleteGroup", "groupname": "g"},
    {"command": "deleteGroup", "groupname": "g"},
    {"command": "deleteGroup"},
    {"command": "listGroups", "verbose": True},
    {"command": "deleteRole", "rolename": "t"},
    {"command": "deleteRole", "rolename": "t"},
    {"command": "deleteRole"},
    {"command": "listRoles", "verbose": True},
    {"command": "listClients", "verbose": True},
    {"command": "deleteClient", "username": "c"},
    {"command": "deleteClient", "username": "c"},
    {"command": "deleteClient"},
    {"command": "listClients", "verbose": True},
    # characters that MQTT discourages
    {"command": "createRole", "rolename": "n\uffff"},
    {"command": "createRole", "rolename": "n\x85"},
    {"command": "createRole", "rolename": "n\ufdd0"},
    {"command": "createRole", "rolename": "n\U0010fffe"},
    {"command": "createRole", "rolename": "n\ufffd\ufdcf\xa0", "textname": "n\uffff\x01"},
    {"command": "createGroup", "groupname": "n\x01"},
    {"command": "createClient", "username": "n\x7f"},
    {"command": "createClient", "username": "n", "clientid": "n\uffff"},
    {"command": "createClient", "username": "n", "password": "n\uffff\x01"},
    {"command": "setClientId", "username": "n", "clientid": "n\uffff"},
    {"command": "setClientPassword", "username": "n", "password": "n\uffff\x01"},
    {"command": "addRoleACL", "rolename": "s", "acltype": "subscribeLiteral", "topic": "n\uffff"},
    # what is no command
    {"command": "nix", "correlationData": "3"},
    {"nix": 1},
    7,
]
PAYLOADS = [b"", b"{", b"[]", b"{}", b'{"commands": 7}', b'{"commands": []}', b'{"commands": [{"command": 7}]}']


def requests() -> list[bytes]:
    return [*(json.dumps({"commands": [each]}).encode() for each in TABLE), *PAYLOADS]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ctrl = shutil.which("mosquitto_ctrl")
    if ctrl is None:
        pytest.skip("mosquitto_ctrl is not installed")
    path = tmp_path / "dynamic-security.json"
    subprocess.run([ctrl, "dynsec", "init", str(path), "admin", "secret"], check=True, capture_output=True)
    return path


@contextmanager
def ours(file: Path) -> Iterator[int]:
    config = Config(listeners=(ListenerOptions(port=0),), dynamic_security=DynamicSecurityOptions(file=str(file)))
    with Broker(config) as broker:
        yield broker.port


@contextmanager
def mosquitto(file: Path) -> Iterator[int]:
    """Mosquitto with its plugin over a copy of a file."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    plugin = next((each for each in PLUGINS if each.exists()), None)
    if program is None or plugin is None:
        pytest.skip("mosquitto and its dynamic security plugin are not installed")
    folder = file.parent / "mosquitto"
    folder.mkdir()
    folder.chmod(0o777)
    copy = folder / file.name
    shutil.copy(file, copy)
    copy.chmod(0o666)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\nplugin {plugin}\nplugin_opt_config_file {copy}\nuser root\n"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-c", str(config)], stdout=log, stderr=log)
        try:
            for _ in range(100):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait()


async def answers(port: int, payloads: list[bytes]) -> list[Any]:
    """What an administrator hears to each request."""
    found = []
    async with Client("127.0.0.1", port, username="admin", password="secret") as client:
        await client.subscribe(f"{CONTROL}/#", qos=1)
        for payload in payloads:
            await client.publish(CONTROL, payload, qos=1)
            async with asyncio.timeout(60):
                found.append(json.loads((await anext(aiter(client.messages))).payload))
    return found


@cache
def is_before_2_1() -> bool:
    """Whether the installed Mosquitto is older than 2.1, whose dynamic security ours is."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin") or "mosquitto"
    told = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout
    return " version 2.0." in told.splitlines()[0]


def as_told(answer: Any) -> Any:
    """One of our answers, without what the installed Mosquitto does not tell."""
    if isinstance(answer, list):
        return [as_told(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    newer = {"allowwildcardsubs", "connections"} if is_before_2_1() else set()
    return {key: as_told(value) for key, value in answer.items() if key not in newer}


def test_the_answers_are_those_of_mosquitto(file: Path) -> None:
    with mosquitto(file) as port:
        expected = asyncio.run(answers(port, requests()))
    with ours(file) as port:
        found = as_told(asyncio.run(answers(port, requests())))
    for request, ours_, theirs in zip(requests(), found, expected, strict=True):
        assert ours_ == theirs, request.decode()


RULES: list[Any] = [
    {"command": "setDefaultACLAccess", "acls": [{"acltype": "subscribe", "allow": False}]},
    {
        "command": "createRole",
        "rolename": "one",
        "acls": [
            {"acltype": "publishClientSend", "topic": "a/#", "priority": 1, "allow": True},
            {"acltype": "publishClientSend", "topic": "a/secret/#", "priority": 2, "allow": False},
            {"acltype": "subscribePattern", "topic": "a/+/x/#", "priority": 3, "allow": True},
            {"acltype": "subscribePattern", "topic": "a/b/#", "priority": 4, "allow": False},
            {"acltype": "subscribeLiteral", "topic": "a/b/x", "priority": 0, "allow": True},
            {"acltype": "subscribeLiteral", "topic": "+/+", "priority": 0, "allow": True},
        ],
    },
    {
        "command": "createRole",
        "rolename": "two",
        "acls": [
            {"acltype": "publishClientSend", "topic": "a/secret/ok", "allow": True},
            {"acltype": "publishClientSend", "topic": "+/b", "allow": True},
            {"acltype": "publishClientSend", "topic": "#", "priority": -5, "allow": False},
            {"acltype": "subscribePattern", "topic": "#", "priority": -1, "allow": True},
        ],
    },
    {
        "command": "createRole",
        "rolename": "three",
        "acls": [{"acltype": "publishClientSend", "topic": "c/#", "allow": True}],
    },
    {"command": "createGroup", "groupname": "g1", "roles": [{"rolename": "one"}]},
    {"command": "createGroup", "groupname": "g2", "roles": [{"rolename": "two"}, {"rolename": "three", "priority": 1}]},
    {"command": "createClient", "username": "u1", "password": "pw", "roles": [{"rolename": "one"}]},
    {
        "command": "createClient",
        "username": "u2",
        "password": "pw",
        "roles": [{"rolename": "one", "priority": 1}, {"rolename": "two", "priority": 2}],
    },
    {
        "command": "createClient",
        "username": "u3",
        "password": "pw",
        "groups": [{"groupname": "g1", "priority": 1}, {"groupname": "g2", "priority": 7}],
    },
    {
        "command": "createClient",
        "username": "u4",
        "password": "pw",
        "roles": [{"rolename": "three"}],
        "groups": [{"groupname": "g1"}, {"groupname": "g2"}],
    },
]
PUBLISHED = ["a", "a/b", "a/secret", "a/secret/ok", "x/b", "c", "c/d", "nix"]
SUBSCRIBED = ["a/b/x", "a/b/y", "a/c/x", "a/c/x/#", "a/+/x", "a/#", "#", "+/+", "+", "a/+", "$SYS/#", "a/b/#", "/a"]


async def verdicts(port: int) -> dict[str, list[bool]]:
    """What each user may publish and subscribe, and whether a user with another password may come in."""
    await answers(port, [json.dumps({"commands": RULES}).encode()])
    found: dict[str, list[bool]] = {}
    for user in ("u1", "u2", "u3", "u4"):
        may = found[user] = []
        async with Client("127.0.0.1", port, username=user, password="pw") as client:
            for topic in PUBLISHED:
                may.append(await succeeds(client.publish(topic, b"x", qos=1)))
            for topic_filter in SUBSCRIBED:
                may.append(await succeeds(client.subscribe(topic_filter)))
    return found


async def succeeds(call: Awaitable[object]) -> bool:
    try:
        await call
    except MqttError:
        return False
    return True


def test_the_verdicts_are_those_of_mosquitto(file: Path) -> None:
    with mosquitto(file) as port:
        expected = asyncio.run(verdicts(port))
    with ours(file) as port:
        found = asyncio.run(verdicts(port))
    if is_before_2_1():  # its `subscribePattern #` covers `$SYS/#`
        for verdicts_ in (found, expected):
            for user in verdicts_.values():
                del user[len(PUBLISHED) + SUBSCRIBED.index("$SYS/#")]
    assert found == expected
    assert {True, False} == set(found["u1"][: len(PUBLISHED)]) == set(found["u1"][len(PUBLISHED) :])


def test_mosquitto_reads_the_file_that_we_wrote(file: Path) -> None:
    with ours(file) as port:
        asyncio.run(answers(port, requests()))
        everything = [
            json.dumps({"commands": [{"command": f"list{kind}", "verbose": True}]}).encode()
            for kind in ("Clients", "Groups", "Roles")
        ]
        expected = as_told(asyncio.run(answers(port, everything)))
    with mosquitto(file) as port:
        assert asyncio.run(answers(port, everything)) == expected


def test_mosquitto_ctrl_administers_our_broker(file: Path) -> None:
    with ours(file) as port:

        def ctrl(*arguments: str) -> str:
            command = ["mosquitto_ctrl", "-h", "127.0.0.1", "-p", str(port), "-u", "admin", "-P", "secret", "dynsec"]
            done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
            return done.stdout + "".join(line for line in done.stderr.splitlines(True) if "Error" in line)

        ctrl("createRole", "sensor")
        ctrl("addRoleACL", "sensor", "publishClientSend", "up/#", "allow", "5")
        ctrl("createClient", "dev", "-p", "pw")
        ctrl("addClientRole", "dev", "sensor", "3")
        assert "sensor (priority: 3)" in ctrl("getClient", "dev")
        assert "up/# (priority: 5)" in ctrl("getRole", "sensor")
        assert ctrl("listClients").split() == ["admin", "dev"]
        assert ctrl("getRole", "nix") == "getRole: Error: Role not found\n"
        for access in ("allow", "deny"):
            ctrl("setDefaultACLAccess", "publishClientReceive", access)
            assert f"publishClientReceive : {access}\n" in ctrl("getDefaultACLAccess")
        asyncio.run(use(port))
        ctrl("deleteClient", "dev")
        with pytest.raises(MqttError):
            asyncio.run(use(port))


async def use(port: int) -> None:
    async with Client("127.0.0.1", port, username="dev", password="pw") as client:
        assert await succeeds(client.publish("up/1", b"x", qos=1))
        assert not await succeeds(client.publish("down/1", b"x", qos=1))
