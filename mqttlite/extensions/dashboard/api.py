"""What a route of the API answers the caller of a page. So a page shows, and does, what the API would, also with what
another node has."""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request

from mqttlite.gateway.asking import NO_FIELDS, ask_too, checked
from mqttlite.gateway.problems import Code, Problem


async def ask_api(
    request: Request, method: str, *segments: str, fields: Mapping[str, str] = NO_FIELDS, body: bytes = b""
) -> Any:
    """The answer of the route whose path has these segments below `/api/v1`, as values of JSON; of the node that the
    page names in its parameter `node`, if it does. Raises `Problem`."""
    for each in segments:
        if "/" in each:  # a route finds its segments when they are decoded
            raise Problem(Code.NOT_FOUND, f"there is no {each[:200]!r}: a name has no slash")
    path = "/api/v1/" + "/".join(quote(each, safe="") for each in segments)
    node = _node_of(request)
    return checked(await ask_too(request, method, path, {**fields, "node": node} if node else fields, body))


def at_node(request: Request) -> str:
    """What the links of a page end with, so that they are about the node that it names."""
    node = _node_of(request)
    return f"&node={quote(node, safe='')}" if node else ""


def to_node(request: Request) -> dict[str, str]:
    """The same for a page to which a form leads, as parameters."""
    node = _node_of(request)
    return {"node": node} if node else {}


def _node_of(request: Request) -> str:
    return request.query_params.get("node", "")


def payload_of(message: Mapping[str, Any]) -> bytes:
    """The payload of a message in an answer."""
    text: str = message["payload"]
    return base64.b64decode(text) if message["payload_encoding"] == "base64" else text.encode()
