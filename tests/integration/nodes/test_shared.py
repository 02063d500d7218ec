"""What operators change at run time at one of several nodes holds at all of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from mqttlite import Client
from mqttlite.cli.main import main
from mqttlite.client.errors import ConnectError
from mqttlite.extensions.nodes import shared as shared_module
from mqttlite.extensions.nodes.options import NodesOptions
from mqttlite.files.shared_document import ChangedElsewhere, NotAgreed
from mqttlite.gateway.caller import Role
from mqttlite.security.dynamic_security import FILE_NAME as DYNAMIC_FILE
from mqttlite.server import Broker
from tests.integration.nodes.test_nodes import Fleet, air, client_of, connected, fleet
from tests.support.air import Air
from tests.support.device import PATIENCE_S, until
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.inside import assembly_of, loop_driver_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

__all__ = ["air", "fleet"]


@asynccontextmanager
async def with_gateway(name: str, folder: Path, **config: Any) -> AsyncIterator[GatewayUnderTest]:
    """A node with a gateway and a data directory."""
    options = NodesOptions(servers=("nats://127.0.0.1:4222",), node=name)
    async with running_gateway(folder / name, nodes=options, **config) as gateway:
        yield gateway


@asynccontextmanager
async def gateways(folder: Path, *names: str, **config: Any) -> AsyncIterator[list[GatewayUnderTest]]:
    """Nodes that all have a gateway. The first gives its keys to the others."""
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(with_gateway(name, folder, **config)) for name in names]
        for each in found[1:]:  # their own keys gave way
            each.keys, each.users = found[0].keys, found[0].users
        await connected(*(each.broker for each in found))
        yield found


async def soon(condition: Callable[[], Any]) -> None:
    """Wait until an awaitable condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- dynamic security


ADMIN = {"username": "admin", "password": "admin of all nodes"}


async def commands(broker: Broker, *commands: dict[str, Any]) -> list[dict[str, Any]]:
    """The responses to commands of dynamic security at a node."""
    control = assembly_of(broker).permissions.control
    assert control is not None
    return await control.execute(json.dumps({"commands": commands}).encode(), "test")


async def may_log_in(broker: Broker, username: str, password: str) -> bool:
    try:
        async with Client("127.0.0.1", broker.port, username=username, password=password, reconnect=False):
            return True
    except ConnectError:
        return False


@pytest.fixture
def dynamic(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Starts a node with dynamic security."""
    monkeypatch.setenv("MOSQUITTO_DYNSEC_PASSWORD", ADMIN["password"])

    async def start(name: str) -> Broker:
        return await fleet.start(name, tmp_path / name, dynamic_security={})

    return start


NEW = {"command": "createClient", "username": "ann", "password": "secret of ann", "roles": [{"rolename": "client"}]}


async def test_a_user_that_is_made_at_one_node_logs_in_at_another(dynamic: Callable[[str], Any]) -> None:
    a, b = await dynamic("a"), await dynamic("b")
    assert not await may_log_in(b, "ann", "secret of ann")
    assert "error" not in (await commands(a, NEW))[0]
    await soon(lambda: may_log_in(b, "ann", "secret of ann"))
    assert "error" not in (await commands(b, {"command": "deleteClient", "username": "ann"}))[0]
    await until(lambda: "ann" not in assembly_of(a).permissions.dynamic_security.rules.state.clients)  # type: ignore[union-attr]
    assert not await may_log_in(a, "ann", "secret of ann")


async def test_rules_that_are_changed_at_one_node_hold_at_another_and_end_connections_there(
    dynamic: Callable[[str], Any],
) -> None:
    a, b = await dynamic("a"), await dynamic("b")
    await commands(a, NEW)
    await soon(lambda: may_log_in(b, "ann", "secret of ann"))
    login = {"username": "ann", "password": "secret of ann"}
    async with Client("127.0.0.1", b.port, reconnect=False, **login) as client:
        await client.subscribe("t/#")
        disable = {"command": "disableClient", "username": "ann"}
        await commands(a, disable)
        await until(lambda: "ann" not in {each.connection.username for each in loop_driver_of(b).links.values()})
    assert not await may_log_in(b, "ann", "secret of ann")


async def test_users_that_both_nodes_make_at_once_are_both_there_or_one_is_refused_by_name(
    dynamic: Callable[[str], Any],
) -> None:
    a, b = await dynamic("a"), await dynamic("b")

    async def make(node: Broker, username: str) -> list[dict[str, Any]]:
        answer = await commands(node, {**NEW, "username": username})
        dynamic_security = assembly_of(node).permissions.dynamic_security
        assert dynamic_security is not None
        assert (username in dynamic_security.rules.state.clients) is ("error" not in answer[0])
        return answer

    answers = await asyncio.gather(make(a, "ann"), make(b, "bob"))
    refused = [each[0]["error"] for each in answers if "error" in each[0]]
    assert len(refused) == 1
    assert "another node has changed dynamic-security at the same time" in refused[0]
    names = ["bob", "ann"] if "error" in answers[1][0] else ["ann", "bob"]
    await soon(lambda: may_log_in(a, names[1], "secret of ann"))
    await asyncio.sleep(0.5)
    for node in (a, b):
        assert not await may_log_in(node, names[0], "secret of ann")
    again = await commands(b if "error" in answers[1][0] else a, {**NEW, "username": names[0]})
    assert "error" not in again[0]
    for node in (a, b):
        await soon(lambda node=node: may_log_in(node, names[0], "secret of ann"))  # type: ignore[misc]


async def test_the_file_of_a_node_that_starts_later_gives_way(
    dynamic: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await dynamic("a")
    await commands(a, NEW)
    monkeypatch.delenv("MOSQUITTO_DYNSEC_PASSWORD")
    b = await dynamic("b")
    assert await may_log_in(b, "ann", "secret of ann")
    assert await may_log_in(b, **ADMIN)
    assert sorted(each.name for each in (tmp_path / "b").glob("dynamic-security*")) == [DYNAMIC_FILE]


async def test_no_user_is_made_while_nats_is_away_and_reading_goes_on(dynamic: Callable[[str], Any], air: Air) -> None:
    a, b = await dynamic("a"), await dynamic("b")
    air.servers.is_available = False
    answer = (await commands(a, NEW))[0]
    assert answer["error"].startswith("the other nodes cannot have the change of dynamic-security, so it is not made")
    assert "ann" not in (await commands(a, {"command": "listClients"}))[0]["data"]["clients"]
    assert not await may_log_in(a, "ann", "secret of ann")
    assert await may_log_in(a, **ADMIN)
    air.servers.is_available = True
    await asyncio.sleep(0.5)
    assert not await may_log_in(a, "ann", "secret of ann")
    await commands(a, NEW)
    await soon(lambda: may_log_in(b, "ann", "secret of ann"))


async def test_users_of_all_nodes_are_there_after_all_have_started_again(
    dynamic: Callable[[str], Any], fleet: Fleet
) -> None:
    a, b = await dynamic("a"), await dynamic("b")
    await commands(a, NEW)
    await soon(lambda: may_log_in(b, "ann", "secret of ann"))
    await a.stop()
    await b.stop()
    a, b = await dynamic("a"), await dynamic("b")
    assert await may_log_in(a, "ann", "secret of ann")
    assert await may_log_in(b, "ann", "secret of ann")
    await commands(b, {"command": "deleteClient", "username": "ann"})
    await asyncio.sleep(0.5)
    assert not await may_log_in(a, "ann", "secret of ann")


# ---------------------------------------------------------------------- API keys


async def status_of(client: httpx.AsyncClient) -> int:
    return (await client.get("/api/v1/me")).status_code


async def test_an_api_key_that_is_made_at_one_node_is_good_at_another_until_it_is_revoked(
    air: Air, tmp_path: Path
) -> None:
    async with gateways(tmp_path, "a", "b") as (a, b):
        made = (await a.client(Role.ADMIN).post("/api/v1/api-keys", json={"role": "viewer"})).json()
        caller = b.client(key=made["key"])

        async def is_let_in() -> bool:
            return await status_of(caller) == 200

        async def is_refused() -> bool:
            return await status_of(caller) == 401

        await soon(is_let_in)
        admin = b.client(Role.ADMIN)
        assert (await admin.delete(f"/api/v1/api-keys/{made['id']}")).status_code == 200
        await soon(is_refused)
        await until(lambda: all(each.id != made["id"] for each in a.gateway.context.api_keys.entries()))


async def test_of_two_api_keys_at_once_one_is_made_and_the_other_is_refused(air: Air, tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as (a, b):
        admins = a.client(Role.ADMIN), b.client(Role.ADMIN)
        answers = await asyncio.gather(*(each.post("/api/v1/api-keys", json={"role": "viewer"}) for each in admins))
        assert sorted(each.status_code for each in answers) == [201, 409]
        refused = next(each.json() for each in answers if each.status_code == 409)
        assert refused["code"] == "conflict"
        assert "another node has changed api-keys at the same time" in refused["detail"]


async def test_an_api_key_is_neither_made_nor_revoked_while_nats_is_away(air: Air, tmp_path: Path) -> None:
    async with gateways(tmp_path, "a") as (a,):
        air.servers.is_available = False
        admin = a.client(Role.ADMIN)
        answer = await admin.post("/api/v1/api-keys", json={"role": "viewer"})
        assert (answer.status_code, answer.json()["code"]) == (503, "busy")
        assert "the other nodes cannot have the change of api-keys" in answer.json()["detail"]
        entries = a.gateway.context.api_keys.entries()
        assert (await admin.delete(f"/api/v1/api-keys/{entries[0].id}")).status_code == 503
        assert a.gateway.context.api_keys.entries() == entries


# ---------------------------------------------------------------------- bans


async def ban(broker: Broker, client_id: str) -> None:
    await broker.admin.ban("client", client_id, 60, "noise", "test")


def banned(broker: Broker) -> list[str]:
    return sorted(each.value for each in broker.admin.bans.list())


async def is_refused(broker: Broker, client_id: str) -> bool:
    try:
        async with client_of(broker, client_id, reconnect=False):
            return False
    except ConnectError:
        return True


async def test_a_change_comes_without_a_question_for_it(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "CHECK_S", 3_600.0)
    a, b = await fleet.together("a", "b")
    for number in range(3):
        await ban(a, f"x{number}")
        await until(lambda: len(banned(b)) > number)  # noqa: B023 - it is awaited here


async def test_a_node_that_was_away_has_a_ban_when_it_is_back(fleet: Fleet, air: Air, tmp_path: Path) -> None:
    a, b = await fleet.together("a", "b")
    air.engines["b"].is_cut_off = True
    async with client_of(b, "x", reconnect=False):
        await ban(a, "x")
        await asyncio.sleep(0.5)
        assert banned(b) == []
        air.engines["b"].is_cut_off = False
        await until(lambda: "x" not in {each.connection.client_id for each in loop_driver_of(b).links.values()})
    assert await is_refused(b, "x")


async def test_a_node_that_starts_later_has_the_bans_and_all_have_them_after_a_restart(
    fleet: Fleet, tmp_path: Path
) -> None:
    a = await fleet.start("a", tmp_path / "a")
    await ban(a, "x")
    b = await fleet.start("b", tmp_path / "b")
    assert await is_refused(b, "x")
    await a.stop()
    await b.stop()
    b = await fleet.start("b", tmp_path / "b")
    assert await is_refused(b, "x")
    found = b.admin.in_utc(b.admin.bans.list()[0])
    assert (found.id, found.reason, found.by, found.alone) == (1, "noise", "test", False)
    assert 50 < (found.until - found.since).total_seconds() < 61


async def test_a_node_that_starts_while_nats_is_away_has_the_bans_of_its_last_run(
    fleet: Fleet, air: Air, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_module, "START_S", 0.1)
    a = await fleet.start("a", tmp_path / "a")
    await ban(a, "x")
    await a.stop()
    air.servers.is_available = False
    a = await fleet.start("a", tmp_path / "a")
    assert await is_refused(a, "x")


async def test_bans_stay_when_their_key_or_the_bucket_is_deleted(fleet: Fleet, air: Air, tmp_path: Path) -> None:
    a, b = await fleet.start("a", tmp_path / "a"), await fleet.start("b", tmp_path / "b")
    await ban(a, "x")
    await until(lambda: banned(b) == ["x"])
    air.servers.change("shared.bans", None, air.servers.keys["shared.bans"].revision)
    air.servers.wake()
    await until(lambda: air.servers.keys["shared.bans"].value is not None)
    await asyncio.sleep(0.5)
    assert (banned(a), banned(b)) == (["x"], ["x"])
    await a.stop()
    await b.stop()
    air.servers.keys.clear()
    a, b = await fleet.start("a", tmp_path / "a"), await fleet.start("b", tmp_path / "b")
    for node in (a, b):
        assert await is_refused(node, "x")
    assert '"x"' in await asyncio.to_thread((tmp_path / "a" / "bans.json").read_text)


async def test_bans_that_are_made_while_nats_is_away_hold_here_and_later_at_all_nodes(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    await ban(a, "x")
    await until(lambda: banned(b) == ["x"])
    air.servers.is_available = False
    await ban(a, "y")
    await ban(b, "z")
    assert (banned(a), banned(b)) == (["x", "y"], ["x", "z"])
    assert [each.is_alone for each in a.admin.bans.list()] == [False, True]
    assert await is_refused(a, "y")
    with pytest.raises(NotAgreed):
        await a.admin.shared_bans.lift_of("client", "x")
    assert banned(a) == ["x", "y"]
    air.servers.is_available = True
    await until(lambda: banned(a) == banned(b) == ["x", "y", "z"])
    assert sorted(each.number for each in a.admin.bans.list()) == [1, 2, 3]
    assert not any(each.is_alone for node in (a, b) for each in node.admin.bans.list())


async def test_a_ban_that_another_node_lifted_while_this_one_was_alone_stays_lifted(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    await ban(a, "x")
    await until(lambda: banned(b) == ["x"])
    air.engines["b"].is_cut_off = True
    await ban(b, "y")
    assert await a.admin.shared_bans.lift_of("client", "x")
    air.engines["b"].is_cut_off = False
    await until(lambda: banned(a) == banned(b) == ["y"])


async def test_a_ban_and_its_end_are_one_revision_each(fleet: Fleet, air: Air) -> None:
    a, b = await fleet.together("a", "b")
    await ban(a, "x")
    await until(lambda: banned(b) == ["x"])
    assert await b.admin.shared_bans.lift_of("client", "x")
    await until(lambda: banned(a) == [])
    await asyncio.sleep(1.0)
    assert air.servers.keys["shared.bans"].revision == 2


async def test_a_ban_ends_at_all_nodes(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    await a.admin.ban("client", "x", 0.5)
    await until(lambda: banned(b) == ["x"])
    await until(lambda: banned(a) == banned(b) == [])
    assert not await is_refused(b, "x")


async def test_of_two_bans_at_once_one_is_made_and_the_other_is_refused(fleet: Fleet) -> None:
    a, b = await fleet.together("a", "b")
    results = await asyncio.gather(ban(a, "x"), ban(b, "y"), return_exceptions=True)
    assert [type(each) for each in results].count(ChangedElsewhere) == 1
    await until(lambda: len(banned(a)) == 1 and banned(a) == banned(b))


# ---------------------------------------------------------------------- topics, schemas, users and rules in files


def topics_of(gateway: GatewayUnderTest) -> dict[str, tuple[str, ...]]:
    return {each.name: each.members for each in gateway.gateway.context.topics.from_name("")}


async def test_a_topic_with_members_that_is_made_at_one_node_holds_at_all(air: Air, tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b", users=("ann", "bob")) as (a, b):
        topic = {"name": "of/ann", "permissions": "PRIVATE", "members": ["ann"]}
        made = (await a.user("ann").post("/api/v1/topics", json=topic)).json()
        await until(lambda: topics_of(b) == {"of/ann": ("ann",)})
        bob = b.user("bob")
        refused = await bob.post("/topics/of%2Fann", json={"payload": "x"})
        assert refused.status_code == 403
        change = {"members": ["ann", "bob"]}
        ann = b.user("ann")
        assert (await ann.patch(f"/api/v1/topics/{made['topic_id']}", json=change)).status_code == 200
        await until(lambda: topics_of(a) == topics_of(b) == {"of/ann": ("ann", "bob")})
        assert (await a.user("bob").post("/topics/of%2Fann", json={"payload": "x"})).status_code < 300
        assert (await ann.delete(f"/api/v1/topics/{made['topic_id']}")).status_code == 200
        await until(lambda: topics_of(a) == topics_of(b) == {})


async def test_of_two_topics_at_once_one_is_made_and_the_other_is_refused(air: Air, tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as (a, b):
        admins = a.client(Role.ADMIN), b.client(Role.ADMIN)
        answers = await asyncio.gather(
            *(each.post("/api/v1/topics", json={"name": f"t/{at}"}) for at, each in enumerate(admins))
        )
        assert sorted(each.status_code for each in answers) == [201, 409]
        await until(lambda: len(topics_of(a)) == 1 and topics_of(a) == topics_of(b))
        lost = next(at for at, each in enumerate(answers) if each.status_code == 409)
        assert (await admins[lost].post("/api/v1/topics", json={"name": f"t/{lost}"})).status_code == 201
        await until(lambda: topics_of(a) == topics_of(b) == {"t/0": (), "t/1": ()})


async def test_topics_are_there_after_all_nodes_have_started_again_and_none_is_made_while_nats_is_away(
    air: Air, tmp_path: Path
) -> None:
    for _ in range(2):
        async with gateways(tmp_path, "a", "b") as (a, b):
            if "t" not in topics_of(a):
                assert (await a.client(Role.ADMIN).post("/api/v1/topics", json={"name": "t"})).status_code == 201
            await until(lambda: topics_of(a) == topics_of(b) == {"t": ()})
    async with gateways(tmp_path, "a", "b") as (a, b):
        assert topics_of(b) == {"t": ()}
        air.servers.is_available = False
        answer = await b.client(Role.ADMIN).post("/api/v1/topics", json={"name": "u", "permissions": "PRIVATE"})
        assert (answer.status_code, "the change of topics" in answer.json()["detail"]) == (503, True)
        assert topics_of(b) == {"t": ()}
        air.servers.is_available = True
        await asyncio.sleep(0.5)
        assert topics_of(a) == topics_of(b) == {"t": ()}


async def test_a_schema_that_is_registered_at_one_node_is_at_all(air: Air, tmp_path: Path) -> None:
    schema = {"schemaType": "JSON", "schema": '{"type": "object"}'}
    async with gateways(tmp_path, "a", "b") as (a, b):
        path = "/registry/subjects/s/versions"
        made = await a.client(Role.ADMIN).post(path, json=schema)
        assert made.status_code == 200, made.text
        registry = b.gateway.context.schemas
        assert registry is not None
        await until(lambda: "s" in registry.registry.subjects)
        assert (await b.client(Role.ADMIN).get(path)).json() == [1]
        other = {**schema, "schema": '{"type": "string"}'}
        answers = await asyncio.gather(
            a.client(Role.ADMIN).post(path.replace("/s/", "/x/"), json=schema),
            b.client(Role.ADMIN).post(path.replace("/s/", "/y/"), json=other),
        )
        assert sorted(each.status_code for each in answers) == [200, 409]
        refused = next(each.json() for each in answers if each.status_code == 409)
        assert refused["error_code"] == 40901
        assert "another node has changed schemas at the same time" in refused["message"]
        air.servers.is_available = False
        answer = await a.client(Role.ADMIN).post(path.replace("/s/", "/z/"), json=schema)
        assert (answer.status_code, answer.json()["error_code"]) == (503, 50302)


async def test_users_and_rules_of_files_that_are_changed_over_http_hold_at_all_nodes(air: Air, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = []
        for name in "ab":
            files = tmp_path / f"files-{name}"
            files.mkdir()
            (files / "passwords").write_text("")
            (files / "rules").write_text("topic read #\n")
            options = {"password_file": str(files / "passwords"), "acl_file": str(files / "rules")}
            nodes.append(await stack.enter_async_context(with_gateway(name, tmp_path, **options)))
        a, b = nodes
        await connected(a.broker, b.broker)
        admin = a.client(Role.ADMIN)
        assert (await admin.put("/api/v1/users/ann", json={"password": "secret of ann"})).status_code == 200
        await soon(lambda: may_log_in(b.broker, "ann", "secret of ann"))
        other = b.client(key=a.keys[Role.ADMIN])
        assert (await other.delete("/api/v1/users/ann")).status_code == 200

        async def is_gone() -> bool:
            return not await may_log_in(a.broker, "ann", "secret of ann")

        await soon(is_gone)
        rules = "user ann\ntopic readwrite t/#\n"
        assert (await other.put("/api/v1/acl/text", content=rules)).status_code == 200
        await until(lambda: (tmp_path / "files-a" / "rules").read_text() == rules)
        assert (await admin.get("/api/v1/acl/text")).text == rules
        (tmp_path / "files-a" / "rules").write_text("topic read x\n")  # by an editor
        await until(lambda: (tmp_path / "files-b" / "rules").read_text() == "topic read x\n")
        air.servers.is_available = False
        assert (await admin.put("/api/v1/acl/text", content=rules)).status_code == 503
        assert (await admin.put("/api/v1/users/ann", json={"password": "secret of ann"})).status_code == 503
        assert (tmp_path / "files-a" / "rules").read_text() == "topic read x\n"


async def test_a_broken_document_is_named_and_refuses_changes_while_all_else_goes_on(
    air: Air, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateways(tmp_path, "a") as (a,):
        air.servers.change("shared.topics", b"by hand", 0)
        air.servers.wake()
        await until(lambda: "topics in NATS cannot be used" in caplog.text)
        answer = await a.client(Role.ADMIN).post("/api/v1/topics", json={"name": "t"})
        assert (answer.status_code, "'nats kv del' with the key shared.topics" in answer.json()["detail"]) == (
            503,
            True,
        )
        assert air.servers.keys["shared.topics"].value == b"by hand"
        assert (await a.client(Role.ADMIN).post("/api/v1/api-keys", json={"role": "viewer"})).status_code == 201
        shared = assembly_of(a.broker).shared
        assert shared is not None
        wanted = [({"document": name}, name != "topics") for name in ("api-keys", "bans", "schemas", "topics")]
        await until(lambda: shared.figures()["nodes_shared_current"] == wanted)
        words = ["nodes", "documents", "--data-dir", str(a.data_dir)]
        lines = (await asyncio.to_thread(CliRunner().invoke, main, words)).stdout.splitlines()
        assert lines[0].split("\t") == ["api-keys", "2", "current", "0", "-", "-"]
        assert lines[3].startswith("topics\t0\tbehind\t0\ttopics in NATS cannot be used")
        listed = (await a.client(Role.VIEWER).get("/api/v1/nodes/documents")).json()["items"]
        assert [(each["name"], each["current"]) for each in listed] == [(label["document"], so) for label, so in wanted]


async def test_rules_whose_file_is_first_named_by_a_reload_are_at_all_nodes(fleet: Fleet, tmp_path: Path) -> None:
    a, b = await fleet.together("a", "b")
    files = [tmp_path / "rules-a", tmp_path / "rules-b"]
    for node, file in zip((a, b), files, strict=True):
        file.write_text("topic readwrite #\n")
        await assembly_of(node).permissions.live_rules.use(str(file), [], {})
    await until(lambda: all("acl" in [each.name for each in _documents(node) if each.current] for node in (a, b)))
    await assembly_of(a).permissions.live_rules.replace_file(b"topic read strict/#\n")
    await until(lambda: files[1].read_text() == "topic read strict/#\n")


def _documents(node: Broker) -> list[shared_module.DocumentState]:
    nodes = assembly_of(node).nodes
    assert nodes is not None
    return nodes.documents()
