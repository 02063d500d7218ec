"""The dashboard's pages of bridges: a list, where admins add one, and a page for each with its topics, where operators
pause and resume it.

Invariant: what a person does here is what the routes do, with the same roles.
"""

from typing import Final, Literal

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.bridge.options import BridgeOptions
from mqttlite.extensions.bridge.routes import problems
from mqttlite.extensions.dashboard.dashboard import Dashboard
from mqttlite.extensions.dashboard.forms import field, form_of
from mqttlite.extensions.dashboard.pages import redirect
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.parameters import decoded

BRIDGES: Final = "/ui/bridges"
BRIDGE: Final = "/ui/bridge"

KINDS: Final = {"connected": "good", "away": "bad", "paused": "warn", "idle": ""}
"""The colour of each state."""

NOTICES: Final = {
    "added": "The bridge was added, and connects.",
    "paused": "The bridge is paused. Messages wait on both sides.",
    "resumed": "The bridge connects.",
}


def add(dashboard: Dashboard) -> None:
    """The routes of this module."""
    context, pages, shown = dashboard.context, dashboard.pages, dashboard.shown
    bridges = context.bridges
    assert bridges is not None, "the pages belong to them"

    @shown.get(BRIDGES, Role.VIEWER)
    async def listed(request: Request, caller: Caller) -> Response:
        return pages.render("bridges.html", request, caller, bridges=bridges.states(), kinds=KINDS)

    @shown.post(f"{BRIDGES}/add", Role.ADMIN)
    async def make(request: Request) -> Response:
        options = decoded(field(await form_of(request), "options"), BridgeOptions, "options")
        request.scope["state"]["subject"] = options.name
        with problems(options.name):
            await bridges.add(options)
        await context.commit()
        return redirect(BRIDGE, name=options.name, done="added")

    @shown.post(f"{BRIDGES}/remove", Role.ADMIN)
    async def remove(request: Request) -> Response:
        name = await _subject(request)
        with problems(name):
            await bridges.remove(name)
        await context.commit()
        return redirect(BRIDGES)

    @shown.get(BRIDGE, Role.VIEWER)
    async def bridge(request: Request, caller: Caller, name: str, done: str = "") -> Response:
        with problems(name):
            found = bridges.get(name).view()
        return pages.render(
            "bridge.html", request, caller, bridge=found, kinds=KINDS, notice_text=NOTICES.get(done, "")
        )

    @shown.post(f"{BRIDGE}/{{action}}", Role.OPERATOR)
    async def act(request: Request, action: Literal["pause", "resume"]) -> Response:
        name = await _subject(request)
        with problems(name):
            bridge = bridges.get(name)
            await (bridge.pause() if action == "pause" else bridge.resume())
        return redirect(BRIDGE, name=name, done=f"{action}d")


async def _subject(request: Request) -> str:
    """The bridge that a form is about; the audit log names it."""
    name = field(await form_of(request), "name")
    request.scope["state"]["subject"] = name
    return name
