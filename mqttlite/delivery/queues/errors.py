"""Why something cannot be done with a queue."""


class NoSuchQueue(LookupError):
    """There is no queue of that name."""


class QueueExists(ValueError):
    """There is a queue of that name."""


class SeekUnderWay(ValueError):
    """A queue is sought to one time after the other."""


class TooManyQueues(ValueError):
    """`delivery.max_queues` is reached."""


class QueueRecordError(ValueError):
    """What the store keeps of a queue cannot be used; the text says of which, and what to do."""
