"""`/api/v1/topics`: create, list, show, change and delete topics, and list their subscribers.

A topic has an owner, its creator, and a policy, which is in force within a second. Invariant: only a caller that may
already use a topic can create it, so creating one neither grants nor takes away permissions on topics of others.
"""

import secrets
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.projects import project_of
from mqttlite.gateway.routing import Route, Routes
from mqttlite.operations.admin import subscribed_at
from mqttlite.security.topic_policies import Access, TopicClass
from mqttlite.security.topic_records import (
    DEFAULT_RETENTION_DAYS,
    MAX_GROUPS,
    MAX_MEMBERS,
    MAX_RETENTION_DAYS,
    MAX_TEXT,
    TopicRecord,
)
from mqttlite.topics.names import matches

MAX_PAGE: Final = 1_000
"""Entries of one page."""

LOOKED_AT: Final = 10_000
"""Topics or subscribers that one request looks at."""

Members = Annotated[list[str], Meta(max_length=MAX_MEMBERS)]
Groups = Annotated[list[str], Meta(max_length=MAX_GROUPS)]
Qos = Annotated[int, Meta(ge=0, le=2)]
Bytes = Annotated[int, Meta(ge=0, le=268_435_455)]
Seconds = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
SchemaReference = Annotated[str, Meta(max_length=300)]
"""A subject of the schema registry, or `subject:version`."""
Cursor = Annotated[str, Meta(max_length=65_535, description="Where the page begins: the cursor of the page before")]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE)]


Days = Annotated[int, Meta(ge=1, le=MAX_RETENTION_DAYS)]


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """A topic that is to be made."""

    name: Annotated[
        str, Meta(min_length=1, max_length=65_535, description="The topic's name in MQTT, without wildcards")
    ]
    permissions: Access = "PUBLIC"
    members: Members = []
    groups: Groups = []
    topic_class: TopicClass = msgspec.field(default="standard", name="class")
    ttl_s: Seconds = 0
    min_qos: Qos = 0
    max_qos: Qos = 2
    max_payload_bytes: Bytes = 0
    presence: bool = False
    tell_publisher: bool = False
    message_retention_days: Days = DEFAULT_RETENTION_DAYS
    description: Text = ""
    payload_schema: SchemaReference = msgspec.field(default="", name="schema")


class TopicChange(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of a topic; absent fields stay as they are."""

    permissions: Access | None = None
    members: Members | None = None
    groups: Groups | None = None
    topic_class: TopicClass | None = msgspec.field(default=None, name="class")
    ttl_s: Seconds | None = None
    min_qos: Qos | None = None
    max_qos: Qos | None = None
    max_payload_bytes: Bytes | None = None
    presence: bool | None = None
    tell_publisher: bool | None = None
    message_retention_days: Days | None = None
    description: Text | None = None
    payload_schema: SchemaReference | None = msgspec.field(default=None, name="schema")


class TopicInfo(msgspec.Struct):
    """A topic."""

    topic_id: str
    project_id: str | None
    """Of a topic of Google Pub/Sub, `{project}/{topic}`; None for any other."""
    name: str
    owner_id: str | None
    permissions: Access
    members: list[str]
    groups: list[str]
    topic_class: TopicClass = msgspec.field(name="class")
    ttl_s: int
    min_qos: int
    max_qos: int
    max_payload_bytes: int
    presence: bool
    """Whether the broker says who subscribes."""
    tell_publisher: bool
    """Whether every subscriber is told who published a message."""
    message_retention_days: int
    """How long its subscriptions keep unacknowledged messages, unless they set a time of their own."""
    description: str
    payload_schema: str = msgspec.field(name="schema")
    created_at: datetime
    subscriber_count: int


class MemberList(msgspec.Struct):
    """The users that may publish and subscribe to a topic, beside its owner."""

    members: list[str]
    groups: list[str]


class TopicPage(msgspec.Struct):
    """Some of the topics, in the order of their names."""

    topics: list[TopicInfo]
    cursor: str | None
    """Of the next page; None on the last one."""


class Subscriber(msgspec.Struct):
    """One client that subscribes to a topic."""

    subscription_id: str
    topic_id: str
    user_id: str | None
    client_id: str
    connection_id: int | None
    """None while the client is away and its session waits for it."""
    connected_at: datetime | None
    subscribed_at: datetime | None
    """Since when, also over a reconnect and a restart; None: an earlier version of the broker kept the subscription."""
    qos: int
    topic_filter: str


class SubscriberPage(msgspec.Struct):
    """Some of the subscribers, in the order of their client identifiers."""

    subscribers: list[Subscriber]
    count: int
    """Of all of them, with the queues that take its messages."""
    cursor: str | None


class Done(msgspec.Struct):
    success: bool


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1/topics", "topics")
    topics = context.topics
    permissions = context.core.permissions
    mount_point = context.mount_point

    def info(topic: TopicRecord) -> TopicInfo:
        subscriptions, others = context.core.subscribers(topic.name.encode())
        return TopicInfo(
            topic_id=topic.topic_id,
            project_id=project_of(topic.name),
            name=mount_point.shown(topic.name),
            owner_id=topic.owner,
            permissions=topic.permissions,
            members=list(topic.members),
            groups=list(topic.groups),
            topic_class=topic.topic_class,
            ttl_s=topic.ttl_s,
            min_qos=topic.min_qos,
            max_qos=topic.max_qos,
            max_payload_bytes=topic.max_payload_bytes,
            presence=topic.presence,
            tell_publisher=topic.tell_publisher,
            message_retention_days=topic.message_retention_days,
            description=topic.description,
            payload_schema=topic.payload_schema,
            created_at=datetime.fromtimestamp(topic.created_at, UTC),
            subscriber_count=len(subscriptions) + others,
        )

    def may_see(caller: Caller, topic: TopicRecord) -> bool:
        name = topic.name.encode()
        return (
            caller.may(Role.VIEWER)
            or (topic.owner is not None and topic.owner == caller.username)
            or permissions.may_publish(caller.source, name)
            or permissions.may_receive(caller.source, name)
        )

    def seen(caller: Caller, topic_id: str) -> TopicRecord:
        topic = topics.get(topic_id)
        if topic is None or not may_see(caller, topic):  # the same for both: its name is not for everybody
            raise Problem(Code.NOT_FOUND, f"there is no topic {topic_id[:80]!r}, or the caller may not use it")
        return topic

    def owned(caller: Caller, topic_id: str) -> TopicRecord:
        topic = seen(caller, topic_id)
        is_its = topic.owner == caller.username and (topic.owner is not None or topic.is_plain)
        if not is_its and not caller.may(Role.ADMIN):
            raise Problem(Code.NOT_AUTHORIZED, "only the owner of the topic and an admin may do this")
        return topic

    def check_policy(caller: Caller, topic: TopicRecord) -> None:
        """Raises `Problem` for a policy that is not the caller's to give: that of a single topic comes before those of
        the configuration."""
        if topic.is_plain or caller.may(Role.ADMIN):
            return
        if caller.username is None:
            raise Problem(Code.NOT_AUTHORIZED, "a topic without an owner has no policy: log in first")
        name = topic.name.encode()
        for each in context.live_rules.policies:
            if each.owner != caller.username and matches(each.topic_filter(), name):
                raise Problem(
                    Code.NOT_AUTHORIZED,
                    f"the configuration has a policy for {each.prefix or each.filter!r}: only its owner and an admin "
                    "may make another one for a topic there",
                )

    def record(values: dict[str, Any]) -> TopicRecord:
        try:
            return TopicRecord(**values)
        except ValueError as error:
            raise Problem(Code.INVALID_VALUE, str(error)) from None

    async def changed(
        caller: Caller, topic_id: str, changes: Callable[[TopicRecord], Mapping[str, Any]]
    ) -> TopicRecord:
        owned(caller, topic_id)

        def change(topic: TopicRecord) -> TopicRecord:
            owned(caller, topic_id)  # another change may have come first
            changed = record(
                {**{name: getattr(topic, name) for name in msgspec.structs.asdict(topic)}, **changes(topic)}
            )
            check_policy(caller, changed)
            return changed

        return await topics.change(topic_id, change, is_limited=not caller.may(Role.ADMIN))

    @route.post("", Role.USER, "Make a topic; the caller becomes its owner", status=201, answer=TopicInfo)
    async def create(caller: Caller, body: NewTopic) -> Response:
        least = context.options.topic_creation
        if not caller.may(Role[least.upper()]):
            raise Problem(
                Code.NOT_AUTHORIZED, f"topics are made by callers with the role {least}: [http] topic_creation says so"
            )
        given = msgspec.structs.asdict(body)
        topic = record(
            {
                **given,
                "name": mount_point.topic_of(body.name).decode(),
                "topic_id": f"t-{secrets.token_hex(8)}",
                "owner": caller.username,
                "members": tuple(body.members),
                "groups": tuple(body.groups),
                "created_at": context.wall(context.clock()).timestamp(),
            }
        )
        name = topic.name.encode()
        if not caller.may(Role.ADMIN) and not (
            permissions.may_publish(caller.source, name) and permissions.may_receive(caller.source, name)
        ):
            raise Problem(
                Code.NOT_AUTHORIZED,
                "only a user that may publish and subscribe to a topic, or an admin, may make it",
            )
        check_policy(caller, topic)
        await topics.add(topic, is_limited=not caller.may(Role.ADMIN))
        headers = {"Location": f"/api/v1/topics/{topic.topic_id}"}
        return Response(msgspec.json.encode(info(topic)), 201, headers, "application/json")

    @route.get("", Role.USER, "List the topics that the caller may see")
    async def list_topics(caller: Caller, cursor: Cursor = "", limit: Limit = 100) -> TopicPage:
        found: list[TopicInfo] = []
        prefix = mount_point.prefix.decode()
        for looked_at, topic in enumerate(topics.from_name(prefix + cursor)):
            name = mount_point.shown(topic.name)
            if not name:  # and those behind it are not below it either
                break
            if len(found) == limit or looked_at == LOOKED_AT:
                return TopicPage(topics=found, cursor=name)
            if may_see(caller, topic):
                found.append(info(topic))
        return TopicPage(topics=found, cursor=None)

    @route.get("/{topic_id}", Role.USER, "Show a topic")
    async def show(caller: Caller, topic_id: str) -> TopicInfo:
        return info(seen(caller, topic_id))

    @route.patch("/{topic_id}", Role.USER, "Change a topic")
    async def change(caller: Caller, topic_id: str, body: TopicChange) -> TopicInfo:
        given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not None}
        changes = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        return info(await changed(caller, topic_id, lambda _topic: changes))

    @route.get("/{topic_id}/members", Role.USER, "List the members and groups of a topic")
    async def members(caller: Caller, topic_id: str) -> MemberList:
        topic = seen(caller, topic_id)
        return MemberList(members=list(topic.members), groups=list(topic.groups))

    def add_one(kind: str) -> Callable[..., Awaitable[Done]]:
        async def add(caller: Caller, topic_id: str, name: str) -> Done:
            """It is there afterwards, also if it was before."""

            def with_one(topic: TopicRecord) -> dict[str, Any]:
                names: tuple[str, ...] = getattr(topic, kind)
                return {kind: names if name in names else (*names, name)}

            await changed(caller, topic_id, with_one)
            return Done(success=True)

        return add

    def remove_one(kind: str) -> Callable[..., Awaitable[Done]]:
        async def remove(caller: Caller, topic_id: str, name: str) -> Done:

            def without(topic: TopicRecord) -> dict[str, Any]:
                names: tuple[str, ...] = getattr(topic, kind)
                if name not in names:
                    raise Problem(Code.NOT_FOUND, f"{name[:80]!r} is none of the {kind} of the topic")
                return {kind: tuple(each for each in names if each != name)}

            await changed(caller, topic_id, without)
            return Done(success=True)

        return remove

    for kind, what in (("members", "a member"), ("groups", "a group")):
        path = f"/{{topic_id}}/{kind}/{{name}}"
        route.put(path, Role.USER, f"Add {what} to a topic")(add_one(kind))
        route.delete(path, Role.USER, f"Remove {what} from a topic")(remove_one(kind))

    @route.delete("/{topic_id}", Role.USER, "Forget a topic; its name stays in use as any other")
    async def delete(caller: Caller, topic_id: str) -> Done:
        owned(caller, topic_id)
        await topics.remove(topic_id)
        return Done(success=True)

    @route.get("/{topic_id}/subscribers", Role.USER, "List the subscribers of a topic; for its owner, and viewers")
    async def subscribers(caller: Caller, topic_id: str, cursor: Cursor = "", limit: Limit = 100) -> SubscriberPage:
        topic = seen(caller, topic_id)
        if (topic.owner is None or topic.owner != caller.username) and not caller.may(Role.VIEWER):
            raise Problem(Code.NOT_AUTHORIZED, "only the owner of the topic and viewers may see its subscribers")
        subscriptions, others = context.core.subscribers(topic.name.encode())
        subscriptions.sort(key=lambda each: each.client_id)
        start = bisect_left(subscriptions, cursor, key=lambda each: each.client_id)
        found: list[Subscriber] = []
        for each in subscriptions[start : start + limit]:
            session = context.core.sessions.get(each.client_id)
            assert session is not None, "subscriptions belong to sessions"
            link = None if session.outbox is None else context.loop_driver.links.get(session.outbox.number)
            found.append(
                Subscriber(
                    subscription_id=f"{each.client_id} {each.topic_filter.decode(errors='replace')}",
                    topic_id=topic_id,
                    user_id=session.username,
                    client_id=each.client_id,
                    connection_id=None if session.outbox is None else session.outbox.number,
                    connected_at=None if link is None else context.wall(link.connection.connected_at),
                    subscribed_at=subscribed_at(each),
                    qos=each.qos,
                    topic_filter=each.topic_filter.decode(errors="replace"),
                )
            )
        rest = subscriptions[start + limit : start + limit + 1]
        return SubscriberPage(
            subscribers=found, count=len(subscriptions) + others, cursor=rest[0].client_id if rest else None
        )

    return route.made
