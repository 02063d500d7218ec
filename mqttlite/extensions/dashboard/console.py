"""The console page: publish and subscribe through the gateway's own routes.

Invariant: it uses the same routes as any HTTP program, and does not bypass the rules.
"""

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.pages import Pages
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.routing import Routes


def add(route: Routes, pages: Pages) -> None:
    """The routes of this module."""

    @route.get("/ui/console", Role.VIEWER)
    async def console(request: Request, caller: Caller, topic: str = "") -> Response:
        return pages.render("console.html", request, caller, topic=topic)
