"""The console page: publish and subscribe through the gateway's own routes.

Invariant: it uses the same routes as any HTTP program, and does not bypass the rules.
"""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.gateway.caller import Viewer
from mqttlite.gateway.dashboard.pages import Pages


def add(routes: APIRouter, pages: Pages) -> None:
    """The routes of this module."""

    @routes.get("/ui/console")
    async def console(request: Request, caller: Viewer, topic: str = "") -> Response:
        return pages.render("console.html", request, caller, topic=topic)
