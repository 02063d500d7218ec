"""The filters in use, one for each expression. Subscriptions with equal expressions share one."""

from typing import Final, final
from weakref import WeakValueDictionary

from mqttlite.filters.errors import FilterError
from mqttlite.filters.filter import Filter


@final
class Filters:
    """Implements the core's port `FilterCompiler`."""

    def __init__(self) -> None:
        self._in_use: Final[WeakValueDictionary[tuple[str, bytes], Filter]] = WeakValueDictionary()

    def prepare(self) -> None:
        """Create the parser now, in this thread, which takes about a tenth of a second. Otherwise the first filter
        waits for it."""
        Filter("qos = 0 AND NOT (attributes:a OR payload[0].a = '1')")

    def compile(self, expression: str, mount_point: bytes = b"") -> Filter | str:
        """The filter of an expression for a client below a mount point, or a sentence with the error."""
        key = expression, mount_point
        found = self._in_use.get(key)
        if found is not None:
            return found
        try:
            made = self._in_use[key] = Filter(expression, mount_point)
        except FilterError as error:
            return f"filter: {error}"
        return made
