"""The filter language: which messages a subscription gets, by their properties, payload and topic.

The broker, the client and the commands share this package; it knows nothing of them but the wire's values. An
expression becomes nodes (`grammar`, `nodes`), and these a closure (`conditions`), once. Invariant: a filter never
raises, whatever the message holds.
"""

from mqttlite.delivery.filters.compiler import Filters
from mqttlite.delivery.filters.errors import FilterError
from mqttlite.delivery.filters.filter import Evaluated, Filter
from mqttlite.delivery.filters.message import Fields, Filterable

__all__ = ["Evaluated", "Fields", "Filter", "FilterError", "Filterable", "Filters"]
