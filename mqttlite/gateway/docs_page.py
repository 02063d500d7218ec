"""`/docs`: the routes for people, and `/openapi.json` for programs. The page has no script and loads nothing.

Invariant: it shows what the OpenAPI description says, and nothing else.
"""

import base64
import hashlib
from typing import Any, Final

from fastapi import APIRouter
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse

from mqttlite.gateway.context import GatewayContext

_CSP: Final = "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, .path { font-family: ui-monospace, monospace; }
summary { cursor: pointer; padding: 0.3rem 0; }
details { border-top: 1px solid #8888; }
.method { display: inline-block; width: 4.5rem; font-weight: bold; }
td, th { text-align: left; padding: 0.1rem 1rem 0.1rem 0; vertical-align: top; }
"""

_PAGE: Final = Environment(autoescape=True).from_string(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ info.title }}: HTTP API</title>
<style>{{ style | safe }}</style>
</head>
<body>
<h1>{{ info.title }} {{ info.version }}: HTTP API</h1>
<p>For programs: <a href="/openapi.json">/openapi.json</a>. Send credentials in the header <code>Authorization</code>,
as <code>Bearer</code> with an API key or token, or as <code>Basic</code>. Errors are
<code>application/problem+json</code> with a <code>code</code>.</p>
{% for path, operations in paths.items() %}{% for method, operation in operations.items() %}
<details>
<summary><span class="method">{{ method | upper }}</span><span class="path">{{ path }}</span>
{{ operation.summary or "" }}</summary>
<p>{{ operation.description or "" }}</p>
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
{% endfor %}{% endfor %}
</body>
</html>
"""
)


def router(_context: GatewayContext) -> APIRouter:
    """The page; it says nothing about the broker, so it asks for no credentials."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/docs")
    async def docs(request: Request) -> HTMLResponse:
        found: dict[str, Any] = request.app.openapi()
        page = _PAGE.render(info=found["info"], paths=found["paths"], style=_STYLE)
        return HTMLResponse(page, headers={"Content-Security-Policy": _CSP.format(style=_STYLE_HASH)})

    return routes


def _hash_of(style: str) -> str:
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


_STYLE_HASH: Final = _hash_of(_STYLE)
