"""Errors of operations on queues."""

from mqttlite.core.namespace import RecordError


class NoSuchQueue(LookupError):
    """There is no queue of that name."""


class QueueExists(ValueError):
    """There is a queue of that name."""


class QueueStays(ValueError):
    """The queue cannot go to another node. The text says why, and what to do."""


class SeekUnderWay(ValueError):
    """Another seek of the queue is under way."""


class TooManyQueues(ValueError):
    """`delivery.max_queues` is reached."""


class QueueRecordError(RecordError):
    """The stored record of a queue is unusable. The text says which queue, and what to do."""


class PushRefused(ValueError):
    """A target that is not allowed or not possible. The text says why and what to do."""
