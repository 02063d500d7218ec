"""The HTTP API of queues: list, create, show, purge, pause, seek and delete them; snapshots; dead letters.

The admin socket and the gateway serve it and check permissions; `QueuesApi` takes a parsed request. Invariant: a change
is answered after its commit, and a failed request changes nothing.
"""

import asyncio
import codecs
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from mqttlite.core.message import Message
from mqttlite.core.outbound.told_properties import time_text
from mqttlite.extensions.queues.dead_letters import DeadLetter
from mqttlite.extensions.queues.errors import (
    NoSuchQueue,
    PushRefused,
    QueueExists,
    QueueStays,
    SeekUnderWay,
    TooManyQueues,
)
from mqttlite.extensions.queues.limits import MAX_PULLED
from mqttlite.extensions.queues.options import QueueOptions, check_queue_name
from mqttlite.extensions.queues.records import Definition
from mqttlite.extensions.queues.seek_requests import Seeks, SeekTimedOut, parse_time, time_text_of
from mqttlite.extensions.queues.service import Queues
from mqttlite.extensions.queues.snapshots import NoSuchSnapshot, Snapshot, SnapshotExists, SnapshotRefused
from mqttlite.filters import Filter, FilterError

MAX_PAGE: Final = 1_000
"""The most entries in one answer."""

MAX_PREVIEW_BYTES: Final = 1_048_576
"""The most bytes of payloads in one answer."""

REPLAY_SLICE: Final = 20
"""Dead letters replayed or dropped in one loop iteration."""

LOOK_BYTES: Final = 500_000
"""Bytes of dead letters that a filter reads in one loop iteration: some milliseconds."""

LETTER_BYTES: Final = 500
"""What a dead letter counts there in addition to its payload."""

MAX_LOGGED: Final = 500
"""Characters of a path that the log shows."""

MAX_CHANGED: Final = 10_000
"""Dead letters that one request replays or drops: as many as a queue can have."""

_log = logging.getLogger("mqttlite.admin")

Json = Any


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and the body as JSON."""

    status: int
    body: bytes


class Refused(Exception):
    """A failed request: a status, and a sentence with the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status: Final = status

    def answer(self) -> Answer:
        """What those get who asked."""
        return Answer(self.status, msgspec.json.encode({"error": str(self)}))


class QueuesApi:
    """`commit` carries out changes and waits until they are committed. `push_state` returns the state of a queue's push
    as a dataclass; None for a queue without push."""

    def __init__(
        self,
        queues: Queues,
        seeks: Seeks,
        commit: Callable[[], Awaitable[None]],
        push_state: Callable[[str], Any] = lambda name: None,
    ) -> None:
        self._queues: Final = queues
        self._seeks: Final = seeks
        self._commit: Final = commit
        self._push_state: Final = push_state

    async def answer(
        self,
        method: str,
        segments: Sequence[str],
        query: Mapping[str, str],
        body: bytes,
        who: str,
        mount_point: bytes = b"",
    ) -> Answer:
        """Answer a request for `/queues…` or `/dead-letters…`. `who` is for the log."""
        try:
            found = await self.ask(method, segments, query, body, mount_point)
        except Refused as error:
            return error.answer()
        if method not in ("GET", "HEAD"):
            _log.info("%s: %s /%s %s", who, method, "/".join(segments)[:MAX_LOGGED], dict(query) or "")
        return Answer(200, msgspec.json.encode(found))

    async def ask(
        self,
        method: str,
        segments: Sequence[str],
        query: Mapping[str, str],
        body: bytes = b"",
        mount_point: bytes = b"",
    ) -> Json:
        """What is asked, as values that become JSON. The filter expression of a queue that is made is about topics as
        they are called below the mount point. Raises `Refused`."""
        try:
            return await self._ask(method, tuple(segments), query, body, mount_point)
        except (NoSuchQueue, NoSuchSnapshot) as error:
            raise Refused(404, _sentence(str(error))) from None
        except (QueueExists, QueueStays, TooManyQueues, SnapshotExists, SnapshotRefused, SeekUnderWay) as error:
            raise Refused(409, _sentence(str(error))) from None
        except SeekTimedOut as error:
            raise Refused(503, _sentence(str(error))) from None

    async def _ask(
        self, method: str, segments: tuple[str, ...], query: Mapping[str, str], body: bytes, mount_point: bytes
    ) -> Json:
        queues = self._queues
        match "GET" if method == "HEAD" else method, segments:
            case "GET", ("queues",):
                names, cursor = self._page(query)
                return {"entries": [asdict(queues.state(name)) for name in names], "cursor": cursor}
            case "POST", ("queues",):
                return await self._done(options_of(body), partial(queues.create, mount_point=mount_point))
            case "GET", ("queues", name):
                return self._details(name)
            case "PUT", ("queues", name):
                return await self._done(options_of(body, name), queues.change)
            case "PUT", ("queues", name, "arrival"):
                return await self._arrive(name, body)
            case "DELETE", ("queues", name):
                queues.delete(name)
                await self._commit()
                return {"deleted": True}
            case "GET", ("queues", name, "messages"):
                return {"messages": _previews(queues.peek(name, _limit(query, 10))), "depth": queues.state(name).depth}
            case "DELETE", ("queues", name, "messages"):
                depth = queues.state(name).depth
                if query.get("dry_run") not in ("true", ""):
                    depth = queues.purge(name)
                    await self._commit()
                return {"messages": depth}
            case "POST", ("queues", name, "pause" | "resume" as action):
                queues.pause(name, action == "pause")
                await self._commit()
                return self._details(name)
            case "POST", ("queues", name, "push-secret"):
                if queues.options(name).push is None:
                    raise Refused(409, f"The queue {name} has no push target.")
                secret = queues.rotate_push_secret(name)
                await self._commit()
                return {"secret": secret}
            case "POST", ("queues", name, "seek"):
                await self._seek(name, body)
                return self._details(name)
            case "GET", ("queues", name, "snapshots"):
                queues.options(name)
                return {"entries": [_snapshot(each) for each in queues.snapshots.of(name)]}
            case "POST", ("queues", name, "snapshots", snapshot):
                try:
                    check_queue_name(snapshot)
                except ValueError as error:
                    raise Refused(422, _sentence(str(error))) from None
                made = queues.snapshots.create(snapshot, name)
                await self._commit()
                return _snapshot(made)
            case "GET", ("snapshots",):
                return {"entries": [_snapshot(each) for each in queues.snapshots.of()]}
            case "DELETE", ("snapshots", snapshot):
                queues.snapshots.delete(snapshot)
                await self._commit()
                return {"deleted": True}
            case "GET", ("dead-letters",):
                names, cursor = self._page(query)
                return {"entries": [_counts(queues.state(name)) for name in names], "cursor": cursor}
            case "GET", ("dead-letters", name):
                return await self._letters(name, query)
            case "GET", ("dead-letters", name, number):
                return _whole(self._letter(name, number))
            case "POST", ("dead-letters", name, "replay"):
                return await self._change(name, query, queues.replay)
            case "DELETE", ("dead-letters", name):
                return await self._change(name, query, queues.drop_dead_letter)
        raise Refused(404, f"There is no {method} /{'/'.join(segments)} of queues or dead letters.")

    def _page(self, query: Mapping[str, str]) -> tuple[list[str], str]:
        """The names of one page, and the first name of the next page, empty on the last one."""
        limit = _limit(query, MAX_PAGE)
        names = sorted(self._queues.names)
        first = bisect_left(names, query.get("cursor", ""))
        following = names[first + limit : first + limit + 1]
        return names[first : first + limit], following[0] if following else ""

    async def _done(self, options: QueueOptions, do: Callable[[QueueOptions], None]) -> Json:
        """Create or change a queue. A new secret is returned only this once."""
        had = options.push.secret if options.push is not None else ""
        before = self._secret(options.name)
        try:
            do(options)
        except PushRefused as error:
            raise Refused(422, _sentence(str(error))) from None
        await self._commit()
        found = self._details(options.name)
        secret = self._secret(options.name)
        if secret not in (had, before):
            found["push_secret"] = secret
        return found

    async def _arrive(self, name: str, body: bytes) -> Json:
        """Take a queue over from another node."""
        definition = decode_body(body, Definition, "the definition of a queue")
        if definition.options.name != name:
            raise Refused(422, f"The name in the body is {definition.options.name!r}, and in the path {name!r}.")
        try:
            self._queues.arrive(definition)
        except PushRefused as error:
            raise Refused(422, _sentence(str(error))) from None
        await self._commit()
        return self._details(name)

    def _secret(self, name: str) -> str:
        if name not in self._queues:
            return ""
        target = self._queues.options(name).push
        return "" if target is None else target.secret

    async def _seek(self, name: str, body: bytes) -> None:
        to = decode_body(body, _SeekTo, "where to seek to")
        try:
            if bool(to.time) == bool(to.snapshot):
                raise ValueError("it has either a time or a snapshot")
            number = parse_time(to.time) if to.time else 0
        except ValueError as error:
            raise Refused(422, f"The body is not where to seek to: {error}.") from None
        if to.snapshot:
            await self._seeks.to_snapshot(name, to.snapshot)
        else:
            await self._seeks.to_time(name, number)

    def _details(self, name: str) -> Json:
        options = msgspec.to_builtins(self._queues.options(name))
        if options["push"] is not None:
            del options["push"]["secret"], options["push"]["previous_secret"]
        push = self._push_state(name)
        found = {**asdict(self._queues.state(name)), "options": options}
        return found if push is None else {**found, "push": asdict(push)}

    def _letter(self, name: str, number: str) -> DeadLetter:
        found = self._queues.dead_letters(name).get(_number("The number of a dead letter", number))
        if found is None:
            raise Refused(404, f"The queue {name} has no dead letter {number}.")
        return found

    async def _letters(self, name: str, query: Mapping[str, str]) -> Json:
        limit = _limit(query, 100)
        cursor = query.get("cursor", "")
        first = _number("cursor", cursor) if cursor else 0
        letters = await self._found(name, query, first, limit + 1)
        following = letters[limit].number if len(letters) > limit else ""
        return {"entries": [_row(each) for each in letters[:limit]], "cursor": str(following)}

    async def _found(self, name: str, query: Mapping[str, str], first: int, most: int) -> list[DeadLetter]:
        """Up to `most` dead letters from `first` on that pass the filter, if any. Gives other work its turn meanwhile.
        Raises `Refused` and `NoSuchQueue`."""
        wanted = _wanted(query)
        found: list[DeadLetter] = []
        looked_at_bytes = 0
        for letter in self._queues.dead_letters(name).letters(first):
            if wanted is None or wanted.matches(letter.as_published()):
                found.append(letter)
                if len(found) == most:
                    break
            looked_at_bytes += LETTER_BYTES + len(letter.message.payload)
            if looked_at_bytes >= LOOK_BYTES:
                looked_at_bytes = 0
                await asyncio.sleep(0)
        return found

    async def _change(self, name: str, query: Mapping[str, str], change: Callable[[str, int], bool]) -> Json:
        """Replay or drop the dead letters selected by a query: one by number, or those that match."""
        if number := query.get("number"):
            numbers = [self._letter(name, number).number]
        else:
            numbers = [each.number for each in await self._found(name, query, 0, MAX_CHANGED)]
        rate = float(_number("rate", query.get("rate", "0")))
        if query.get("dry_run") in ("true", ""):
            return {"messages": len(numbers)}
        changed = 0
        for at, each in enumerate(numbers, 1):
            changed += change(name, each)
            if rate:
                await self._commit()
                await asyncio.sleep(1 / rate)
            elif at % REPLAY_SLICE == 0:
                await self._commit()
        await self._commit()
        return {"messages": changed}


class _SeekTo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    time: str = ""
    snapshot: str = ""


def _snapshot(snapshot: Snapshot) -> dict[str, object]:
    return {
        "name": snapshot.name,
        "queue": snapshot.queue,
        "messages": snapshot.messages,
        "created_at": time_text_of(snapshot.created_at),
        "expires_at": time_text_of(snapshot.expires_at),
    }


def decode_body(body: bytes, kind: type[T], what: str) -> T:
    """The content of a body in JSON. Raises `Refused`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(422, f"The body is not {what}: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"The body is no JSON: {error}.") from None


def options_of(body: bytes, name: str = "") -> QueueOptions:
    """The queue that a body describes. It has that name, if one is given, and need not repeat it. Raises `Refused`."""
    try:
        given = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"The body is no JSON: {error}.") from None
    try:
        if name and isinstance(given, dict):
            given.setdefault("name", name)
        options = msgspec.convert(given, QueueOptions)
    except ValueError as error:
        raise Refused(422, f"The body is not what a queue has: {error}.") from None
    if name and options.name != name:
        raise Refused(422, f"The name in the body is {options.name!r}, and in the path {name!r}.")
    return options


def _wanted(query: Mapping[str, str]) -> Filter | None:
    """The compiled filter of a query; None for all. Raises `Refused`."""
    expression = query.get("filter", "")
    try:
        return Filter(expression) if expression else None
    except FilterError as error:
        raise Refused(422, f"filter: {error}.") from None


def _row(letter: DeadLetter) -> dict[str, object]:
    return {
        "number": letter.number,
        "message_id": letter.value("message-id"),
        "topic": letter.value("original-topic"),
        "cause": letter.value("dead-letter-cause"),
        "attempts": int(letter.value("delivery-attempts")),
        "first_delivery_time": letter.value("first-delivery-time") or None,
        "last_delivery_time": letter.value("last-delivery-time") or None,
        "payload_bytes": len(letter.message.payload),
    }


def _whole(letter: DeadLetter) -> dict[str, object]:
    payload, encoding = _text(letter.message.payload, len(letter.message.payload))
    return {
        **_row(letter),
        "payload": payload,
        "payload_encoding": encoding,
        "user_properties": letter.message.properties.user_properties,
    }


def _previews(messages: list[Message]) -> list[dict[str, object]]:
    room = MAX_PREVIEW_BYTES
    found: list[dict[str, object]] = []
    for message in messages:
        if room <= 0:
            break
        payload, encoding = _text(message.payload[:room], len(message.payload))
        room -= len(message.payload)
        found.append(
            {
                "message_id": str(message.number),
                "published_at": time_text(message.number),
                "topic": message.topic.decode(),
                "payload_bytes": len(message.payload),
                "payload": payload,
                "payload_encoding": encoding,
                "user_properties": message.properties.user_properties,
            }
        )
    return found


def _text(payload: bytes, whole_bytes: int) -> tuple[str | bytes, str]:
    """A payload as text, or as bytes (base64 in JSON) if it is not UTF-8."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(payload, final=len(payload) == whole_bytes)
    except UnicodeDecodeError:
        return payload, "base64"
    return text, "utf-8"


def _counts(state: Any) -> dict[str, object]:
    return {"name": state.name, "dead_letters": state.dead_letters, "dead_letters_total": state.dead_letters_total}


def _limit(query: Mapping[str, str], default: int) -> int:
    limit = _number("limit", query.get("limit", str(default)))
    if not 1 <= limit <= MAX_PAGE:
        raise Refused(422, f"limit is {limit}: it is a number from 1 to {MAX_PAGE}.")
    return min(limit, MAX_PULLED)


def _number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise Refused(422, f"{what} is {text[:18]!r}: it is a number.")
    return int(text)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
