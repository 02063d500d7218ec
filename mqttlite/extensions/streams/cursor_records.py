"""The records of readers and groups in the store, and the end of groups that nobody reads.

Invariant: a group has a record as long as it exists, and, unless it is shared, a deadline while it has no
subscription.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from mqttlite.core.deadlines import Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import RemoveRecord, SaveRecord
from mqttlite.extensions.streams.group import Group
from mqttlite.extensions.streams.group_expiry import GroupExpiry
from mqttlite.extensions.streams.limits import GROUP_EXPIRY_S
from mqttlite.extensions.streams.reader import Reader
from mqttlite.extensions.streams.records import CURSOR, PART, SavedCursor
from mqttlite.extensions.streams.shared_group import SharedGroup, SharedMember

Owner = Reader | SharedMember | Group | SharedGroup

_log = logging.getLogger("mqttlite.store")


class CursorRecords:
    """`now_us` returns the time in microseconds of Unix time, and `delete_group` deletes one by the names of its stream
    and its own."""

    def __init__(
        self,
        effects: Effects,
        deadlines: Deadlines,
        now_us: Callable[[], int],
        delete_group: Callable[[str, str], None],
    ) -> None:
        self._effects: Final = effects
        self._deadlines: Final = deadlines
        self._now_us: Final = now_us
        self._delete_group: Final = delete_group
        self._cursors: Final[dict[Owner, str]] = {}
        """The names of the records of readers and groups in the store."""
        self._parts: Final[dict[SharedGroup, set[str]]] = {}
        """The names of their further records, one for each partition that is not as it was."""
        self._next_cursor = 0
        self._expiries: Final[dict[Group, GroupExpiry]] = {}
        """Of the groups without subscriptions."""

    def restore(self, owner: Owner, record: str, parts: Iterable[str] = ()) -> None:
        """A record of the store belongs to a reader or group, with its parts."""
        self._cursors[owner] = record
        if isinstance(owner, SharedGroup):
            self._parts[owner] = set(parts)

    def restore_name(self, record: str) -> None:
        """There was a record of that name, which no other gets."""
        self._next_cursor = max(self._next_cursor, int(record.removeprefix(CURSOR)) + 1)

    def remove(self, owner: Owner) -> None:
        """A reader or group has ended; harmless for one without a record."""
        record = self._cursors.pop(owner, None)
        if record is None:
            return
        self._effects.record(RemoveRecord(record))
        if isinstance(owner, SharedGroup):
            for part in self._parts.pop(owner, ()):
                self._effects.record(RemoveRecord(_part_of(record, part)))

    def expire_later(self, group: Group, idle_since_us: int) -> None:
        """The group has no subscription since then."""
        group.idle_since_us = idle_since_us
        left_s = GROUP_EXPIRY_S - (self._now_us() - idle_since_us) / 1e6
        expiry = self._expiries[group] = GroupExpiry(group, self._expire)
        self._deadlines.arm(expiry, self._effects.now + max(0.0, left_s))

    def keep(self, group: Group) -> None:
        """The group has a subscription, or is deleted."""
        group.idle_since_us = 0
        expiry = self._expiries.pop(group, None)
        if expiry is not None:
            self._deadlines.cancel(expiry)

    def _expire(self, group: Group) -> None:
        del self._expiries[group]
        days = GROUP_EXPIRY_S / 86_400
        _log.info(
            "the group %s of the stream %s was not used for %d days and is deleted", group.name, group.stream, days
        )
        self._delete_group(group.stream, group.name)

    def save(self, reader: Reader | SharedMember) -> None:
        """Record where a reader is, if its session is kept, and where its group is."""
        group = reader.group
        if isinstance(group, Group):
            self.save_group(group)
        if not reader.session.durable or (group is not None and reader in self._cursors):
            return
        self._save_cursor(
            reader,
            SavedCursor(
                stream=reader.stream.name,
                positions=[] if group is not None else list(reader.cursor.positions),
                client_id=reader.session.client_id,
                subscription=reader.subscription.topic_filter.decode(),
                filter=reader.expression,
                since=reader.since,
                tells_end=reader.tells_end,
            ),
        )

    def save_group(self, group: Group | SharedGroup) -> None:
        """Record where a group is, and of a shared one what it is."""
        positions = list(group.cursor.positions)
        shared = group if isinstance(group, SharedGroup) else None
        self._save_cursor(
            group,
            SavedCursor(
                stream=group.stream,
                positions=positions,
                group=group.name,
                subscription=group.filters[0],
                filter=group.filters[1],
                since=group.since,
                idle_since_us=group.idle_since_us,
                shared=None if shared is None else shared.settings,
                has_begun=shared is not None and shared.has_begun,
                mount_point="" if shared is None else shared.mount_point,
            ),
        )

    def save_part(self, group: SharedGroup, part: str, data: bytes) -> None:
        """Record a part of a shared group."""
        self._parts.setdefault(group, set()).add(part)
        self._effects.record(SaveRecord(_part_of(self._cursors[group], part), data))

    def _save_cursor(self, owner: Owner, saved: SavedCursor) -> None:
        record = self._cursors.get(owner)
        if record is None:
            record = self._cursors[owner] = f"{CURSOR}{self._next_cursor}"
            self._next_cursor += 1
        self._effects.record(SaveRecord(record, msgspec.json.encode(saved)))


def _part_of(record: str, part: str) -> str:
    """The name of a part of a shared group, by the name of the group's record."""
    return f"{PART}{record.removeprefix(CURSOR)}/{part}"
