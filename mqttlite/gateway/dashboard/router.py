"""All routes of the dashboard.

Invariant: pages answer errors as pages, streams as problems.
"""

from functools import partial

from fastapi import APIRouter
from starlette.responses import Response

from mqttlite.gateway.caller import Viewer
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.dashboard import (
    access,
    bans,
    catalogue,
    clients,
    console,
    listeners,
    login,
    overview,
    queues,
    topics,
    trace,
)
from mqttlite.gateway.dashboard.key_command import key_command
from mqttlite.gateway.dashboard.live import Live
from mqttlite.gateway.dashboard.pages import Pages, add_assets
from mqttlite.gateway.lazy_route import LazyRoute
from mqttlite.gateway.problems import Code, Problem


def router(context: GatewayContext) -> APIRouter:
    """The pages, what they load, and what keeps them up to date."""
    pages = Pages(partial(key_command, context))
    live = Live(context)
    routes = APIRouter(include_in_schema=False, route_class=LazyRoute)
    add_assets(routes)
    shown = APIRouter(include_in_schema=False, route_class=pages.route_class())
    login.add(shown, context, pages)
    access.add(shown, context, pages)
    bans.add(shown, context, pages)
    catalogue.add(shown, context, pages)
    console.add(shown, pages)
    listeners.add(shown, context, pages)
    for view in (overview, clients, topics, queues, trace):
        view.add(shown, routes, context, pages, live)

    @shown.get("/ui/{path:path}")
    async def no_page(path: str, _caller: Viewer) -> Response:
        raise Problem(Code.NOT_FOUND, f"There is no page at /ui/{path[:200]}; the menu has those that there are.")

    routes.routes.extend(shown.routes)
    return routes
