"""The types of the messages of a queue that are under way."""

from mqttlite.core.message import Message
from mqttlite.log import deliveries

Entry = deliveries.Entry[Message]
Deliveries = deliveries.Deliveries[Message]
"""For annotations. A call of these aliases would be slow; what makes one calls the class."""
