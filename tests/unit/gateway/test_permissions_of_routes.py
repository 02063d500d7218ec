"""Each route asks for its role: the table names all of them, and each is tried with each role, and with none.

A new route is a new line in `ROUTES`: its role is written twice, and the first test compares.
"""

import base64
import re
import time
from pathlib import Path

import httpx
import pytest

from mqttlite.gateway.caller import Role
from mqttlite.gateway.routing import WEBSOCKET
from mqttlite.security.api_keys import FILE_NAME, add, load, revoke
from mqttlite.security.dynamic_security import DynamicSecurityOptions
from mqttlite.security.dynamic_security.document import dump
from mqttlite.security.dynamic_security.model import Client, State
from mqttlite.security.dynamic_security.passwords import Passwords
from tests.support.gateway import (
    GatewayUnderTest,
    handshake,
    nobody_without_credentials,
    routes_of,
    running_gateway,
)

PUBLIC = None

ROUTES: dict[tuple[str, str], Role | None] = {
    ("GET", "/docs"): PUBLIC,
    ("GET", "/openapi.json"): PUBLIC,
    ("GET", "/api/v1/me"): Role.USER,
    ("GET", "/"): Role.VIEWER,
    ("GET", "/ui/assets/{name}"): PUBLIC,
    ("GET", "/ui/login"): PUBLIC,
    ("GET", "/ui/{path:path}"): Role.VIEWER,
    ("POST", "/ui/login"): PUBLIC,
    ("POST", "/ui/logout"): Role.USER,
    ("GET", "/ui/live"): Role.VIEWER,
    ("GET", "/ui/bridges"): Role.VIEWER,
    ("GET", "/ui/bridge"): Role.VIEWER,
    ("POST", "/ui/bridge/{action}"): Role.OPERATOR,
    ("POST", "/ui/bridges/add"): Role.ADMIN,
    ("POST", "/ui/bridges/remove"): Role.ADMIN,
    ("GET", "/ui/streams"): Role.VIEWER,
    ("GET", "/ui/stream"): Role.VIEWER,
    ("GET", "/ui/stream/topic"): Role.OPERATOR,
    ("GET", "/ui/clients"): Role.VIEWER,
    ("GET", "/ui/client"): Role.VIEWER,
    ("GET", "/ui/client/live"): Role.VIEWER,
    ("POST", "/ui/client/disconnect"): Role.OPERATOR,
    ("POST", "/ui/client/end-session"): Role.OPERATOR,
    ("POST", "/ui/client/purge"): Role.OPERATOR,
    ("GET", "/ui/topics"): Role.VIEWER,
    ("GET", "/ui/topics/live"): Role.VIEWER,
    ("GET", "/ui/topic"): Role.VIEWER,
    ("GET", "/ui/topic/live"): Role.VIEWER,
    ("GET", "/ui/console"): Role.VIEWER,
    ("POST", "/ui/topic/retain"): Role.OPERATOR,
    ("POST", "/ui/topic/clear"): Role.OPERATOR,
    ("GET", "/ui/access"): Role.VIEWER,
    ("POST", "/ui/access/revoke"): Role.ADMIN,
    ("POST", "/ui/access/keys"): Role.ADMIN,
    ("GET", "/ui/queues"): Role.VIEWER,
    ("GET", "/ui/queues/live"): Role.VIEWER,
    ("POST", "/ui/queues/{action}"): Role.ADMIN,
    ("GET", "/ui/queue"): Role.VIEWER,
    ("GET", "/ui/queue/live"): Role.VIEWER,
    ("GET", "/ui/queue/dead-letter"): Role.OPERATOR,
    ("POST", "/ui/queue/{action}"): Role.OPERATOR,
    ("POST", "/ui/queue/dead-letters/{action}"): Role.OPERATOR,
    ("POST", "/ui/queue/snapshots/{action}"): Role.ADMIN,
    ("GET", "/ui/catalogue"): Role.VIEWER,
    ("GET", "/ui/schema"): Role.VIEWER,
    ("GET", "/ui/bans"): Role.VIEWER,
    ("POST", "/ui/bans/add"): Role.OPERATOR,
    ("POST", "/ui/bans/lift"): Role.OPERATOR,
    ("GET", "/ui/listeners"): Role.VIEWER,
    ("GET", "/ui/x/{name}"): Role.VIEWER,
    ("GET", "/ui/trace"): Role.OPERATOR,
    ("GET", "/ui/trace/live"): Role.OPERATOR,
    ("POST", "/api/v1/topics"): Role.USER,
    ("GET", "/api/v1/topics"): Role.USER,
    ("GET", "/api/v1/topics/{topic_id}"): Role.USER,
    ("PATCH", "/api/v1/topics/{topic_id}"): Role.USER,
    ("DELETE", "/api/v1/topics/{topic_id}"): Role.USER,
    ("GET", "/api/v1/topics/{topic_id}/subscribers"): Role.USER,
    ("GET", "/api/v1/topics/{topic_id}/members"): Role.USER,
    ("PUT", "/api/v1/topics/{topic_id}/members/{name}"): Role.USER,
    ("DELETE", "/api/v1/topics/{topic_id}/members/{name}"): Role.USER,
    ("PUT", "/api/v1/topics/{topic_id}/groups/{name}"): Role.USER,
    ("DELETE", "/api/v1/topics/{topic_id}/groups/{name}"): Role.USER,
    ("POST", "/api/v1/topics/{topic_id}/publish"): Role.USER,
    ("POST", "/api/v1/publish/bulk"): Role.USER,
    ("POST", "/api/v1/requests/{topic:path}"): Role.USER,
    ("GET", "/api/v1/topics/{topic_id}/subscribe"): Role.USER,
    ("POST", "/api/v1/topics/{topic_id}/subscribe"): Role.USER,
    ("DELETE", "/api/v1/topics/{topic_id}/subscribe"): Role.USER,
    ("GET", "/events"): Role.USER,
    ("POST", "/events"): Role.USER,
    (WEBSOCKET, "/ws/subscribe"): Role.USER,
    ("PUT", "/topics/{topic:path}"): Role.USER,
    ("POST", "/topics/{topic:path}"): Role.USER,
    ("GET", "/topics/{topic:path}"): Role.USER,
    ("GET", "/api/v1/status"): Role.VIEWER,
    ("GET", "/api/v1/alarms"): Role.VIEWER,
    ("GET", "/api/v1/readyz"): Role.VIEWER,
    ("GET", "/api/v1/explain/permission"): Role.VIEWER,
    ("GET", "/api/v1/catalogue"): Role.VIEWER,
    ("GET", "/api/v1/asyncapi.json"): Role.VIEWER,
    ("GET", "/registry/"): Role.VIEWER,
    ("GET", "/registry/schemas/types"): Role.VIEWER,
    ("GET", "/registry/schemas/ids/{id}"): Role.VIEWER,
    ("GET", "/registry/schemas/ids/{id}/schema"): Role.VIEWER,
    ("GET", "/registry/schemas/ids/{id}/subjects"): Role.VIEWER,
    ("GET", "/registry/schemas/ids/{id}/versions"): Role.VIEWER,
    ("GET", "/registry/subjects"): Role.VIEWER,
    ("POST", "/registry/subjects/{subject:path}"): Role.VIEWER,
    ("DELETE", "/registry/subjects/{subject:path}"): Role.ADMIN,
    ("GET", "/registry/subjects/{subject:path}/versions"): Role.VIEWER,
    ("POST", "/registry/subjects/{subject:path}/versions"): Role.ADMIN,
    ("GET", "/registry/subjects/{subject:path}/versions/{version}"): Role.VIEWER,
    ("DELETE", "/registry/subjects/{subject:path}/versions/{version}"): Role.ADMIN,
    ("GET", "/registry/subjects/{subject:path}/versions/{version}/schema"): Role.VIEWER,
    ("GET", "/registry/subjects/{subject:path}/versions/{version}/referencedby"): Role.VIEWER,
    ("POST", "/registry/compatibility/subjects/{subject:path}/versions"): Role.VIEWER,
    ("POST", "/registry/compatibility/subjects/{subject:path}/versions/{version}"): Role.VIEWER,
    ("GET", "/registry/config"): Role.VIEWER,
    ("PUT", "/registry/config"): Role.ADMIN,
    ("DELETE", "/registry/config"): Role.ADMIN,
    ("GET", "/registry/config/{subject:path}"): Role.VIEWER,
    ("PUT", "/registry/config/{subject:path}"): Role.ADMIN,
    ("DELETE", "/registry/config/{subject:path}"): Role.ADMIN,
    ("GET", "/registry/mode"): Role.VIEWER,
    ("GET", "/registry/mode/{subject:path}"): Role.VIEWER,
    **{
        (method, f"/v1/projects/{{project}}/{kind}/{{name}}{mark}{action}"): role
        for kind in ("topics", "subscriptions", "snapshots")
        for method, action, role in (
            ("GET", "getIamPolicy", Role.ADMIN),
            ("POST", "setIamPolicy", Role.ADMIN),
            ("POST", "testIamPermissions", Role.USER),
        )
        for mark in ":/"
    },
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}:detach"): Role.ADMIN,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}/detach"): Role.ADMIN,
    ("PUT", "/v1/projects/{project}/topics/{topic}"): Role.ADMIN,
    ("GET", "/v1/projects/{project}/topics"): Role.VIEWER,
    ("GET", "/v1/projects/{project}/topics/{topic}"): Role.VIEWER,
    ("DELETE", "/v1/projects/{project}/topics/{topic}"): Role.ADMIN,
    ("GET", "/v1/projects/{project}/topics/{topic}/subscriptions"): Role.VIEWER,
    ("POST", "/v1/projects/{project}/topics/{topic}:publish"): Role.USER,
    ("POST", "/v1/projects/{project}/topics/{topic}/publish"): Role.USER,
    ("PUT", "/v1/projects/{project}/subscriptions/{subscription}"): Role.ADMIN,
    ("GET", "/v1/projects/{project}/subscriptions"): Role.VIEWER,
    ("GET", "/v1/projects/{project}/subscriptions/{subscription}"): Role.VIEWER,
    ("PATCH", "/v1/projects/{project}/subscriptions/{subscription}"): Role.ADMIN,
    ("DELETE", "/v1/projects/{project}/subscriptions/{subscription}"): Role.ADMIN,
    ("GET", "/v1/projects/{project}/subscriptions/{subscription}/snapshot"): Role.VIEWER,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}:pull"): Role.USER,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}/pull"): Role.USER,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}:acknowledge"): Role.USER,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}/acknowledge"): Role.USER,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}:modifyAckDeadline"): Role.USER,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}/modifyAckDeadline"): Role.USER,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}:modifyPushConfig"): Role.ADMIN,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}/modifyPushConfig"): Role.ADMIN,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}:seek"): Role.USER,
    ("POST", "/v1/projects/{project}/subscriptions/{subscription}/seek"): Role.USER,
    ("PUT", "/v1/projects/{project}/snapshots/{snapshot}"): Role.ADMIN,
    ("GET", "/v1/projects/{project}/snapshots"): Role.VIEWER,
    ("GET", "/v1/projects/{project}/snapshots/{snapshot}"): Role.VIEWER,
    ("PATCH", "/v1/projects/{project}/snapshots/{snapshot}"): Role.ADMIN,
    ("DELETE", "/v1/projects/{project}/snapshots/{snapshot}"): Role.ADMIN,
    ("GET", "/v1/projects/{project}/topics/{topic}/snapshots"): Role.VIEWER,
    ("GET", "/v1/{path:path}"): Role.USER,
    ("POST", "/v1/{path:path}"): Role.USER,
    ("PUT", "/v1/{path:path}"): Role.USER,
    ("PATCH", "/v1/{path:path}"): Role.USER,
    ("DELETE", "/v1/{path:path}"): Role.USER,
    ("GET", "/api/v1/clients"): Role.VIEWER,
    ("GET", "/api/v1/clients/{client_id}"): Role.VIEWER,
    ("POST", "/api/v1/clients/{client_id}/disconnect"): Role.OPERATOR,
    ("DELETE", "/api/v1/clients/{client_id}/session"): Role.OPERATOR,
    ("GET", "/api/v1/clients/{client_id}/queue"): Role.OPERATOR,
    ("DELETE", "/api/v1/clients/{client_id}/queue"): Role.OPERATOR,
    ("GET", "/api/v1/users/{user}/connections"): Role.VIEWER,
    ("GET", "/api/v1/bans"): Role.VIEWER,
    ("POST", "/api/v1/bans"): Role.OPERATOR,
    ("DELETE", "/api/v1/bans"): Role.OPERATOR,
    ("DELETE", "/api/v1/bans/{ban_id}"): Role.OPERATOR,
    ("GET", "/api/v1/retained"): Role.VIEWER,
    ("GET", "/api/v1/retained/message"): Role.OPERATOR,
    ("DELETE", "/api/v1/retained"): Role.OPERATOR,
    ("GET", "/api/v1/delayed"): Role.VIEWER,
    ("DELETE", "/api/v1/delayed/{number}"): Role.OPERATOR,
    ("GET", "/api/v1/policies"): Role.VIEWER,
    ("GET", "/api/v1/acl"): Role.VIEWER,
    ("GET", "/api/v1/acl/text"): Role.ADMIN,
    ("PUT", "/api/v1/acl/text"): Role.ADMIN,
    ("PUT", "/api/v1/users/{user}"): Role.ADMIN,
    ("DELETE", "/api/v1/users/{user}"): Role.ADMIN,
    ("GET", "/api/v1/users"): Role.VIEWER,
    ("GET", "/api/v1/groups"): Role.VIEWER,
    ("POST", "/api/v1/dynamic-security/commands"): Role.ADMIN,
    ("GET", "/api/v1/api-keys"): Role.ADMIN,
    ("POST", "/api/v1/api-keys"): Role.ADMIN,
    ("DELETE", "/api/v1/api-keys/{key_id}"): Role.ADMIN,
    ("GET", "/api/v1/queues"): Role.VIEWER,
    ("POST", "/api/v1/queues"): Role.ADMIN,
    ("GET", "/api/v1/queues/{name}"): Role.VIEWER,
    ("PUT", "/api/v1/queues/{name}"): Role.ADMIN,
    ("DELETE", "/api/v1/queues/{name}"): Role.ADMIN,
    ("GET", "/api/v1/queues/{name}/messages"): Role.OPERATOR,
    ("DELETE", "/api/v1/queues/{name}/messages"): Role.OPERATOR,
    ("POST", "/api/v1/queues/{name}/pause"): Role.OPERATOR,
    ("POST", "/api/v1/queues/{name}/resume"): Role.OPERATOR,
    ("POST", "/api/v1/queues/{name}/seek"): Role.ADMIN,
    ("GET", "/api/v1/queues/{name}/snapshots"): Role.VIEWER,
    ("POST", "/api/v1/queues/{name}/snapshots/{snapshot}"): Role.ADMIN,
    ("GET", "/api/v1/snapshots"): Role.VIEWER,
    ("GET", "/api/v1/snapshots/{snapshot}"): Role.VIEWER,
    ("DELETE", "/api/v1/snapshots/{snapshot}"): Role.ADMIN,
    ("POST", "/api/v1/queues/{name}/push-secret"): Role.ADMIN,
    ("GET", "/api/v1/dead-letters"): Role.VIEWER,
    ("GET", "/api/v1/dead-letters/{name}"): Role.VIEWER,
    ("GET", "/api/v1/dead-letters/{name}/{number}"): Role.OPERATOR,
    ("POST", "/api/v1/dead-letters/{name}/replay"): Role.OPERATOR,
    ("DELETE", "/api/v1/dead-letters/{name}"): Role.OPERATOR,
    ("GET", "/api/v1/bridges"): Role.VIEWER,
    ("POST", "/api/v1/bridges"): Role.ADMIN,
    ("GET", "/api/v1/bridges/{name}"): Role.VIEWER,
    ("DELETE", "/api/v1/bridges/{name}"): Role.ADMIN,
    ("POST", "/api/v1/bridges/{name}/pause"): Role.OPERATOR,
    ("POST", "/api/v1/bridges/{name}/resume"): Role.OPERATOR,
    ("GET", "/api/v1/nodes"): Role.VIEWER,
    ("GET", "/api/v1/nodes/documents"): Role.VIEWER,
    ("GET", "/api/v1/nodes/drain"): Role.VIEWER,
    ("POST", "/api/v1/nodes/drain"): Role.ADMIN,
    ("DELETE", "/api/v1/nodes/drain"): Role.ADMIN,
    ("POST", "/api/v1/nodes/balance"): Role.ADMIN,
    ("POST", "/api/v1/queues/{name}/move"): Role.ADMIN,
    ("PUT", "/api/v1/queues/{name}/arrival"): Role.ADMIN,
    ("GET", "/api/v1/streams"): Role.VIEWER,
    ("POST", "/api/v1/streams"): Role.ADMIN,
    ("GET", "/api/v1/streams/{name}"): Role.VIEWER,
    ("DELETE", "/api/v1/streams/{name}"): Role.ADMIN,
    ("GET", "/api/v1/streams/{name}/readers"): Role.VIEWER,
    ("GET", "/api/v1/streams/{name}/groups"): Role.VIEWER,
    ("POST", "/api/v1/streams/{name}/groups/{group}/seek"): Role.ADMIN,
    ("DELETE", "/api/v1/streams/{name}/groups/{group}"): Role.ADMIN,
    ("PUT", "/api/v1/streams/{name}/groups/{group}"): Role.ADMIN,
    ("GET", "/api/v1/streams/{name}/groups/{group}/dead-letters"): Role.VIEWER,
    ("POST", "/api/v1/streams/{name}/groups/{group}/dead-letters/replay"): Role.ADMIN,
    ("POST", "/api/v1/streams/{name}/groups/{group}/dead-letters/drop"): Role.ADMIN,
    ("GET", "/api/v1/streams/{name}/messages"): Role.OPERATOR,
    ("GET", "/api/v1/streams/{name}/history"): Role.OPERATOR,
    ("POST", "/api/v1/streams/{name}/messages"): Role.ADMIN,
    ("GET", "/api/v1/streams/{name}/subscribe"): Role.USER,
    ("GET", "/api/v1/streams/{name}/snapshot"): Role.VIEWER,
    ("GET", "/api/v1/streams/{name}/offsets"): Role.VIEWER,
    ("GET", "/api/v1/why"): Role.VIEWER,
    ("POST", "/api/v1/why/follow"): Role.OPERATOR,
    ("GET", "/api/v1/explain/publish"): Role.VIEWER,
    ("GET", "/api/v1/explain/subscribe"): Role.VIEWER,
    ("GET", "/api/v1/telemetry/files"): Role.VIEWER,
    ("GET", "/api/v1/telemetry/files/{path:path}"): Role.OPERATOR,
    ("GET", "/api/v1/config"): Role.ADMIN,
    ("POST", "/api/v1/reload"): Role.ADMIN,
}
"""The role that a route asks for at least, by its method and path."""


async def test_each_route_has_the_role_of_the_table(gateway: GatewayUnderTest) -> None:
    assert {(route.method, route.path): route.role for route in gateway.gateway.app.table.routes} == ROUTES


@pytest.mark.slow
async def test_each_route_answers_the_roles_that_it_should_and_no_others(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        callers = {"nobody": (gateway.client(), None), "a stranger": (gateway.client(key="mqk_wrong"), None)}
        callers |= {role.name: (gateway.client(role), role) for role in Role}
        wrong: list[str] = []
        for (method, path), needed in ROUTES.items():
            url = re.sub(r"\{[^}]*\}", "x", path)
            for who, (client, role) in callers.items():
                status = await status_of(gateway, client, method, url)
                if needed is None:
                    expected = status not in (401, 403)
                elif role is None:
                    expected = status == 401
                else:
                    expected = (status == 403) if role < needed else status not in (401, 403)
                if not expected:
                    wrong.append(f"{who}: {method} {url}: {status}")
        assert wrong == []


REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "http-api.md"

OF_OTHERS = ("/v1/", "/registry")
"""Google's and Confluent's interfaces: the reference names what is special about them."""


async def test_the_reference_names_each_route_with_its_role(gateway: GatewayUnderTest) -> None:
    lines = REFERENCE.read_text(encoding="utf-8").splitlines()
    missing: list[str] = []
    for route in gateway.gateway.app.table.routes:
        if route.summary and route.role is not None and not route.path.startswith(OF_OTHERS):
            path = re.compile(re.escape(route.shown_path) + "[?`]")
            rights = re.compile(rf"\([^)]*\b({route.role.name.lower()}|owner)\b")
            if not any(path.search(each) and f"`{route.method}" in each and rights.search(each) for each in lines):
                missing.append(f"{route.method} {route.shown_path} ({route.role.name.lower()})")
    assert missing == []


async def status_of(gateway: GatewayUnderTest, client: httpx.AsyncClient, method: str, url: str) -> int:
    """The status with which a route answers."""
    if method == WEBSOCKET:
        peer = client._transport.client[0]  # type: ignore[attr-defined]
        return await handshake(gateway.gateway.app, url, client.headers, peer)
    return (await client.request(method, url)).status_code


async def walk(gateway: GatewayUnderTest, client: httpx.AsyncClient, expected: int) -> list[str]:
    """Call each route that is not public; those that answer otherwise."""
    wrong: list[str] = []
    for method, path in routes_of(gateway.gateway.app):
        if ROUTES[method, path] is not PUBLIC:
            url = re.sub(r"\{[^}]*\}", "x", path)
            status = await status_of(gateway, client, method, url)
            if status != expected:
                wrong.append(f"{method} {url}: {status}")
    return wrong


NO_LIMIT = {"requests_per_s": 0}


@pytest.mark.slow
async def test_no_route_answers_a_banned_caller(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http=NO_LIMIT) as gateway:
        admin, banned = gateway.client(Role.ADMIN), gateway.client(Role.ADMIN)
        key = gateway.keys[Role.ADMIN]
        assert (await banned.get("/api/v1/me")).status_code == 200  # it is remembered now
        bans = gateway.broker.admin.bans
        for kind, value in (("user", "key-admin"), ("client", "http-key-admin"), ("address", "127.0.0.1")):
            ban = bans.add(kind, value, 60)  # type: ignore[arg-type]
            assert await walk(gateway, banned, 403) == [], kind
            form = {"key": key, "target": "/"}
            answer = await banned.post("/ui/login", data=form, headers={"Origin": "http://localhost:8080"})
            assert (answer.status_code, answer.cookies) == (403, httpx.Cookies()), kind
            bans.lift(ban.number)
        assert (await admin.get("/api/v1/me")).status_code == 200
        neighbour = gateway.client(peer="2001:db8::1")
        assert (await neighbour.get("/api/v1/me")).status_code == 200  # and with it its network
        bans.add("address", "2001:db8::2", 60)
        assert await walk(gateway, gateway.client(peer="2001:db8::2"), 403) == []
        stranger = gateway.client(key="mqk_wrong", peer="2001:db8::2")
        assert (await stranger.get("/api/v1/me")).status_code == 403, "its credentials are not looked at"
        assert (await neighbour.get("/api/v1/me")).status_code == 200


@pytest.mark.slow
async def test_no_route_answers_credentials_that_expired_or_were_revoked_or_disabled(tmp_path: Path) -> None:
    keys = tmp_path / FILE_NAME
    expired, _ = add(keys, "admin", "late", int(time.time()) - 1)
    revoked, entry = add(keys, "admin", "gone", None)
    revoke(keys, entry.id)
    assert len(load(keys)) == 1
    passwords = Passwords()
    password = await passwords.make("secret")
    passwords.close()
    state = State(
        clients={"ann": Client("ann", password=password), "bob": Client("bob", password=password, disabled=True)}
    )
    file = tmp_path / "security.json"
    file.write_bytes(dump(state))
    http = {**NO_LIMIT, "roles": {"admin": ("ann", "bob")}}
    async with running_gateway(tmp_path, http=http, dynamic_security=DynamicSecurityOptions(file=str(file))) as gateway:
        disabled, enabled = gateway.client(), gateway.client()
        for client, name in ((disabled, "bob"), (enabled, "ann")):
            client.headers["Authorization"] = f"Basic {base64.b64encode(f'{name}:secret'.encode()).decode()}"
        assert (await enabled.get("/api/v1/me")).json()["role"] == "admin"
        for client in (gateway.client(key=expired), gateway.client(key=revoked)):
            assert await walk(gateway, client, 401) == []
        assert (await disabled.get("/api/v1/me")).status_code == 401


@pytest.mark.slow
async def test_no_route_of_a_topic_answers_another_user(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http=NO_LIMIT, users=("ann", "bob")) as gateway:
        ann, bob = gateway.user("ann"), gateway.user("bob")
        private = {"name": "a", "permissions": "PRIVATE"}
        topic_id = (await ann.post("/api/v1/topics", json=private)).json()["topic_id"]
        bodies = {
            ("PATCH", "/api/v1/topics/{topic_id}"): {"description": "mine"},
            ("POST", "/api/v1/topics/{topic_id}/publish"): {"payload": 1},
            ("POST", "/api/v1/topics/{topic_id}/subscribe"): {},
        }
        for method, path in sorted(routes_of(gateway.gateway.app)):
            if "{topic_id}" in path:
                url, body = path.replace("{topic_id}", topic_id), bodies.get((method, path))
                answer = await bob.request(method, url, json=body)
                is_refused = answer.status_code in (403, 404) or answer.json() == {"success": False}
                assert is_refused, f"{method} {path}: {answer.status_code}"
        for method, url, body in (
            ("GET", "/topics/a", None),
            ("PUT", "/topics/a", {}),
            ("POST", "/topics/a", {}),
            ("GET", "/events?filter=a", None),
            ("POST", "/events", {"filters": ["a"]}),
        ):
            answer = await bob.request(method, url, json=body)
            assert answer.status_code == 403, f"{method} {url}: {answer.status_code}"
        assert (await ann.get(f"/api/v1/topics/{topic_id}")).json()["description"] == ""


DEEP = (b"[" * 100_000, b'{"name":' * 50_000 + b"1" + b"}" * 50_000, b'{"a":' + b"[" * 3_000 + b"]" * 3_000 + b"}")


@pytest.mark.slow
async def test_no_route_fails_of_json_that_is_nested_deeply(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_gateway(tmp_path, http=NO_LIMIT) as gateway:
        admin = gateway.client(Role.ADMIN)
        await admin.post("/api/v1/queues", json={"name": "x"})
        topic_id = (await admin.post("/api/v1/topics", json={"name": "x"})).json()["topic_id"]
        failed: list[str] = []
        for method, path in routes_of(gateway.gateway.app):
            if method in ("POST", "PUT", "PATCH"):
                url = re.sub(r"\{[^}]*\}", "x", path.replace("{topic_id}", topic_id))
                for body in DEEP:
                    answer = await admin.request(
                        method, url, content=body, headers={"Content-Type": "application/json"}
                    )
                    if answer.status_code >= 500 and answer.status_code != 501:
                        failed.append(f"{method} {url}: {answer.status_code}")
        assert failed == []
    assert "Traceback" not in caplog.text
