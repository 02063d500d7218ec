"""Several nodes that an operator manages from any of them, over HTTP and with commands."""

import asyncio
import html
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner, Result

from mqttlite.cli import why as why_module
from mqttlite.cli.main import main
from mqttlite.extensions.nodes import fleet as fleet_module
from mqttlite.extensions.nodes.calls import NoAnswer
from mqttlite.extensions.nodes.options import NodesOptions
from mqttlite.gateway.caller import Role
from mqttlite.gateway.elsewhere import Answered, NodeCaller, Question
from mqttlite.server import Broker
from tests.integration.nodes.test_nodes import Fleet, air, client_of, connected, fleet, kept_client, nodes_of
from tests.integration.nodes.test_places import queues_of
from tests.support.air import Air
from tests.support.device import until
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway
from tests.support.inside import loop_driver_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

__all__ = ["air", "fleet"]


class Three:
    """Nodes `a`, which has a gateway and an admin socket, `b` and `c`."""

    def __init__(self, gateway: GatewayUnderTest, b: Broker, c: Broker) -> None:
        self.gateway = gateway
        self.a, self.b, self.c = gateway.broker, b, c
        self.admin = gateway.client(Role.ADMIN)
        self.operator = gateway.client(Role.OPERATOR)
        self.viewer = gateway.client(Role.VIEWER)

    async def run(self, *words: str) -> Result:
        """A command, which asks node `a`."""
        arguments = [*words, "--data-dir", str(self.gateway.data_dir)]
        return await asyncio.to_thread(CliRunner().invoke, main, arguments, catch_exceptions=False)

    async def named(self, path: str, **params: Any) -> list[tuple[str, str]]:
        """The client identifiers of a list, with their nodes. Sessions of nodes are left out."""
        found = (await self.viewer.get(path, params=params)).json()
        return [
            (each["client_id"], each["node"]) for each in found["items"] if not each["client_id"].startswith("$node/")
        ]


@pytest.fixture
async def three(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Three]:
    options = NodesOptions(servers=("nats://127.0.0.1:4222",), node="a")
    extra = nobody_without_credentials(tmp_path)
    async with running_gateway(tmp_path, nodes=options, **extra) as gateway:
        queues = [{"name": "jobs", "filters": ["jobs/#"]}]
        b = await fleet.start("b", delivery_log={"topics": ["#"]}, queues=queues)
        c = await fleet.start("c", streams=[{"name": "s", "filters": ["s/#"]}])
        await connected(gateway.broker, b, c)
        yield Three(gateway, b, c)


async def asked(broker: Broker, node: str, role: Role, method: str, path: str, query: str = "") -> Answered:
    """The answer of another node to a request as a node sends it."""
    caller = NodeCaller("ann", role, "key 1", ("192.0.2.1", 1_000))
    question = Question(method, path.encode(), query.encode(), "", b"", caller)
    found = await nodes_of(broker).calls.ask(node, msgspec.msgpack.encode(question), 5.0)
    return msgspec.msgpack.decode(found, type=Answered)


# ---------------------------------------------------------------------- lists


async def test_a_list_has_the_clients_of_all_nodes_with_their_nodes(three: Three) -> None:
    async with client_of(three.b, "two"), client_of(three.c, "three"), client_of(three.b, "one"):
        assert await three.named("/api/v1/clients") == [("one", "b"), ("two", "b"), ("three", "c")]
        found = (await three.viewer.get("/api/v1/clients")).json()
        assert (found["silent"], found["cursor"]) == ([], None)
        assert await three.named("/api/v1/clients", contains="t") == [("two", "b"), ("three", "c")]
        alone = (await three.viewer.get("/api/v1/clients", params={"node": "b", "connected": "true"})).json()
        assert [each["client_id"] for each in alone["items"] if each["username"] is None][-2:] == ["one", "two"]
        here = (await three.viewer.get("/api/v1/clients", params={"node": "a"})).json()
        assert {each["client_id"] for each in here["items"]} == {"$node/b", "$node/c"}


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
async def test_the_pages_of_a_list_have_each_client_once_and_no_more_than_asked_for(three: Three, limit: int) -> None:
    async with AsyncExitStack() as stack:
        for broker, name in ((three.b, "x"), (three.c, "x1"), (three.b, "x2"), (three.c, "x3"), (three.b, "x4")):
            await stack.enter_async_context(client_of(broker, name))
        found: list[tuple[str, str]] = []
        cursor = ""
        for _ in range(20):
            params = {"limit": limit, "cursor": cursor, "contains": "x"}
            page = (await three.viewer.get("/api/v1/clients", params=params)).json()
            assert len(page["items"]) <= limit
            found += [(each["client_id"], each["node"]) for each in page["items"]]
            cursor = page["cursor"]
            if not cursor:
                break
        assert found == [("x", "b"), ("x2", "b"), ("x4", "b"), ("x1", "c"), ("x3", "c")]


@pytest.mark.parametrize(
    ("params", "at"),
    [
        ({"limit": "0"}, "query.limit"),
        ({"limit": "x"}, "query.limit"),
        ({"limit": "1001"}, "query.limit"),
        ({"limit": "1001", "cursor": "b:"}, "query.limit"),
        ({"cursor": "x"}, "query.cursor"),
        ({"connected": "perhaps", "cursor": "c:"}, "query.connected"),
    ],
)
async def test_a_wrong_request_is_answered_with_what_is_wrong_whichever_node_finds_it(
    three: Three, params: dict[str, str], at: str
) -> None:
    answer = await three.viewer.get("/api/v1/clients", params=params)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")
    assert answer.json()["detail"].startswith(at)


async def test_queues_streams_and_bans_of_all_nodes_are_listed(three: Three) -> None:
    await three.admin.post("/api/v1/queues", json={"name": "here", "filters": ["h"]})
    found = (await three.viewer.get("/api/v1/queues")).json()["items"]
    assert [(each["name"], each["node"]) for each in found] == [("here", "a"), ("jobs", "b")]
    found = (await three.viewer.get("/api/v1/streams")).json()["items"]
    assert [(each["name"], each["node"]) for each in found] == [("s", "c")]
    assert (await three.viewer.get("/api/v1/users/ann/connections")).json()["count"] == 0


async def test_a_silent_node_is_named_in_the_answer_and_the_others_are_listed(
    three: Three, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "LOOK_S", 0.1)
    async with client_of(three.b, "two"), client_of(three.c, "three"):
        air.cut.add(frozenset("ab"))
        assert await three.named("/api/v1/clients") == [("three", "c")]
        found = (await three.viewer.get("/api/v1/clients")).json()
        assert found["silent"] == [{"node": "b", "reason": "did not answer within 0.1 s"}]
        said = await three.run("clients")
        assert "three" in said.stdout
        assert said.stderr == "Node b did not answer within 0.1 s: what it has is missing.\n"
        await until(lambda: nodes_of(three.a).states()[0].state == "away")
        found = (await three.viewer.get("/api/v1/clients")).json()
        assert [each["node"] for each in found["silent"]] == ["b"]
        assert re.match(r"is away \((it was silent for 3 s|.*lost)", found["silent"][0]["reason"])
        answer = await three.viewer.get("/api/v1/clients/two")
        assert (answer.status_code, answer.json()["code"]) == (504, "no_answer")
        assert "node b is away" in answer.json()["detail"]
        assert (await three.viewer.get("/ui/client?id=two")).status_code == 504
        answer = await three.operator.post("/api/v1/clients/two/disconnect")
        assert (answer.status_code, answer.json()["code"]) == (504, "no_answer")
        assert answer.json()["detail"].startswith("nothing was changed")
        assert [each["node"] for each in answer.json()["silent"]] == ["b"]
        page = (await three.viewer.get("/ui/clients")).text
        assert "Node b is away" in page
        assert "its clients are missing here" in page
        monkeypatch.setattr(fleet_module, "LOOK_S", 10.0)
        air.cut.clear()
        await connected(three.a, three.b, three.c)
        assert await three.named("/api/v1/clients") == [("two", "b"), ("three", "c")]


# ---------------------------------------------------------------------- one thing


async def test_a_client_is_found_shown_and_disconnected_at_whatever_node_it_is(
    three: Three, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mqttlite.audit")
    async with kept_client(three.c, "a/b c"):
        shown = (await three.viewer.get("/api/v1/clients/a%2Fb%20c")).json()
        assert (shown["node"], shown["entry"]["client_id"], shown["entry"]["connected"]) == ("c", "a/b c", True)
        answer = await three.operator.post("/api/v1/clients/a%2Fb%20c/disconnect")
        assert answer.json() == {"success": True, "node": "c"}
        await until(lambda: not three.c.admin.client("a/b c").entry.connected)  # type: ignore[union-attr]
    lines = [record.getMessage() for record in caplog.records if record.name == "mqttlite.audit"]
    there, here = (re.sub(r"key [^ )]*", "key", line) for line in lines)
    assert there == "POST /api/v1/clients/a/b c/disconnect by key-operator (key at node a): 200"
    assert here == "POST /api/v1/clients/a/b c/disconnect at node c by key-operator (key): 200"
    answer = await three.operator.post("/api/v1/clients/nobody/disconnect")
    assert answer.status_code == 404
    assert "silent" not in answer.json()


async def test_messages_that_wait_for_a_client_of_another_node_are_shown_and_dropped_and_its_session_ended(
    three: Three,
) -> None:
    async with kept_client(three.b, "kept") as client:
        await client.subscribe("t", qos=1)
    async with client_of(three.b) as publisher:
        await publisher.publish("t", "x", qos=1)
    queue = (await three.operator.get("/api/v1/clients/kept/queue")).json()
    assert (queue["waiting"], queue["items"][0]["payload"], queue["node"]) == (1, "x", "b")
    dropped = (await three.operator.delete("/api/v1/clients/kept/queue")).json()
    assert (dropped["messages"], dropped["complete"]) == (1, True)
    assert (await three.operator.delete("/api/v1/clients/kept/session")).json()["success"]
    assert (await three.viewer.get("/api/v1/clients/kept")).status_code == 404


async def test_a_request_goes_to_the_node_that_it_names_and_to_no_other(three: Three) -> None:
    made = await three.admin.post("/api/v1/queues?node=c", json={"name": "q", "filters": ["q/#"]})
    assert made.status_code == 201
    assert (await three.viewer.get("/api/v1/queues/q?node=c")).json()["name"] == "q"
    assert (await three.viewer.get("/api/v1/queues/q")).json()["node"] == "c"
    for node in ("a", "b"):
        assert (await three.viewer.get(f"/api/v1/queues/q?node={node}")).status_code == 404
    config = (await three.admin.get("/api/v1/config?node=b")).json()
    assert config["nodes"]["node"] == "b"
    assert (await three.viewer.get("/api/v1/readyz?node=b")).text == "The broker is ready."
    assert (await three.viewer.head("/api/v1/clients?node=b")).status_code == 200


async def test_a_node_that_there_is_not_or_that_is_away_is_said_so(three: Three) -> None:
    answer = await three.operator.post("/api/v1/clients/x/disconnect?node=d")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "there is no node 'd'" in answer.json()["detail"]
    await three.c.stop()
    answer = await three.viewer.get("/api/v1/status?node=c")
    assert (answer.status_code, answer.json()["code"]) == (504, "no_answer")
    assert answer.json()["detail"] == "node c is away"
    answer = await three.viewer.get("/api/v1/clients?node=b&node=c")
    assert answer.status_code == 422
    answer = await three.admin.delete("/api/v1/users/ann?node=b")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")


async def test_a_broker_alone_refuses_a_request_for_another_node(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway, client_of(gateway.broker, "x"):
        operator = gateway.client(Role.OPERATOR)
        assert (await operator.post("/api/v1/clients/x/disconnect?node=b")).status_code == 404
        assert (await operator.get("/api/v1/clients/x")).json()["entry"]["connected"]
        found = (await operator.get("/api/v1/clients")).json()
        assert found.keys() == {"items", "cursor"}
        assert "node" not in found["items"][0]


class Slow:
    """A node that answers requests of others after `wait_s`, and keeps those."""

    def __init__(self, broker: Broker) -> None:
        self.calls = nodes_of(broker).calls
        self.answer = self.calls.answer
        self.wait_s = 0.0
        self.asked: list[tuple[str, str]] = []
        self.calls.answer = self._answer

    async def _answer(self, node: str, request: bytes) -> bytes:
        question = msgspec.msgpack.decode(request, type=Question)
        self.asked.append((question.method, question.path.decode()))
        await asyncio.sleep(self.wait_s if question.method != "GET" else 0)
        assert self.answer is not None
        return await self.answer(node, request)


async def test_a_bridge_of_each_node_is_removed_where_it_is_named_and_a_repeated_request_removes_no_other(
    three: Three,
) -> None:
    bridge = {"name": "up", "addresses": ["127.0.0.1:1"], "topics": [{"pattern": "t/#"}]}
    for node in ("a", "b"):
        made = await three.admin.post(f"/api/v1/bridges?node={node}", json=bridge)
        assert made.status_code == 201, made.text
    answer = await three.admin.delete("/api/v1/bridges/up")
    assert (answer.status_code, answer.json()["nodes"]) == (409, ["a", "b"])
    assert (await three.viewer.get("/api/v1/bridges/up")).json()["node"] == "a"
    for status in (200, 404):
        assert (await three.admin.delete("/api/v1/bridges/up?node=a")).status_code == status
    assert [each["node"] for each in (await three.viewer.get("/api/v1/bridges")).json()["items"]] == ["b"]
    assert (await three.admin.delete("/api/v1/bridges/up")).json()["node"] == "b"
    assert (await three.admin.delete("/api/v1/bridges/up")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/queues/jobs/seek", {"snapshot": "monday"}),
        ("GET", "/api/v1/dead-letters/jobs/5", None),
        ("DELETE", "/api/v1/dead-letters/jobs?number=5", None),
        ("DELETE", "/api/v1/streams/s/groups/g", None),
        ("POST", "/api/v1/clients/kept/disconnect", None),
    ],
)
async def test_a_missing_part_is_looked_for_only_at_the_node_that_has_the_whole(
    three: Three, method: str, path: str, body: dict[str, str] | None
) -> None:
    async with kept_client(three.b, "kept"):
        pass
    await until(lambda: not three.b.admin.client("kept").entry.connected)  # type: ignore[union-attr]
    slow = {"b": Slow(three.b), "c": Slow(three.c)}
    answer = await three.admin.request(method, path, json=body)
    assert answer.status_code == 404, answer.text
    named = path.partition("?")[0]
    having, other = ("c", "b") if "streams" in path else ("b", "c")
    assert slow[having].asked[-1] == (method, named)
    assert (method, named) not in slow[other].asked
    assert {each for each, _ in slow[other].asked} == {"GET"}


async def test_a_missing_part_of_a_queue_here_is_not_taken_from_another_node(three: Three) -> None:
    await three.admin.post("/api/v1/queues", json={"name": "here", "filters": ["h"]})
    slow = Slow(three.b)
    assert (await three.operator.get("/api/v1/dead-letters/here/5")).status_code == 404
    assert slow.asked == []
    assert (await three.operator.delete("/api/v1/dead-letters/here?number=5")).status_code == 404
    assert slow.asked == [("GET", "/api/v1/queues/here")]


async def test_a_snapshot_is_shown_and_deleted_at_the_node_that_has_it(three: Three) -> None:
    assert (await three.admin.post("/api/v1/queues/jobs/snapshots/monday")).status_code == 201
    shown = (await three.viewer.get("/api/v1/snapshots/monday")).json()
    assert (shown["name"], shown["queue"], shown["node"]) == ("monday", "jobs", "b")
    assert (await three.admin.delete("/api/v1/snapshots/monday")).json() == {"success": True, "node": "b"}
    assert (await three.viewer.get("/api/v1/snapshots/monday")).status_code == 404
    assert (await three.admin.delete("/api/v1/snapshots/monday")).status_code == 404


async def test_a_change_that_was_sent_and_not_answered_goes_to_no_other_node_and_is_said_to_be_open(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "ACT_S", 0.2)
    slow, other = Slow(three.b), Slow(three.c)
    slow.wait_s = 5.0
    async with kept_client(three.b, "kept"):
        answer = await three.operator.delete("/api/v1/clients/kept/session")
        assert (answer.status_code, answer.json()["code"]) == (504, "no_answer")
        said = "node b did not answer within 0.2 s: it may have carried this out all the same"
        assert answer.json()["detail"] == said
        assert [each for each, _ in slow.asked] == ["GET", "DELETE"]
        assert [each for each, _ in other.asked] == ["GET"]
        answer = await three.operator.delete("/api/v1/clients/kept/session?node=b")
        assert answer.json()["detail"] == said


async def test_a_client_is_found_while_more_is_asked_than_may_be_under_way(three: Three) -> None:
    async with client_of(three.c, "x"):
        *reads, kicked = await asyncio.gather(
            *(three.viewer.get("/api/v1/clients") for _ in range(30)),
            three.operator.post("/api/v1/clients/x/disconnect"),
        )
    assert kicked.json() == {"success": True, "node": "c"}
    assert [each.json()["silent"] for each in reads] == [[]] * 30


@pytest.mark.parametrize("path", ["/streams", "/snapshots", "/bridges", "/users/x/connections"])
async def test_a_list_without_pages_takes_no_notice_of_a_limit(three: Three, path: str) -> None:
    for limit in ("abc", "", "1"):
        answer = await three.viewer.get(f"/api/v1{path}", params={"limit": limit})
        assert (answer.status_code, answer.json()["silent"]) == (200, [])


# ---------------------------------------------------------------------- rights


async def test_the_other_node_looks_at_the_role_again(three: Three) -> None:
    async with client_of(three.b, "x"):
        path = "/api/v1/clients/x/disconnect"
        refused = await asked(three.a, "b", Role.VIEWER, "POST", path)
        assert (refused.status, msgspec.json.decode(refused.body)["code"]) == (403, "not_authorized")
        assert (await asked(three.a, "b", Role.OPERATOR, "POST", path)).status == 200
    assert (await three.viewer.post("/api/v1/clients/x/disconnect?node=b")).status_code == 403


async def test_a_request_of_another_node_goes_to_no_further_one(three: Three) -> None:
    async with client_of(three.c, "x"):
        assert (await asked(three.a, "b", Role.ADMIN, "GET", "/api/v1/clients/x")).status == 404
        assert (await asked(three.a, "b", Role.ADMIN, "GET", "/api/v1/clients/x", "node=c")).status == 404
        found = msgspec.json.decode((await asked(three.a, "b", Role.ADMIN, "GET", "/api/v1/clients")).body)
        assert found.keys() == {"items", "cursor"}
        assert "x" not in {each["client_id"] for each in found["items"]}


@pytest.mark.parametrize("path", ["/ui/clients", "/topics/x", "/metrics", "/api/v1/users", "/events"])
async def test_only_what_the_commands_may_ask_is_answered_to_other_nodes(three: Three, path: str) -> None:
    assert (await asked(three.a, "b", Role.ADMIN, "GET", path)).status == 404


async def test_a_caller_whom_another_node_bans_gets_nothing_of_it(three: Three) -> None:
    three.b.admin.bans.add("user", "ann", 60)
    refused = await asked(three.a, "b", Role.ADMIN, "GET", "/api/v1/clients")
    assert refused.status == 403
    assert (await asked(three.a, "c", Role.ADMIN, "GET", "/api/v1/clients")).status == 200
    three.b.admin.bans.add("user", "key-viewer", 60)
    found = (await three.viewer.get("/api/v1/clients")).json()
    silent = [{"node": "b", "reason": "answered: the user is banned for a while"}]
    assert found["silent"] == silent
    async with client_of(three.c, "x"):
        found = (await three.viewer.get("/api/v1/clients/x")).json()
        assert (found["node"], found["silent"]) == ("c", silent)


async def test_a_part_that_is_no_request_is_refused(three: Three) -> None:
    with pytest.raises(NoAnswer, match=r"^stops, or"):
        await nodes_of(three.a).calls.ask("c", msgspec.msgpack.encode(1), 5.0)


# ---------------------------------------------------------------------- bans


async def test_a_ban_holds_at_all_nodes_and_is_lifted_at_all(three: Three) -> None:
    ban = {"kind": "client", "value": "x", "duration_s": 60}
    async with client_of(three.b, "x", reconnect=False):
        made = (await three.operator.post("/api/v1/bans", json=ban)).json()
        assert (made["disconnected"], made["ban"]["alone"]) == (0, False)
        await until(lambda: "x" not in {each.connection.client_id for each in loop_driver_of(three.b).links.values()})
    for node in ("a", "b", "c"):
        await until(lambda: [len(each.admin.bans) for each in (three.a, three.b, three.c)] == [1, 1, 1])
        listed = (await three.viewer.get("/api/v1/bans", params={"node": node})).json()["items"]
        assert [(each["value"], each["id"], each["by"]) for each in listed] == [("x", 1, "key-operator")]
    params = {"kind": "client", "value": "x", "node": "b"}
    lifted = (await three.operator.delete("/api/v1/bans", params=params)).json()
    assert lifted["lifted"] is True
    await until(lambda: [len(each.admin.bans) for each in (three.a, three.b, three.c)] == [0, 0, 0])


async def test_a_user_with_a_higher_role_at_another_node_is_not_banned_there(fleet: Fleet, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    one, two = (NodesOptions(servers=("nats://127.0.0.1:4222",), node=name) for name in "ab")
    boss = {"roles": {"admin": ("boss",)}}
    async with (
        running_gateway(folders[0], nodes=one, **nobody_without_credentials(tmp_path)) as a,
        running_gateway(folders[1], nodes=two, http=boss, **nobody_without_credentials(tmp_path)) as b,
    ):
        await connected(a.broker, b.broker)
        ban = {"kind": "user", "value": "boss", "duration_s": 60}
        answer = await a.client(Role.OPERATOR).post("/api/v1/bans", params={"node": "b"}, json=ban)
        assert answer.status_code == 403
        assert (await a.client(Role.ADMIN).post("/api/v1/bans", params={"node": "b"}, json=ban)).status_code == 201


async def test_a_user_with_a_higher_role_here_is_not_banned_at_another_node(three: Three) -> None:
    ban = {"kind": "user", "value": "key-admin", "duration_s": 600}
    for node in ("a", "b"):
        answer = await three.operator.post("/api/v1/bans", params={"node": node}, json=ban)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_authorized")
    own = await three.operator.post("/api/v1/bans", params={"node": "b"}, json={**ban, "value": "key-operator"})
    assert (own.status_code, own.json()["code"]) == (409, "conflict")
    assert (await three.operator.post("/api/v1/bans?node=b", json={**ban, "kind": "x"})).status_code == 422
    assert len(three.b.admin.bans) == 0
    assert (await three.operator.post("/api/v1/bans?node=b", json={**ban, "value": "ann"})).status_code == 201


# ---------------------------------------------------------------------- commands


async def test_commands_show_and_manage_all_nodes_from_any_of_them(three: Three) -> None:
    async with kept_client(three.b, "one"), kept_client(three.c, "two"):
        lines = (await three.run("clients", "--contains", "o")).stdout.splitlines()
        assert [(line.split("\t")[0], line.split("\t")[-1]) for line in lines if line[0] != "$"] == [
            ("one", "b"),
            ("two", "c"),
        ]
        lines = (await three.run("clients", "--node", "c", "--contains", "wo")).stdout.splitlines()
        assert [line.split("\t")[0] for line in lines] == ["two"]
        kicked = await three.run("kick", "two")
        assert (kicked.stdout, kicked.stderr) == ("1 client disconnected.\n", "At node c.\n")
        assert "node              b" in (await three.run("clients", "show", "one")).stdout
        missing = await three.run("kick", "one", "--node", "c")
        assert (missing.exit_code, missing.stdout) == (3, "0 clients disconnected.\n")
    said = await three.run("sessions", "rm", "one", "two")
    assert (said.stdout, said.stderr) == ("2 sessions ended.\n", "At node b.\nAt node c.\n")
    assert (await three.run("queue", "ls")).stdout.split()[-1] == "b"
    assert (await three.run("stream", "ls")).stdout.split()[-1] == "c"
    assert json.loads((await three.run("top", "--json", "--node", "b")).stdout)["clients"]["sessions"] == 2
    assert (await three.run("health", "--node", "b")).stdout == "The broker is ready.\n"
    unknown = await three.run("health", "--node", "d")
    assert (unknown.exit_code, unknown.stderr.startswith("There is no node 'd'")) == (1, True)


async def test_bans_are_made_listed_and_lifted_by_command(three: Three) -> None:
    said = (await three.run("ban", "add", "--client", "x")).stdout
    assert re.fullmatch(r"Ban 1: the client x until .*Z; 0 clients disconnected\.\n", said)
    await until(lambda: [len(each.admin.bans) for each in (three.a, three.b, three.c)] == [1, 1, 1])
    assert len((await three.run("ban", "ls", "--node", "c")).stdout.splitlines()) == 1
    assert (await three.run("ban", "rm", "1", "--node", "b")).stdout == "Ban 1 was lifted.\n"
    await until(lambda: [len(each.admin.bans) for each in (three.a, three.b, three.c)] == [0, 0, 0])
    assert (await three.run("ban", "ls")).stdout == ""
    await three.run("ban", "add", "--client", "x")
    assert (await three.run("ban", "rm", "--client", "x")).stdout == "The ban of the client x was lifted.\n"
    again = await three.run("ban", "rm", "--client", "x")
    assert (again.exit_code, again.stderr) == (3, "Error: There is no ban of the client x.\n")
    assert (await three.run("ban", "rm", "1", "--client", "x")).exit_code == 2


async def test_a_message_is_explained_by_the_nodes_that_know_of_it(fleet: Fleet, tmp_path: Path) -> None:
    log = {"topics": ["#"]}
    a = await fleet.start("a", tmp_path, delivery_log=log)
    b = await fleet.start("b", delivery_log=log)
    await connected(a, b)
    async with client_of(b, "sub") as subscriber, client_of(a, "pub") as publisher:
        await subscriber.subscribe("t", qos=1)
        await publisher.publish("t", "x", qos=1)
        await anext(subscriber.messages)
        words = ["why", "t", "--data-dir", str(tmp_path)]
        said = (await asyncio.to_thread(CliRunner().invoke, main, words)).stdout
        assert any(line.startswith("At node a: ") and "pub" in line for line in said.splitlines())
        assert any(line.startswith("At node b: ") and "sub" in line for line in said.splitlines())
        found = json.loads((await asyncio.to_thread(CliRunner().invoke, main, [*words, "--json"])).stdout)
        assert {each["node"] for each in found["entries"]} == {"a", "b"}


async def test_messages_are_followed_at_all_nodes_until_one_is_named(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    looks = 0

    async def publish() -> None:
        async with client_of(three.b, "pub") as publisher:
            await publisher.publish("f/1", str(looks), qos=1)

    def sleep(_seconds: float) -> None:  # in the command's thread, between its questions
        nonlocal looks
        looks += 1
        if looks == 4:
            raise KeyboardInterrupt
        asyncio.run_coroutine_threadsafe(publish(), loop).result()

    monkeypatch.setattr(why_module, "time", SimpleNamespace(sleep=sleep))  # other threads sleep as ever
    async with client_of(three.c, "sub") as subscriber:
        await subscriber.subscribe("f/#", qos=1)
        said = await three.run("why", "--follow", "f/#")
        assert said.exit_code == 130
        for line in ("At node b: ", "At node c: "):
            assert sum(each.startswith(line) for each in said.stdout.splitlines()) == 3, said.output
        looks = 1
        found = await three.run("why", "--follow", "f/#", "--json")
        assert {json.loads(line)["node"] for line in found.stdout.splitlines()} == {"b", "c"}
        looks = 1
        alone = await three.run("why", "--follow", "f/#", "--node", "c")
        assert alone.stdout
        assert "At node" not in alone.stdout
        assert "pub" not in alone.stdout


# ---------------------------------------------------------------------- the dashboard


def text_of(page: httpx.Response) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.text)).split())


async def test_the_dashboard_shows_and_manages_the_clients_of_all_nodes(three: Three) -> None:
    origin = {"Origin": "http://localhost:8080"}
    async with kept_client(three.b, "one"), kept_client(three.c, "two"):
        page = text_of(await three.viewer.get("/ui/clients?contains=o"))
        assert re.search(r"one connected [^$]* b .*two connected [^$]* c 2 sessions at this node", page)
        page = text_of(await three.operator.get("/ui/client?id=two"))
        assert "Its session is at node c." in page
        done = await three.operator.post("/ui/client/disconnect", data={"id": "two"}, headers=origin)
        assert done.headers["location"].endswith("done=disconnected")
        await until(lambda: not three.c.admin.client("two").entry.connected)  # type: ignore[union-attr]
    done = await three.operator.post("/ui/client/end-session", data={"id": "one"}, headers=origin)
    assert done.status_code == 303
    assert three.b.admin.client("one") is None
    done = await three.operator.post("/ui/client/purge", data={"id": "two"}, headers=origin)
    assert done.headers["location"].endswith("done=purged")
    assert (await three.operator.post("/ui/client/purge", data={"id": "x"}, headers=origin)).status_code == 404


async def test_the_dashboard_shows_queues_and_streams_of_other_nodes(three: Three) -> None:
    await three.admin.post("/api/v1/queues", json={"name": "here", "filters": ["h"]})
    page = text_of(await three.viewer.get("/ui/queues"))
    assert "At other nodes Name Messages Consumers Dead letters Topics Node jobs 0 0 0 jobs/# b The commands" in page
    page = text_of(await three.viewer.get("/ui/streams"))
    assert "At other nodes Name Messages Readers Topics Node s 0 0 s/# c The commands" in page


async def test_the_dashboard_manages_a_queue_of_another_node(three: Three) -> None:
    origin = {"Origin": "http://localhost:8080"}
    async with client_of(three.c) as client:
        await client.publish("jobs/1", "what waits", qos=1)
        await until(lambda: queues_of(three.b).state("jobs").depth == 1)
        page = await three.operator.get("/ui/queue?name=jobs")
        assert "It is at node b." in text_of(page)
        assert "what waits" in text_of(page)
        assert "what waits" not in text_of(await three.viewer.get("/ui/queue?name=jobs"))
        for action, done in (("pause", "paused"), ("purge", "purged")):
            answer = await three.operator.post(f"/ui/queue/{action}", data={"name": "jobs"}, headers=origin)
            assert answer.headers["location"].endswith(f"name=jobs&done={done}")
        state = queues_of(three.b).state("jobs")
        assert (state.paused, state.depth) == (True, 0)
        form = {"name": "jobs", "snapshot": "before"}
        assert (await three.admin.post("/ui/queue/snapshots/create", data=form, headers=origin)).status_code == 303
        assert "before" in text_of(await three.viewer.get("/ui/queue?name=jobs"))
        assert (await three.admin.post("/ui/queues/delete", data={"name": "jobs"}, headers=origin)).status_code == 303
        await until(lambda: "jobs" not in queues_of(three.b).names)
        assert (await three.viewer.get("/ui/queue?name=jobs")).status_code == 404


async def test_the_dashboard_shows_a_stream_of_another_node_and_says_which_messages_are_too_large(three: Three) -> None:
    async with client_of(three.b) as client:
        await client.publish("s/1", b"\xff\xfe", qos=1)
        await client.publish("s/1", "first", qos=1)
        page = text_of(await three.operator.get("/ui/stream?name=s&partition=0"))
        assert "It is at node c." in page
        pages = [text_of(await three.operator.get(f"/ui/stream?name=s&partition={each}")) for each in range(4)]
        assert sum("first" in each for each in pages) == 1
        assert sum("2 B of binary data" in each for each in pages) == 1
        assert "first" not in text_of(await three.viewer.get("/ui/stream?name=s"))
        for _ in range(6):
            await client.publish("s/1", "x" * 900_000, qos=1)
    at = next(number for number, each in enumerate(pages) if "binary" in each)
    page = text_of(await three.operator.get(f"/ui/stream?name=s&partition={at}"))
    assert "They are too large to be shown here: the answer has" in page


async def test_of_streams_of_one_name_the_dashboard_shows_that_of_the_node_that_was_chosen(
    fleet: Fleet, air: Air, tmp_path: Path
) -> None:
    options = NodesOptions(servers=("nats://127.0.0.1:4222",), node="a")
    streams = [{"name": "s", "filters": ["s/#"], "partitions": 1}]
    async with running_gateway(tmp_path, nodes=options, **nobody_without_credentials(tmp_path)) as gateway:
        air.cut |= {frozenset(("a", "c")), frozenset(("b", "c"))}
        b, c = await fleet.start("b", streams=streams), await fleet.start("c", streams=streams)
        for name, broker in (("b", b), ("c", c)):
            async with client_of(broker) as client:
                await client.publish("s/1", f"what {name} has", qos=1)
        air.cut.clear()
        await connected(gateway.broker, b, c)
        operator = gateway.client(Role.OPERATOR)
        page = (await operator.get("/ui/streams")).text
        for name in "bc":
            address = f"/ui/stream?name=s&node={name}"
            assert html.escape(address) in page
            shown = await operator.get(address)
            assert f"what {name} has" in text_of(shown)
            assert f"partition=0&amp;node={name}#messages" in shown.text


async def test_of_queues_of_one_name_a_form_of_the_dashboard_is_about_the_one_that_is_shown(
    fleet: Fleet, air: Air, tmp_path: Path
) -> None:
    options = NodesOptions(servers=("nats://127.0.0.1:4222",), node="a")
    queues = [{"name": "jobs", "filters": ["jobs/#"], "max_attempts": 1}]
    origin = {"Origin": "http://localhost:8080"}
    async with running_gateway(tmp_path, nodes=options, **nobody_without_credentials(tmp_path)) as gateway:
        air.cut |= {frozenset(("a", "c")), frozenset(("b", "c"))}
        brokers = {"b": await fleet.start("b", queues=queues), "c": await fleet.start("c", queues=queues)}
        async with client_of(brokers["c"]) as client:
            await client.publish("jobs/1", "x", qos=1)
        (pulled,) = queues_of(brokers["c"]).pull("jobs", 1)
        queues_of(brokers["c"]).nack("jobs", [pulled.ack_id])  # a dead letter: so it stays beside the older one
        air.cut.clear()
        await connected(gateway.broker, *brokers.values())
        operator = gateway.client(Role.OPERATOR)
        assert (await operator.post("/ui/queue/pause", data={"name": "jobs"}, headers=origin)).status_code == 409
        for name, broker in brokers.items():
            page = (await operator.get(f"/ui/queue?name=jobs&node={name}")).text
            (action,) = re.findall(r'action="[^"]*(/ui/queue/pause[^"]*)"', page)
            paused = [queues_of(each).state("jobs").paused for each in brokers.values()]
            assert paused == [name == "c", False]
            answer = await operator.post(html.unescape(action), data={"name": "jobs"}, headers=origin)
            assert answer.headers["location"].endswith(f"name=jobs&done=paused&node={name}")
            assert queues_of(broker).state("jobs").paused


async def test_bans_of_the_dashboard_hold_at_all_nodes(three: Three, air: Air) -> None:
    origin = {"Origin": "http://localhost:8080"}
    form = {"kind": "client", "value": "x", "duration_s": "600"}
    assert (await three.operator.post("/ui/bans/add", data=form, headers=origin)).status_code == 303
    await until(lambda: [len(each.admin.bans) for each in (three.a, three.b, three.c)] == [1, 1, 1])
    page = text_of(await three.viewer.get("/ui/bans"))
    assert "Kept out now: 1" in page
    assert "What is banned or lifted here is so at all nodes, also after a restart." in page
    assert (await three.operator.post("/ui/bans/lift", data={"id": "1"}, headers=origin)).status_code == 303
    await until(lambda: [len(each.admin.bans) for each in (three.a, three.b, three.c)] == [0, 0, 0])
    bad = {"kind": "user", "value": "key-operator", "duration_s": "600"}
    assert (await three.operator.post("/ui/bans/add", data=bad, headers=origin)).status_code == 409
    answer = await three.operator.post("/ui/bans/lift", data={"id": "1"}, headers=origin)
    assert (answer.status_code, "there is no ban '1'" in html.unescape(answer.text)) == (404, True)
    air.servers.is_available = False
    assert (await three.operator.post("/ui/bans/add", data=form, headers=origin)).status_code == 303
    assert "(at this node alone until NATS answers)" in text_of(await three.viewer.get("/ui/bans"))
    number = three.a.admin.bans.list()[0].number
    answer = await three.operator.post("/ui/bans/lift", data={"id": str(number)}, headers=origin)
    assert (answer.status_code, "the other nodes cannot have the change of bans" in answer.text) == (503, True)


@pytest.mark.parametrize("path", ["/ui/clients", "/ui/queues", "/ui/client?id=x"])
async def test_a_page_over_all_nodes_counts_as_one_request(fleet: Fleet, tmp_path: Path, path: str) -> None:
    options = NodesOptions(servers=("nats://127.0.0.1:4222",), node="a")
    extra = nobody_without_credentials(tmp_path)
    async with running_gateway(tmp_path, nodes=options, http={"requests_per_s": 1.0}, **extra) as gateway:
        b = await fleet.start("b")
        await connected(gateway.broker, b)
        async with client_of(b, "x"):
            viewer = gateway.client(Role.VIEWER)
            assert [(await viewer.get(path)).status_code for _ in range(2)] == [200, 429]


# ---------------------------------------------------------------------- out of service


async def test_a_node_is_drained_from_another_one_and_taken_back(three: Three) -> None:
    async with kept_client(three.b, "us") as client:
        await client.subscribe("t", qos=1)
    said = await three.run("nodes", "drain", "b")
    assert said.exit_code == 0
    assert "Node b is drained and can be stopped: 1 sessions moved, 0 left, 0 clients, 0 messages" in said.stdout
    assert "$queue/jobs stay: nobody gets their messages while this node is stopped." in said.stdout
    await until(lambda: [each.drain for each in nodes_of(three.a).states()] == ["drained", ""])
    assert "b\tdrained" in (await three.run("nodes", "ls")).stdout
    assert (await three.viewer.get("/api/v1/readyz")).status_code == 200
    ready = await asked(three.a, "b", Role.VIEWER, "GET", "/api/v1/readyz")
    assert (ready.status, b"drains" in ready.body) == (503, True)
    assert (await three.operator.post("/api/v1/nodes/drain", params={"node": "b"})).status_code == 403
    assert (await three.run("nodes", "undrain", "b")).stdout == "Node b takes sessions again.\n"
    assert (await three.viewer.get("/api/v1/nodes/drain", params={"node": "b"})).json()["step"] == ""
    said = await three.run("nodes", "drain", "--wait", "0")
    assert said.exit_code == 0
    await three.run("nodes", "undrain")


async def test_a_drain_that_does_not_end_in_time_fails_and_says_what_it_waits_for(three: Three, air: Air) -> None:
    async with kept_client(three.b, "us"):
        pass
    for broker in (three.a, three.c):
        nodes_of(broker).drain.begin()
    await until(lambda: {each.drain for each in nodes_of(three.b).states()} == {"drained"})
    said = await three.run("nodes", "drain", "b", "--wait", "0.3")
    assert (said.exit_code, "No other node takes sessions." in said.stdout) == (1, True)
