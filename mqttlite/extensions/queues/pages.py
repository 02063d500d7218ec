"""The queues of `$queue/…`: a list, a page for each with its push, snapshots and dead letters, and what an operator or
administrator does with them.

What is done is done by the API, at whatever node the queue is; a form is about the queue of the node that its page has
shown. Invariant: payloads are shown to operators only.
"""

from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.core.reasons import EXPIRED
from mqttlite.extensions.dashboard.api import ask_api, at_node, payload_of, to_node
from mqttlite.extensions.dashboard.dashboard import Dashboard
from mqttlite.extensions.dashboard.forms import field, form_of
from mqttlite.extensions.dashboard.other_nodes import at_other_nodes
from mqttlite.extensions.dashboard.pages import redirect
from mqttlite.extensions.queues.api import Refused
from mqttlite.extensions.queues.outcomes import DEADLINE, DISCONNECTED, FILTERED, NACKED, OVERFLOW, TOO_LARGE
from mqttlite.extensions.queues.routes import problem_of
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.problems import Code, Problem

QUEUES: Final = "/ui/queues"
QUEUE: Final = "/ui/queue"

PAGE: Final = 100
"""Queues of one page of the list: looking at them takes a millisecond."""

SHOWN: Final = 50
"""Dead letters of one page."""

PEEKED: Final = 10
"""Messages of a queue that are shown."""

NOTICES: Final = {
    "queue-made": "The queue was made. It takes the messages of its topics from now on.",
    "queue-changed": "The queue has its new options.",
    "queue-deleted": "The queue was deleted, with its messages and dead letters.",
    "paused": "The queue is paused: it takes messages and delivers none.",
    "resumed": "The queue delivers again.",
    "purged": "The messages of the queue were dropped.",
    "sought": "The queue is there: nothing older is delivered.",
    "made": "The snapshot was made.",
    "deleted": "The snapshot was deleted.",
    "replayed": "It went back into the queue.",
    "all-replayed": "The dead letters went back into the queue.",
    "dropped": "The dead letter was dropped.",
    "all-dropped": "The dead letters were dropped.",
}

CAUSES: Final = {
    NACKED: "the consumer refused it",
    DEADLINE: "the consumer did not acknowledge it in time",
    DISCONNECTED: "the consumer's connection ended",
    TOO_LARGE: "it is larger than the consumer's Maximum Packet Size",
    OVERFLOW: "the queue was full",
    FILTERED: "it did not pass the queue's filter",
    EXPIRED: "it was older than it may be",
}
"""Why an attempt failed, or the queue gave a message up, in words."""


def add(dashboard: Dashboard) -> None:
    """The routes of this module."""
    shown, streams, context, pages, live = dashboard
    queueing = context.queueing
    assert queueing is not None, "the pages belong to it"

    async def listed(cursor: str) -> Any:
        """A page of the queues that are here. Raises `Problem`."""
        try:
            return await queueing.api.ask("GET", ("queues",), {"cursor": cursor, "limit": str(PAGE)})
        except Refused as error:
            raise problem_of(error) from None

    async def details(request: Request, name: str) -> Any:
        """A queue, at whatever node it is."""
        return {"push": None, "node": "", **to_node(request), **await ask_api(request, "GET", "queues", name)}

    @shown.get(QUEUES, Role.VIEWER)
    async def queues(request: Request, caller: Caller, cursor: str = "", done: str = "") -> Response:
        found = await listed(cursor)
        return pages.render(
            "queues.html",
            request,
            caller,
            queues=found["entries"],
            cursor=cursor,
            next_cursor=found["cursor"],
            count=len(queueing.queues.names),
            notice_text=NOTICES.get(done, ""),
            others=await at_other_nodes(context, request, "/api/v1/queues"),
        )

    @shown.post(f"{QUEUES}/{{action}}", Role.ADMIN)
    async def act_on_queues(request: Request, action: Literal["make", "change", "delete"]) -> Response:
        form = await form_of(request)
        name = await _subject(request)
        if action == "make":
            await ask_api(request, "POST", "queues", body=msgspec.json.encode(_options(form)))
            return redirect(QUEUE, name=name, done="queue-made")
        if action == "change":
            await ask_api(request, "PUT", "queues", name, body=field(form, "options").encode())
            return redirect(QUEUE, name=name, done="queue-changed", **to_node(request))
        await ask_api(request, "DELETE", "queues", name)
        return redirect(QUEUES, done="queue-deleted")

    @streams.get(f"{QUEUES}/live", Role.VIEWER)
    async def queues_stream(request: Request, cursor: str) -> Response:
        async def look() -> dict[str, Any]:
            return {"queues": (await listed(cursor))["entries"]}

        return live.stream(request, Role.VIEWER, look)

    @shown.get(QUEUE, Role.VIEWER)
    async def queue(request: Request, caller: Caller, name: str, cursor: str = "", done: str = "") -> Response:
        found = await details(request, name)
        letters = await ask_api(request, "GET", "dead-letters", name, fields={"limit": str(SHOWN), "cursor": cursor})
        messages = []
        if caller.may(Role.OPERATOR):
            fields = {"limit": str(PEEKED)}
            messages = (await ask_api(request, "GET", "queues", name, "messages", fields=fields))["messages"]
        return pages.render(
            "queue.html",
            request,
            caller,
            at_node=at_node(request),
            name=name,
            queue=found,
            snapshots=(await ask_api(request, "GET", "queues", name, "snapshots"))["items"],
            letters=letters["items"],
            cursor=cursor,
            next_cursor=letters["cursor"] or "",
            messages=messages,
            causes=CAUSES,
            options_text=msgspec.json.format(msgspec.json.encode(found["options"])).decode(),
            notice_text=NOTICES.get(done, ""),
        )

    @streams.get(f"{QUEUE}/live", Role.VIEWER)
    async def queue_stream(request: Request, name: str) -> Response:
        async def look() -> Any:
            return await details(request, name)

        return live.stream(request, Role.VIEWER, look)

    @shown.get(f"{QUEUE}/dead-letter", Role.OPERATOR)
    async def dead_letter(request: Request, caller: Caller, name: str, number: int) -> Response:
        found = await ask_api(request, "GET", "dead-letters", name, str(number))
        is_text = found["payload_encoding"] == "utf-8"
        return pages.render(
            "dead_letter.html",
            request,
            caller,
            name=name,
            letter=found,
            payload=found["payload"] if is_text else payload_of(found).hex(" "),
            causes=CAUSES,
        )

    @shown.post(f"{QUEUE}/{{action}}", Role.OPERATOR)
    async def act(request: Request, action: Literal["pause", "resume", "purge"]) -> Response:
        name = await _subject(request)
        if action == "purge":
            await ask_api(request, "DELETE", "queues", name, "messages")
        else:
            await ask_api(request, "POST", "queues", name, action)
        done = {"pause": "paused", "resume": "resumed", "purge": "purged"}[action]
        return redirect(QUEUE, name=name, done=done, **to_node(request))

    @shown.post(f"{QUEUE}/snapshots/{{action}}", Role.ADMIN)
    async def act_on_snapshots(request: Request, action: Literal["seek", "create", "delete"]) -> Response:
        form = await form_of(request)
        name = await _subject(request)
        if action == "seek":
            to = {key: form[key].strip() for key in ("time", "snapshot") if form.get(key)}
            await ask_api(request, "POST", "queues", name, "seek", body=msgspec.json.encode(to))
        elif action == "create":
            await ask_api(request, "POST", "queues", name, "snapshots", field(form, "snapshot").strip())
        else:
            await ask_api(request, "DELETE", "snapshots", field(form, "snapshot"))
        done = {"seek": "sought", "create": "made", "delete": "deleted"}[action]
        return redirect(QUEUE, name=name, done=done, **to_node(request))

    @shown.post(f"{QUEUE}/dead-letters/{{action}}", Role.OPERATOR)
    async def act_on_letters(request: Request, action: Literal["replay", "drop"]) -> Response:
        form = await form_of(request)
        name = await _subject(request)
        number = {"number": form["number"]} if form.get("number") else {}
        if action == "replay":
            await ask_api(request, "POST", "dead-letters", name, "replay", fields=number)
        else:
            await ask_api(request, "DELETE", "dead-letters", name, fields=number)
        done = "replayed" if action == "replay" else "dropped"
        return redirect(QUEUE, name=name, done=done if number else f"all-{done}", **to_node(request))


def _options(form: dict[str, str]) -> dict[str, Any]:
    """The options of the form that makes a queue; empty fields get their defaults. Raises `Problem`."""
    found: dict[str, Any] = {"name": field(form, "name").strip(), "filters": field(form, "filters").split()}
    for option in ("ack_deadline_s", "max_attempts"):
        text = form.get(option, "").strip()
        if text:
            if not text.isdecimal():
                raise Problem(Code.INVALID_VALUE, f"{option} is {text[:40]!r}: it is a whole number")
            found[option] = int(text)
    return found


async def _subject(request: Request) -> str:
    """The queue that a form is about; the audit log names it."""
    name = field(await form_of(request), "name").strip()
    request.scope["state"]["subject"] = name
    return name
