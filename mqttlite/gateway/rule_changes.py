"""`PUT` and `DELETE /api/v1/users/{user}`, `/api/v1/acl/text`: the files of users and rules, changed over HTTP.

They stay files: what is changed here is what `mqttlite passwd` or an editor changes. Invariant: a file gets new content
only if the broker can use it, and the answer leaves when it is on disk and in force.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from mqttlite.gateway.agreeing import agree, agreeing
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes
from mqttlite.gateway.topic_routes import Done
from mqttlite.security.acl_file import AclFileError
from mqttlite.security.keys import TextError, keys_of
from mqttlite.security.password_file import (
    ITERATIONS,
    PasswordFileError,
    check_name,
    content_with_user,
    content_without_user,
    delete_user,
    new_salt,
    set_user,
)

if TYPE_CHECKING:
    from mqttlite.security.passwords import PasswordAuthenticator

MAX_PASSWORD: Final = 1_000
"""Characters: hashing more costs an admin's request more, and is no safer."""

File = Annotated[str, Meta(max_length=4_096, description="Which password file, where there are several")] | None

_TEXT: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}}
}


class Password(msgspec.Struct, forbid_unknown_fields=True):
    """The new password of a user."""

    password: Annotated[str, Meta(max_length=MAX_PASSWORD)]


class ChangedUser(msgspec.Struct):
    """A user of a password file."""

    user: str
    added: bool
    """Whether there was none of that name."""
    file: str


class RuleCount(msgspec.Struct):
    """The ACL file in force."""

    file: str
    count: int
    """Its rules."""


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "rules")

    @route.put("/users/{user}", Role.ADMIN, "Give a user a password, in a password file")
    async def set_password(user: str, given: Password, file: File = None) -> ChangedUser:
        """The broker keeps what checks it, and not the password."""
        passwords = _file_of(context, file)
        path = Path(passwords.path)
        try:
            name = check_name(user)
            entry = await asyncio.to_thread(keys_of, given.password, new_salt(), ITERATIONS)
        except TextError as error:
            raise Problem(Code.INVALID_VALUE, str(error)) from None
        document = context.password_documents[path]
        async with document.lock:
            try:
                if document.agreeing is not None:
                    await agree(document, await asyncio.to_thread(content_with_user, path, name, entry))
                added = await asyncio.to_thread(set_user, path, name, entry, create=False)
            except PasswordFileError as error:
                raise Problem(Code.BUSY, str(error)) from None
            await passwords.reload()
        return ChangedUser(user=name, added=added, file=str(path))

    @route.delete("/users/{user}", Role.ADMIN, "Remove a user from a password file")
    async def remove(user: str, file: File = None) -> Done:
        """Its clients are disconnected within a second."""
        passwords = _file_of(context, file)
        path = Path(passwords.path)
        document = context.password_documents[path]
        async with document.lock:
            await passwords.users()
            if not passwords.knows(user):
                raise Problem(Code.NOT_FOUND, f"{passwords.path} has no user {user[:80]!r}")
            try:
                if document.agreeing is not None:
                    await agree(document, await asyncio.to_thread(content_without_user, path, user))
                await asyncio.to_thread(delete_user, path, user)
            except PasswordFileError as error:
                raise Problem(Code.BUSY, str(error)) from None
            await passwords.reload()
        return Done(success=True)

    @route.get("/acl/text", Role.ADMIN, "The text of the ACL file")
    async def text() -> PlainTextResponse:
        path = _acl_file(context)
        try:
            return PlainTextResponse(await asyncio.to_thread(path.read_bytes))
        except OSError as error:
            raise Problem(Code.BUSY, f"{path} cannot be read: {error.strerror}") from None

    @route.put("/acl/text", Role.ADMIN, "Put other rules into the ACL file", operation=_TEXT)
    async def replace(request: Request) -> RuleCount:
        """All of it: what is not there holds no longer. Nothing is changed where a line is wrong."""
        path = _acl_file(context)
        try:
            with agreeing():
                count = await context.live_rules.replace_file(await request.body())
        except AclFileError as error:
            errors = [_line_and_sentence(each, path.name) for each in error.problems]
            raise Problem(Code.INVALID_VALUE, error.problems[0], errors=errors) from None
        except OSError as error:
            raise Problem(Code.BUSY, f"{path} cannot be written: {error.strerror}") from None
        return RuleCount(file=str(path), count=count)

    return route.made


def _line_and_sentence(problem: str, name: str) -> dict[str, str]:
    """The mistakes in a file, in the form of other requests' `errors`."""
    line, colon, sentence = problem.removeprefix(f"{name}:").partition(": ")
    if not colon or not line.isdecimal():
        return {"at": "", "message": problem}
    return {"at": f"line {line}", "message": sentence}


def _file_of(context: GatewayContext, file: str | None) -> "PasswordAuthenticator":
    """The users of a file. Raises `Problem`."""
    known = {str(each.path): each for each in context.passwords}
    if not known:
        raise Problem(
            Code.NOT_AVAILABLE,
            "the broker has no password file: users are those of dynamic security, tokens, certificates or another "
            "server",
        )
    if file is None and len(known) > 1:
        raise Problem(Code.INVALID_VALUE, f"file is missing: there are {', '.join(sorted(known))}")
    found = next(iter(known.values())) if file is None else known.get(file)
    if found is None:
        raise Problem(Code.NOT_FOUND, f"{file!r} is no password file of this broker")
    return found


def _acl_file(context: GatewayContext) -> Path:
    """Raises `Problem`."""
    path = context.live_rules.acl_file
    if path is None:
        raise Problem(Code.NOT_AVAILABLE, "the configuration has no acl_file: rules are policies, or dynamic security")
    return Path(path)
