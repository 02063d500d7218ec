"""Bans as a document that all nodes have. A broker alone has the same bans, in memory.

A ban that is made while the other nodes cannot be reached holds here, and at all nodes as soon as they can: whoever is
banned does harm now. It is *alone* until then. Lifting or shortening a ban waits for the other nodes. With a data
directory the bans of several nodes are in a file, too, so that a node that starts alone has them.

Invariants: of the bans of another node, the connections that they end are closed here as well, also when the file
cannot be written; of two bans that were made apart, the one that ends later holds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from mqttlite.files.atomic_file import save
from mqttlite.files.shared_document import ChangedElsewhere, NotAgreed, SharedDocument
from mqttlite.operations.bans import MAX_BANS, Ban, BanKind, Bans

FILE_NAME: Final = "bans.json"
"""In the data directory of one of several nodes."""

_log = logging.getLogger("mqttlite")


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    number: int
    kind: BanKind
    value: str
    since: float
    """In seconds since 1970, as `until`."""
    until: float
    reason: str = ""
    by: str = ""
    is_alone: bool = False


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    bans: list[_Entry]


class SharedBans:
    """Changes `bans`. `wall` makes a time of the broker's seconds, which `now` returns; `enforce` ends the connections
    of a ban and returns how many. `path` is None for a broker alone, and for one without a data directory."""

    def __init__(
        self,
        bans: Bans,
        now: Callable[[], float],
        wall: Callable[[float], datetime],
        enforce: Callable[[Ban], Awaitable[int]],
        path: Path | None,
    ) -> None:
        self._bans: Final = bans
        self._now: Final = now
        self._wall: Final = wall
        self._enforce: Final = enforce
        self._path: Final = path
        self._content = self._load()
        self.document: Final = SharedDocument(
            *("bans", _parse, self._replace),
            path=path,
            lock=asyncio.Lock(),
            read=lambda: self._content,
            merge=self._merge,
        )

    async def add(self, kind: BanKind, value: str, duration_s: float, reason: str, by: str) -> tuple[Ban, int]:
        """Ban somebody; return the ban and how many connections it closed here. Raises as `Bans.add` does,
        `ChangedElsewhere`, and `NotAgreed` for a shorter ban in place of one while the other nodes are away."""
        async with self.document.lock:
            if self.document.agreeing is None:
                ban = self._bans.add(kind, value, duration_s, reason, by)
            else:
                changed = self._bans.copy()
                ban = changed.add(kind, value, duration_s, reason, by)
                content = self._encode(changed)
                try:
                    await self.document.agree(content)
                except ChangedElsewhere:
                    raise
                except NotAgreed as error:
                    if any(each.until > ban.until for each in self._bans.list() if _key(each) == _key(ban)):
                        raise NotAgreed(f"a ban of the {kind} {value} that ends later holds: {error}") from None
                    ban = replace(ban, is_alone=True)
                    changed.put(ban)
                    content = self._encode(changed)
                    _log.warning("the ban of the %s %s holds at this node until NATS answers: %s", kind, value, error)
                await self._use(changed, content)
            return ban, await self._enforce(ban)

    async def lift(self, number: int) -> Ban | None:
        """Lift a ban; None if there is none of this number. Raises `NotAgreed`."""
        async with self.document.lock:
            if self.document.agreeing is None:
                return self._bans.lift(number)
            changed = self._bans.copy()
            ban = changed.lift(number)
            if ban is not None:
                content = self._encode(changed)
                await self.document.agree(content)
                await self._use(changed, content)
            return ban

    async def lift_of(self, kind: BanKind, value: str) -> bool:
        """Lift the ban of a client, a user or an address; whether there was one. Raises `NotAgreed`."""
        number = self._bans.number_of(kind, value)
        return number is not None and await self.lift(number) is not None

    async def _use(self, changed: Bans, content: bytes) -> None:
        """Write and use changed bans. The content is that which was agreed: another call of `_encode` may make other
        bytes, for the clocks go on."""
        self._content = content
        self._bans.become(changed.list())
        await self._write(content)

    async def _replace(self, content: bytes) -> None:
        """Use the bans of all nodes."""
        before = {_key(each) for each in self._bans.list()}
        self._content = content
        self._bans.become(self._decode(content))
        for ban in self._bans.list():
            if _key(ban) not in before:
                await self._enforce(ban)
        await self._write(content)

    def _merge(self, mine: bytes, theirs: bytes) -> bytes:
        """The bans of all nodes, with those that were made here while no other node could be reached. Where no node
        has stored any, those that are here are `theirs`, too."""
        merged = {_key(each): msgspec.structs.replace(each, is_alone=False) for each in _parse(theirs).bans}
        last = max((each.number for each in merged.values()), default=0)
        for entry in _parse(mine).bans:
            key = _key(entry)
            if not entry.is_alone or (key in merged and merged[key].until >= entry.until):
                continue
            if key not in merged and len(merged) >= MAX_BANS:
                _log.error("the ban of the %s %s is lifted: all nodes have %d, which is the limit", *key, MAX_BANS)
                continue
            last += 1
            merged[key] = msgspec.structs.replace(entry, number=last, is_alone=False)
        return msgspec.json.encode(_Document(1, sorted(merged.values(), key=lambda each: each.number)))

    async def _write(self, content: bytes) -> None:
        """Write the file. If that fails, the next change writes it."""
        if self._path is not None:
            try:
                await asyncio.to_thread(save, self._path, content)
            except OSError as error:
                _log.error("%s cannot be written; the bans hold all the same: %s", self._path, error.strerror)

    def _load(self) -> bytes | None:
        """What this node had at the end of its last run."""
        if self._path is None:
            return None
        try:
            content = self._path.read_bytes()
            self._bans.become(self._decode(content))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.error("%s cannot be used, nobody is banned until the other nodes are reached: %s", self._path, error)
            return None
        return content

    def _encode(self, bans: Bans) -> bytes:
        ahead = self._ahead()
        found = [
            _Entry(
                *(each.number, each.kind, each.value, each.since + ahead, each.until + ahead, each.reason, each.by),
                is_alone=each.is_alone,
            )
            for each in bans.list()
        ]
        return msgspec.json.encode(_Document(1, found))

    def _decode(self, content: bytes) -> Iterable[Ban]:
        ahead = self._ahead()
        return [
            Ban(
                *(each.number, each.kind, each.value, each.since - ahead, each.until - ahead, each.reason, each.by),
                is_alone=each.is_alone,
            )
            for each in _parse(content).bans
        ]

    def _ahead(self) -> float:
        """How far the seconds since 1970 are ahead of the broker's."""
        now = self._now()
        return self._wall(now).timestamp() - now


def _key(ban: Ban | _Entry) -> tuple[BanKind, str]:
    """Whom it is about."""
    return ban.kind, ban.value


def _parse(content: bytes) -> _Document:
    """Raises ValueError for what is no document of bans."""
    try:
        found = msgspec.json.decode(content, type=_Document)
    except msgspec.DecodeError as error:
        raise ValueError(f"it has no bans: {error}") from None
    if len(found.bans) > MAX_BANS:
        raise ValueError(f"it has {len(found.bans)} bans: {MAX_BANS} at most")
    return found
