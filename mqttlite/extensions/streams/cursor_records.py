"""The records of readers and groups in the store, and the end of groups that nobody reads.

Invariant: a group has a record as long as it exists, and a deadline while it has no subscription.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from mqttlite.core.deadlines import Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import RemoveRecord, SaveRecord
from mqttlite.extensions.streams.group import Group
from mqttlite.extensions.streams.group_expiry import GroupExpiry
from mqttlite.extensions.streams.limits import GROUP_EXPIRY_S
from mqttlite.extensions.streams.reader import Reader
from mqttlite.extensions.streams.records import CURSOR, SavedCursor

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
        self._cursors: Final[dict[Reader | Group, str]] = {}
        """The names of the records of readers and groups in the store."""
        self._next_cursor = 0
        self._expiries: Final[dict[Group, GroupExpiry]] = {}
        """Of the groups without subscriptions."""

    def restore(self, owner: Reader | Group, record: str) -> None:
        """A record of the store belongs to a reader or group."""
        self._cursors[owner] = record

    def restore_name(self, record: str) -> None:
        """There was a record of that name, which no other gets."""
        self._next_cursor = max(self._next_cursor, int(record.removeprefix(CURSOR)) + 1)

    def remove(self, owner: Reader | Group) -> None:
        """A reader or group has ended; harmless for one without a record."""
        record = self._cursors.pop(owner, None)
        if record is not None:
            self._effects.record(RemoveRecord(record))

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
            "the group %s of the stream %s had no member for %d days and is deleted", group.name, group.stream, days
        )
        self._delete_group(group.stream, group.name)

    def save(self, reader: Reader) -> None:
        """Record where a reader is, if its session is kept, and where its group is."""
        group = reader.group
        if group is not None:
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

    def save_group(self, group: Group) -> None:
        """Record where a group is."""
        positions = list(group.cursor.positions)
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
            ),
        )

    def _save_cursor(self, owner: Reader | Group, saved: SavedCursor) -> None:
        record = self._cursors.get(owner)
        if record is None:
            record = self._cursors[owner] = f"{CURSOR}{self._next_cursor}"
            self._next_cursor += 1
        self._effects.record(SaveRecord(record, msgspec.json.encode(saved)))
