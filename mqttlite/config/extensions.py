"""How a configuration names an extension."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

_USE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionOptions:
    """One extension. Raises `ValueError` for a wrong name."""

    use: str
    """The module and the object in it, as in `shop.hooks:hooks`. The module is looked for as Python does, and then in
    the folder in which the broker was started."""
    options: dict[str, Any] = field(default_factory=dict)
    """For a class or function, which makes the extension: its arguments."""

    def __post_init__(self) -> None:
        if not _USE.fullmatch(self.use):
            raise ValueError(f"use is {self.use!r}: a module and an object in it, as in shop.hooks:hooks")
