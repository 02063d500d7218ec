"""The clients pages: a searchable list, rankings of slow and greedy clients, and a page for each.

`Admin` carries out the actions. Invariant: a list shows one page of clients, however many there are.
"""

from contextlib import suppress
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.bans import DURATIONS
from mqttlite.extensions.dashboard.forms import field, form_of
from mqttlite.extensions.dashboard.live import Live
from mqttlite.extensions.dashboard.pages import Pages, redirect
from mqttlite.gateway.asking import ask_too, checked
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Routes
from mqttlite.operations.admin import ClientDetails
from mqttlite.operations.bans import MAX_REASON
from mqttlite.telemetry.why import REASONS, Rule

PAGE: Final = 50
"""Clients of one page of the list."""

PEEKED: Final = 10
"""Messages of a queue that are shown."""

CLIENT: Final = "/ui/client"

RANKINGS: Final = {
    "outbox": "Slowest",
    "bytes": "Greediest",
    "queue": "Longest queues",
    "drops": "Most drops",
}
"""By what a list may be ordered beside the name, in words."""

NOTICES: Final = {
    "disconnected": "The client was disconnected.",
    "ended": "The session was ended.",
    "purged": "The queue was purged.",
    "offline": "The client was not connected.",
}
"""The sentences that a page shows after an action."""

State = Literal["", "connected", "offline"]
By = Literal["", "outbox", "bytes", "queue", "drops"]

_NO_RULE: Final = Rule("", "")


def add(shown: Routes, streams: Routes, context: GatewayContext, pages: Pages, live: Live) -> None:
    """The routes of this module."""
    admin = context.admin

    async def details(request: Request, client_id: str) -> tuple[ClientDetails, str]:
        """The client, and the other node that has it; empty: it is here. Raises `Problem`."""
        found = admin.client(client_id)
        if found is None and context.elsewhere is not None:
            answered = await ask_too(request, "GET", _path(client_id))
            if answered.status == 200:
                data = msgspec.json.decode(answered.body)
                return msgspec.convert(data, ClientDetails), data["node"]
            if answered.status != 404:
                checked(answered)
        if found is None:
            raise _no_session(client_id)
        return found, ""

    async def act(request: Request, client_id: str, method: str, action: str) -> bool:
        """Act on a client that is not here; whether another node has it. Raises `Problem`."""
        if context.elsewhere is None:
            return False
        answered = await ask_too(request, method, f"{_path(client_id)}/{action}")
        return answered.status != 404 and checked(answered) is not None

    @shown.get("/ui/clients", Role.VIEWER)
    async def clients(
        request: Request,
        caller: Caller,
        contains: str = "",
        state: State = "",
        user: str = "",
        by: By = "",
        cursor: str = "",
    ) -> Response:
        ranked = []
        found = []
        next_cursor = ""
        silent = []
        if by:
            ranked = (await live.report()).snapshot.rankings[by]
        elif context.elsewhere is not None:
            fields = {"cursor": cursor, "limit": str(PAGE), "contains": contains}
            fields |= {"user": user} if user else {}
            fields |= {"connected": str(state == "connected").lower()} if state else {}
            answered = checked(await ask_too(request, "GET", "/api/v1/clients", fields))
            found, next_cursor, silent = answered["items"], answered["cursor"] or "", answered["silent"]
        else:
            connected = None if not state else state == "connected"
            page = await admin.clients(cursor, PAGE, contains, connected, user=user or None)
            found, next_cursor = page.entries, page.cursor
        return pages.render(
            "clients.html",
            request,
            caller,
            found=found,
            ranked=ranked,
            rankings=RANKINGS,
            by=by,
            contains=contains,
            user=user,
            state=state,
            cursor=cursor,
            next_cursor=next_cursor,
            sessions=len(context.core.sessions),
            over_nodes=context.elsewhere is not None,
            silent=silent,
        )

    @shown.get(CLIENT, Role.VIEWER)
    async def client(request: Request, caller: Caller, id: str, done: str = "") -> Response:
        answers = context.reports.answers()
        found, node = admin.client(id), ""
        if found is None and context.elsewhere is not None:
            with suppress(Problem):
                found, node = await details(request, id)
        events = context.recent_events.of_client(id)
        ban = admin.bans.of(id, None, "")
        why = [] if answers is None else answers.why("", id)["sentences"]
        if found is None and not events and (answers is None or not answers.knows(id)):
            await details(request, id)
        return pages.render(
            "client.html",
            request,
            caller,
            client_id=id,
            client=found,
            ban=None if ban is None else admin.in_utc(ban),
            durations=DURATIONS,
            max_reason=MAX_REASON,
            now=None if found is None else _document(found),
            events=events,
            node=node,
            queue=None if found is None or node else await admin.peek_queue(id, PEEKED),
            why=why,
            has_log=answers is not None,
            notice_text=NOTICES.get(done, ""),
        )

    @streams.get(f"{CLIENT}/live", Role.VIEWER)
    async def client_stream(request: Request, id: str) -> Response:
        async def look() -> dict[str, Any]:
            return _document((await details(request, id))[0])

        return live.stream(request, Role.VIEWER, look)

    @shown.post(f"{CLIENT}/disconnect", Role.OPERATOR)
    async def disconnect(request: Request) -> Response:
        client_id = await _subject(request)
        is_gone = admin.kick(client_id) or await act(request, client_id, "POST", "disconnect")
        return redirect(CLIENT, id=client_id, done="disconnected" if is_gone else "offline")

    @shown.post(f"{CLIENT}/end-session", Role.OPERATOR)
    async def end_session(request: Request) -> Response:
        client_id = await _subject(request)
        if not (admin.end_session(client_id) or await act(request, client_id, "DELETE", "session")):
            raise _no_session(client_id)
        return redirect(CLIENT, id=client_id, done="ended")

    @shown.post(f"{CLIENT}/purge", Role.OPERATOR)
    async def purge(request: Request) -> Response:
        client_id = await _subject(request)
        purged = await admin.purge_queue(client_id, dry_run=False)
        if purged is None and not await act(request, client_id, "DELETE", "queue"):
            raise _no_session(client_id)
        return redirect(CLIENT, id=client_id, done="purged")


def _no_session(client_id: str) -> Problem:
    return Problem(
        Code.NOT_FOUND, f"{client_id!r} has no session: it is not connected, and the broker keeps nothing for it"
    )


def _path(client_id: str) -> str:
    """Of a client in the API."""
    return f"/api/v1/clients/{quote(client_id, safe='')}"


async def _subject(request: Request) -> str:
    """The client that a form is about; the audit log names it."""
    client_id = field(await form_of(request), "id")
    request.scope["state"]["subject"] = client_id
    return client_id


def _document(found: ClientDetails) -> dict[str, Any]:
    """The part of a client's page that the stream renews."""
    entry = found.entry
    return {
        "connected": entry.connected,
        "blocked": found.blocked,
        "queued": entry.queued,
        "queued_bytes": found.queued_bytes,
        "inflight": entry.inflight,
        "outbox_bytes": found.outbox_bytes,
        "bytes_received": found.bytes_received,
        "bytes_sent": found.bytes_sent,
        "dropped": sum(found.drops.values()),
        "drops": [
            {"reason": reason, "messages": messages, **REASONS.get(reason, _NO_RULE)._asdict()}
            for reason, messages in sorted(found.drops.items(), key=lambda each: -each[1])
        ],
    }
