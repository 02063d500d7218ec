"""What is wrong with a request about streams. Each is a sentence for its author."""

from mqttlite.core.namespace import RecordError


class NoSuchStream(LookupError):
    """There is no stream of this name."""


class StreamExists(ValueError):
    """There is a stream of this name already."""


class TooManyStreams(ValueError):
    """The limit on streams or partitions is reached."""


class WrongMode(ValueError):
    """The group exists, and delivers in another way."""


class StreamRecordError(RecordError):
    """The definition of a stream in the store cannot be used. The text says which, and what to do."""
