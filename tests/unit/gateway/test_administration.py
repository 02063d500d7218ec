"""Clients, sessions, queues, bans, retained and delayed messages, rules, files and the configuration over HTTP."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pytest

from mqttlite.config import ListenerOptions
from mqttlite.event_hub import Listener
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.gateway.caller import Role
from mqttlite.gateway.names_in_paths import keep_slashes
from mqttlite.gateway.operation_routes import _without_secrets
from mqttlite.operations.bans import MAX_BANS
from mqttlite.security.dynamic_security import DynamicSecurityOptions
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connack
from tests.support.device import Device, until
from tests.support.gateway import GatewayUnderTest, running_gateway

API = "/api/v1"

OPENED: list[Device] = []


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    """Every device is closed when its test is over."""
    yield
    for each in OPENED:
        each.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await each.writer.wait_closed()
    OPENED.clear()


async def device(gateway: GatewayUnderTest, client_id: str, version: int = V5, **options: object) -> Device:
    found = await Device.dial(gateway.broker.port, version)
    OPENED.append(found)
    await found.connect(client_id, **options)
    return found


async def refusal(gateway: GatewayUnderTest, client_id: str, version: int = V5, **options: object) -> Connack:
    found = await Device.dial(gateway.broker.port, version)
    OPENED.append(found)
    found.hello(client_id, **options)  # type: ignore[arg-type]
    return await found.expect(Connack)


async def get(client: httpx.AsyncClient, path: str, status: int = 200, **params: Any) -> Any:
    answer = await client.get(f"{API}/{path}", params=params)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.long
async def test_clients_are_listed_by_cursor_and_filtered(gateway: GatewayUnderTest) -> None:
    for name in ("a", "b", "c"):
        await device(gateway, name, username="anna" if name == "b" else None)
    away = await device(gateway, "d", expiry=99)
    await away.subscribe("t", qos=1)
    await away.disconnect()
    await gateway.broker.publish("t", b"x", qos=1)
    viewer = gateway.client(Role.VIEWER)
    page = await get(viewer, "clients", limit=2)
    assert ([each["client_id"] for each in page["items"]], page["cursor"]) == (["a", "b"], "c")
    page = await get(viewer, "clients", cursor=page["cursor"])
    assert ([each["client_id"] for each in page["items"]], page["cursor"]) == (["c", "d"], None)
    for params, names in (
        ({"connected": False}, ["d"]),
        ({"backlog": True}, ["d"]),
        ({"backlog": False, "contains": "c"}, ["c"]),
        ({"user": "anna"}, ["b"]),
        ({"user": "nobody"}, []),
    ):
        assert [each["client_id"] for each in (await get(viewer, "clients", **params))["items"]] == names
    assert (await get(viewer, "clients", 422, limit=0))["code"] == "invalid_value"
    found = await get(viewer, "users/anna/connections")
    assert ([each["client_id"] for each in found["items"]], found["count"]) == (["b"], 1)
    assert (await get(viewer, "users/nobody/connections"))["count"] == 0


@pytest.mark.parametrize("client_id", ["plain", "a/b", "a/queue", "x%2Fy", "100%", "a+b c?#", "é"])
async def test_a_client_of_any_name_is_shown_and_disconnected(gateway: GatewayUnderTest, client_id: str) -> None:
    client = await device(gateway, client_id, username="a/u")
    await client.subscribe("t/#", qos=1)
    operator = gateway.client(Role.OPERATOR)
    path = f"clients/{httpx.URL('', params={'x': client_id}).query.decode()[2:].replace('+', '%20')}"
    details = await get(operator, path)
    assert details["entry"]["client_id"] == client_id
    assert (details["window"], details["topic_filters"]) == (1_000, {"t/#": 1})
    assert details["subscriptions"][0]["topic_filter"] == "t/#"
    assert datetime.fromisoformat(details["last_heard_at"]) > datetime.now(UTC) - timedelta(seconds=9)
    assert (await get(operator, "users/a%2Fu/connections"))["count"] == 1
    assert (await operator.post(f"{API}/{path}/disconnect")).json() == {"success": True}
    assert await client.goodbye() == 0x98
    await until(lambda: gateway.broker.admin.client(client_id) is None)
    for answer in (await operator.get(f"{API}/{path}"), await operator.post(f"{API}/{path}/disconnect")):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_path_without_names_is_left_alone() -> None:
    for raw in (b"/api/v1/retained/a%2Fb", b"/api/v1/clients/a", None):
        scope = {"path": "as it was", "raw_path": raw}
        assert keep_slashes(scope) is scope


@pytest.mark.long
async def test_a_queue_is_looked_at_and_emptied_and_a_session_ended(gateway: GatewayUnderTest) -> None:
    away = await device(gateway, "away", expiry=99)
    await away.subscribe("t", qos=1)
    await away.disconnect()
    await gateway.broker.publish("t", b"text", qos=1)
    await gateway.broker.publish("t", b"\xff", qos=1)
    operator = gateway.client(Role.OPERATOR)
    queue = await get(operator, "clients/away/queue")
    assert queue["waiting"] == 2
    assert [(each["payload"], each["payload_encoding"]) for each in queue["items"]] == [
        ("text", "utf-8"),
        ("/w==", "base64"),
    ]
    for params, left in (({"dry_run": True}, 2), ({}, 0)):
        answer = await operator.delete(f"{API}/clients/away/queue", params=params)
        assert answer.json() == {"messages": 2, "complete": True}
        assert (await get(operator, "clients/away/queue"))["waiting"] == left
    assert (await operator.delete(f"{API}/clients/away/session")).json() == {"success": True}
    for method, path in (("DELETE", "session"), ("GET", "queue"), ("DELETE", "queue")):
        assert (await operator.request(method, f"{API}/clients/away/{path}")).status_code == 404


@pytest.mark.long
async def test_a_banned_client_is_disconnected_and_stays_out_until_the_ban_is_lifted(gateway: GatewayUnderTest) -> None:
    operator = gateway.client(Role.OPERATOR, peer="192.0.2.9")
    for kind, value, version in (("client", "c", V5), ("user", "anna", V311), ("address", "::ffff:127.0.0.1", V5)):
        client = await device(gateway, "c", version, username="anna")
        ban = {"kind": kind, "value": value, "duration_s": 60, "reason": "too loud"}
        answer = await operator.post(f"{API}/bans", json=ban)
        assert answer.status_code == 201, answer.text
        made = answer.json()
        assert made["disconnected"] == (2 if kind == "address" else 1)
        assert (made["ban"]["by"], made["ban"]["kind"]) == ("key-operator", kind)
        assert await client.goodbye() == (0x98 if version == V5 else None)
        refused = await refusal(gateway, "c", version, username="anna")
        if version == V5:
            assert refused.reason_code == 0x8A
            assert refused.properties.reason_string == f"the {kind} is banned for 60 s: too loud"
        else:
            assert refused.reason_code == 5
        assert [each["id"] for each in (await get(operator, "bans"))["items"]] == [made["ban"]["id"]]
        status = (await gateway.client(Role.VIEWER).get(f"{API}/me")).status_code
        assert status == (403 if kind == "address" else 200), "it is kept out over HTTP, too"
        if kind != "address":
            await device(gateway, "other", username="bert")
        assert (await operator.delete(f"{API}/bans/{made['ban']['id']}")).json() == {"success": True}
        assert (await operator.delete(f"{API}/bans/{made['ban']['id']}")).status_code == 404
    await device(gateway, "c", username="anna")
    await device(gateway, "d", username="anna")


async def test_a_ban_that_cannot_be_says_why(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = gateway.client(Role.OPERATOR)
    ban = {"kind": "client", "value": "c", "duration_s": 60}
    for wrong, sentence in (
        ({"kind": "robot"}, "'client', 'user' or 'address'"),
        ({"duration_s": 0}, "> 0"),
        ({"value": ""}, ">= 1"),
        ({"kind": "address"}, "is no IP address"),
        ({"more": 1}, "body.more: there is no such member"),
    ):
        answer = await operator.post(f"{API}/bans", json={**ban, **wrong})
        assert answer.status_code == 422
        assert sentence in answer.json()["detail"]
    own = (("user", "key-operator"), ("client", "http-key-operator"), ("address", "127.0.0.1"))
    for kind, value in (*own, ("address", "::ffff:127.0.0.1"), ("address", "::FFFF:7f00:1")):
        answer = await operator.post(f"{API}/bans", json={**ban, "kind": kind, "value": value})
        assert answer.json()["code"] == "conflict", "nobody locks himself out"
    monkeypatch.setattr("mqttlite.operations.bans.MAX_BANS", 1)
    assert (await operator.post(f"{API}/bans", json=ban)).status_code == 201
    answer = await operator.post(f"{API}/bans", json={**ban, "value": "d"})
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
    assert str(MAX_BANS) in answer.json()["detail"]


@pytest.mark.long
async def test_an_operator_bans_no_caller_with_a_higher_role(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"roles": {"admin": ("root",)}}) as gateway:
        await device(gateway, "of-root", username="root")
        operator, admin = gateway.client(Role.OPERATOR), gateway.client(Role.ADMIN, peer="192.0.2.7")
        assert (await admin.get(f"{API}/me")).json()["role"] == "admin"
        above = [("user", "root"), ("user", "key-admin"), ("client", "of-root"), ("client", "http-key-admin")]
        for kind, value in (*above, ("address", "192.0.2.7"), ("address", "::ffff:192.0.2.7")):
            ban = {"kind": kind, "value": value, "duration_s": 60}
            for path, body in (
                (f"{API}/bans", {"json": ban}),
                ("/ui/bans/add", {"data": {**ban, "duration_s": "3600"}}),
            ):
                headers = {"Origin": "http://localhost:8080"}
                answer = await operator.post(path, headers=headers, **body)  # type: ignore[arg-type]
                assert answer.status_code == 403, (path, value)
        assert gateway.broker.admin.bans.list() == []
        for kind, value in (("user", "key-viewer"), ("user", "unknown"), ("client", "none"), ("address", "192.0.2.8")):
            answer = await operator.post(f"{API}/bans", json={"kind": kind, "value": value, "duration_s": 60})
            assert answer.status_code == 201, value
        assert (
            await admin.post(f"{API}/bans", json={"kind": "user", "value": "root", "duration_s": 60})
        ).status_code == 201


@pytest.mark.long
async def test_retained_messages_are_listed_got_and_removed(gateway: GatewayUnderTest) -> None:
    operator = gateway.client(Role.OPERATOR)
    for topic, payload in (("a/1", b"one"), ("a/2", b"\xff"), ("b", b"three")):
        await gateway.broker.publish(topic, payload, retain=True)
    page = await get(operator, "retained", filter="a/+", limit=1)
    assert ([each["topic"] for each in page["items"]], page["cursor"]) == (["a/1"], "a/2")
    found = await get(operator, "retained/message", topic="a/2")
    assert (found["payload"], found["payload_encoding"], found["payload_bytes"]) == ("/w==", "base64", 1)
    assert (await get(operator, "retained/message", 404, topic="a/3"))["code"] == "not_found"
    assert (await get(operator, "retained", 422, filter="a#"))["code"] == "invalid_topic"
    assert (await operator.delete(f"{API}/retained")).status_code == 422, "a filter must be named"
    assert (await operator.delete(f"{API}/retained", params={"filter": "a#"})).status_code == 422
    for params, left in (({"dry_run": True}, 3), ({}, 1)):
        answer = await operator.delete(f"{API}/retained", params={"filter": "a/#", **params})
        assert answer.json() == {"messages": 2, "complete": True}
        assert len((await get(operator, "retained"))["items"]) == left


async def test_delayed_messages_are_listed_and_cancelled(gateway: GatewayUnderTest) -> None:
    operator = gateway.client(Role.OPERATOR)
    await gateway.broker.publish("$delayed/60/t", b"x", qos=1)
    [entry] = (await get(operator, "delayed"))["items"]
    assert entry["topic"] == "t"
    assert (await operator.delete(f"{API}/delayed/{entry['number']}")).json() == {"success": True}
    assert (await operator.delete(f"{API}/delayed/{entry['number']}")).status_code == 404
    await get(operator, "delayed", 422, cursor="x")


@pytest.mark.long
async def test_rules_are_shown(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(
        "topic read open/#\nuser ann\ntopic readwrite a/#\ntopic deny a/x\ngroup g\ntopic write g\npattern read %u\n"
    )
    (tmp_path / "users").write_text("# nobody yet\n")
    async with running_gateway(
        tmp_path / "data",
        acl_file=str(tmp_path / "acl"),
        password_file=str(tmp_path / "users"),
        groups={"g": ("bob", "ann")},
        topic_policies=(TopicPolicyOptions(prefix="rooms", presence=True),),
    ) as gateway:
        viewer = gateway.client(Role.VIEWER)
        acl = await get(viewer, "acl")
        assert (acl["file"], acl["count"]) == (str(tmp_path / "acl"), 5)
        assert [(each["line"], each["section"], each["name"], each["access"]) for each in acl["items"]] == [
            (1, "anonymous", None, "read"),
            (3, "user", "ann", "readwrite"),
            (4, "user", "ann", "deny"),
            (6, "group", "g", "write"),
            (7, "pattern", None, "read"),
        ]
        [policy] = (await get(viewer, "policies"))["items"]
        assert (policy["prefix"], policy["presence"]) == ("rooms", True)
        [users] = (await get(viewer, "users"))["items"]
        assert (users["source"], users["names"], users["file"]) == ("password_file", [], str(tmp_path / "users"))
        assert await get(viewer, "groups") == {"items": {"g": ["ann", "bob"]}}
        commands = {"commands": [{"command": "listClients"}]}
        answer = await gateway.client(Role.ADMIN).post(f"{API}/dynamic-security/commands", json=commands)
        assert (answer.status_code, answer.json()["code"]) == (501, "not_available")


@pytest.mark.long
async def test_an_admin_changes_users_and_rules(tmp_path: Path) -> None:
    users, acl = tmp_path / "users", tmp_path / "acl"
    users.write_text("# people\n")
    acl.write_text("# who\nuser anna\ntopic read a\n")
    async with running_gateway(tmp_path, acl_file=str(acl), password_file=str(users)) as gateway:
        admin = gateway.client(Role.ADMIN)
        for password, added in (("one", True), ("two", False)):
            made = await admin.put(f"{API}/users/an%2Fna", json={"password": password})
            assert made.json() == {"user": "an/na", "added": added, "file": str(users)}
            login = await gateway.client().get(f"{API}/me", auth=httpx.BasicAuth("an/na", password))
            assert login.json()["username"] == "an/na"
        assert users.read_text().startswith("# people\nan/na:")
        text = "user an/na\ntopic write b\n"
        assert (await admin.put(f"{API}/acl/text", content=text)).json() == {"file": str(acl), "count": 1}
        assert ((await admin.get(f"{API}/acl/text")).text, acl.read_text()) == (text, text)
        client = gateway.client()
        client.auth = httpx.BasicAuth("an/na", "two")
        assert [(await client.put(f"/topics/{each}", content=b"")).status_code for each in "ab"] == [403, 200]
        for body, places in ((b"topic\n\nuser\n", ["line 1", "line 3"]), (b"\xff", [""])):
            refused = (await admin.put(f"{API}/acl/text", content=body)).json()
            assert refused["code"] == "invalid_value"
            assert [each["at"] for each in refused["errors"]] == places
            assert refused["detail"].endswith(refused["errors"][0]["message"])
        assert acl.read_text() == text
        assert (await admin.delete(f"{API}/users/an%2Fna")).json() == {"success": True}
        assert (await admin.delete(f"{API}/users/an%2Fna")).status_code == 404
        for name, params, password, status in (
            ("a:b", {}, "x", 422),
            ("anna", {}, "\0", 422),
            ("anna", {"file": "/etc/passwd"}, "x", 404),
        ):
            answer = await admin.put(f"{API}/users/{name}", params=params, json={"password": password})
            assert answer.status_code == status, name


async def test_without_files_users_and_rules_are_elsewhere(gateway: GatewayUnderTest) -> None:
    admin = gateway.client(Role.ADMIN)
    for answer in (await admin.get(f"{API}/acl/text"), await admin.put(f"{API}/users/a", json={"password": "x"})):
        assert (answer.status_code, answer.json()["code"]) == (501, "not_available")


async def test_without_rules_lists_are_empty(gateway: GatewayUnderTest) -> None:
    viewer = gateway.client(Role.VIEWER)
    assert await get(viewer, "acl") == {"file": None, "items": [], "count": 0}
    assert await get(viewer, "policies") == {"items": [], "count": 0}
    assert await get(viewer, "users") == {"items": []}


@pytest.mark.long
async def test_users_and_groups_change_by_commands(tmp_path: Path) -> None:
    file = tmp_path / "dynsec.json"
    file.write_text(json.dumps({"clients": [], "groups": [], "roles": [], "defaultACLAccess": {}}))
    async with running_gateway(
        tmp_path / "data", dynamic_security=DynamicSecurityOptions(file=str(file)), allow_anonymous=True
    ) as gateway:
        admin = gateway.client(Role.ADMIN)
        commands = [
            {"command": "createClient", "username": "ann", "password": "secret"},
            {"command": "createGroup", "groupname": "g"},
            {"command": "addGroupClient", "groupname": "g", "username": "ann"},
            {"command": "deleteClient", "username": "nobody"},
        ]
        answer = await admin.post(f"{API}/dynamic-security/commands", json={"commands": commands})
        assert answer.status_code == 200, answer.text
        responses = answer.json()["responses"]
        assert [each.get("error") for each in responses] == [None, None, None, "Client not found"]
        assert "secret" not in answer.text
        assert (await get(admin, "users"))["items"][0]["names"] == ["ann"]
        assert await get(admin, "groups") == {"items": {"g": ["ann"]}}
        assert "ann" in file.read_text(), "it is on disk before the answer"
        assert (await admin.post(f"{API}/dynamic-security/commands", json={"commands": []})).status_code == 422


async def test_why_and_follow(tmp_path: Path) -> None:
    options = DeliveryLogOptions(topics=("t",))
    async with running_gateway(tmp_path / "data", delivery_log=options) as gateway:
        operator = gateway.client(Role.OPERATOR)
        await gateway.broker.publish("t", b"x")
        assert "nobody" in " ".join((await get(operator, "why", target="t"))["sentences"]).lower()
        assert (await get(operator, "why", 422))["code"] == "invalid_value"
        answer = await operator.post(f"{API}/why/follow", json={"filter": "u"})
        latest = answer.json()["latest"]
        await gateway.broker.publish("u", b"x")
        answer = await operator.post(f"{API}/why/follow", json={"filter": "u", "after": latest})
        assert len(answer.json()["sentences"]) == 1
        assert (await operator.post(f"{API}/why/follow", json={"filter": "u#"})).json()["code"] == "invalid_topic"
        for number in range(19):
            await operator.post(f"{API}/why/follow", json={"filter": f"f/{number}"})
        answer = await operator.post(f"{API}/why/follow", json={"filter": "one more"})
        assert answer.json()["code"] == "quota_exceeded"


async def test_the_outcome_of_a_message_and_of_a_subscription_is_explained(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("user ann\ntopic readwrite a/#\n")
    async with running_gateway(tmp_path / "data", acl_file=str(tmp_path / "acl"), allow_anonymous=True) as gateway:
        viewer = gateway.client(Role.VIEWER)
        found = await get(viewer, "explain/publish", topic="a/1", user="ann", qos=1)
        assert (found["allowed"], found["reason_code"], found["receivers"]) == (True, 0x10, [])
        found = await get(viewer, "explain/publish", topic="b", user="ann")
        assert (found["allowed"], found["reason_code"]) == (False, 0x87)
        found = await get(viewer, "explain/subscribe", filter="a/#", user="ann", qos=2)
        assert (found["allowed"], found["reason_code"]) == (True, 2)
        for path, params, code in (("publish", {"topic": "a/#"}, 0x90), ("subscribe", {"filter": "a#"}, 0x8F)):
            found = await get(viewer, f"explain/{path}", **params)
            assert (found["allowed"], found["reason_code"]) == (False, code)


async def test_without_a_delivery_log_why_says_what_to_do(gateway: GatewayUnderTest) -> None:
    found = await get(gateway.client(Role.VIEWER), "why", 501, target="t")
    assert "delivery_log" in found["detail"]


@pytest.mark.long
async def test_telemetry_files_are_listed_and_downloaded_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    async with running_gateway(
        tmp_path / "data", telemetry=TelemetryOptions(directory=str(folder), format="jsonl")
    ) as gateway:
        (folder / "table=x").mkdir()
        for name in ("part-1.jsonl", "part-2.jsonl", ".part-3.jsonl", "part-4.jsonl.open", "note.txt"):
            (folder / "table=x" / name).write_text(name)
        (tmp_path / "secret.jsonl").write_text("secret")
        (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
        operator = gateway.client(Role.OPERATOR)
        page = await get(operator, "telemetry/files", limit=2)
        assert [each["path"] for each in page["items"]] == ["link.jsonl", "table=x/part-1.jsonl"]
        assert page["cursor"] == "table=x/part-2.jsonl"
        [last] = (await get(operator, "telemetry/files", cursor=page["cursor"]))["items"]
        assert last["size_bytes"] == 12
        answer = await operator.get(f"{API}/telemetry/files/{last['path']}")
        assert answer.text == "part-2.jsonl"
        for path in ("table=x/part-4.jsonl.open", "table=x/.part-3.jsonl", "x.jsonl", "..%2Fsecret.jsonl", "link.jsonl",
                     "table=x", "table=x/note.txt", "%00.jsonl"):  # fmt: skip
            assert (await operator.get(f"{API}/telemetry/files/{path}")).status_code == 404, path


async def test_without_telemetry_there_are_no_files(gateway: GatewayUnderTest) -> None:
    assert (await get(gateway.client(Role.VIEWER), "telemetry/files", 501))["code"] == "not_available"


async def test_the_configuration_is_shown_with_defaults(gateway: GatewayUnderTest) -> None:
    found = await get(gateway.client(Role.ADMIN), "config")
    assert (found["stop_timeout_s"], found["password_file"], found["http"]["port"]) == (5.0, None, 0)


def test_values_that_look_like_secrets_are_hidden() -> None:
    given = {
        "password": "p",
        "password_file": "f",
        "secret": "",
        "headers": {"x": "y"},
        "urls": ["redis://u:p@h/0", "http://h", "https://h/in?key=k", "http://[x@"],
        "more": [{"token": "t"}],
    }
    assert _without_secrets(given) == {
        "password": "(hidden)",
        "password_file": "f",
        "secret": "",
        "headers": {"x": "(hidden)"},
        "urls": ["redis://(hidden)@h/0", "http://h", "https://h/in?(hidden)", "(hidden)"],
        "more": [{"token": "(hidden)"}],
    }


async def test_reload_reads_files_again(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic read a\n")
    async with running_gateway(tmp_path / "data", acl_file=str(acl)) as gateway:
        admin = gateway.client(Role.ADMIN)
        acl.write_text("topic read a\ntopic read b\n")
        for _ in range(3):
            assert (await admin.post(f"{API}/reload")).status_code == 202
        async with asyncio.timeout(60):
            while (await get(admin, "acl"))["count"] != 2:
                await asyncio.sleep(0.01)
        asked: list[bool] = []
        gateway.broker.on_reload = lambda: asked.append(True)
        await admin.post(f"{API}/reload")
        assert asked == [True]


class Auditor(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str, bool]] = []

    def on_administered(self, by: str, action: str, target: str, done: bool) -> None:
        self.heard.append((by, action, target, done))


async def test_each_change_is_an_event(gateway: GatewayUnderTest) -> None:
    auditor = Auditor()
    gateway.broker._assembly.hub.register(auditor)
    operator = gateway.client(Role.OPERATOR)
    await operator.get(f"{API}/clients")
    await operator.delete(f"{API}/retained", params={"filter": "#"})
    await operator.post(f"{API}/reload")
    await gateway.client(key="wrong").post(f"{API}/reload")
    [removed, refused, stranger] = auditor.heard
    assert (removed[0].startswith("key-operator (key "), removed[1:]) == (True, ("DELETE", f"{API}/retained", True))
    assert refused[1:] == ("POST", f"{API}/reload", False)
    assert stranger == ("somebody", "POST", f"{API}/reload", False)


@pytest.mark.slow
async def test_a_page_of_a_hundred_thousand_clients_takes_less_than_a_tenth_of_a_second(tmp_path: Path) -> None:
    """At any depth; the sessions are those of clients that were here before."""
    async with running_gateway(tmp_path / "data", listeners=(ListenerOptions(port=0),)) as gateway:
        core = gateway.broker._core
        for number in range(100_000):
            core.sessions.begin(f"client-{(number * 7_919) % 100_000:06}", 3_600)
        viewer = gateway.client(Role.VIEWER)
        loop = asyncio.get_running_loop()
        await get(viewer, "me")
        started = loop.time()
        await get(viewer, "clients")
        first_s = loop.time() - started
        cursor, took_s, seen = "", [], 0
        while cursor is not None:
            started = loop.time()
            page = await get(viewer, "clients", limit=1_000, cursor=cursor)
            took_s.append(loop.time() - started)
            cursor, seen = page["cursor"], seen + len(page["items"])
        print(f"first {first_s * 1e3:.0f} ms, then at most {max(took_s) * 1e3:.0f} ms for 1,000")
        assert seen == 100_000
        assert median(took_s) < 0.1
