"""A group of readers that share the partitions of a stream, and have one position in each.

A partition that moves is drained: its reader gets no new messages of it, and the next one begins when all that was sent
is acknowledged, when that reader is gone, or after `DRAIN_S`. Invariants: a partition has one reader at most; what is
not acknowledged is sent again, to the next one; acknowledgements of an earlier reader change nothing.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.extensions.streams.assignor import assigned
from mqttlite.extensions.streams.limits import DRAIN_S
from mqttlite.log.cursor import Cursor


class Member(Protocol):
    """A reader of the group."""

    def take(self, partition: int) -> None:
        """Read a partition from now on."""
        ...

    def leave(self, partition: int) -> None:
        """Read it no longer."""
        ...


@final
class Group:
    """`save` records its positions."""

    def __init__(
        self,
        name: str,
        stream: str,
        filters: tuple[str, str],
        cursor: Cursor,
        since: int,
        effects: Effects,
        deadlines: Deadlines,
        save: Callable[["Group"], None],
    ) -> None:
        self.name: Final = name
        self.stream: Final = stream
        self.filters: Final = filters
        """The topic filter and the message filter of all its members."""
        self.cursor: Final = cursor
        self.since: int = since
        """The lowest number of a message that its readers get."""
        self._effects: Final = effects
        self._deadlines: Final = deadlines
        self._save: Final = save
        self.members: Final[list[Member]] = []
        """Those that are connected."""
        self.owners: list[Member | None] = [None] * len(cursor.places)
        """Who reads each partition."""
        self._wanted: list[Member | None] = [None] * len(cursor.places)
        """Who is to read it."""
        self._latest: list[Member | None] = [None] * len(cursor.places)
        """Who read it last."""
        self._draining: Final[dict[int, float]] = {}
        """The partitions that move, with the times when that began."""
        self._timer: _Drain | None = None
        self.subscriptions: int = 0
        """How many there are, also of clients that are not connected."""
        self.idle_since_us: int = 0
        """Since when there are none, in microseconds of Unix time; 0: there are, or were at the end of the broker."""
        self.moves: int = 0
        """How many partitions got another reader."""

    def join(self, member: Member) -> None:
        """A member connected."""
        self.members.append(member)
        self._assign()

    def leave(self, member: Member) -> None:
        """A member is gone: what it has not acknowledged is sent again."""
        if member not in self.members:
            return
        self.members.remove(member)
        for partition, owner in enumerate(self.owners):
            if owner is member:
                self._free(partition)
        self._assign()

    def on_progress(self, partition: int) -> None:
        """A message of a partition is done."""
        if partition in self._draining and not self.cursor.places[partition].unacknowledged:
            self._move(partition)

    def on_drained(self) -> None:
        """The time may be over in which some partitions that move may be drained."""
        self._timer = None
        begun_before = self._effects.now - DRAIN_S
        for partition in [each for each, begun in self._draining.items() if begun <= begun_before]:
            self._move(partition)
        self._arm()

    def seek(self, positions: dict[int, int]) -> None:
        """Go on from other offsets, by partition; acknowledgements of what was sent before change nothing."""
        for partition, position in positions.items():
            self._free(partition)
            self.cursor.renew(partition, position)
            self._give(partition)
        self._save(self)

    def end(self) -> None:
        """The group, or its stream, is deleted."""
        for partition in range(len(self.owners)):
            self._free(partition)
        self.members.clear()
        if self._timer is not None:
            self._deadlines.cancel(self._timer)

    def _assign(self) -> None:
        places = {id(each): at for at, each in enumerate(self.members)}
        before: list[int] = []
        for owner, wanted in zip(self.owners, self._wanted, strict=True):
            at = -1 if wanted is None else places.get(id(wanted), -1)
            if at < 0 and owner is not None:
                at = places[id(owner)]
            before.append(at)
        found = assigned(before, len(self.members))
        self._wanted = [None if each < 0 else self.members[each] for each in found]
        for partition, owner in enumerate(self.owners):
            wanted = self._wanted[partition]
            if owner is wanted:
                if owner is not None and self._draining.pop(partition, None) is not None:
                    owner.take(partition)  # it stays after all
            elif owner is None:
                self._give(partition)
            else:
                owner.leave(partition)
                if not self.cursor.places[partition].unacknowledged:
                    self._move(partition)
                else:
                    self._draining.setdefault(partition, self._effects.now)
        self._arm()

    def _arm(self) -> None:
        if self._draining and self._timer is None:
            self._timer = _Drain(self)
            self._deadlines.arm(self._timer, min(self._draining.values()) + DRAIN_S)

    def _move(self, partition: int) -> None:
        """Give a partition to the member that is to read it."""
        self._free(partition)
        self._give(partition)

    def _free(self, partition: int) -> None:
        """The partition has no reader."""
        owner = self.owners[partition]
        if owner is not None:
            owner.leave(partition)
            self.owners[partition] = None
            self._draining.pop(partition, None)
            self.cursor.renew(partition)

    def _give(self, partition: int) -> None:
        wanted = self._wanted[partition]
        if wanted is not None:
            if self._latest[partition] is not wanted:
                self.moves += self._latest[partition] is not None
                self._latest[partition] = wanted
            self.owners[partition] = wanted
            wanted.take(partition)


@final
class _Drain(Deadline):
    __slots__ = ("_group",)

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group: Final = group

    def on_due(self) -> None:
        self._group.on_drained()
