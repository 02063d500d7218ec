"""The options of a route."""

from typing import Final

import msgspec

from mqttlite.extensions.namespaces import check_plain_filter
from mqttlite.extensions.routes.template import Template
from mqttlite.filters import Filter, FilterError

MAX_ROUTES: Final = 1_000
"""Of one broker: each is asked once for each new topic."""

MAX_NAME: Final = 128
"""Names appear in metrics and log lines."""

MAX_FILTERS: Final = 100
"""Topic filters of one route."""


class RouteOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One route."""

    name: str
    """The name, in metrics and the log."""
    filters: tuple[str, ...]
    """The topic filters of its messages."""
    where: str = ""
    """A filter on the content of the messages. Empty: all of them."""
    to: str
    """The topic to which it sends them, with fields in braces: `"regions/{payload.region}/{topic[1]}"`."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise ValueError(f"name is {self.name[:MAX_NAME]!r}: 1 to {MAX_NAME} printable characters")
        if not 1 <= len(self.filters) <= MAX_FILTERS:
            raise ValueError(f"filters has {len(self.filters)} filters: 1 to {MAX_FILTERS}")
        for each in self.filters:
            check_plain_filter(each, "routes take messages of plain topics")
        if self.where:
            try:
                Filter(self.where)
            except FilterError as error:
                raise ValueError(f"where: {error}") from None
        try:
            Template(self.to)
        except ValueError as error:
            raise ValueError(f"to: {error}") from None
