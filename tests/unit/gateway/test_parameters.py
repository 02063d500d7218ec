"""How a handler's parameters are read from requests, and what is said of values that are wrong."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta
from starlette.requests import Request

from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.parameters import Parameters
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes

JSON = "application/json"


class Lamp(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    state: Literal["on", "off"] = "on"
    levels: list[int] = []


async def handler(
    caller: Caller,
    request: Request,
    number: int,
    body: Lamp,
    size: Annotated[int, Meta(ge=1, extra={"name": "pageSize"})] = 5,
    tags: Annotated[Sequence[str], Meta(max_length=2)] = (),
    user: str | None = None,
    action: Literal["publish", "receive"] = "publish",
) -> None: ...


def route_of() -> Route:
    routes = Routes()
    routes.post("/lamps/{number}", Role.USER)(handler)
    return routes.made[0]


def request_of(query: str = "", body: bytes = b'{"name":"a"}', content_type: str | None = JSON) -> Request:
    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": query.encode(), "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)


async def read(request: Request, number: str = "7") -> dict[str, Any]:
    return await Parameters(route_of()).read(request, Caller("ann", Role.USER), {"number": number})


async def test_a_handler_gets_values_of_its_types() -> None:
    request = request_of("pageSize=2&pageSize=3&tags=a&tags=b&user=null&other=1")
    found = await read(request)
    assert (found.pop("caller").username, found.pop("request")) == ("ann", request)
    assert found == {
        "number": 7,
        "body": Lamp("a"),
        "size": 3,
        "tags": ["a", "b"],
        "user": "null",
        "action": "publish",
    }


async def test_missing_parameters_have_their_defaults() -> None:
    found = await read(
        request_of(body=b'{"name":"a","levels":["1"]}', content_type="application/x+json; charset=utf-8")
    )
    assert (found["size"], found["tags"], found["user"], found["body"].levels) == (5, (), None, [1])


@pytest.mark.parametrize(
    ("query", "body", "number", "code", "at", "sentence"),
    [
        ("pageSize=0", b'{"name":"a"}', "7", Code.INVALID_VALUE, "query.pageSize", "`int` >= 1"),
        ("pageSize=x", b'{"name":"a"}', "7", Code.INVALID_VALUE, "query.pageSize", "got `str`"),
        ("tags=a&tags=b&tags=c", b'{"name":"a"}', "7", Code.INVALID_VALUE, "query.tags", "length <= 2"),
        ("action=drop", b'{"name":"a"}', "7", Code.INVALID_VALUE, "query.action", "'publish' or 'receive'"),
        ("", b'{"name":"a"}', "x", Code.INVALID_VALUE, "path.number", "got `str`"),
        ("", b"{}", "7", Code.INVALID_VALUE, "body.name", "it is missing"),
        ("", b'{"name":"a","more":1}', "7", Code.INVALID_VALUE, "body.more", "there is no such member"),
        ("", b'{"name":"a","state":"x"}', "7", Code.INVALID_VALUE, "body.state", "it may be 'on' or 'off'"),
        ("", b'{"name":"a","levels":[1,"x"]}', "7", Code.INVALID_VALUE, "body.levels.1", "got `str`"),
        ("", b"[1]", "7", Code.INVALID_VALUE, "body", "Expected `object`"),
        ("", b"nope", "7", Code.BAD_REQUEST, "", "body: this is no JSON"),
        ("", b'{"name":"\xff"}', "7", Code.BAD_REQUEST, "", "body: this is no JSON"),
    ],
)
async def test_a_wrong_value_is_a_problem_with_its_place(
    query: str, body: bytes, number: str, code: Code, at: str, sentence: str
) -> None:
    with pytest.raises(Problem) as refused:
        await read(request_of(query, body), number)
    problem = refused.value
    assert (problem.code, sentence in problem.detail, problem.detail.startswith(at)) == (code, True, True)
    assert [each["at"] for each in problem.more.get("errors", ())] == ([at] if at else [])


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_says_that_it_is_json(content_type: str | None) -> None:
    with pytest.raises(Problem, match="Content-Type: application/json"):
        await read(request_of(content_type=content_type))
