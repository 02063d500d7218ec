"""The filters in use, one for each expression: subscriptions that say the same share one."""

from typing import Final, final
from weakref import WeakValueDictionary

from mqttlite.delivery.filters.errors import FilterError
from mqttlite.delivery.filters.filter import Filter


@final
class Filters:
    """Fulfils the core's port for filters."""

    def __init__(self) -> None:
        self._in_use: Final[WeakValueDictionary[tuple[str, bytes], Filter]] = WeakValueDictionary()

    def prepare(self) -> None:
        """Make the parser, which takes about a tenth of a second, now, in this thread; else the first filter waits."""
        Filter("qos = 0 AND NOT (attributes:a OR payload[0].a = '1')")

    def compile(self, expression: str, mount_point: bytes = b"") -> Filter | str:
        """The filter of an expression for a client below a mount point, or what is wrong with it."""
        key = expression, mount_point
        found = self._in_use.get(key)
        if found is not None:
            return found
        try:
            made = self._in_use[key] = Filter(expression, mount_point)
        except FilterError as error:
            return f"filter: {error}"
        return made
