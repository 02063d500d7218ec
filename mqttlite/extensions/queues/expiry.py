"""A deadline with a callback, for modules that are not compiled: they cannot inherit from `Deadline`, which is."""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.deadlines import Deadline


@final
class Expiry(Deadline):
    """Calls `on_expiry` when it is due."""

    __slots__ = ("_on_expiry",)

    def __init__(self, on_expiry: Callable[[], object]) -> None:
        super().__init__()
        self._on_expiry: Final = on_expiry

    def on_due(self) -> None:
        self._on_expiry()
