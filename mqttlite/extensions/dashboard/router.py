"""All routes of the dashboard.

Invariant: pages answer errors as pages, streams as problems.
"""

from collections.abc import Sequence
from functools import partial

from starlette.responses import Response

from mqttlite.extensions.built_in import BUILT_IN, resolve
from mqttlite.extensions.dashboard import (
    access,
    bans,
    catalogue,
    clients,
    console,
    extension_page,
    listeners,
    login,
    overview,
    topics,
    trace,
)
from mqttlite.extensions.dashboard.dashboard import Dashboard
from mqttlite.extensions.dashboard.history import History
from mqttlite.extensions.dashboard.key_command import key_command
from mqttlite.extensions.dashboard.live import Live
from mqttlite.extensions.dashboard.pages import MENU, Pages, add_assets
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes


def routes(context: GatewayContext) -> Sequence[Route]:
    """The pages, what they load, and what keeps them up to date."""
    pages = Pages(partial(key_command, context), context.extension_pages)
    live = Live(context)
    history = History()
    context.jobs.append(partial(history.run, context.reports, context.snapshots))
    streams = Routes()
    add_assets(streams)
    shown = Routes(on_problem=pages.problem)
    login.add(shown, context, pages)
    access.add(shown, context, pages)
    bans.add(shown, context, pages)
    catalogue.add(shown, context, pages)
    console.add(shown, pages)
    extension_page.add(shown, context, pages)
    listeners.add(shown, context, pages)
    overview.add(shown, streams, context, pages, live, history)
    for view in (clients, topics, trace):
        view.add(shown, streams, context, pages, live)

    for manifest in BUILT_IN.values():
        for reference in manifest.pages:
            resolve(reference)(Dashboard(shown, streams, context, pages, live))

    @shown.get("/ui/{path:path}", Role.VIEWER)
    async def no_page(path: str) -> Response:
        raise Problem(Code.NOT_FOUND, f"There is no page at /ui/{path[:200]}; the menu has those that there are.")

    paths = {each.path for each in shown.made}
    pages.menu = [each for each in MENU if each[0] in paths]
    return [*streams.made, *shown.made]
