"""`/api/v1/api-keys`: list, make and revoke the API keys with which programs and people use the gateway.

The file is that of `mqttlite token`. Invariant: a key is shown once, in the answer to the request that made it.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request

from mqttlite.gateway.agreeing import agree
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes
from mqttlite.gateway.topic_routes import Done
from mqttlite.security.api_keys import ApiKey, ApiKeyFileError, KeyRole, with_new, without, write

MAX_USER: Final = 1_024
"""Characters of a user name, as in the rules."""

MAX_NOTE: Final = 200
"""Characters of a note: a line."""

MAX_LIFETIME_S: Final = 10 * 366 * 86_400
"""A key that is to live longer has no end."""


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    """The role, user and lifetime of a key."""

    role: KeyRole
    user: Annotated[str, Meta(min_length=1, max_length=MAX_USER)] | None = None
    """The user whose topics it may use, as over MQTT; None: no user's."""
    note: Annotated[str, Meta(max_length=MAX_NOTE)] = ""
    lifetime_s: Annotated[int, Meta(ge=1, le=MAX_LIFETIME_S)] | None = None
    """None: it never expires."""


class KeyEntry(msgspec.Struct):
    """A key without the key itself."""

    id: str
    role: KeyRole
    user: str | None
    note: str
    created_at: datetime
    expires_at: datetime | None


class MadeKey(KeyEntry):
    """A key that was made. Nothing can show it again."""

    key: str


class Keys(msgspec.Struct):
    """All keys, in the order in which they were made; 10,000 at most."""

    items: list[KeyEntry]
    cursor: None = None


class KeyChanges:
    """Makes and revokes keys, one change of the file at a time."""

    def __init__(self, context: GatewayContext) -> None:
        self._context: Final = context

    async def make(self, new: NewKey) -> tuple[str, ApiKey]:
        """The key, and its entry. Raises `Problem`."""
        context = self._context
        keys = context.api_keys
        if keys.path is None:
            raise Problem(
                Code.NOT_AVAILABLE, "the broker has no file of API keys: give it a data directory or http.api_key_file"
            )
        ends = None
        if new.lifetime_s is not None:
            ends = int(context.wall(context.clock()).timestamp()) + new.lifetime_s
        async with keys.document.lock:
            try:
                secret, entry, content = await asyncio.to_thread(
                    with_new, keys.path, new.role, new.user, ends, new.note
                )
                await agree(keys.document, content)
                await asyncio.to_thread(write, keys.path, content)
            except ApiKeyFileError as error:
                raise Problem(Code.BUSY, str(error)) from None
            keys.look_again()
        return secret, entry

    async def revoke(self, key_id: str) -> None:
        """Raises `Problem`."""
        keys = self._context.api_keys
        async with keys.document.lock:
            try:
                content = None if keys.path is None else await asyncio.to_thread(without, keys.path, key_id)
                if keys.path is None or content is None:
                    raise Problem(Code.NOT_FOUND, f"there is no API key {key_id[:80]!r}")
                await agree(keys.document, content)
                await asyncio.to_thread(write, keys.path, content)
            except ApiKeyFileError as error:
                raise Problem(Code.BUSY, str(error)) from None
            keys.look_again()


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1/api-keys", "keys")
    changes = KeyChanges(context)

    @route.get("", Role.ADMIN, "List API keys")
    async def list_keys() -> Keys:
        """List the keys without their secrets, which the broker does not know."""
        return Keys(items=[KeyEntry(**_entry(each)) for each in context.api_keys.entries()])

    @route.post("", Role.ADMIN, "Make an API key", status=201)
    async def make(new: NewKey, request: Request) -> MadeKey:
        """The answer is the only time that it is shown."""
        secret, entry = await changes.make(new)
        request.scope["state"]["subject"] = entry.id
        return MadeKey(key=secret, **_entry(entry))

    @route.delete("/{key_id}", Role.ADMIN, "Revoke an API key")
    async def revoke_key(key_id: str) -> Done:
        """Callers with this key are refused within a second, and their open streams end."""
        await changes.revoke(key_id)
        return Done(success=True)

    return route.made


def _entry(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "role": key.role,
        "user": key.user,
        "note": key.note,
        "created_at": datetime.fromtimestamp(key.created_at, UTC),
        "expires_at": None if key.expires_at is None else datetime.fromtimestamp(key.expires_at, UTC),
    }
