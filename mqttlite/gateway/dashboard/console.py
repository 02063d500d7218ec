"""The console: publish and subscribe in the page, over the gateway's own routes for that.

Invariant: what it does is what any program does over HTTP; there is no way around the rules here.
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
