"""The topic of the commands: `$CONTROL/dynamic-security/v1`, a `Sink` with one task behind it.

Requests are handled one after another. Each changes a copy of the state, which is used after all nodes have agreed and
it is saved. Invariants: a confirmed change is on disk, and a change that is refused or cannot be saved never holds; a
file that somebody has edited is used or left alone, and never overwritten by what was there before. A request whose
sender was let in by users and rules that an edit or another node has replaced since is refused, and so is one whose
sender lost the right to send it by a request before it.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqttlite.core.message import Message
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import DROPPED, QUOTA_EXCEEDED, SENT, Tally
from mqttlite.core.source import Source
from mqttlite.extensions.dynamic_security.command import Change, Command, CommandError
from mqttlite.extensions.dynamic_security.commands import NAME_OF, SETS_PASSWORD, WRITERS, execute
from mqttlite.extensions.simple_sink import SimpleSink
from mqttlite.files.atomic_file import save
from mqttlite.files.file_version import NO_FILE, Version, version_of
from mqttlite.files.shared_document import NotAgreed, SharedDocument
from mqttlite.security.dynamic_security.document import DynamicSecurityError, Json, dump, is_text, parse, small_keys
from mqttlite.security.dynamic_security.model import State
from mqttlite.security.dynamic_security.passwords import MAX_PASSWORD_BYTES, Passwords
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.hashes import PasswordHash

TOPIC: Final = b"$CONTROL/dynamic-security/v1"
RESPONSE_TOPIC: Final = b"$CONTROL/dynamic-security/v1/response"

TITLE: Final = "dynamic security"
"""What explanations call it."""

MAX_REQUEST_BYTES: Final = 256 * 1024
"""The largest request: more than a thousand commands, parsed in some milliseconds."""

MAX_COMMANDS: Final = 1_000
"""The most commands in a request, which may hash a thousand passwords in up to ten seconds."""

MAX_WAITING: Final = 100
"""Requests that wait. One more is refused with Quota exceeded (0x97)."""

_log = logging.getLogger("mqttlite.security")


class Port(NamedTuple):
    """The functions of the broker that commands need."""

    respond: Callable[[str, bytes, bytes], bool]
    """Send a payload on a topic to a client, by its identifier. False if it is gone or has not subscribed."""
    apply: Callable[[], None]
    """Make the core use the changed rules."""
    kick: Callable[[frozenset[str | None]], Awaitable[None]]
    """End the connections of these users; None: of clients without user name."""
    connections: Callable[[str, str | None], list[str]]
    """The addresses of a user's connections, or of its one with a client identifier."""
    may_send: Callable[[Source], bool]
    """Whether a client may send requests now."""


class _Edited(Exception):
    """Somebody has edited the file, and what is in it cannot be used, or not yet. The text is a sentence."""


class Busy(Exception):
    """Too many requests wait."""


class _Request(NamedTuple):
    client_id: str
    payload: bytes
    replacements: int
    """How often the state had been replaced from elsewhere when the sender was let in."""
    source: Source | None = None
    """The client; None: a caller, who was let in for its request."""
    answer: asyncio.Future[list[Json]] | None = None
    """Receives the responses instead of a client."""


class ControlTopic(SimpleSink):
    """A `Sink`. `save_file` writes the file; tests pass another function."""

    def __init__(
        self,
        path: Path,
        document: SharedDocument,
        rules: DynamicRules,
        passwords: Passwords,
        port: Port,
        save_file: Callable[[Path, bytes], None] = save,
    ) -> None:
        self._path: Final = path
        self._document: Final = document
        self._rules: Final = rules
        self._passwords: Final = passwords
        self._port: Final = port
        self._save: Final = save_file
        self._seen: Version = NO_FILE
        """The version of the file when it was found to be what is in force."""
        self._known: State = rules.state
        self._replacements: int = 0
        """How often somebody else has replaced the state: an edit of the file, or another node."""
        self._requests: Final[deque[_Request]] = deque()
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ the sink

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        if len(self._requests) >= MAX_WAITING:
            return [planned_sink(TITLE, DROPPED, QUEUE_FULL)]
        return [planned_sink(TITLE, SENT)]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        if self._put(_Request(source.client_id, message.payload, self._count_replacements(), source)):
            tally.sent += 1
        else:
            tally.drop(QUEUE_FULL)
            tally.code = QUOTA_EXCEEDED

    def _put(self, request: _Request) -> bool:
        if len(self._requests) >= MAX_WAITING:
            return False
        self._requests.append(request)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return True

    async def execute(self, payload: bytes, who: str) -> list[Json]:
        """The responses to commands of a caller that is not a client. Raises `Busy`."""
        answer: asyncio.Future[list[Json]] = asyncio.get_running_loop().create_future()
        if not self._put(_Request(who, payload, self._count_replacements(), None, answer)):
            raise Busy
        return await answer

    async def stop(self) -> None:
        """Stop after the request under way; drop the others."""
        for request in self._requests:
            if request.answer is not None:
                request.answer.cancel()
        self._requests.clear()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    # ------------------------------------------------------------------ requests

    async def _run(self) -> None:
        try:
            while self._requests:
                request = self._requests.popleft()
                try:
                    await self._handle(request)
                except Exception as error:  # a defect in one request must not stop the others
                    if request.answer is not None and not request.answer.done():
                        request.answer.set_exception(error)
                    _log.exception("dynamic security: a request of client %r failed", request.client_id)
        finally:
            self._task = None

    async def _handle(self, request: _Request) -> None:
        async with self._document.lock:
            edited = await self._use_edited()
            refusal = self._refusal(request)
            if refusal:
                _log.info("dynamic security: a request of client %r is refused: %s", request.client_id, refusal)
            change = Change(self._rules.state)
            responses = await self._responses(request, change, refusal)
            if change.changed:
                error = edited or await self._keep(change.state)
                if error:
                    change.kicked.clear()
                    responses = [{"command": each["command"], "error": error} for each in responses]
                else:
                    self._rules.state = self._known = change.state
                    self._port.apply()
        payload = json.dumps({"responses": responses}, ensure_ascii=False, separators=(",", ":")).encode()
        if request.answer is not None:
            if not request.answer.done():  # done: the caller is gone
                request.answer.set_result(responses)
        elif not self._port.respond(request.client_id, RESPONSE_TOPIC, payload):
            _log.debug("client %r does not hear the response to its commands", request.client_id)
        if change.kicked:
            await self._port.kick(frozenset(change.kicked))

    def _refusal(self, request: _Request) -> str:
        """Why a request that waited is not carried out; else empty. Its sender may have lost the right to send it."""
        if self._count_replacements() != request.replacements:
            return f"{self._path.name} was edited and is in force now: send the command again"
        if request.source is not None and not self._port.may_send(request.source):
            return "the right to send commands was taken away while this one waited"
        return ""

    def _count_replacements(self) -> int:
        if self._rules.state is not self._known:
            self._known = self._rules.state
            self._replacements += 1
        return self._replacements

    async def _responses(self, request: _Request, change: Change, refusal: str) -> list[Json]:
        """`refusal` is why no command is carried out; empty if they are."""
        if len(request.payload) > MAX_REQUEST_BYTES:
            return [_failure("Unknown command", f"Payload too large: {MAX_REQUEST_BYTES} bytes at most", None)]
        try:
            tree = json.loads(request.payload.decode(), object_pairs_hook=small_keys)
        except (ValueError, RecursionError):
            return [_failure("Unknown command", "Payload not valid JSON", None)]
        items = tree.get("commands") if isinstance(tree, dict) else None
        if not isinstance(items, list):
            return [_failure("Unknown command", "Invalid/missing commands", None)]
        if len(items) > MAX_COMMANDS:
            return [_failure("Unknown command", f"Too many commands: {MAX_COMMANDS} at most", None)]
        return [await self._response(item, request.client_id, change, refusal) for item in items]

    async def _response(self, item: Any, client_id: str, change: Change, refusal: str) -> Json:
        if not isinstance(item, dict):
            return _failure("Unknown command", "Command not an object", None)
        command = item.get("command")
        if not isinstance(command, str) or not is_text(command):
            return _failure("Unknown command", "Missing command", None)
        correlation = item.get("correlationdata")
        if correlation is not None and (not isinstance(correlation, str) or not is_text(correlation)):
            return _failure(command, "Invalid correlationData data type.", None)
        name = NAME_OF.get(command.lower())
        if name is None:
            return _failure(command, "Unknown command", correlation)
        if refusal:
            return _failure(name, refusal, correlation)
        try:
            password = await self._password(item) if name in SETS_PASSWORD else None
            if name in WRITERS and change.state is self._rules.state:
                change.state = await asyncio.to_thread(change.state.copy)
            data = execute(Command(change.state, item, change, password, self._port.connections), name)
        except CommandError as error:
            _log_command(logging.INFO, client_id, name, item, f" failed: {error}")
            return _failure(name, str(error), correlation)
        _log_command(logging.DEBUG if data is not None else logging.INFO, client_id, name, item, "")
        response: Json = {"command": name}
        if data is not None:
            response["data"] = data
        if correlation is not None:
            response["correlationData"] = correlation
        return response

    async def _password(self, item: Json) -> PasswordHash | None:
        """The hash of the password in a command; None without a valid one."""
        given = item.get("password")
        if not isinstance(given, str) or not given or not is_text(given, MAX_PASSWORD_BYTES):
            return None
        return await self._passwords.make(given)

    async def _use_edited(self) -> str:
        """Use what somebody has written into the file: commands change that. Return why it cannot be used; empty if it
        is in force."""
        seen = version_of(self._path)
        if seen in (NO_FILE, self._seen):
            return ""
        try:
            content = await asyncio.to_thread(self._path.read_bytes)
            if await asyncio.to_thread(parse, content) != self._rules.state:
                assert self._document.reload is not None, "its owner has set it"
                await self._document.reload(content)
                _log.info("%s was edited: what is in it is in force", self._path)
        except (DynamicSecurityError, OSError, ValueError) as error:
            _log.error("%s was edited and cannot be used, so no command changes it: %s", self._path, error)
            return f"{self._path.name} was edited and cannot be used: mend it first"
        self._seen = seen
        return ""

    async def _keep(self, state: State) -> str:
        """Have a changed state agreed, and save it. Return the error for the client if that fails."""
        content = await asyncio.to_thread(dump, state)
        try:
            await self._document.agree(content)
            await asyncio.to_thread(self._save_unedited, content)
        except OSError as error:
            _log.error("%s cannot be written, the change is not made: %s", self._path, error.strerror or error)
            return "Internal error"
        except NotAgreed as error:
            _log.warning("dynamic security: the change is not made: %s", error)
            return str(error)
        except _Edited as error:
            _log.warning("dynamic security: the change is not made: %s", error)
            return str(error)
        return ""

    def _save_unedited(self, content: bytes) -> None:
        """In a thread. Raises `OSError`, and `_Edited`."""
        if version_of(self._path) not in (NO_FILE, self._seen):
            raise _Edited(f"{self._path.name} was edited at the same time: try again")
        self._save(self._path, content)
        self._seen = version_of(self._path)


def _failure(command: str, error: str, correlation: str | None) -> Json:
    response: Json = {"command": command, "error": error}
    if correlation is not None:
        response["correlationData"] = correlation
    return response


def _log_command(level: int, client_id: str, name: str, item: Json, outcome: str) -> None:
    """Log a command with its client and its subject, never a password."""
    about = {key: item[key] for key in ("username", "groupname", "rolename", "acltype", "topic") if key in item}
    said = "".join(f" {key}={value!r:.200}" for key, value in about.items())
    _log.log(level, "dynamic security: client %r: %s%s%s", client_id, name, said, outcome)
