"""The bans page: all bans with their end and reason, and forms to add and lift a ban.

`Admin` enforces bans. Invariant: callers cannot ban themselves here.
"""

import re
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.forms import field, form_of
from mqttlite.extensions.dashboard.pages import Pages, redirect
from mqttlite.gateway.asking import ask_too, checked
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

NODE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

MAX_NAMED: Final = 64
"""Nodes that a notice names: as many as there may be others."""


def add(route: Routes, context: GatewayContext, pages: Pages) -> None:
    """The routes of this module."""
    admin = context.admin

    @route.get(BANS, Role.VIEWER)
    async def bans(
        request: Request, caller: Caller, kind: BanKind = "client", value: str = "", done: str = "", missing: str = ""
    ) -> Response:
        found: list[Any] = [admin.in_utc(ban) for ban in reversed(admin.bans.list())]
        silent = []
        if context.elsewhere is not None:
            answered = checked(await ask_too(request, "GET", "/api/v1/bans"))
            found, silent = sorted(answered["items"], key=lambda each: each["since"], reverse=True), answered["silent"]
        return pages.render(
            "bans.html",
            request,
            caller,
            bans=found[:SHOWN],
            count=len(found),
            over_nodes=context.elsewhere is not None,
            silent=silent,
            kinds=BAN_KINDS,
            durations=DURATIONS,
            max_reason=MAX_REASON,
            kind=kind,
            value=value,
            notice_text=NOTICES.get(done, ""),
            missing=[each for each in missing.split(",")[:MAX_NAMED] if NODE_NAME.fullmatch(each)],
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
        if context.elsewhere is None:
            await put_ban(context.admin, convert(wanted, NewBan), caller, request.app.callers)
        else:
            made = checked(await ask_too(request, "POST", "/api/v1/bans", body=msgspec.json.encode(wanted)))
            return _over_nodes("banned", made)
        return redirect(BANS, done="banned")

    @route.post(f"{BANS}/lift", Role.OPERATOR)
    async def lift(request: Request) -> Response:
        form = await form_of(request)
        number = field(form, "id")
        request.scope["state"]["subject"] = number
        if context.elsewhere is not None:
            subject = {"kind": field(form, "kind"), "value": field(form, "value")}
            lifted = checked(await ask_too(request, "DELETE", "/api/v1/bans", subject))
            answers = [lifted, *(each["answer"] for each in lifted["others"] if each["status"] == 200)]
            if any(each["lifted"] for each in answers):
                return _over_nodes("lifted", lifted)
            none = f"there is no ban of the {subject['kind']} {subject['value']!r}, or it has ended"
            missing = _missing(lifted)
            if missing:
                unknown = f"{none}, at the nodes that answered; {', '.join(missing)} refused it or did not answer"
                raise Problem(Code.NO_ANSWER, unknown)
            raise Problem(Code.NOT_FOUND, none)
        if not (number.isascii() and number.isdecimal() and admin.bans.lift(int(number[:18])) is not None):
            raise Problem(Code.NOT_FOUND, f"there is no ban {number[:18]!r}, or it has ended")
        return redirect(BANS, done="lifted")


def _over_nodes(done: str, answer: dict[str, Any]) -> Response:
    """Show the list, and the nodes that did not carry it out: they refused it, or did not answer."""
    missing = _missing(answer)
    return redirect(BANS, done=done, **({"missing": ",".join(missing)} if missing else {}))


def _missing(answer: dict[str, Any]) -> list[str]:
    refused = [each["node"] for each in answer["others"] if each["status"] >= 400]
    return sorted([*refused, *(each["node"] for each in answer["silent"])])
