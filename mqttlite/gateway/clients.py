"""`/api/v1/clients`: list, show, disconnect and end clients and their sessions; their queues; and bans.

`admin` carries out the actions. Invariant: only operators see payloads, whatever the topic rules say.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request

from mqttlite.gateway.agreeing import agreeing
from mqttlite.gateway.caller import Caller, Callers, Role, SocketCallers
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.lists import MAX_TEXT, Cursor, Limit, Listed, listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.gateway.topic_routes import Done
from mqttlite.operations.admin import (
    Admin,
    BanEntry,
    ClientDetails,
    ClientEntry,
    QueuedMessage,
    Removal,
    payload_as_text,
)
from mqttlite.operations.bans import (
    MAX_BAN_S,
    MAX_BANS,
    MAX_REASON,
    BanKind,
    BanRefused,
    TooManyBans,
    address_in,
    address_of,
)


class Waiting(msgspec.Struct):
    """A message that waits for a client and was never sent to it."""

    sequence: int
    message_id: str | None
    published_at: datetime | None
    topic: str
    qos: int
    retain: bool
    payload: str
    """Text, or base64; its beginning where the answer has no room for more."""
    payload_encoding: Literal["utf-8", "base64"]
    payload_bytes: int
    expires_at: datetime | None


class Queue(msgspec.Struct):
    """The first messages of a queue, in the order in which they will be sent."""

    items: list[Waiting]
    waiting: int
    """How many there are in all."""


BanValue = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]


class NewBan(msgspec.Struct, forbid_unknown_fields=True):
    """A ban to make: its subject and duration."""

    kind: BanKind
    value: BanValue
    """A client identifier, a user name, or an IP address."""
    duration_s: Annotated[float, Meta(gt=0, le=MAX_BAN_S)]
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""


class Banned(msgspec.Struct):
    """A ban, and how many clients were disconnected for it."""

    ban: BanEntry
    disconnected: int
    """At the node that was asked. Others disconnect theirs within a second."""


class Lifted(msgspec.Struct):
    """Whether there was a ban."""

    lifted: bool


class Bans(msgspec.Struct):
    """All bans that have not ended, the earliest first."""

    items: list[BanEntry]


class Connections(msgspec.Struct):
    """The connections of one user."""

    items: list[ClientEntry]
    count: int
    """How many there are; `items` has the first 1,000."""


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "clients", served_on=OPERATORS, reach=Reach.THING)
    admin = context.admin

    @route.get("/clients", Role.VIEWER, "List clients and sessions", reach=Reach.LIST)
    async def list_clients(
        cursor: Cursor = "",
        limit: Limit = 100,
        contains: Annotated[str, Meta(max_length=MAX_TEXT, description="A part of the client identifier.")] = "",
        user: Annotated[str, Meta(max_length=MAX_TEXT)] | None = None,
        connected: bool | None = None,
        backlog: Annotated[bool | None, Meta(description="Whether messages wait for it.")] = None,
    ) -> Listed[ClientEntry]:
        """By client identifier. With filters a page may have fewer entries than `limit`, and still a cursor."""
        return listed(await admin.clients(cursor, limit, contains, connected, user=user, has_backlog=backlog))

    @route.get("/clients/{client_id}", Role.VIEWER, "Show a client")
    async def show_client(client_id: str) -> ClientDetails:
        """Its connection, subscriptions, window, queue, and drops by reason."""
        found = admin.client(client_id)
        if found is None:
            raise _no_session(client_id)
        return found

    @route.post("/clients/{client_id}/disconnect", Role.OPERATOR, "Disconnect a client")
    async def disconnect(client_id: str) -> Done:
        """Its session stays, and it may come again: ban it to keep it out."""
        if not admin.kick(client_id):
            raise Problem(Code.NOT_FOUND, f"the client {client_id!r} is not connected")
        return Done(success=True)

    @route.delete("/clients/{client_id}/session", Role.OPERATOR, "End a session")
    async def end_session(client_id: str) -> Done:
        """The connection is closed, and subscriptions and queued messages are forgotten."""
        if not admin.end_session(client_id):
            raise _no_session(client_id)
        return Done(success=True)

    @route.get("/clients/{client_id}/queue", Role.OPERATOR, "Look at a queue")
    async def peek_queue(client_id: str, limit: Limit = 10) -> Queue:
        """The first messages that wait; they stay where they are."""
        found = await admin.peek_queue(client_id, limit)
        if found is None:
            raise _no_session(client_id)
        return Queue(items=[_waiting(each) for each in found.messages], waiting=found.waiting)

    @route.delete("/clients/{client_id}/queue", Role.OPERATOR, "Drop what waits")
    async def purge_queue(client_id: str, dry_run: bool = False) -> Removal:
        """Call again until it is `complete`. Each message counts as dropped, with the reason `purged`."""
        found = await admin.purge_queue(client_id, dry_run=dry_run)
        if found is None:
            raise _no_session(client_id)
        return found

    @route.get("/users/{user}/connections", Role.VIEWER, "The connections of a user", reach=Reach.LIST)
    async def connections(user: str) -> Connections:
        """Clients that are connected as this user."""
        found, count = admin.connections_of(user)
        return Connections(items=found, count=count)

    @route.get("/bans", Role.VIEWER, "List bans", reach=Reach.HERE)
    async def list_bans() -> Bans:
        """They are in memory: a restart lifts them. Those of several nodes hold at all of them, until they end."""
        return Bans(items=[admin.in_utc(ban) for ban in admin.bans.list()])

    async def may_ban(request: Request, ban: NewBan, caller: Caller) -> None:
        check_ban(ban, caller, request.app.callers)

    @route.post(
        "/bans", Role.OPERATOR, "Ban a client, a user or an address", status=201, reach=Reach.HERE, check=may_ban
    )
    async def add_ban(request: Request, ban: NewBan, caller: Caller) -> Banned:
        """Its connections are closed, and CONNECT is refused (0x8A) until the ban ends."""
        return await put_ban(admin, ban, caller, request.app.callers)

    @route.delete("/bans", Role.OPERATOR, "Lift the ban of a client, a user or an address", reach=Reach.HERE)
    async def lift_ban_of(kind: BanKind, value: BanValue) -> Lifted:
        """Whatever its number is."""
        with agreeing():
            return Lifted(lifted=await admin.shared_bans.lift_of(kind, value))

    @route.delete("/bans/{ban_id}", Role.OPERATOR, "Lift a ban", reach=Reach.HERE)
    async def lift_ban(ban_id: int) -> Done:
        """The client, user or address may come again."""
        with agreeing():
            lifted = await admin.shared_bans.lift(ban_id)
        if lifted is None:
            raise Problem(Code.NOT_FOUND, f"there is no ban {ban_id}, or it has ended")
        return Done(success=True)

    return route.made


def check_ban(ban: NewBan, caller: Caller, callers: Callers | SocketCallers) -> None:
    """Refuse a ban of the caller, or of who has a higher role here, at whatever node it is to hold. Raises
    `Problem`."""
    try:
        value = address_in(ban.value) if ban.kind == "address" else ban.value
    except BanRefused as error:
        raise Problem(Code.INVALID_VALUE, str(error)) from None
    own = {"user": caller.username, "client": caller.client_id, "address": address_of(caller.peer)}
    if value == own[ban.kind]:
        raise Problem(Code.CONFLICT, f"this is the {ban.kind} of the caller, who would be kept out")
    highest = callers.highest_role(ban.kind, value)
    if highest > caller.role:
        raise Problem(
            Code.NOT_AUTHORIZED,
            f"the {ban.kind} has the role {highest.name.lower()}, and the caller has {caller.role.name.lower()}",
        )


async def put_ban(admin: Admin, ban: NewBan, caller: Caller, callers: Callers | SocketCallers) -> Banned:
    """Ban a client, but nobody whom the caller may not ban. Raises `Problem`."""
    check_ban(ban, caller, callers)
    try:
        with agreeing():
            made, disconnected = await admin.ban(
                ban.kind, ban.value, ban.duration_s, ban.reason, caller.username or caller.how
            )
    except BanRefused as error:
        raise Problem(Code.INVALID_VALUE, str(error)) from None
    except TooManyBans:
        raise Problem(Code.QUOTA_EXCEEDED, f"there are {MAX_BANS} bans, which is the limit: lift some") from None
    return Banned(ban=admin.in_utc(made), disconnected=disconnected)


def _no_session(client_id: str) -> Problem:
    return Problem(Code.NOT_FOUND, f"the client {client_id!r} has no session")


def _waiting(message: QueuedMessage) -> Waiting:
    """A message with its payload as text, or as base64 where it is no UTF-8."""
    text, encoding = payload_as_text(message.payload, is_cut=len(message.payload) < message.payload_bytes)
    return Waiting(**{**asdict(message), "payload": text, "payload_encoding": encoding})
