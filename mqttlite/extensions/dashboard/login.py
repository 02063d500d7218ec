"""Log in by a form, and log out.

Invariant: the form leads to a page of this gateway, and to no other site.
"""

import base64
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mqttlite.extensions.dashboard.forms import form_of
from mqttlite.extensions.dashboard.pages import Pages
from mqttlite.gateway.caller import Callers, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Problem
from mqttlite.gateway.routing import Routes

LOGIN: Final = "/ui/login"


def add(route: Routes, context: GatewayContext, pages: Pages) -> None:
    """The routes of this module. The form is public: it says nothing about the broker."""

    @route.get(LOGIN, None)
    async def form(request: Request, target: str = "/") -> Response:
        return pages.login(request, _local(target))

    @route.post(LOGIN, None)
    async def log_in(request: Request) -> Response:
        callers: Callers = request.app.callers
        fields = await form_of(request)
        key, user, password = (fields.get(name, "").strip() for name in ("key", "user", "password"))
        target = _local(fields.get("target", "/"))
        given = f"Bearer {key}" if key else _basic(user, fields.get("password", password))
        try:
            caller = await callers.log_in(given, request.scope)
        except Problem as problem:
            page = pages.login(request, target, str(problem.detail), problem.status_code)
            page.headers.update(problem.headers or {})
            return page
        request.scope["state"]["caller"] = caller
        if not caller.may(Role.VIEWER):
            return pages.login(
                request,
                target,
                "These credentials are right, but their role is user, and the dashboard needs viewer, operator or "
                "admin. An administrator gives roles in [http] roles, or with 'mqttlite token new --role'.",
                403,
            )
        callers.sessions.end(request)
        response = RedirectResponse(target, 303)
        callers.sessions.begin(request, response, given)
        return response

    @route.post("/ui/logout", Role.USER)
    async def log_out(request: Request) -> Response:
        callers: Callers = request.app.callers
        response = RedirectResponse(LOGIN, 303)
        callers.sessions.end(request, response)
        return response


def _local(target: str) -> str:
    """A page of the dashboard; the overview in place of anything else."""
    is_ours = target == "/" or target.startswith("/ui/")
    return target if is_ours and "\\" not in target and target.isprintable() else "/"


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
