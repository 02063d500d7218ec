"""The overview page: current activity, and alarms.

Invariant: the first rendering and the later updates use the same document.
"""

from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.event_hub import (
    BRIDGE_AWAY,
    CLUSTER_WEAK,
    DOCUMENTS_DIFFER,
    MEMORY_SHORT,
    NODE_AWAY,
    OVERLOAD_STAGES,
    OVERLOADED,
    PUSH_STOPPED,
    STOOD_STILL,
    STORE_FAILING,
)
from mqttlite.extensions.dashboard.history import History
from mqttlite.extensions.dashboard.listeners import ends_shown
from mqttlite.extensions.dashboard.live import Live
from mqttlite.extensions.dashboard.other_nodes import at_other_nodes
from mqttlite.extensions.dashboard.pages import Pages
from mqttlite.extensions.dashboard.words import seconds
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.routing import Routes
from mqttlite.telemetry.report import Report
from mqttlite.telemetry.status import status
from mqttlite.telemetry.why import REASONS, Rule

SHOWN: Final = 5
"""Clients of each ranking on the overview."""

QUEUES_LOOKED_AT: Final = 1_000
"""Queues, the first by name, of which the overview shows those that need attention first."""

QUEUES_SHOWN: Final = 10

ALARMS: Final = {
    STORE_FAILING: "The store fails. Messages to be kept wait, and so do their publishers.",
    MEMORY_SHORT: "Memory is short. Slow clients lose messages of QoS 0.",
    OVERLOADED: "The broker is overloaded.",
    PUSH_STOPPED: "The messages of a queue are not pushed any more.",
    BRIDGE_AWAY: "A bridge cannot connect to its other broker. Its messages wait here.",
    CLUSTER_WEAK: "The cluster is weak: no other machine could take over, the log fills, or its engine is silent.",
    NODE_AWAY: "Another node is away. What its clients are to get waits here.",
    DOCUMENTS_DIFFER: "Users, rules or the like may not be those of all nodes.",
    STOOD_STILL: "The broker stood still: it was paused, or something blocked it.",
}

_NO_RULE: Final = Rule("", "")


def add(shown: Routes, streams: Routes, context: GatewayContext, pages: Pages, live: Live, history: History) -> None:
    """The routes of this module."""
    encoded: tuple[Report, bytes] | None = None
    reports = context.reports

    async def queues() -> list[dict[str, Any]]:
        if context.queueing is None:
            return []
        found = await context.queueing.api.ask("GET", ("queues",), {"limit": str(QUEUES_LOOKED_AT)}, b"")
        entries: list[dict[str, Any]] = msgspec.to_builtins(found["entries"])
        return entries

    async def document(report: Report) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(status(report))
        entries = await queues()
        found["alarms"] = _alarms(report, reports.alarms) + _alarms_of_queues(entries)
        found["queues"] = None if context.queueing is None else sorted(entries, key=_attention)[:QUEUES_SHOWN]
        found["queue_count"] = len(entries)
        found["drops"] = [
            {"reason": reason, "messages": messages, **REASONS.get(reason, _NO_RULE)._asdict()}
            for reason, messages in sorted(found["drops"].items(), key=lambda each: -each[1])
        ]
        found["overload"] |= _stage(found["overload"]["stage"])
        found["dropped"] = sum(each["messages"] for each in found["drops"])
        found["top"] = {name: clients[:SHOWN] for name, clients in found["top"].items()}
        return found

    async def encode(report: Report) -> bytes:
        nonlocal encoded
        if encoded is None or encoded[0] is not report:
            encoded = report, msgspec.json.encode(await document(report))
        return encoded[1]

    @shown.get("/", Role.VIEWER)
    async def overview(request: Request, caller: Caller) -> Response:
        report = await live.report()
        ends = await ends_shown(context, report)
        return pages.render(
            *("overview.html", request, caller),
            status_now=await document(report),
            past=history.points(),
            others=await at_other_nodes(context, request, "/api/v1/alarms"),
            **ends,
        )

    @streams.get("/ui/live", Role.VIEWER)
    async def overview_stream(request: Request, view: Literal["overview"]) -> Response:
        told: Report | None = None

        async def look() -> bytes | None:
            nonlocal told
            report = await live.report()
            if report is told:
                return None
            told = report
            return await encode(report)

        return live.stream(request, Role.VIEWER, look)


def _stage(stage: int) -> dict[str, Any]:
    """The measures against an overload, in words. Each stage includes the lower ones."""
    done = [what for number, what in OVERLOAD_STAGES.items() if number <= stage]
    return {"said": f"stage {stage} of {len(OVERLOAD_STAGES)}" if stage else "none", "done": "; ".join(done)}


def lacks_consumer(queue: dict[str, Any]) -> bool:
    """Whether messages wait in it, and nothing takes them."""
    return bool(queue["depth"] and not queue["consumers"] and not queue["pushed"] and not queue["paused"])


def _attention(queue: dict[str, Any]) -> tuple[bool, int, int, str]:
    """The sort key that puts the queues to look at first."""
    return not lacks_consumer(queue), -queue["dead_letters"], -queue["depth"], queue["name"]


def _alarms_of_queues(queues: list[dict[str, Any]]) -> list[dict[str, str]]:
    """One sentence for the queues without a consumer, and one for those with dead letters."""
    lacking = [each for each in queues if lacks_consumer(each)]
    dead = [each for each in queues if each["dead_letters"]]
    found = []
    if lacking:
        named = _named(
            [f"{each['name']} ({each['depth']:,}, the oldest {seconds(each['oldest_age_s'])})" for each in lacking]
        )
        found.append({"title": "Messages wait in queues without a consumer.", "detail": f"{named}."})
    if dead:
        named = _named([f"{each['name']} ({each['dead_letters']:,})" for each in dead])
        found.append({"title": "Queues have dead letters.", "detail": f"{named}."})
    return found


def _named(names: list[str]) -> str:
    """The first of some names."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _alarms(report: Report, active: dict[str, str]) -> list[dict[str, str]]:
    """The alarms, in sentences."""
    found = [{"title": ALARMS.get(alarm, f"{alarm}."), "detail": detail} for alarm, detail in active.items()]
    if report.not_ready and not report.store_failing:
        found.append({"title": "No clients may connect.", "detail": report.not_ready})
    return found
