"""The bans page: all bans with their end and reason, and forms to add and lift a ban.

`Admin` enforces bans. Invariant: callers cannot ban themselves here.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.forms import field, form_of
from mqttlite.extensions.dashboard.pages import Pages, redirect
from mqttlite.gateway.agreeing import agreeing
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.clients import NewBan, put_ban
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.parameters import convert
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Routes
from mqttlite.operations.bans import BAN_KINDS, MAX_REASON, BanKind

BANS: Final = "/ui/bans"

SHOWN: Final = 200
"""Bans that the page lists, the latest."""

DURATIONS: Final = {
    "600": "10 minutes",
    "3600": "1 hour",
    "43200": "12 hours",
    "86400": "1 day",
    "604800": "7 days",
    "2592000": "30 days",
}
"""How long a ban may last here, in seconds and in words."""

NOTICES: Final = {"banned": "The ban holds from now on.", "lifted": "The ban was lifted."}


def add(route: Routes, context: GatewayContext, pages: Pages) -> None:
    """The routes of this module."""
    admin = context.admin

    @route.get(BANS, Role.VIEWER)
    async def bans(
        request: Request, caller: Caller, kind: BanKind = "client", value: str = "", done: str = ""
    ) -> Response:
        found = [admin.in_utc(ban) for ban in reversed(admin.bans.list())]
        return pages.render(
            "bans.html",
            request,
            caller,
            bans=found[:SHOWN],
            count=len(found),
            over_nodes=context.elsewhere is not None,
            kinds=BAN_KINDS,
            durations=DURATIONS,
            max_reason=MAX_REASON,
            kind=kind,
            value=value,
            notice_text=NOTICES.get(done, ""),
            refused=list(reversed(context.recent_events.refused))[:SHOWN],
        )

    @route.post(f"{BANS}/add", Role.OPERATOR)
    async def ban(request: Request, caller: Caller) -> Response:
        form = await form_of(request)
        value = field(form, "value").strip()
        request.scope["state"]["subject"] = value
        duration = field(form, "duration_s")
        if duration not in DURATIONS:
            raise Problem(Code.INVALID_VALUE, f"the duration is none of {', '.join(DURATIONS.values())}")
        wanted = {
            "kind": field(form, "kind"),
            "value": value,
            "duration_s": float(duration),
            "reason": form.get("reason", "").strip(),
        }
        await put_ban(admin, convert(wanted, NewBan), caller, request.app.callers)
        return redirect(BANS, done="banned")

    @route.post(f"{BANS}/lift", Role.OPERATOR)
    async def lift(request: Request) -> Response:
        form = await form_of(request)
        number = field(form, "id")
        request.scope["state"]["subject"] = number
        with agreeing():
            is_lifted = number.isascii() and number.isdecimal() and await admin.shared_bans.lift(int(number[:18]))
        if not is_lifted:
            raise Problem(Code.NOT_FOUND, f"there is no ban {number[:18]!r}, or it has ended")
        return redirect(BANS, done="lifted")
