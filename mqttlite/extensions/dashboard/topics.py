"""The topics pages: a tree, and a page for each topic with its retained message and permissions.

A caller sees the topics that the rules let it receive. Invariant: a retained message is changed as a client changes
it, by publishing, with the permissions of the caller.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.core.broker import Broker
from mqttlite.core.message import Message
from mqttlite.core.route.subscription import Subscription
from mqttlite.extensions.dashboard import topic_levels, words
from mqttlite.extensions.dashboard.forms import field, form_of
from mqttlite.extensions.dashboard.live import Live
from mqttlite.extensions.dashboard.pages import Pages, redirect
from mqttlite.extensions.dashboard.topic_watch import Seen, TopicWatch
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.publishing import Draft, Publishing
from mqttlite.gateway.routing import Routes
from mqttlite.operations.admin import subscribed_at
from mqttlite.security import rulings
from mqttlite.topics.names import check_name
from mqttlite.wire.errors import TopicNameInvalid

TOPIC: Final = "/ui/topic"

SHOWN: Final = 500
"""Characters of the last message on the page of a topic."""

MAX_SUBSCRIBERS: Final = 100
"""Subscribers, and queues, that the page of a topic names."""

NOTICES: Final = {"retained": "The message is retained.", "cleared": "The retained message was cleared."}

Form = Literal["", "text", "json", "hex"]


def add(shown: Routes, streams: Routes, context: GatewayContext, pages: Pages, live: Live) -> None:
    """The routes of this module."""
    core = context.core
    publishing = Publishing(context)

    def may_see(caller: Caller, topic: bytes) -> bool:
        return core.permissions.may_receive(caller.source, topic)

    def retained_on(topic: bytes) -> Message | None:
        found = core.router.retained.search(topic).take(1)
        return None if not found or 0.0 < found[0].expires_at <= context.clock() else found[0]

    @shown.get("/ui/topics", Role.VIEWER)
    async def topics(request: Request, caller: Caller, below: str | None = None) -> Response:
        if below is not None:
            _check(below)
        level = await topic_levels.look(core.router.retained, below, lambda topic: may_see(caller, topic))
        return pages.render("topics.html", request, caller, below=below, level=level, path_of=_path_of)

    @streams.get("/ui/topics/live", Role.VIEWER)
    async def tree_stream(
        request: Request, caller: Caller, view: Literal["tree"], below: str | None = None
    ) -> Response:
        prefix = b"" if below is None else _check(below) + b"/"
        watch = TopicWatch(core, prefix + b"#")

        async def look() -> dict[str, Any]:
            return {"levels": _levels(watch.take(caller.source), prefix)}

        return live.stream(request, Role.VIEWER, look, watch.end)

    @streams.get(f"{TOPIC}/live", Role.VIEWER)
    async def topic_stream(request: Request, caller: Caller, name: str) -> Response:
        encoded = _check(name)
        watch = TopicWatch(core, encoded)

        async def look() -> dict[str, Any]:
            seen = watch.take(caller.source).get(encoded)
            value = None if seen is None else words.preview_of(seen.payload, seen.payload_bytes, SHOWN)
            return {"messages": 0 if seen is None else seen.messages, "value": value}

        return live.stream(request, Role.VIEWER, look, watch.end)

    @shown.get(TOPIC, Role.VIEWER)
    async def topic(
        request: Request,
        caller: Caller,
        name: str,
        form: Form = "",
        done: str = "",
        user: str = "",
        client_id: str = "",
    ) -> Response:
        encoded = _check(name)
        is_visible = may_see(caller, encoded)
        message = retained_on(encoded) if is_visible else None
        policy = None
        if context.live_rules.rules is not None:
            policy = context.live_rules.rules.policies.find(encoded)
        asked: list[rulings.Answer] = []
        if user or client_id:
            asked = [rulings.ask(core, action, name, user or None, client_id) for action in ("publish", "receive")]
        queueing = context.queueing
        subscriptions, others = core.subscribers(encoded)
        subscriptions.sort(key=lambda each: each.client_id)
        return pages.render(
            "topic.html",
            request,
            caller,
            name=name,
            is_visible=is_visible,
            message=message,
            made=context.topics.named(name),
            views={} if message is None else _views(message.payload),
            path_of=_path_of,
            form=form or ("text" if message is None else _best_form(message.payload)),
            at=None if message is None else _published_at(message),
            notice_text=NOTICES.get(done, ""),
            policy=policy,
            subscribers=[_subscriber(core, each) for each in subscriptions[:MAX_SUBSCRIBERS]],
            subscriber_count=len(subscriptions),
            other_receivers=others,
            queues=[] if queueing is None else queueing.queues.bound_to(encoded)[:MAX_SUBSCRIBERS],
            streams=[] if context.streams is None else context.streams.bound_to(encoded)[:MAX_SUBSCRIBERS],
            users=rulings.of_users(core, name, await context.user_names()),
            user=user,
            client_id=client_id,
            asked=asked,
            max_users=rulings.MAX_USERS,
        )

    @shown.post(f"{TOPIC}/retain", Role.OPERATOR)
    async def retain(request: Request, caller: Caller) -> Response:
        form = await form_of(request)
        name, payload, qos = (field(form, each) for each in ("name", "payload", "qos"))
        request.scope["state"]["subject"] = name
        if qos not in ("0", "1", "2"):
            raise Problem(Code.INVALID_VALUE, f"QoS is {qos[:20]!r}: it may be 0, 1 or 2")
        if not payload:
            raise Problem(Code.INVALID_VALUE, "a message without payload clears what is retained: use Clear for that")
        sent = payload.replace("\r\n", "\n").encode()  # browsers send line ends as \r\n
        await publishing.publish(caller, Draft(_check(name), sent, int(qos), True))
        return redirect(TOPIC, name=name, done="retained")

    @shown.post(f"{TOPIC}/clear", Role.OPERATOR)
    async def clear(request: Request, caller: Caller) -> Response:
        name = field(await form_of(request), "name")
        request.scope["state"]["subject"] = name
        await publishing.publish(caller, Draft(_check(name), b"", 0, True))
        return redirect(TOPIC, name=name, done="cleared")


def _subscriber(core: Broker, subscription: Subscription) -> dict[str, Any]:
    """A subscriber, as the page of a topic shows it."""
    session = core.sessions.get(subscription.client_id)
    assert session is not None, "subscriptions belong to sessions"
    return {
        "client_id": session.client_id,
        "user": session.username,
        "topic_filter": subscription.topic_filter.decode(errors="replace"),
        "qos": subscription.qos,
        "since": subscribed_at(subscription),
        "is_connected": session.outbox is not None,
        "queued": session.queued,
        "dropped": sum(session.drops.values()),
    }


def _check(name: str) -> bytes:
    """The topic in bytes. Raises `Problem`."""
    try:
        encoded = name.encode()
        check_name(encoded)
    except (TopicNameInvalid, UnicodeEncodeError) as error:
        raise Problem(Code.INVALID_TOPIC, f"{name[:200]!r} is no topic: {error}") from None
    return encoded


def _levels(seen: Mapping[bytes, Seen], prefix: bytes) -> list[dict[str, Any]]:
    """Messages below a topic, by level."""
    found: dict[str, dict[str, Any]] = {}
    for topic, each in seen.items():
        if not topic.startswith(prefix):  # the topic above, which the filter matches, too
            continue
        name, slash, _ = topic[len(prefix) :].decode().partition("/")
        level = found.setdefault(name, {"name": name, "messages": 0, "value": None, "has_below": False})
        level["messages"] += each.messages
        if slash:
            level["has_below"] = True
        else:
            level["value"] = words.preview_of(each.payload, each.payload_bytes)
    return list(found.values())[: topic_levels.MAX_ROWS]


def _path_of(name: str) -> list[tuple[str, str]]:
    """Each level of a topic, with the topic down to it."""
    levels = name.split("/")
    return [(level, "/".join(levels[: depth + 1])) for depth, level in enumerate(levels)]


def _views(payload: bytes) -> dict[str, str | None]:
    return {"text": words.as_text(payload), "json": words.as_json(payload), "hex": words.as_hex(payload)}


def _best_form(payload: bytes) -> str:
    if not words.is_text(payload):
        return "hex"
    return "json" if payload.lstrip()[:1] in (b"{", b"[") and words.as_json(payload) is not None else "text"


def _published_at(message: Message) -> Any:
    return datetime.fromtimestamp(message.number / 1e6, UTC) if message.number else None
