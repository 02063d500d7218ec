"""`/registry`: the schema registry, in the shape of Confluent's, so that clients of that need only this address.

What it answers is decided in `extensions.schemas.api`. Invariant: what changes something needs the role admin.
"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.schemas.api import CONTENT_TYPE, RegistryApi, is_change
from mqttlite.gateway.caller import Caller, Role, check_role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.problems import ErrorFormat, Problem
from mqttlite.gateway.routing import OPERATORS, Handler, Route

PREFIX: Final = "/registry"

_NAMES: Final = {"ids": "id", "versions": "version"}
"""What a variable segment is called behind another one; behind any other it is a subject, which may have slashes."""

_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}

_ANSWER: Final[dict[str, Any]] = {"responses": {"200": {"description": "Found", "content": {CONTENT_TYPE: {}}}}}

_DESCRIPTION: Final[dict[str, Any]] = {
    "description": "An error of Confluent's Schema Registry",
    "content": {
        CONTENT_TYPE: {
            "schema": {
                "type": "object",
                "required": ["error_code", "message"],
                "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
            }
        }
    },
}


def _registry_error(problem: Problem) -> Response:
    """A problem that no route of the registry has answered, in its form."""
    body = msgspec.json.encode({"error_code": problem.status_code, "message": problem.detail})
    return Response(body, problem.status_code, problem.headers, CONTENT_TYPE)


ERRORS: Final = ErrorFormat(_registry_error, _DESCRIPTION)


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    assert context.schemas is not None, "the routes belong to them"
    api = RegistryApi(context.schemas)
    # The longest paths first: a subject may have slashes, and the path of another route would do as its name.
    return [_route(api, *each) for each in sorted(api.routes(), key=lambda route: -route[1].count("/"))]


def _route(api: RegistryApi, method: str, pattern: str, summary: str) -> Route:
    segments = pattern.split("/")
    role = Role.ADMIN if is_change(method, segments) else Role.VIEWER
    described = {**_ANSWER, **_BODY} if method in ("POST", "PUT") else _ANSWER
    return Route(
        method=method,
        path=PREFIX + _path(segments),
        role=role,
        handler=_handler(api),
        summary=summary,
        tag="schemas",
        operation=described,
        served_on=OPERATORS,
    )


def _path(segments: list[str]) -> str:
    """A pattern as the path of a route. The root is `/registry/`."""
    path = ""
    for before, segment in zip(["", *segments], segments, strict=False):
        if segment == "*":
            name = _NAMES.get(before, "subject:path")
            segment = f"{{{name}}}"
        path += f"/{segment}"
    return path


def _handler(api: RegistryApi) -> Handler:
    async def answer(caller: Caller, request: Request) -> Response:
        """Answer as Confluent's Schema Registry does."""
        raw: bytes = request.scope["raw_path"]
        segments = [unquote(each.decode("ascii", "replace")) for each in raw.split(b"/")[2:]]
        if is_change(request.method, segments):  # whichever route it came by
            check_role(caller, Role.ADMIN)
        body = await request.body()
        found = await api.answer(request.method, segments, dict(request.query_params), body)
        return Response(found.body, found.status, media_type=CONTENT_TYPE)

    return answer
