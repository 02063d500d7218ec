"""Asks applications of this process: for answers to requests of other nodes, and for what a page shows.

Invariant: a request of another node is answered here, with the rights of its caller there, and goes to no further one.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, unquote_to_bytes, urlencode

import msgspec
from starlette.requests import Request

from mqttlite.gateway.bodies import App, Message, Scope
from mqttlite.gateway.elsewhere import CALLER, IS_ADMITTED, Answered, Question
from mqttlite.gateway.problems import PROBLEM_JSON, Code, Problem

MAX_ANSWER_BYTES: Final = 4_194_304
"""The largest answer to another node: pages of lists, and bodies of requests, are no larger."""

MAX_OWN_BYTES: Final = 33_554_432
"""The largest answer to a page of the application itself: a list that is joined of all nodes has 16 MiB."""

NO_FIELDS: Final[Mapping[str, str]] = {}


def checked(answered: Answered) -> Any:
    """An answer in JSON. Raises the `Problem` that it is."""
    found = msgspec.json.decode(answered.body)
    if answered.status >= 400:
        raise Problem(Code(found["code"]), found["detail"])
    return found


def of_problem(problem: Problem) -> Answered:
    """A problem as an answer to another node."""
    return Answered(problem.status_code, PROBLEM_JSON, problem.body())


async def answer_in(app: App, question: Question) -> Answered:
    """Ask an application of this process for the answer to a request of another node."""
    answered, size = await _collected(app, _scope(question), question.body, MAX_ANSWER_BYTES)
    if size > MAX_ANSWER_BYTES:
        return of_problem(
            Problem(
                Code.TOO_LARGE,
                f"the answer has {size} bytes, and {MAX_ANSWER_BYTES} at most go to another node: ask for fewer "
                "entries, or ask the node itself",
            )
        )
    return answered


async def ask_too(
    request: Request, method: str, path: str, fields: Mapping[str, str] = NO_FIELDS, body: bytes = b""
) -> Answered:
    """Ask the application that answers a request for the answer to another one of the same caller, with a body in JSON:
    so a page shows what a route of the API answers. It is not counted again in `requests_per_s`. Nodes are named in the
    audit log as those of the first."""
    scope = request.scope
    state = {**scope["state"], IS_ADMITTED: True}
    headers = [each for each in scope["headers"] if not each[0].startswith(b"content-")]
    if body:
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    raw = {"raw_path": quote(path, safe="/%").encode(), "query_string": urlencode(fields).encode()}
    asked = {**scope, "method": method, "path": unquote(path), **raw, "headers": headers, "state": state}
    answered, size = await _collected(request.app, asked, body, MAX_OWN_BYTES)
    if "node" in state:
        scope["state"]["node"] = state["node"]
    if size > MAX_OWN_BYTES:
        return of_problem(
            Problem(Code.TOO_LARGE, f"the answer has {size} bytes, and a page {MAX_OWN_BYTES} at most: use a command")
        )
    return answered


async def _collected(app: App, scope: Scope, body: bytes, max_bytes: int) -> tuple[Answered, int]:
    """The whole answer of an application, or of one that is too large the beginning; and its size."""
    status = 0
    media_type = ""
    chunks: list[bytes] = []
    size = 0

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, media_type, size
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.lower(): value for name, value in message["headers"]}
            media_type = headers.get(b"content-type", b"").decode("latin-1")
        else:
            size += len(message["body"])
            if size <= max_bytes:
                chunks.append(message["body"])

    await app(scope, receive, send)
    return Answered(status, media_type, b"".join(chunks)), size


def _scope(question: Question) -> Scope:
    headers = [(b"content-length", b"%d" % len(question.body))]
    if question.media_type:
        headers.append((b"content-type", question.media_type.encode("latin-1")))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": question.method,
        "scheme": "http",
        "path": unquote_to_bytes(question.path).decode(errors="replace"),
        "raw_path": question.path,
        "root_path": "",
        "query_string": question.query,
        "headers": headers,
        "client": question.caller.client,
        "server": None,
        "state": {CALLER: question.caller},
    }
