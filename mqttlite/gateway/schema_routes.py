"""`/registry`: the schema registry, in the shape of Confluent's, so that clients of that need only this address.

What it answers is decided in `delivery.schemas.api`. Invariant: what changes something needs the role admin.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.delivery.schemas.api import CONTENT_TYPE, RegistryApi, is_change
from mqttlite.gateway.caller import Role, caller_of, check_role, require
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.lazy_route import LazyRoute
from mqttlite.gateway.problems import Problem

PREFIX: Final = "/registry"

_NAMES: Final = {"ids": "id", "versions": "version"}
"""What a variable segment is called behind another one; behind any other it is a subject, which may have slashes."""

_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}

ERROR: Final[dict[str, Any]] = {
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
"""For OpenAPI."""


def registry_error(problem: Problem) -> Response:
    """A problem that no route of the registry has answered, in its form."""
    body = msgspec.json.encode({"error_code": problem.status_code, "message": problem.detail})
    return Response(body, problem.status_code, problem.headers, CONTENT_TYPE)


def router(context: GatewayContext) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix=PREFIX, tags=["schemas"], route_class=LazyRoute)
    api = RegistryApi(context.schemas)
    # The longest paths first: a subject may have slashes, and the path of another route would do as its name.
    for method, pattern, summary in sorted(api.routes(), key=lambda route: -route[1].count("/")):
        segments = pattern.split("/")
        role = Role.ADMIN if is_change(method, segments) else Role.VIEWER
        routes.add_api_route(
            _path(segments),
            _endpoint(api),
            methods=[method],
            summary=summary,
            dependencies=[require(role)],
            response_class=Response,
            responses={200: {"content": {CONTENT_TYPE: {}}}},
            openapi_extra=_described(_path(segments), method),
        )
    return routes


def _path(segments: list[str]) -> str:
    """A pattern in the words of the framework. The root is `/registry/`."""
    path = ""
    for before, segment in zip(["", *segments], segments, strict=False):
        if segment == "*":
            name = _NAMES.get(before, "subject:path")
            segment = f"{{{name}}}"
        path += f"/{segment}"
    return path


def _described(path: str, method: str) -> dict[str, Any]:
    """What the framework does not know of a route: the variables of its path, and its body."""
    names = [each.partition(":")[0] for each in re.findall(r"{([^}]+)}", path)]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    return {"parameters": parameters, **(_BODY if method in ("POST", "PUT") else {})}


def _endpoint(api: RegistryApi) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        """Answer as Confluent's Schema Registry does."""
        raw: bytes = request.scope["raw_path"]
        segments = [unquote(each.decode("ascii", "replace")) for each in raw.split(b"/")[2:]]
        if is_change(request.method, segments):  # whichever route it came by
            check_role(caller_of(request), Role.ADMIN)
        body = await request.body()
        found = await api.answer(request.method, segments, dict(request.query_params), body)
        return Response(found.body, found.status, media_type=CONTENT_TYPE)

    return answer
