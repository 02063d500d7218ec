"""Deletes a group that was not used for long, so that groups of programs that are gone do not add up."""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.deadlines import Deadline
from mqttlite.extensions.streams.group import Group


@final
class GroupExpiry(Deadline):
    """Armed while a group has no subscription. `expire` deletes the group."""

    __slots__ = ("_expire", "_group")

    def __init__(self, group: Group, expire: Callable[[Group], None]) -> None:
        super().__init__()
        self._group: Final = group
        self._expire: Final = expire

    def on_due(self) -> None:
        self._expire(self._group)
