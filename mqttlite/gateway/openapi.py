"""The OpenAPI description: the framework's routes, the bare routes, credentials and problems.

Invariant: it names every route, and for each the answer to a wrong request.
"""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from mqttlite.gateway import schema_routes
from mqttlite.gateway.problems import PROBLEM_JSON, Code
from mqttlite.gateway.pubsub import errors

_PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": [str(code) for code in Code]},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "description": "Where several things are wrong (422): each with its place",
            "items": {
                "type": "object",
                "required": ["at", "message"],
                "properties": {"at": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}

_ANSWER: dict[str, Any] = {
    "description": "A problem (RFC 9457)",
    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def describe(api: FastAPI, bare: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
    """Let the application describe itself with all routes; `bare` are method, path and operation of the others."""

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = _whole(api, bare)
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]  # as its documentation says


def _whole(api: FastAPI, bare: Sequence[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    found = get_openapi(title=api.title, version=api.version, routes=api.routes)
    paths = found.setdefault("paths", {})
    for method, path, operation in bare:
        name = re.sub(r"\W+", "_", path).strip("_")
        paths.setdefault(path, {})[method.lower()] = {"operationId": f"{method.lower()}_{name}", **operation}
    for path, operations in paths.items():
        answer = _error_of(path)
        for operation in operations.values():
            responses = operation.setdefault("responses", {})
            responses.pop("422", None)
            responses["4XX"] = answer
            responses["5XX"] = answer
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = _PROBLEM
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a token as over MQTT"},
        "basic": {"type": "http", "scheme": "basic", "description": "User name and password as over MQTT"},
    }
    found["security"] = [{"bearer": []}, {"basic": []}, {}]
    return found


def _error_of(path: str) -> dict[str, Any]:
    """What errors look like below a path."""
    if path.startswith(errors.PREFIX):
        return errors.DESCRIPTION
    return schema_routes.ERROR if path.startswith(schema_routes.PREFIX) else _ANSWER
