"""The listeners, and when their certificates end.

Invariant: what it shows is what new connections get now.
"""

import asyncio
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.pages import Pages
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.routing import Routes
from mqttlite.security.certificate_expiry import WARN_WITHIN, ends_of
from mqttlite.telemetry.report import Report

FILES: Final = {
    "cert_file": "Certificate",
    "ca_file": "Authority of client certificates",
    "crl_file": "List of revoked certificates",
}
"""The files of a listener that end, in words."""


def add(route: Routes, context: GatewayContext, pages: Pages) -> None:
    """The routes of this module."""

    @route.get("/ui/listeners", Role.VIEWER)
    async def listeners(request: Request, caller: Caller) -> Response:
        report = await context.reports.latest()
        return pages.render(
            "listeners.html", request, caller, listeners=report.listeners, **await ends_shown(context, report)
        )


async def ends_shown(context: GatewayContext, report: Report) -> dict[str, Any]:
    """A page's view of certificates: `ends`, as listener, kind and time, the first first; `now` and `soon`."""
    now = context.wall(context.clock()).timestamp()
    ends = [
        (listener.name, FILES[option], at)
        for listener in report.listeners
        for option, at in listener.tls_files_end_at.items()
    ]
    if context.options.tls is not None:
        found = await asyncio.to_thread(ends_of, context.options.tls)
        ends += [("http", FILES[option], end.at.timestamp()) for option, end in found.items()]
    return {
        "ends": sorted(ends, key=lambda each: each[2]),
        "now": now,
        "soon": now + WARN_WITHIN.total_seconds(),
    }
