"""The OpenAPI document, made of the table of routes: parameters and bodies of the handlers, credentials and problems.

Invariant: it names every route that has a summary, and for each its role and the answer to a wrong request.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import FileResponse, Response

from mqttlite.build import VERSION
from mqttlite.gateway.parameters import Parameters
from mqttlite.gateway.problems import PROBLEM_JSON, Code
from mqttlite.gateway.routing import Route, ServedOn

REFERENCE: Final = "#/components/schemas/{name}"

PROBLEM_ANSWER: Final[Mapping[str, Any]] = {
    "description": "A problem (RFC 9457)",
    "content": {PROBLEM_JSON: {"schema": {"$ref": REFERENCE.format(name="Problem")}}},
}

_PROBLEM: Final[Mapping[str, Any]] = {
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
            "description": "The places of what is wrong, where they are known",
            "items": {
                "type": "object",
                "required": ["at", "message"],
                "properties": {"at": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}

_NODE: Final[Mapping[str, Any]] = {
    "name": "node",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "Which one of several nodes answers, alone.",
}

_TEXT: Final[Mapping[str, Any]] = {"required": True, "schema": {"type": "string"}}


def document(routes: Iterable[Route], error_of: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """The document. `error_of` describes the answer to a problem below a path."""
    described = [_Described(route) for route in routes if route.summary]
    kinds = [kind for each in described for kind in each.kinds]
    found, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schemas = iter(found)
    paths: dict[str, dict[str, Any]] = {}
    for each in described:
        operation = each.operation(schemas)
        error = error_of(each.route.path)
        operation["responses"] = {**operation["responses"], "4XX": error, "5XX": error}
        paths.setdefault(each.route.shown_path, {})[each.route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "mqttlite", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a token as over MQTT"},
                "basic": {"type": "http", "scheme": "basic", "description": "User name and password as over MQTT"},
            },
        },
        "security": [{"bearer": []}, {"basic": []}, {}],
    }


class _Described:
    """A route, and the types of which its operation has the schemas."""

    def __init__(self, route: Route) -> None:
        self.route: Final = route
        parameters = None if route.is_bare else Parameters(route)
        self._fields: Final = [] if parameters is None else parameters.fields
        body = parameters.body[1] if parameters is not None and parameters.body is not None else route.body
        self.kinds: Final[list[Any]] = [field.type for _, field in self._fields]
        self._has_body: Final = body is not None
        if self._has_body:
            self.kinds.append(body)
        answer = route.answer or (None if parameters is None else parameters.answer)
        self._response: Final = answer if isinstance(answer, type) and issubclass(answer, Response) else None
        self._has_answer: Final = self._response is None and answer is not None
        if self._has_answer:
            self.kinds.append(answer)

    def operation(self, schemas: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
        """Takes the schemas of the `kinds`, in their order."""
        route = self.route
        parameters = [_parameter(where, field, next(schemas)) for where, field in self._fields]
        parameters += route.operation.get("parameters", ())
        named = {each["name"] for each in parameters}
        parameters += [{"name": name, "in": "path", **_TEXT} for name in route.variables if name not in named]
        if ServedOn.ADMIN_SOCKET in route.served_on:
            parameters.append(dict(_NODE))
        name = re.sub(r"\W+", "_", route.shown_path).strip("_")
        found: dict[str, Any] = {
            "summary": route.summary,
            "tags": [route.tag],
            "operationId": f"{route.method.lower()}_{name}",
        }
        if route.role is not None:
            found["x-role"] = route.role.name.lower()
        if not route.is_bare and (description := inspect.getdoc(route.handler)):
            found["description"] = description
        if parameters:
            found["parameters"] = parameters
        body = route.operation.get("requestBody", {})
        if self._has_body:
            content = {**_json(next(schemas))["content"], **body.get("content", {})}
            body = {"required": True, "content": content}
        if body:
            found["requestBody"] = body
        answer = _json(next(schemas)) if self._has_answer else _content(self._response)
        responses = {str(route.status): answer, **route.operation.get("responses", {})}
        found["responses"] = {status: {"description": "Done", **response} for status, response in responses.items()}
        return found


def _parameter(where: str, field: msgspec.structs.FieldInfo, schema: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": field.encode_name, "in": where, "required": field.required, "schema": schema}
    if not field.required and field.default is not None:
        found["schema"] = {**schema, "default": field.default}
    descriptions = [each["description"] for each in (schema, *schema.get("anyOf", ())) if "description" in each]
    return {**found, "description": descriptions[0]} if descriptions else found


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _content(kind: type[Response] | None) -> dict[str, Any]:
    """Describe the answer of a handler that makes its response itself."""
    if kind is None or kind is FileResponse:
        return {}
    return {"content": {kind.media_type or "application/json": {"schema": {}}}}
