"""The pages of extensions: the content is theirs, the frame around it the dashboard's."""

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.pages import EXTENSIONS, Pages
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Routes


def add(route: Routes, context: GatewayContext, pages: Pages) -> None:
    """One route for all of them: they come after the routes are made."""

    @route.get(f"{EXTENSIONS}/{{name}}", Role.VIEWER)
    async def extension_page(name: str, request: Request, caller: Caller) -> Response:
        found = context.extension_pages.get(name)
        if found is None:
            raise Problem(Code.NOT_FOUND, f"No extension has a page {name[:200]}; the menu has those that there are.")
        title, show = found
        return pages.render("extension.html", request, caller, title=title, content=show())
