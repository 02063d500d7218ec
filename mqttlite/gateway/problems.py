"""Errors over HTTP: each is `application/problem+json` (RFC 9457) with a `code` of one closed list.

400 means that the request cannot be read (it is no UTF-8, JSON or form); 422 that it can, and that a value is missing
or not allowed. Invariant: a code always comes with the same status, so that programs may look at either.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

PROBLEM_JSON: Final = "application/problem+json"


class Code(StrEnum):
    """The kind of a problem. Programs compare these; people read the `detail`."""

    BAD_REQUEST = "bad_request"
    INVALID_TOPIC = "invalid_topic"
    NOT_AUTHENTICATED = "not_authenticated"
    NOT_AUTHORIZED = "not_authorized"
    CROSS_ORIGIN = "cross_origin"
    NOT_FOUND = "not_found"
    NO_RESPONDER = "no_responder"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    GONE = "gone"
    TOO_LARGE = "too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    WRONG_HOST = "wrong_host"
    INVALID_VALUE = "invalid_value"
    POLICY_REFUSES = "policy_refuses"
    PAYLOAD_INVALID = "schema_invalid"
    TOO_MANY_REQUESTS = "too_many_requests"
    TOO_MANY_FAILED_LOGINS = "too_many_failed_logins"
    QUOTA_EXCEEDED = "quota_exceeded"
    REQUEST_TIMEOUT = "request_timeout"
    HEADERS_TOO_LARGE = "headers_too_large"
    INTERNAL_ERROR = "internal_error"
    NOT_AVAILABLE = "not_available"
    RESPONDER_FAILED = "responder_failed"
    NO_ANSWER = "no_answer"
    BUSY = "busy"


STATUS: Final[dict[Code, int]] = {
    Code.BAD_REQUEST: 400,
    Code.INVALID_TOPIC: 422,
    Code.NOT_AUTHENTICATED: 401,
    Code.NOT_AUTHORIZED: 403,
    Code.CROSS_ORIGIN: 403,
    Code.NOT_FOUND: 404,
    Code.NO_RESPONDER: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.REQUEST_TIMEOUT: 408,
    Code.CONFLICT: 409,
    Code.GONE: 410,
    Code.TOO_LARGE: 413,
    Code.UNSUPPORTED_MEDIA_TYPE: 415,
    Code.WRONG_HOST: 421,
    Code.INVALID_VALUE: 422,
    Code.POLICY_REFUSES: 422,
    Code.PAYLOAD_INVALID: 422,
    Code.TOO_MANY_REQUESTS: 429,
    Code.TOO_MANY_FAILED_LOGINS: 429,
    Code.QUOTA_EXCEEDED: 429,
    Code.HEADERS_TOO_LARGE: 431,
    Code.INTERNAL_ERROR: 500,
    Code.NOT_AVAILABLE: 501,
    Code.RESPONDER_FAILED: 502,
    Code.BUSY: 503,
    Code.NO_ANSWER: 504,
}


class ErrorFormat(NamedTuple):
    """Another format of problems than `application/problem+json`."""

    answer: "Callable[[Problem], Response]"
    description: Mapping[str, Any]
    """The schema of a problem, for OpenAPI."""


class Problem(Exception):
    """Raise it anywhere in a route: the caller gets `code`, its status and `detail`, a sentence that says what, where
    and what to do. `more` are further members of the answer."""

    def __init__(self, code: Code, detail: str, *, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.code: Final = code
        self.status_code: Final = STATUS[code]
        self.detail: Final = detail
        self.headers: Final = headers
        self.more: Final = more

    def body(self) -> bytes:
        """The answer as JSON."""
        return msgspec.json.encode(
            {
                "type": "about:blank",
                "title": HTTPStatus(self.status_code).phrase,
                "status": self.status_code,
                "code": str(self.code),
                "detail": self.detail,
                **self.more,
            }
        )

    def response(self) -> Response:
        """The answer of a route."""
        return Response(self.body(), self.status_code, self.headers, PROBLEM_JSON)
