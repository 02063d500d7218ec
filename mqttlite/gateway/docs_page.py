"""`/docs`: the routes for people, and `/openapi.json` for programs. The page has no script and loads nothing.

Invariant: it shows what the OpenAPI description says, and nothing else.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.path_prefix import root_of
from mqttlite.gateway.routing import Route, Routes

if TYPE_CHECKING:
    from jinja2 import Template

_CSP: Final = "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"

FIRST: Final = ("publish", "subscribe", "topics")
"""The tags with which the page begins: what most people look for."""

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; --link: #0b6e75; --back: #fff; --ink: #18222b; }
@media (prefers-color-scheme: dark) { :root { --link: #5cc5cc; --back: #11171c; --ink: #e4eaee; } }
body { background: var(--back); color: var(--ink); }
a { color: var(--link); }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, .path { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: 0.3rem 0; }
h2 { margin: 1.5rem 0 0.5rem; }
h2::first-letter { text-transform: uppercase; }
details { border-top: 1px solid #8888; }
.method { display: inline-block; width: 4.5rem; font-weight: bold; }
td, th { text-align: left; padding: 0.1rem 1rem 0.1rem 0; vertical-align: top; overflow-wrap: anywhere; }
@media (max-width: 40rem) { td, th { padding-right: 0.5rem; } }
"""

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ info.title }}: HTTP API</title>
<style>{{ style | safe }}</style>
</head>
<body>
<main>
<h1>{{ info.title }} {{ info.version }}: HTTP API</h1>
<p>For programs: <a href="openapi.json">/openapi.json</a>. Send credentials in the header <code>Authorization</code>,
as <code>Bearer</code> with an API key or token, or as <code>Basic</code>. Errors are
<code>application/problem+json</code> with a <code>code</code>.</p>
<nav aria-label="Kinds of routes">
{% for tag in groups %}<a href="#{{ anchor(tag) }}">{{ tag }}</a>{% if not loop.last %}, {% endif %}
{% endfor %}
</nav>
{% for tag, routes in groups.items() %}
<h2 id="{{ anchor(tag) }}">{{ tag }}</h2>
{% for path, method, operation in routes %}
<details>
<summary><span class="method">{{ method | upper }}</span><span class="path">{{ path }}</span>
{{ operation.summary }} ({{ operation["x-role"] }})</summary>
{% if operation.description %}<p>{{ operation.description }}</p>{% endif %}
{% if operation.parameters %}
<table>
<thead><tr><th>Parameter</th><th>In</th><th>Required</th><th>Meaning</th></tr></thead>
<tbody>
{% for each in operation.parameters %}
<tr><td><code>{{ each.name }}</code></td><td>{{ each["in"] }}</td><td>{{ "yes" if each.required else "no" }}</td>
<td>{{ each.description or "" }}</td></tr>
{% endfor %}
</tbody>
</table>
{% endif %}
{% if operation.requestBody %}<p>Body: {{ operation.requestBody.content | join(", ") }}.</p>{% endif %}
<p>Answers: {{ operation.responses | join(", ") }}.</p>
</details>
{% endfor %}
{% endfor %}
</main>
</body>
</html>
"""


@cache
def _template() -> "Template":
    from jinja2 import Environment  # here, for it takes a while

    return Environment(autoescape=True).from_string(_PAGE)


def routes(_context: GatewayContext) -> Sequence[Route]:
    """The page; it says nothing about the broker, so it asks for no credentials."""
    route = Routes()

    @route.get("/openapi.json", None)
    async def openapi(request: Request) -> Response:
        found: dict[str, Any] = request.app.openapi()
        if root := root_of(request.scope):
            found = {**found, "servers": [{"url": root}]}
        return Response(msgspec.json.encode(found), media_type="application/json")

    @route.get("/docs", None)
    async def docs(request: Request) -> HTMLResponse:
        found: dict[str, Any] = request.app.openapi()
        page = _template().render(
            info=found["info"],
            groups=_groups(found["paths"]),
            style=_STYLE,
            anchor=_anchor,
        )
        return HTMLResponse(page, headers={"Content-Security-Policy": _CSP.format(style=_STYLE_HASH)})

    return route.made


def _groups(paths: dict[str, dict[str, Any]]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    """Path, method and operation of each route, by the first tag of each."""
    found: dict[str, list[tuple[str, str, dict[str, Any]]]] = {tag: [] for tag in FIRST}
    for path, operations in paths.items():
        for method, operation in operations.items():
            found.setdefault(operation["tags"][0], []).append((path, method, operation))
    return found


def _anchor(tag: str) -> str:
    """The name of a group in addresses."""
    return re.sub(r"\W+", "-", tag)


def _hash_of(style: str) -> str:
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


_STYLE_HASH: Final = _hash_of(_STYLE)
