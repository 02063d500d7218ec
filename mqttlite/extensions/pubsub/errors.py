"""Errors as Google's APIs have them: `{"error": {"code", "message", "status"}}`.

Invariant: each code of a problem has one status here, so that Google's client raises one exception for it.
"""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from mqttlite.gateway.problems import Code, ErrorFormat, Problem

_INVALID: Final = (400, "INVALID_ARGUMENT")
_DENIED: Final = (403, "PERMISSION_DENIED")
_NOT_FOUND: Final = (404, "NOT_FOUND")
_EXHAUSTED: Final = (429, "RESOURCE_EXHAUSTED")
_PRECONDITION: Final = (400, "FAILED_PRECONDITION")

STATUS: Final[dict[Code, tuple[int, str]]] = {
    Code.BAD_REQUEST: _INVALID,
    Code.INVALID_TOPIC: _INVALID,
    Code.NOT_AUTHENTICATED: (401, "UNAUTHENTICATED"),
    Code.NOT_AUTHORIZED: _DENIED,
    Code.CROSS_ORIGIN: _DENIED,
    Code.NOT_FOUND: _NOT_FOUND,
    Code.METHOD_NOT_ALLOWED: _NOT_FOUND,
    Code.CONFLICT: (409, "ALREADY_EXISTS"),
    Code.GONE: _NOT_FOUND,
    Code.TOO_LARGE: _INVALID,
    Code.UNSUPPORTED_MEDIA_TYPE: _INVALID,
    Code.WRONG_HOST: _DENIED,
    Code.INVALID_VALUE: _INVALID,
    Code.POLICY_REFUSES: _PRECONDITION,
    Code.PAYLOAD_INVALID: _INVALID,
    Code.TOO_MANY_REQUESTS: _EXHAUSTED,
    Code.TOO_MANY_FAILED_LOGINS: _EXHAUSTED,
    Code.QUOTA_EXCEEDED: _EXHAUSTED,
    Code.REQUEST_TIMEOUT: (504, "DEADLINE_EXCEEDED"),
    Code.HEADERS_TOO_LARGE: _INVALID,
    Code.INTERNAL_ERROR: (500, "INTERNAL"),
    Code.NO_RESPONDER: _NOT_FOUND,
    Code.NO_ANSWER: (504, "DEADLINE_EXCEEDED"),
    Code.RESPONDER_FAILED: (503, "UNAVAILABLE"),
    Code.NOT_AVAILABLE: (501, "UNIMPLEMENTED"),
    Code.BUSY: (503, "UNAVAILABLE"),
}
"""The HTTP status and Google's name of it (`google.rpc.Code`)."""


def _google_error(problem: Problem) -> Response:
    """A problem as Google's clients expect it."""
    code, status = STATUS[problem.code]
    body = msgspec.json.encode({"error": {"code": code, "message": problem.detail, "status": status}})
    return Response(body, code, problem.headers, "application/json")


_DESCRIPTION: Final[dict[str, Any]] = {
    "description": "An error of Google's APIs",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["code", "message", "status"],
                        "properties": {
                            "code": {"type": "integer"},
                            "message": {"type": "string"},
                            "status": {"type": "string"},
                        },
                    }
                },
            }
        }
    },
}
"""For OpenAPI."""

ERRORS: Final = ErrorFormat(_google_error, _DESCRIPTION)
