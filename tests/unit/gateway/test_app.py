"""What holds for every request: origins, bodies, problems, headers."""

import asyncio
import gc
import logging
import weakref
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from mqttlite.gateway.bodies import SMALL_BYTES, Bodies
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.problems import STATUS, Code, Problem
from mqttlite.gateway.routing import PathPattern, Routes
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway


def add_routes(gateway: GatewayUnderTest) -> None:
    """Routes that echo, fail, and change something."""
    routes = Routes()

    @routes.post("/test/echo", None)
    async def echo(request: Request) -> int:
        return len(await request.body())

    @routes.post("/test/change", Role.OPERATOR)
    async def change(caller: Caller, number: int) -> int:
        return number

    @routes.get("/test/bug", None)
    async def bug() -> None:
        raise KeyError("a bug")

    @routes.get("/test/problem", None)
    async def problem() -> None:
        raise Problem(Code.CONFLICT, "it is there already", name="x")

    gateway.gateway.app.table.add(routes.made)


async def test_a_page_of_another_site_changes_nothing(gateway: GatewayUnderTest) -> None:
    add_routes(gateway)
    client = gateway.client()
    evil = await client.post("/test/echo", headers={"Origin": "https://evil.example"})
    assert (evil.status_code, evil.json()["code"]) == (403, "cross_origin")
    assert "access-control-allow-origin" not in evil.headers
    own = await client.post("/test/echo", headers={"Origin": "http://localhost:8080"})
    assert own.status_code == 200


async def test_a_site_that_is_allowed_may(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"allowed_origins": ("https://app.example",)}) as gateway:
        add_routes(gateway)
        client = gateway.client()
        site = {"Origin": "https://app.example"}
        answer = await client.post("/test/echo", headers=site)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")
        asked = {**site, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}
        assert (await client.options("/test/echo", headers=asked)).status_code == 200
        refused = await client.get("/nothing", headers=site)  # a page reads what is wrong, too
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (404, "https://app.example")


@pytest.mark.parametrize(("size", "status"), [(9, 200), (10, 200), (11, 413)])
async def test_a_body_has_a_limit(tmp_path: Path, size: int, status: int) -> None:
    async with running_gateway(tmp_path, http={"max_body_bytes": 10}) as gateway:
        add_routes(gateway)
        answer = await gateway.client().post("/test/echo", content=b"x" * size)
        assert answer.status_code == status
        assert gateway.gateway.app.bodies.held_bytes == 0

        async def chunks() -> object:
            for _ in range(size):
                yield b"x"

        chunked = await gateway.client().post("/test/echo", content=chunks())  # type: ignore[arg-type]
        assert chunked.status_code == status
        assert gateway.gateway.app.bodies.held_bytes == 0


@pytest.mark.parametrize(
    ("path", "header", "is_read"),
    [
        ("/ui/login", ("content-length", str(SMALL_BYTES)), True),
        ("/ui/login", ("content-length", str(SMALL_BYTES + 1)), False),
        ("/ui/login", ("content-length", "9" * 30), False),
        ("/ui/login", ("transfer-encoding", "chunked"), False),
        ("/api/v1/topics", ("content-length", "2"), False),
    ],
)
async def test_a_large_body_without_credentials_is_not_read(
    tmp_path: Path, path: str, header: tuple[str, str], is_read: bool
) -> None:
    reads: list[bool] = []
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        reads.append(True)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.append(message.get("status", 0))

    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "query_string": b""}
        headers = [(b"host", b"localhost"), (header[0].encode(), header[1].encode())]
        await gateway.gateway.app({**scope, "headers": headers, "client": ("127.0.0.1", 1)}, receive, send)
    assert (bool(reads), statuses[:1]) == (is_read, [] if is_read else [401])


async def test_all_bodies_together_have_a_limit() -> None:
    bodies = Bodies(10, max_bytes=15)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"x" * 10}

    first = await bodies.read({"headers": []}, receive)
    with pytest.raises(Problem) as refused:
        await bodies.read({"headers": []}, receive)
    assert refused.value.code == Code.BUSY
    bodies.release(first)
    await bodies.read({"headers": []}, receive)


async def test_every_error_is_a_problem(gateway: GatewayUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    add_routes(gateway)
    client = gateway.client(Role.ADMIN)
    for method, path, status, code in (
        ("GET", "/nothing", 404, "not_found"),
        ("DELETE", "/docs", 405, "method_not_allowed"),
        ("OPTIONS", "/events", 405, "method_not_allowed"),
        ("POST", "/test/change?number=x", 422, "invalid_value"),
        ("GET", "/test/problem", 409, "conflict"),
        ("GET", "/test/bug", 500, "internal_error"),
    ):
        answer = await client.request(method, path)
        found = answer.json()
        assert (answer.status_code, found["status"], found["code"]) == (status, status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["cache-control"] == "no-store"
    assert "GET /test/bug failed" in caplog.text
    assert (await client.put("/api/v1/topics")).headers["allow"] == "GET, HEAD, POST"


async def test_head_answers_as_get_without_its_body(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.ADMIN)
    await client.put("/topics/a?retain=1", content=b"123")
    for path, status in (("/api/v1/me", 200), ("/topics/a", 200), ("/topics/b", 404), ("/events?filter=a", 405)):
        answer = await client.head(path)
        assert (answer.status_code, answer.content) == (status, b""), path
    assert (await client.head("/topics/a")).headers["content-length"] == "3"


def test_each_code_has_its_status() -> None:
    assert STATUS.keys() == set(Code)
    assert Problem(Code.CONFLICT, "it is there", name="x").body().endswith(b'"detail":"it is there","name":"x"}')


async def test_a_change_is_a_line_in_the_audit_log(gateway: GatewayUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    add_routes(gateway)
    with caplog.at_level(logging.INFO, "mqttlite.audit"):
        await gateway.client(Role.OPERATOR).post("/test/change?number=1")
        await gateway.client(Role.VIEWER).post("/test/change?number=1")
        await gateway.client(Role.OPERATOR).get("/api/v1/me")
    lines = [record.getMessage() for record in caplog.records if record.name == "mqttlite.audit"]
    assert [line.split(" (")[0] for line in lines] == [
        "POST /test/change by key-operator",
        "POST /test/change by key-viewer",
    ]
    assert [line[-3:] for line in lines] == ["200", "403"]


@pytest.mark.slow
async def test_the_page_of_the_routes_needs_no_script_and_loads_nothing(gateway: GatewayUnderTest) -> None:
    answer = await gateway.client().get("/docs")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert "/api/v1/me" in answer.text
    assert "List API keys (admin)" in answer.text


@pytest.mark.long
async def test_the_description_names_each_route_and_its_problems(gateway: GatewayUnderTest) -> None:
    found = (await gateway.client().get("/openapi.json")).json()
    operation = found["paths"]["/api/v1/me"]["get"]
    assert "application/problem+json" in operation["responses"]["4XX"]["content"]
    assert "422" not in operation["responses"]
    assert operation["x-role"] == "user"
    answers = found["paths"]["/registry/subjects"]["get"]["responses"]
    assert [list(answers[status]["content"]) for status in ("200", "4XX")] == [
        ["application/vnd.schemaregistry.v1+json"],
        ["application/vnd.schemaregistry.v1+json"],
    ]


@pytest.mark.parametrize(
    ("pattern", "path", "variables"),
    [
        ("/topics/{topic:path}", "/topics/a/b", {"topic": "a/b"}),
        ("/topics/{topic:path}", "/topics/", {"topic": ""}),
        ("/topics/{topic:path}", "/topics/a\n", {"topic": "a\n"}),
        ("/t/{id}/publish", "/t/x/publish", {"id": "x"}),
        ("/t/{id}/publish", "/t//publish", None),
        ("/t/{id}/publish", "/t/x", None),
        ("/t/{id}/publish", "/t/x/y/publish", None),
        ("/t/{id}/publish", "/other/publish", None),
        ("/t/{id}:pull", "/t/x:pull", {"id": "x"}),
        ("/events", "/events", {}),
        ("/events", "/events/", None),
        ("/e.s", "/exs", None),
    ],
)
def test_a_route_takes_the_variables_of_its_path(pattern: str, path: str, variables: dict[str, str] | None) -> None:
    assert PathPattern(pattern).match(path) == variables


@pytest.mark.slow
async def test_a_broker_that_has_ended_is_freed(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as rig:
        await rig.client(Role.ADMIN).get("/api/v1/clients")
        ended = weakref.ref(rig.gateway)
    del rig
    async with asyncio.timeout(60):
        while ended() is not None:  # callbacks that were under way may hold it for a moment
            await asyncio.sleep(0.01)
            gc.collect()
