"""The filter language: selects messages by their properties, payload and topic.

The broker, the client and the commands share this package, which depends only on `wire`. An expression is parsed to
nodes (`grammar`, `nodes`) and compiled to a closure (`conditions`) once. Invariant: a filter never raises, whatever the
message contains.
"""

from mqttlite.filters.compiler import Filters
from mqttlite.filters.errors import FilterError
from mqttlite.filters.filter import Evaluated, Filter
from mqttlite.filters.message import Fields, Filterable

__all__ = ["Evaluated", "Fields", "Filter", "FilterError", "Filterable", "Filters"]
