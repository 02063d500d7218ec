"""Filters in the client: the broker's language, asked about messages that have arrived.

`Client.subscribe(where=…)` has the broker ask. This is for servers that know no filters, for MQTT 3.1.1, and for a
program that tells its messages apart. Invariant: the answer is the broker's, as far as a message is still as it was
when it was published.
"""

from typing import Any, Final, final

from mqttlite import filters
from mqttlite.client.message import Message
from mqttlite.wire.properties import Properties

PROPERTY: Final = "filter"
"""The user property of SUBSCRIBE in which the broker looks for a filter."""


@final
class Filter:
    """An expression of docs/reference/filters.md. Raises `FilterError`, which is a `ValueError`.

    `qos` and `retain` are those with which the message arrived.
    """

    def __init__(self, expression: str) -> None:
        self._filter: Final = filters.Filter(expression)
        self.expression: Final = expression

    def __repr__(self) -> str:
        return f"Filter({self.expression!r})"

    def matches(self, message: Message) -> bool:
        """Whether a message passes."""
        return self._filter.matches(_fields(message))

    def explain(self, message: Message) -> filters.Evaluated:
        """Each part of the expression, with its result for a message and what it found there."""
        return self._filter.explain(_fields(message))


def with_filter(properties: Properties, expression: str) -> Properties:
    """The properties of a SUBSCRIBE, and the filter. Raises `FilterError`."""
    filters.Filter(expression)
    fields: dict[str, Any] = dict(properties.present())
    fields["user_properties"] = [*properties.user_properties, (PROPERTY, expression)]
    return Properties(**fields)


def _fields(message: Message) -> filters.Fields:
    return filters.Fields(message.topic.encode(), message.payload, message.qos, message.retain, message.properties)
